"""What the demo model says or does in one turn: it reads the conversation, calls functions, and tells their results.

Functions are known only by what their definitions say. One is chosen by the words that a message shares with its name
and description, and called if the message plainly gives what it requires.
"""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct

from antwort.backends.base import ModelRequest, ToolDefinitions
from antwort.backends.demo.name import DEMO_MODEL
from antwort.backends.demo.texts import (
    HELLO,
    LEAD,
    asked_places,
    drawing,
    in_full,
    places,
    program,
    sums,
    words,
    zone_of,
)
from antwort.backends.demo.values import Facts, Filling, role_of, unquoted
from antwort.backends.dialects import text_of
from antwort.types import JSON
from antwort.wire.client_tools import as_function

_READ, _READ_OUTPUT = 4_000, 100_000
"""Characters of a message, and of an output, that it looks at: more would take it long, and everybody else with it."""
_MOST_CALLS, _MOST_PARTS, _MOST_SOURCES, _MOST_NAMES = 8, 20, 3, 40
_SHOWN = 200
_CONNECT = (
    "Connect a real model with: antwort serve --backend http://localhost:11434/v1 (Ollama), http://localhost:8000/v1"
    " (vLLM), http://localhost:8080/v1 --port 8090 (llama.cpp) or openai (with OPENAI_API_KEY)"
)
_GREETING = re.compile(rf"\W*{HELLO}\b", re.IGNORECASE)
_THANKS = re.compile(
    r"\W*(?:thanks|thank you|thx|danke|vielen dank|merci|gracias|grazie|obrigado|спасибо|ありがとう|谢谢)\b",
    re.IGNORECASE,
)
_GOODBYE = re.compile(
    r"\W*(?:(?:good)?bye|see you|good night|tsch[uü]ss|auf wiedersehen|au revoir|adi[oó]s|arrivederci)\b"
    r"(?:\W+\w+){0,2}\W*$",
    re.IGNORECASE,
)
_ABOUT_ITSELF = re.compile(
    r"\b(?:who|what) (?:are|can) you\b|^\W*help(?: me)?\W*$|\bare you\b|\byour (?:name|abilities|capabilities)\b"
    r"|\bwho (?:made|built|created|trained) you\b|\b(?:wer|was) (?:bist|kannst) du\b|\bqui es[- ]tu\b"
    r"|\bque (?:peux|sais)[- ]tu\b|\btu peux faire\b|\bqui[eé]n eres\b|\bqu[eé] puedes hacer\b|\bchi sei\b"
    r"|你是谁|кто ты",
    re.IGNORECASE,
)
_ABOUT_FUNCTIONS = re.compile(
    r"\b(?:your|available|offered|which|what|all|the)\b[\w ]{0,30}\b(?:functions|tools)\b(?! that)", re.IGNORECASE
)
_FORBIDS = re.compile(
    r"(?:^|[.!?,;:\n]\s*|\b(?:please|just)\s+)(?:don['’]?t|do not|never)\s+(?:\w+\s+){0,2}?"  # noqa: RUF001
    r"(?:use|call|run|invoke|execute|calculate|compute|evaluate|search|look|store|set|send|delete)\b"
    r"|\bwithout (?:\w+ ){0,3}?(?:using|calling|tools?|functions?)\b",
    re.IGNORECASE,
)
_ASIDE = re.compile(
    rf"\W*(?:(?:{HELLO}|thanks|thank you|please|ok)(?: \w+){{0,2}}\W*$"
    r"|(?:i(?! want| need| would)|i['’]m|my|we)\b[^?]*$|(?:answer|reply|respond|be|think|do not|don['’]?t)\b"  # noqa: RUF001
    r"|(?:explain|show) your\b|use (?:the|a|your|any) (?:tools?|functions?|calculator)\b)",
    re.IGNORECASE,
)
"""What stands beside a question, and asks for nothing itself."""
_TALKS_ABOUT = re.compile(
    rf"{LEAD}(?:how (?:do|does|did|can|could|to|should|would)|why|explain|describe|define|write|translate|rewrite"
    r"|summari[sz]e|say|repeat|spell|what (?:do|does|did)|what (?:is|are) an?|(?:don['’]?t|do not|never))\b",  # noqa: RUF001
    re.IGNORECASE,
)
"""Openings after which what is named is spoken of, not asked for."""
_RECALL = re.compile(r"\bwhat (?:did|have) i (?:just )?(?:say|said|ask|asked|tell|told)\b", re.IGNORECASE)
_SEARCH = re.compile(
    r"\b(?:search|look up|look for|find)\b(?: (?:the|my|our|web|internet|files|documents|for|about|me))*\s+(.+)",
    re.IGNORECASE | re.DOTALL,
)
_QUESTION = re.compile(r"\W*(?:who|what|where|when|which|why|how|tell me about|explain)\b", re.IGNORECASE)
_WISH = re.compile(
    r"\W*(?:please )?(?:is|are|was|were|do|does|did|may|must|can|should|has|have|list|show|summari[sz]e|describe)\b"
    r"(?! (?:you|your|this|these|the following)\b)",
    re.IGNORECASE,
)
"""What else is asked of those who have documents."""
_PERSONAL = re.compile(r"\b(?:you|your|i|my)\b", re.IGNORECASE)
_OF_THE_TALK = re.compile(r"\b(?:you|your|my name|am i|i am|i just|we)\b", re.IGNORECASE)
_FILES = re.compile(
    r"\b(?:my|our|the|these|those|uploaded|which|what|all|in|from) (?:\w+ )?"
    r"(?:files?|documents?|docs|pdfs?|folders?|notes|papers?|manuals?|uploads?|handbooks?|archives?)\b",
    re.IGNORECASE,
)
_OF_FILES = frozenset({"file", "document", "folder", "upload"})
_WEAK = frozenset({"list", "show", "result", "return", "store", "send", "make", "answer", "question", "name", "set"})
"""Words that alone do not mean a function without arguments."""
_PART = re.compile(
    r"(?<=[?!;])\s+|(?<=[^\W\d])\.\s+|\n+"
    r"|(?:,? and then|,? then|,? and|,) "
    r"(?=(?:what|how|tell|the time|search|find|compute|calculate|use|call|\d+ ?[*+/] ?\d+)\b)"
)
_FILLERS = re.compile(r"^(?:(?:for|of|about|the|with|in|on|to|that|a|an|me|say)\b|[\s:,])+", re.IGNORECASE)
_PURPOSE = re.compile(r"\W*(?:to\b.*|please|now|again|once)?\W*$", re.IGNORECASE | re.DOTALL)
"""What may be said with the name of a function and gives it nothing."""
_CLOCKS = frozenset({"time", "wall", "world", "local", "system", "server", "zone", "timezone"})
_EDGES = " \t\n?!.,;:\"'“”`"
_FAILURE = re.compile(
    r"\W*(?:error|invalid|unknown|failed|there is no)\b|.{0,80}\b(?:cannot be|is not (?:a|an|valid)\b)", re.IGNORECASE
)
_NOTHING_FOUND = re.compile(r"(?:Results of [^\n]*\s+)?No results were found\b")
"""How searches begin that found nothing; what follows is advice for a model."""
_SOURCE = re.compile(r"^[ \t]*\[(\d{1,4})\][ \t]*", re.MULTILINE)
_URL = re.compile(r"(?:— |\(|<)?https?://[^\s)>\]]+[)>]?")
_SPACES = re.compile(r"(\"[^\"]*\")|\s+")
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n\n+")


