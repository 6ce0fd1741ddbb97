"""The demo model as a backend: decides on a turn, then feeds it piece by piece."""

import hashlib
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from antwort.backends.base import ModelInfo, ModelRequest, TurnSink
from antwort.backends.demo.answer import DEMO_MODEL, plain_answer, structured_answer, thoughts
from antwort.backends.demo.conversation import Conversation, transcript
from antwort.backends.demo.intent import Call, Plan, insisted, plan
from antwort.backends.demo.words import Tool, clean, offered
from antwort.types import JSON
from antwort.wire.responses import OutputTokensDetails, Usage

__all__ = ["DEMO_MODEL", "DemoBackend", "Turn", "decide"]


_CHARACTERS_PER_TOKEN = 4
_WORDS_PER_FLUSH = 4
_WORD = re.compile(r"\S+\s*|\s+")


@dataclass(frozen=True, slots=True)
class Turn:
    """What the demo model says or does in one turn."""

    reasoning: str = ""
    calls: tuple[Call, ...] = ()
    text: str = ""
    refusal: str = ""


class DemoBackend:
    """A model in process that needs no network and no weights, and answers the same request with the same bytes.

    Tokens are counted as one for each four characters, rounded up: of the input, the instructions, the texts of the
    items and the tool definitions as JSON; of the output, the thoughts, the text, and names and arguments of calls.
    """

    name = "demo"

    async def run(self, request: ModelRequest, sink: TurnSink) -> None:
        """Perform one turn."""
        turn = decide(request)
        read = _read(request)
        budget = _Budget(request.max_output_tokens)
        await _feed(budget.take(turn.reasoning), sink.reasoning, request, sink)
        details = OutputTokensDetails(reasoning_tokens=budget.used)
        await _feed(budget.take(turn.refusal), sink.refusal, request, sink)
        await _feed(budget.take(turn.text), partial(_feed_word, request, sink), request, sink)
        called = await _feed_calls(request, turn.calls, _seed(read), budget, sink)
        counts = _tokens(read), budget.used
        sink.usage(
            Usage(
                input_tokens=counts[0],
                output_tokens=counts[1],
                output_tokens_details=details,
                total_tokens=sum(counts),
            )
        )
        sink.finish("length" if budget.exceeded else "tool_calls" if called else "stop")
        await sink.flush()

    async def models(self) -> Sequence[ModelInfo]:
        """List the one model."""
        return (ModelInfo(DEMO_MODEL, "antwort"),)

    async def count_tokens(self, request: ModelRequest) -> int:
        """Count the input tokens, as `run` does."""
        return _tokens(_read(request))

    async def context_window(self, _model: str) -> None:
        """Return None: rules have no window."""

    async def close(self) -> None:
        """Do nothing: there are no connections."""


def decide(request: ModelRequest) -> Turn:
    """Return what to say or do."""
    conversation = Conversation.of(request.items)
    tools = offered(request.tools)
    understood = plan(conversation.question, tools)
    calls = _chosen(request, conversation, understood, tools)
    reasoning = thoughts(conversation, calls) if request.effort not in {None, "none"} else ""
    if calls:
        return Turn(reasoning, calls)
    text = plain_answer(conversation, understood, tools)
    wanted = request.text_format or {}
    if wanted.get("type") == "json_object":
        return Turn(reasoning, text=json.dumps({"answer": text}, ensure_ascii=False))
    if wanted.get("type") == "json_schema" and isinstance(wanted.get("schema"), dict):
        written = structured_answer(conversation, wanted["schema"], text)
        if written is None:
            name = clean(str(wanted.get("name") or "the schema"))
            return Turn(reasoning, refusal=f"I am a demo model and found no value that fits {name}.")
        return Turn(reasoning, text=written)
    return Turn(reasoning, text=text)


