"""What the demo model writes."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from antwort.backends.demo.arguments import fill_value
from antwort.backends.demo.conversation import Conversation, Result
from antwort.backends.demo.facts import Facts
from antwort.backends.demo.intent import Call, Plan, takes
from antwort.backends.demo.words import Tool, sentences, shortened, significant, words
from antwort.types import JSON

__all__ = ["DEMO_MODEL", "plain_answer", "structured_answer", "thoughts"]


DEMO_MODEL = "antwort-demo"

_LONGEST_VALUE = 200
_LONGEST_OUTPUT = 600
_MOST_SOURCES = 3
_MOST_SHOWN = 8
_SOURCE = re.compile(r"^\s*\[(\d{1,4})\][ \t]*", re.MULTILINE)
_URL = re.compile(r"\s*(?:[—–-]\s*|\(|<)?https?://[^\s)>\]]+[)>]?\s*")  # noqa: RUF001 — dashes as people write them
_RECALL = re.compile(
    r"\bwhat (?:did|have) i (?:just )?(?:say|said|ask|asked|tell|told|write|written)\b|\brepeat what i\b"
    r"|\bmy (?:last|first|previous|earlier) (?:message|question)s?\b|\bwas habe ich (?:gerade )?(?:gesagt|gefragt)\b",
    re.IGNORECASE,
)
_GREETING = re.compile(r"^\W*(?:hello|hi|hey|hallo|good (?:morning|evening)|guten (?:morgen|tag))\b", re.IGNORECASE)
_THANKS = re.compile(r"^\W*(?:thanks|thank you|danke)\b", re.IGNORECASE)
_EXAMPLES = {"expression": "“What is 12*7?”", "zone": "“What time is it in Tokyo?”", "query": "“Search for …”"}


def plain_answer(conversation: Conversation, plan: Plan, tools: Sequence[Tool]) -> str:
    """Write an answer for a reader."""
    if conversation.results:
        return "\n\n".join(_report(result, conversation.question) for result in conversation.results)
    if _RECALL.search(conversation.question):
        return _recollection(conversation.earlier)
    return _introduction(conversation, plan, tools)


def structured_answer(conversation: Conversation, schema: JSON, answer: str) -> str | None:
    """Write JSON that is valid for a schema, out of the results and the question; None if no value is found."""
    outputs = [_lines(result.output) for result in conversation.results if not result.failed]
    main = answer if conversation.results else conversation.question
    facts = Facts("\n".join([*outputs, conversation.question]), shortened(main, _LONGEST_OUTPUT))
    value = fill_value(schema, facts)
    return None if value is None else json.dumps(value, ensure_ascii=False)


def thoughts(conversation: Conversation, calls: Sequence[Call]) -> str:
    """Write down what led to the turn."""
    asked = f"The user wrote “{shortened(conversation.question, 80)}”. " if conversation.question else ""
    if calls:
        return f"{asked}I call {_listed([call.name for call in calls])} for it."
    if conversation.results:
        count = len(conversation.results)
        return f"{asked}I have {'the result' if count == 1 else f'{count} results'} and answer from there."
    return f"{asked}No offered function fits, so I answer directly."


# --- results ---------------------------------------------------------------------------------------------------------


def _report(result: Result, question: str) -> str:
    if result.failed:
        return f"{result.name} could not do it: {_ended(shortened(_error(result.output), _LONGEST_OUTPUT))}"
    cited = _cited(result.output, question)
    if cited:
        return cited
    output = _readable(result.output)
    if not output:
        return f"{result.name} gave no output."
    if _loaded(result.output) is not None or len(output) > _LONGEST_VALUE or re.search(r"[.!?:](?:\s|$)", output):
        return f"{result.name} answered: {_ended(output)}"
    return f"The result {_subject(result)} is {output}."


def _subject(result: Result) -> str:
    """Say what a result is the result of."""
    arguments = _loaded(result.arguments)
    values = (
        {key: value for key, value in arguments.items() if value is not None} if isinstance(arguments, dict) else {}
    )
    if len(values) == 1:
        return f"for {shortened(_scalar(*values.values()), _LONGEST_VALUE)}"
    given = ", ".join(f"{key} {_scalar(value)}" for key, value in values.items())
    return f"of {result.name}" + (f" ({shortened(given, _LONGEST_VALUE)})" if given else "")


def _readable(output: str) -> str:
    """Write JSON as a list of its values, and any text on one line."""
    value = _loaded(output)
    if isinstance(value, dict):
        return shortened(", ".join(f"{key} {_scalar(part)}" for key, part in value.items()), _LONGEST_OUTPUT)
    if isinstance(value, list):
        return shortened(", ".join(map(_scalar, value)), _LONGEST_OUTPUT)
    return shortened(output, _LONGEST_OUTPUT)


def _lines(output: str) -> str:
    """Write the fields of a JSON object line by line, so that they are found by name."""
    value = _loaded(output)
    return "\n".join(f"{key}: {_scalar(part)}" for key, part in value.items()) if isinstance(value, dict) else output


def _error(output: str) -> str:
    value = _loaded(output)
    cause = value.get("error") if isinstance(value, dict) else None
    if isinstance(cause, dict):
        cause = cause.get("message")
    return cause if isinstance(cause, str) else re.sub(r"^\W*error\W+", "", output, flags=re.IGNORECASE) or output


def _loaded(text: str) -> Any:
    """Read JSON objects and arrays; anything else is text."""
    if not text.lstrip().startswith(("{", "[")):
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _scalar(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


# --- sources ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Passage:
    number: int
    text: str
    relevance: int


def _cited(output: str, question: str) -> str:
    """Write a sentence of each of the sources nearest to the question, with its number; nothing without sources."""
    starts = list(_SOURCE.finditer(output))
    ends = [*(match.start() for match in starts[1:]), len(output)]
    asked = significant(words(question))
    passages: dict[int, _Passage] = {}
    for match, end in zip(starts, ends, strict=False):
        number, block = int(match.group(1)), output[match.end() : end]
        text = _passage(block, asked)
        if text and number not in passages:
            passages[number] = _Passage(number, text, len(asked.intersection(words(block))))
    best = sorted(passages.values(), key=lambda passage: -passage.relevance)[:_MOST_SOURCES]
    best = [passage for passage in best if passage.relevance] or best
    return " ".join(f"{p.text.rstrip(' .!?:;')} [{p.number}]." for p in sorted(best, key=lambda p: p.number))


def _passage(block: str, asked: frozenset[str]) -> str:
    """Return the sentence of a source that shares most words with the question, or its title if it says nothing."""
    title, _, body = _URL.sub("\n", block.strip()).strip().partition("\n")
    best = max(sentences(body) or [title], key=lambda sentence: len(asked.intersection(words(sentence))))
    return shortened(best, _LONGEST_VALUE)


# --- without results -------------------------------------------------------------------------------------------------


def _recollection(earlier: Sequence[str]) -> str:
    if not earlier:
        return "This is your first message in this conversation."
    said = [f"“{shortened(message, _LONGEST_VALUE)}”" for message in earlier[-_MOST_SHOWN:]]
    return f"You said: {_listed(said)}."


def _introduction(conversation: Conversation, plan: Plan, tools: Sequence[Tool]) -> str:
    """Say what the demo model is, what it understood, what it can do, and how to get a real one."""
    question = conversation.question
    greeting = "Hello! " if _GREETING.match(question) else "You are welcome. " if _THANKS.match(question) else ""
    said = [f"{greeting}I am {DEMO_MODEL}, the built-in demo model: a set of rules, not a language model."]
    if question:
        said.append(f"You wrote “{shortened(question, 80)}”.")
    if conversation.attachments:
        said.append("I cannot look at images and files.")
    said += plan.obstacles
    said.append(_abilities(tools))
    said.append("For real answers connect a model: antwort serve --backend URL.")
    return " ".join(said)


def _abilities(tools: Sequence[Tool]) -> str:
    if not tools:
        return "This request offers me no functions, so I can do little more than repeat your words."
    names = [tool.name + (f" ({_purpose(tool)})" if tool.description.strip() else "") for tool in tools[:_MOST_SHOWN]]
    more = f" and {len(tools) - _MOST_SHOWN} more" if len(tools) > _MOST_SHOWN else ""
    examples = [example for role, example in _EXAMPLES.items() if any(takes(tool, role) for tool in tools)]
    examples.append(f"“call {tools[0].name} with {{…}}”")
    return f"I can call {', '.join(names)}{more}; try {' or '.join(examples)}."


def _purpose(tool: Tool) -> str:
    return shortened(sentences(tool.description)[0].rstrip("."), 80)


def _listed(texts: Sequence[str]) -> str:
    unique = list(dict.fromkeys(texts))
    return " and ".join(filter(None, (", ".join(unique[:-1]), unique[-1])))


def _ended(text: str) -> str:
    return text if text.endswith((".", "!", "?", "…")) else f"{text}."