class DemoCall(Struct, frozen=True):
    """A call to make."""

    name: str
    arguments: JSON


class DemoTurn(Struct, frozen=True):
    """What the demo model says or does in one turn."""

    calls: tuple[DemoCall, ...] = ()
    text: str = ""
    refusal: str = ""


class OfferedFunction(Struct, frozen=True):
    """A function the model may call, and the words that tell what it is about."""

    name: str
    parameters: JSON
    words: frozenset[str]

    @classmethod
    def of(cls, tool: JSON) -> "OfferedFunction":
        """Read a definition in the Responses shape."""
        name, parameters = str(tool["name"]), tool.get("parameters")
        schema = {"type": "object", **(parameters if isinstance(parameters, dict) else {})}
        return cls(name, schema, words(name) | words(str(tool.get("description") or "")))

    def takes(self, role: str) -> bool:
        """Tell whether it has a parameter for something."""
        properties = self.parameters.get("properties")
        return isinstance(properties, dict) and any(role_of(key, part) == role for key, part in properties.items())

    @property
    def required(self) -> list[str]:
        """The names of what it requires."""
        required = self.parameters.get("required")
        return [str(name) for name in required] if isinstance(required, list) else []

    @property
    def draws(self) -> bool:
        """Whether it makes a picture of what it is told."""
        return self.required == ["prompt"] and bool(words(self.name) & {"image", "picture", "drawing"})

    @property
    def is_clock(self) -> bool:
        """Whether it tells the time and nothing else."""
        name = words(self.name)
        return "time" in name and name <= _CLOCKS

    def is_named(self, text: str) -> bool:
        """Tell whether a message means it by its name."""
        if "_" in self.name and re.search(rf"(?<!\w){re.escape(self.name)}(?!\w)", text):
            return True
        return self.given(text) is not None or self.asked_with(text) is not None

    def given(self, text: str) -> str | None:
        """Return what a message gives to it, as in `use current_time for Rome`; None if it does not ask to call it."""
        if not self._may_be_in(text):
            return None
        spelling, quote = _spelling(self.name), "[`'\"“”]?"
        outright = re.compile(
            rf"{LEAD}(?:use|call|run|invoke|try|execute)\s+(?:the\s+)?(?:(?:function|tool)\s+)?{quote}{spelling}(?!\w)"
            rf"{quote}(?:\s+(?:function|tool)\b)?(?P<given>.*)",
            re.IGNORECASE | re.DOTALL,
        )
        match = outright.match(text)
        if match is None and "_" in self.name:
            # The name alone, and with what cannot be a sentence about it.
            alone = rf"\W*{re.escape(self.name)}(?P<given>\W*|\s*[:({{\"'`“].*|\s+(?:with|for)\b.*|\s+\S+)"
            match = re.fullmatch(alone, text, re.DOTALL)
        given = match["given"].strip() if match else None
        return given[1:-1] if given and given.startswith("(") and given.endswith(")") else given

    def asked_with(self, text: str) -> str | None:
        """Return what a message asks of it that names it last, as in `What is 3*4, using calculate?`."""
        means = "with|using|via" if "_" in self.name else "using|via"
        ending = rf"(?P<asked>.+?),?\s+(?:{means})\s+(?:the\s+)?{_spelling(self.name)}(?:\s+(?:function|tool))?[.!?]*"
        match = re.fullmatch(ending, text, re.IGNORECASE | re.DOTALL) if self._may_be_in(text) else None
        return match["asked"] if match else None

    def _may_be_in(self, text: str) -> bool:
        """Tell whether it is worth while to look for its name: patterns are made for each function."""
        return self.name.split("_")[0].lower() in text.lower()

    def likeness(self, text: str) -> int:
        """Count the words it shares with a message; those of its name count three, a place for a place too."""
        shared = words(text) & self.words
        place = 3 if shared and self.takes("place") and places(text) else 0
        return 2 * len(shared & words(self.name)) + len(shared) + place