def _chosen(
    request: ModelRequest, conversation: Conversation, understood: Plan, tools: Sequence[Tool]
) -> tuple[Call, ...]:
    """Return the calls to make now: those understood and not made yet, within what the request allows."""
    choice = request.tool_choice
    if choice == "none" or not tools:
        return ()
    if isinstance(choice, dict):
        forced = tuple(tool for tool in tools if tool.name == choice.get("name"))
        calls = tuple(call for call in understood.calls if call.name == choice.get("name"))
        if forced:
            return calls[:1] or (insisted(conversation.question, forced),)
    done = {_identity(result.name, result.arguments) for result in conversation.results}
    calls = tuple(c for c in understood.calls if _identity(c.name, json.dumps(c.arguments)) not in done)
    if len(conversation.results) >= len(understood.calls):  # the history may spell calls in another way
        calls = ()
    if choice == "required" and not calls:
        calls = understood.calls or (insisted(conversation.question, tools),)
    return calls[:1] if request.parallel_tool_calls is False else calls


def _identity(name: str, arguments: str) -> tuple[str, str]:
    try:
        return name, json.dumps(json.loads(arguments or "{}"), sort_keys=True)
    except (ValueError, RecursionError):
        return name, arguments


async def _feed(text: str, take: Callable[[str], None], request: ModelRequest, sink: TurnSink) -> None:
    """Feed a text word by word if it is to be streamed, and pass it on every few words."""
    for number, word in enumerate(_pieces(text, request), start=1):
        take(word)
        if number % _WORDS_PER_FLUSH == 0:
            await sink.flush()
    if text:
        await sink.flush()


def _feed_word(request: ModelRequest, sink: TurnSink, word: str) -> None:
    sink.text(word, None if request.top_logprobs is None else _logprobs(word, request.top_logprobs))


def _feed_arguments(sink: TurnSink, index: int, piece: str) -> None:
    sink.tool_call(index, arguments=piece)


async def _feed_calls(
    request: ModelRequest, calls: Sequence[Call], seed: str, budget: "_Budget", sink: TurnSink
) -> bool:
    """Feed the calls that fit into the budget, each as a whole, and tell whether there was one."""
    fed = False
    for index, call in enumerate(calls):
        arguments = clean(json.dumps(call.arguments, ensure_ascii=False))
        if not budget.takes_whole(call.name + arguments):
            break
        sink.tool_call(index, call_id=f"call_{seed}{index:02}", name=call.name)
        await _feed(arguments, partial(_feed_arguments, sink, index), request, sink)
        fed = True
    return fed


def _seed(read: Sequence[str]) -> str:
    """Return what the ids of a turn's calls begin with: the same for the same request."""
    return hashlib.sha256("\0".join(read).encode(errors="replace")).hexdigest()[:22]


def _read(request: ModelRequest) -> list[str]:
    """Return all texts that the request gives to read."""
    tools = json.dumps(list(request.tools), ensure_ascii=False, default=str) if request.tools else ""
    return [request.instructions or "", tools, *transcript(request.items)]


def _pieces(text: str, request: ModelRequest) -> list[str]:
    """Cut a text into words with the blanks that follow if it is to be streamed; joined they are the text."""
    return _WORD.findall(text) if request.stream else [text] if text else []


def _logprobs(piece: str, alternatives: int) -> list[JSON]:
    """Give every word the probability 1: a rule knows no doubt."""
    tokens = [{"token": word, "logprob": 0.0, "bytes": list(word.encode())} for word in _WORD.findall(piece)]
    return [{**token, "top_logprobs": [token][:alternatives]} for token in tokens]


def _tokens(texts: Sequence[str]) -> int:
    return sum(-(-len(text) // _CHARACTERS_PER_TOKEN) for text in texts)


class _Budget:
    """The tokens a turn may write."""

    def __init__(self, limit: int | None) -> None:
        self._limit = limit
        self.used = 0
        self.exceeded = False

    def take(self, text: str) -> str:
        """Count a text and return as much of it as may be written."""
        if self._limit is not None:
            room = max(0, self._limit - self.used) * _CHARACTERS_PER_TOKEN
            self.exceeded |= len(text) > room
            text = text[:room]
        self.used += _tokens([text])
        return text

    def takes_whole(self, text: str) -> bool:
        """Count a text if all of it may be written, and tell whether it may."""
        if self.exceeded or (self._limit is not None and self.used + _tokens([text]) > self._limit):
            self.exceeded = True
            return False
        self.used += _tokens([text])
        return True