def _spelling(name: str) -> str:
    return re.escape(name).replace("_", "[_ -]")


class DemoResult(Struct, frozen=True):
    """What a function gave back."""

    name: str
    arguments: str
    output: str
    failed: bool


class Dialogue(Struct, frozen=True):
    """The user's messages in order, the last one apart, and the results of calls made since."""

    question: str
    earlier: tuple[str, ...]
    results: tuple[DemoResult, ...]

    @classmethod
    def of(cls, items: Sequence[JSON]) -> "Dialogue":
        """Read wire items; those of unknown types are passed over."""
        said: list[str] = []
        calls: dict[str, tuple[str, str]] = {}
        results: list[DemoResult] = []
        for item in map(as_function, items):
            kind = item.get("type", "message")
            if kind == "message" and item.get("role") == "user":
                said.append(_tidy(_clean(text_of(item.get("content"))[:_READ])))
                results.clear()
            elif kind == "function_call":
                calls[str(item.get("call_id"))] = (
                    _clean(item.get("name")),
                    _clean(str(item.get("arguments") or "")[:_READ]),
                )
            elif kind == "function_call_output":
                output = _clean(text_of(item.get("output"))[:_READ_OUTPUT]).strip()
                failed = item.get("status") == "incomplete" or bool(_error(output))
                results.append(DemoResult(*calls.get(str(item.get("call_id")), ("The function", "")), output, failed))
        return cls(said[-1] if said else "", tuple(said[:-1]), tuple(results))


def decide(request: ModelRequest) -> DemoTurn:
    """Return what to say or do."""
    dialogue = Dialogue.of(request.items)
    functions = [OfferedFunction.of(tool) for tool in request.tools if isinstance(tool.get("name"), str)]
    calls = _calls(request, dialogue, functions)
    if calls:
        return DemoTurn(calls)
    text = _answer(dialogue, functions)
    wanted = request.text_format or {}
    if wanted.get("type") == "json_object":
        return DemoTurn(text=json.dumps({"answer": text}, ensure_ascii=False))
    if wanted.get("type") == "json_schema" and isinstance(wanted.get("schema"), dict):
        given = "\n".join([*(_as_lines(result.output) for result in dialogue.results), dialogue.question])
        facts = Facts(given[:_READ], _shortened(text if dialogue.results else dialogue.question))
        value = Filling(wanted["schema"], facts, insist=True).value()
        if value is None:
            return DemoTurn(refusal=f"I am a demo model and found no value for the schema. {_CONNECT}")
        return DemoTurn(text=json.dumps(value, ensure_ascii=False))
    return DemoTurn(text=text)


# --- calls -----------------------------------------------------------------------------------------------------------


def _calls(request: ModelRequest, dialogue: Dialogue, functions: Sequence[OfferedFunction]) -> tuple[DemoCall, ...]:
    """Return the calls to make now: those the question asks for and that were not made yet, as the request allows."""
    choice = request.tool_choice
    if isinstance(choice, dict):
        functions = [function for function in functions if function.name == choice.get("name")] or functions
    if choice == "none" or not functions:
        return ()
    question = in_full(dialogue.question, dialogue.earlier)
    asked = tuple(_asked(question, functions)) or _meant_by_request(request, dialogue.question, functions)
    calls = asked[len(dialogue.results) :]
    if isinstance(choice, dict) or (choice == "required" and not calls):
        return asked[:1] or (_forced(dialogue.question, functions),)
    return calls[:1] if request.parallel_tool_calls is False else calls


def _meant_by_request(request: ModelRequest, text: str, functions: Sequence[OfferedFunction]) -> tuple[DemoCall, ...]:
    """Return the call of the only function that a request names, if the message is no talk."""
    only = _only_named(request)
    if not only or _is_talk(text) or _FORBIDS.search(text):
        return ()
    named = next(function for function in functions if function.name == only)
    call = None if named.is_clock else _filled(named, next(_facts(text, named)), free=True)
    return (call,) if call else ()


def _only_named(request: ModelRequest) -> str | None:
    """Return the function that a request names, if it is the only one: it is meant, whatever the words are."""
    tools = request.tools.named if isinstance(request.tools, ToolDefinitions) else request.tools
    name = tools[0].get("name") if len(tools) == 1 else None
    return name if isinstance(name, str) and request.tool_choice != "none" else None


def _is_talk(text: str) -> bool:
    """Tell whether a message is about the talk itself, and asks for nothing that a function has."""
    talk = (_GREETING.match, _THANKS.match, _GOODBYE.match, _RECALL.search, _ABOUT_ITSELF.search)
    return not re.search(r"\w", text) or any(matches(text) for matches in (*talk, _ABOUT_FUNCTIONS.search))


def _asked(text: str, functions: Sequence[OfferedFunction]) -> list[DemoCall]:
    """Return the calls a message asks for, each once: of all its parts, or else of it as a whole."""
    about_talk = _ABOUT_FUNCTIONS.search(text) or _RECALL.search(text)
    if _FORBIDS.search(text) or (about_talk and not any(function.given(text) is not None for function in functions)):
        return []
    found = _of_parts(text, functions) or _reading(text, functions)
    return [call for number, call in enumerate(found[:_MOST_CALLS]) if call not in found[:number]]


def _of_parts(text: str, functions: Sequence[OfferedFunction]) -> list[DemoCall]:
    """Return the calls that the parts of a message ask for, if all of them are understood."""
    parts = [] if "```" in text else [part for part in _PART.split(text, _MOST_PARTS) if part.strip()][:_MOST_PARTS]
    read = [_reading(part, functions) for part in parts]
    understood = all(calls or _ASIDE.match(part) for part, calls in zip(parts, read, strict=True))
    return [call for calls in read for call in calls] if understood else []


def _reading(text: str, functions: Sequence[OfferedFunction]) -> list[DemoCall]:
    """Return the calls that a part of a message asks for, all with what it plainly gives."""
    if named := [function for function in functions if function.is_named(text)]:
        return [] if len(named) > 1 else _named_calls(text, named[0])
    for function in functions:
        if complete := _complete(_plain_calls(text, function)):
            return complete
    return _meant_calls(text, functions)


def _plain_calls(text: str, function: OfferedFunction) -> Sequence[DemoCall | None]:
    """Return the calls of a function that reckons, runs Python, tells the time or draws, if a text asks for that."""
    if function.takes("sum") and (found := sums(text)):
        return [_filled(function, Facts(text, sum=expression)) for expression in found]
    if _runs_python(function) and (run := program(text)):
        return [_filled(function, Facts("", program=run))]
    if function.is_clock and (places := asked_places(text)):
        return [_time_call(function, place) for place in places]
    if function.draws and (seen := drawing(text)):
        return [DemoCall(function.name, {"prompt": seen})]
    return []


def _runs_python(function: OfferedFunction) -> bool:
    return function.takes("code") and "python" in function.words


def _complete(calls: Sequence[DemoCall | None]) -> list[DemoCall]:
    """Return calls if none of them lacks something, else none of them."""
    return [call for call in calls if call] if all(calls) else []


def _named_calls(text: str, function: OfferedFunction) -> list[DemoCall]:
    """Return the calls of a function that a message names, with what it gives by name or as a whole."""
    given = function.given(text)
    if given is None:
        asked = None if _TALKS_ABOUT.match(text) else function.asked_with(text)
        return [] if asked is None else _reading(asked, [function]) or _quoted_call(asked, function)
    if "{" in given and not function.takes("code"):  # it does not read JSON
        return []
    calls: list[DemoCall] = []
    for facts in _given_facts(given, function):
        call = _filled(function, facts, free=True)
        if call is None or not facts.by_name <= call.arguments.keys() or not (call.arguments or _PURPOSE.match(given)):
            return []
        calls.append(call)
    return calls


def _quoted_call(text: str, function: OfferedFunction) -> list[DemoCall]:
    """Return a call with the quoted texts of a message, if they are as many as the function requires."""
    facts = Facts(text)
    call = _filled(function, facts, free=True) if facts.quoted and len(facts.quoted) == len(function.required) else None
    return [call] if call else []


def _given_facts(given: str, function: OfferedFunction) -> Iterator[Facts]:
    """Yield what is given to a function that is named, once for each place."""
    search = _SEARCH.search(given) if function.takes("query") else None
    rest = _FILLERS.sub("", search.group(1) if search else given)
    bare = unquoted(rest)
    expression, run = next(iter(sums(bare)), ""), program(given if "```" in given else f"run {bare}")
    properties = function.parameters.get("properties")
    properties = properties if isinstance(properties, dict) else {}
    names = tuple(map(str, properties))[:_MOST_NAMES]
    # What is given as a whole, quotes and all, is for the only parameter that needs something.
    only = len(function.required) == 1
    whole = only and not _is_list(properties.get(function.required[0]))
    for place in places(given) or [""]:
        facts = Facts(given, bare if only else "", place, expression, run, function.words, names)
        if whole or (not only and len(facts.quoted) > len(function.required)):
            facts.quoted.clear()
        yield facts


def _is_list(schema: Any) -> bool:
    return isinstance(schema, dict) and schema.get("type") == "array"


def _time_call(function: OfferedFunction, place: str) -> DemoCall | None:
    """Return the call of a clock for a place; None if it cannot tell the time there."""
    known = not place or (zone_of(place) if function.takes("zone") else function.takes("place") and words(place))
    return _filled(function, Facts("", place=place)) if known else None


def _meant_calls(text: str, functions: Sequence[OfferedFunction]) -> list[DemoCall]:
    """Return the calls of the function that a message speaks of by its name, or with a place for it; else a search."""
    asked = words(text)
    for function in () if _TALKS_ABOUT.match(text) else _ranked(text, functions):
        meant = _is_meant(asked, function)
        if function.is_clock or not (meant or _is_spoken_of(text, asked, function)):
            continue
        if _QUESTION.match(text) and function.takes("text"):
            continue
        calls = [_filled_wholly(function, facts) for facts in _facts(text, function)]
        if all(call and (call.arguments or meant) for call in calls):
            return [call for call in calls if call]
    return _searches(text, functions)


def _is_spoken_of(text: str, asked: frozenset[str], function: OfferedFunction) -> bool:
    """Tell whether a message has the words of a function's name, or one of its words and a place for it."""
    name = words(function.name)
    if name and name <= asked:
        return True
    return bool(asked & function.words and function.takes("place") and places(text))


def _is_meant(asked: frozenset[str], function: OfferedFunction) -> bool:
    """Tell whether all that is asked is about a function: without arguments a shared word is too little."""
    common = asked & words(function.name)
    return asked <= function.words and bool(common - _WEAK or (common and len(asked) > 1))


def _searches(text: str, functions: Sequence[OfferedFunction]) -> list[DemoCall]:
    """Return the search that a message asks for."""
    for function in _ranked(text, functions):
        if _is_searched(text, function) and (call := _filled(function, next(_facts(text, function)))):
            return [call]
    return []


def _is_searched(text: str, function: OfferedFunction) -> bool:
    """Tell whether a message asks for what a function can search: of documents that is much, and also what is mine."""
    if not function.takes("query"):
        return False
    if _SEARCH.search(text):
        return True
    if function.words & _OF_FILES:
        wish = _QUESTION.match(text) or _WISH.match(text)
        return bool(_FILES.search(text) or (wish and not _OF_THE_TALK.search(text)))
    return bool(_QUESTION.match(text) and not _PERSONAL.search(text))


def _ranked(text: str, functions: Sequence[OfferedFunction]) -> list[OfferedFunction]:
    return sorted(functions, key=lambda function: -function.likeness(text))


def _facts(text: str, function: OfferedFunction) -> Iterator[Facts]:
    """Yield what a message gives for a function, once for each place it names."""
    search = _SEARCH.search(text) if function.takes("query") else None
    mentions = [match for match in re.finditer(r"\w+", text) if words(match.group()) & words(function.name)]
    rest = search.group(1) if search else text[mentions[-1].end() :] if mentions else text
    topic = _FILLERS.sub("", rest).strip(_EDGES) or text.strip(_EDGES)
    if function.takes("query") and not search:
        topic = text.strip(_EDGES)
    found = next(iter(sums(text)), "")
    for place in places(text) or [""]:
        yield Facts(text, topic, place, found, program(text), function.words)


def _filled(function: OfferedFunction, facts: Facts, *, free: bool = False) -> DemoCall | None:
    arguments = Filling(function.parameters, facts, free=free).value()
    return DemoCall(function.name, arguments) if isinstance(arguments, dict) else None


def _filled_wholly(function: OfferedFunction, facts: Facts) -> DemoCall | None:
    """Return a call that takes all numbers of a message or none: of more than it needs, nobody knows which."""
    count = len(facts.numbers)
    call = _filled(function, facts)
    return call if len(facts.numbers) in {0, count} else None


def _forced(text: str, functions: Sequence[OfferedFunction]) -> DemoCall:
    """Return a call although the message asks for none: of the function nearest to it, with arguments made up."""
    ranked = _ranked(text, functions)
    for function in ranked:
        if call := _filled(function, next(_facts(text, function)), free=True):
            return call
    facts = next(_facts(text, ranked[0]))
    return DemoCall(ranked[0].name, Filling(ranked[0].parameters, facts, insist=True).value() or {})


# --- answers ---------------------------------------------------------------------------------------------------------


def _answer(dialogue: Dialogue, functions: Sequence[OfferedFunction]) -> str:
    """Write an answer for a reader: from results if there are any, else what can be said without a model."""
    question = dialogue.question
    if dialogue.results:
        return "\n\n".join(_in_a_sentence(result, question) for result in dialogue.results)
    if _RECALL.search(question):
        said = " and ".join(f"“{_shortened(message)}”" for message in dialogue.earlier[-_MOST_CALLS:])
        return f"You said: {said}." if said else "This is your first message in this conversation."
    if _THANKS.match(question):
        return "You are welcome."
    if _GOODBYE.match(question):
        return "Goodbye."
    if _is_talk(question):
        hello = "Hello! " if _GREETING.match(question) else ""
        myself = f"I am {DEMO_MODEL}, the built-in demo model: a set of rules, no language model."
        most = _MOST_NAMES if _ABOUT_FUNCTIONS.search(question) else _MOST_CALLS
        return f"{hello}{myself} {_abilities('I', functions, most)} {_CONNECT}"
    shown = re.sub(r"(?<=[\w”])[.?]$", "", _shortened(question, 80))
    asked = f"“{shown}”{_obstacle(question, functions)}"
    able = _abilities("It", functions)
    return f"The built-in demo model, a set of rules, cannot answer {asked}. {able} {_CONNECT}"


def _abilities(who: str, functions: Sequence[OfferedFunction], most: int = _MOST_CALLS) -> str:
    if not functions:
        return "This request offers no functions to call."
    examples = {"sum": "“What is 12*7?”", "zone": "“What time is it in Tokyo?”", "query": "“Search for tea”"}
    tries = [text for role, text in examples.items() if any(function.takes(role) for function in functions)]
    hint = f"; try {' or '.join(tries)}." if tries else "."
    more = f" and {len(functions) - most} more" if len(functions) > most else ""
    return f"{who} can call {', '.join(function.name for function in functions[:most])}{more}{hint}"


def _obstacle(question: str, functions: Sequence[OfferedFunction]) -> str:
    """Say what kept the function that a question names, or that draws, from being called."""
    if drawing(question) and not any(function.draws for function in functions):
        return ": it draws only where an image server is configured, with the provider image_generation"
    for function in functions:
        given = function.given(question)
        if given is None or _FORBIDS.search(question):
            continue
        facts = next(_given_facts(given, function))
        filling = Filling(function.parameters, facts, free=True)
        filling.value()
        # What is given in a way that is not understood is not missing.
        plain = facts.by_name or len(function.required) > 1 or _PURPOSE.match(given)
        missing = [name for name in filling.missing if plain and not re.search(rf"\b{_spelling(name)}\b", given)]
        return f": {function.name} needs {', '.join(missing)}" if missing else ""
    return ""


def _in_a_sentence(result: DemoResult, question: str) -> str:
    """Tell a result in a sentence."""
    if result.failed:
        return f"{result.name} could not do it: {_ended(_shortened(_error(result.output) or result.output, 600))}"
    if cited := _cited(result.output, question):
        return cited
    given = _given_values(result)
    subject = _shortened(", ".join(given))
    if _NOTHING_FOUND.match(result.output):
        return f"{result.name} found nothing{f' for {subject}' if subject else ''}."
    value = _loaded(result.output)
    fields = [f"{key} {part}" for key, part in value.items()] if isinstance(value, dict) else []
    output = _shortened(", ".join(fields) or result.output, 600)
    if not output:
        return f"{result.name} gave no output."
    if value is not None or len(output) > _SHOWN or re.search(r"[.!?:](?:\s|$)", output):
        return f"{result.name} answered: {_ended(output)}"
    return f"The result {f'for {subject}' if given else f'of {result.name}'} is {output}."


def _given_values(result: DemoResult) -> list[str]:
    """Return what a call was given."""
    arguments = _loaded(result.arguments)
    return [str(part) for part in arguments.values() if part is not None] if isinstance(arguments, dict) else []


def _cited(output: str, question: str) -> str:
    """Write a sentence of each of the sources nearest to the question, with its number; nothing without sources."""
    asked = words(question)
    numbered = _SOURCE.split(output)[1:]
    passages: dict[str, tuple[int, str]] = {}
    for number, block in zip(numbered[::2], numbered[1::2], strict=True):
        title, _, body = _URL.sub("\n", block.strip()).strip().partition("\n")
        sentences = [sentence for sentence in _SENTENCE.split(body) if sentence.strip()] or [title]
        best = max(sentences, key=lambda sentence: len(asked & words(sentence)))
        passages.setdefault(number, (len(asked & words(block)), _shortened(best).rstrip(" .!?:;")))
    nearest = sorted(passages, key=lambda number: -passages[number][0])[:_MOST_SOURCES]
    chosen = [number for number in nearest if passages[number][0]] or nearest
    return " ".join(f"{passages[number][1]} [{number}]." for number in sorted(chosen, key=int))


def _error(output: str) -> str:
    """Return what an output says went wrong, nothing if it is none: no mark on the wire tells, so its words have to."""
    value = _loaded(output)
    cause = value.get("error") if isinstance(value, dict) else None
    if cause:
        return str(cause.get("message") if isinstance(cause, dict) else cause)
    return re.sub(r"(?i)^error: ", "", output) if value is None and _FAILURE.match(output) else ""


def _as_lines(output: str) -> str:
    """Write the fields of a JSON object line by line, so that they are found by name; other texts as they are."""
    value = _loaded(output)
    fields = value.items() if isinstance(value, dict) else ()
    return "\n".join(f"{key}: {part}" for key, part in fields) or output


def _loaded(text: str) -> Any:
    """Read JSON objects and arrays; anything else is None."""
    try:
        return json.loads(text) if text.lstrip().startswith(("{", "[")) else None
    except (ValueError, RecursionError):
        return None


def _ended(text: str) -> str:
    return text if text.endswith((".", "!", "?", "…")) else f"{text}."


def _shortened(text: str, limit: int = _SHOWN) -> str:
    """Return a text on one line, cut at a word where it is too long."""
    line = " ".join(text.split())
    return line if len(line) <= limit else f"{line[:limit].rsplit(' ', 1)[0]} …"


def _tidy(text: str) -> str:
    """Return a text without needless spaces and empty lines, but for what is fenced or quoted."""
    pieces = re.split(r"(```.*?```)", text, flags=re.DOTALL)
    for index in range(0, len(pieces), 2):
        lines = (_SPACES.sub(lambda found: found[1] or " ", line).strip() for line in pieces[index].splitlines())
        pieces[index] = "\n".join(line for line in lines if line)
    return "\n".join(filter(None, pieces))


def _clean(text: Any) -> str:
    """Return text that can be encoded: a lone surrogate becomes a question mark."""
    return str(text).encode(errors="replace").decode()
