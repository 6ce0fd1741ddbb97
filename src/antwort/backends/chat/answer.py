"""One answer of Chat Completions, streamed or whole, fed to a sink."""

from collections.abc import Sequence
from enum import Enum, auto
from typing import Any

import msgspec
from msgspec import Struct

from antwort.backends.base import UNFINISHED, TurnSink
from antwort.backends.dialects import MOST_WAITING, ChatUsage, Pieces, check_object, logprobs_of, usage_of
from antwort.backends.errors import BROKEN, FAILED, excerpt, reported_error
from antwort.backends.http.transport import AnswerLimits
from antwort.errors import BadGatewayError
from antwort.types import JSON

# --- thoughts, in the dialects that have no plain field of their own for them ----------------------------------------


OPEN, CLOSE = "<think>", "</think>"
MOST_BLANKS = 1024
"""Characters before an opening tag; after so many the answer has begun, and is not held back any longer."""


class _AnswerPart(Enum):
    """Where in an answer we are."""

    START = auto()
    THOUGHTS = auto()
    BETWEEN = auto()
    ANSWER = auto()


# To look up a member of an enum takes some hundred nanoseconds in Python 3.11.
_START, _THOUGHTS, _BETWEEN, _ANSWER = _AnswerPart


class ThinkTags:
    """Parts `<think>…</think>` at the very start of an answer from the answer itself, however it was split.

    What may still become a tag is held back until it is clear; blanks around the tags belong to neither side.
    """

    __slots__ = ("_held", "_place", "_thought")

    def __init__(self) -> None:
        self._place = _START
        self._held = ""
        self._thought = False

    @property
    def passed(self) -> bool:
        """Tell that the answer itself has begun: the rest of it need not be looked at."""
        return self._place is _ANSWER

    @property
    def undecided(self) -> bool:
        """Tell that it is not clear yet whether there will be a tag."""
        return self._place is _START

    def take(self, text: str) -> tuple[str, str]:
        """Take a piece and return what it adds to the thoughts and to the answer."""
        text, self._held = self._held + text, ""
        thought = ""
        if self._place is _START:
            bare = text.lstrip()
            if bare != OPEN and OPEN.startswith(bare) and len(text) <= MOST_BLANKS:
                self._held = text
                return "", ""
            if not bare.startswith(OPEN):
                self._place = _ANSWER
                return "", text
            self._place = _THOUGHTS
            text = bare[len(OPEN) :]
        if self._place is _THOUGHTS:
            thought, text = self._think(text if self._thought else text.lstrip())
        if self._place is _BETWEEN:
            text = text.lstrip()
            if text:
                self._place = _ANSWER
        return thought, text

    def end(self) -> tuple[str, str]:
        """Return what was held back: it did not become a tag."""
        held, self._held = self._held, ""
        return (held, "") if self._place is _THOUGHTS else ("", held)

    def _think(self, text: str) -> tuple[str, str]:
        """Return the thoughts up to the closing tag, and what follows it."""
        thought, closed, rest = text.partition(CLOSE)
        if closed:
            self._place = _BETWEEN
            return thought, rest
        keep = next((size for size in range(len(CLOSE) - 1, 0, -1) if text.endswith(CLOSE[:size])), 0)
        if keep:
            thought, self._held = text[:-keep], text[-keep:]
        self._thought = self._thought or bool(thought)
        return thought, ""


def may_be_tagged(text: str) -> bool:
    """Tell whether an answer that begins with a text may begin with a tag."""
    first = text[0]
    return first == "<" or first.isspace()


def texts_in_parts(parts: list[Any]) -> tuple[str, str]:
    """Return the thoughts and the text of content that is a list of parts."""
    thoughts, texts = [], []
    for part in parts:
        if isinstance(part, str):
            texts.append(part)
        elif isinstance(part, dict):
            thoughts.append(_text(part.get("thinking")))
            texts.append(_text(part.get("text")))
    return "".join(thoughts), "".join(texts)


def text_in_details(details: Any) -> str:
    """Return the text of `reasoning_details`, or of a `reasoning` that is not a plain string."""
    if isinstance(details, dict):
        details = [details]
    if not isinstance(details, list):
        return ""
    return "".join(_text(entry.get("text") or entry.get("summary")) for entry in details if isinstance(entry, dict))


def _text(value: Any) -> str:
    if isinstance(value, list):
        return "".join(_text(entry.get("text")) for entry in value if isinstance(entry, dict))
    return value if isinstance(value, str) else ""


# --- the shape of a chunk or answer, as wide as servers write it -----------------------------------------------------
# Decoding into structs skips everything unknown, which is most of a chunk. Fields whose type differs between servers
# are `Any` and read with care; those that have one type everywhere are checked.


class FunctionDelta(Struct, gc=False):
    """A piece of a call: the name once or every time, arguments as text or as an object."""

    name: str | None = None
    arguments: Any = None


class CallDelta(Struct, gc=False):
    """A piece of one of several calls."""

    index: int | None = None
    id: str | int | None = None
    function: FunctionDelta | None = None


class Delta(Struct, gc=False):
    """A piece of the answer, or all of it."""

    content: Any = None
    reasoning_content: Any = None
    reasoning: Any = None
    reasoning_details: Any = None
    refusal: str | None = None
    tool_calls: list[CallDelta] | None = None
    function_call: FunctionDelta | None = None


class ChunkChoice(Struct, gc=False):
    """One of the answers; we never ask for more than one."""

    delta: Delta | None = None
    message: Delta | None = None
    finish_reason: str | None = None
    logprobs: Any = None


class ChatChunk(Struct, gc=False):
    """A chunk of a stream, or an answer that came as a whole."""

    choices: list[ChunkChoice] | None = None
    usage: ChatUsage | None = None
    error: Any = None
    message: Any = None
    """Of an error that has no object of its own; likewise the fields below."""
    detail: Any = None
    code: Any = None
    type: Any = None
    param: Any = None


class OddChunk(ChatChunk, gc=False):
    """One that counts tokens in a way of its own, or in which something else is odd."""

    usage: Any = None


decode_chunk = msgspec.json.Decoder(ChatChunk).decode
decode_leniently = msgspec.json.Decoder(OddChunk, strict=False).decode


def decode_whole(body: bytes) -> ChatChunk:
    """Read an answer that came as a whole, leniently if need be."""
    try:
        return decode_chunk(body)
    except msgspec.ValidationError:
        return decode_leniently(body)


# --- an answer -------------------------------------------------------------------------------------------------------


MAX_LOOKS = 32
"""How often a call is looked at whether it is whole: each time costs as much as its arguments are long."""


class _PiecedCall(Struct, eq=False):
    """One call as far as it is known."""

    index: int
    id: str | None
    name: str | None = None
    arguments: Pieces = msgspec.field(default_factory=Pieces)
    looks: int = MAX_LOOKS

    def is_whole(self) -> bool:
        """Tell whether the arguments are a JSON object already."""
        self.looks -= 1
        return self.looks >= 0 and bool(self.arguments) and self.is_complete()

    def is_complete(self) -> bool:
        """Tell the same at the end, however often it was looked at before; no arguments are complete, too."""
        try:
            check_object(self.arguments.text() or "{}")
        except (msgspec.MsgspecError, UnicodeError):
            return False
        return True


class ChatCalls:
    """The calls of one turn, fed to the sink under indexes of our own, from 0 on.

    Servers tell calls apart by `index`, by `id` or only by their order, and some give every call the index 0 or the
    same id. So a piece belongs to the call with its index or id, else to the last one; but a name that comes with a new
    id, another name, the same name with whole arguments after whole arguments, or a second name in one list begins a
    call of its own.
    """

    __slots__ = ("_known", "_limits", "_sink", "begun")

    def __init__(self, limits: AnswerLimits, sink: TurnSink) -> None:
        self._limits = limits
        self._sink = sink
        self.begun: list[_PiecedCall] = []
        """Those that have begun, in this order."""
        self._known: dict[int | str, _PiecedCall] = {}
        """The calls by the indexes and the ids that the server gives them."""

    def take(self, deltas: Sequence[CallDelta]) -> None:
        """Take pieces of calls that came together."""
        named: set[int] = set()
        for delta in deltas:
            function = delta.function or FunctionDelta()
            call_id = None if delta.id is None or delta.id == "" else str(delta.id)
            self._feed(delta.index, call_id, function.name or None, _as_json(function.arguments), named)

    def take_legacy(self, function: FunctionDelta) -> None:
        """Take a piece of the one call of the dialect before `tool_calls`."""
        self._feed(0, None, function.name or None, _as_json(function.arguments), set())

    def end(self) -> None:
        """Give calls without arguments empty ones; a call that never got a name is a BadGatewayError."""
        for call in self.begun:
            if call.name is None:
                raise BadGatewayError(
                    f"The backend '{self._limits.backend}' sent a function call without a name.", code=BROKEN
                )
            if not call.arguments:
                self._sink.tool_call(call.index, arguments="{}")

    def _feed(self, index: int | None, call_id: str | None, name: str | None, arguments: str, named: set[int]) -> None:
        """Feed a piece. `named` are the calls that a piece of the same list has named."""
        call = self._find(index, call_id) if self.begun else None
        if call is None or (
            name is not None
            and call.name is not None
            and (call.index in named or _begins(call, call_id, name, arguments))
        ):
            call = self._begin(index, call_id)
        if name is not None:
            named.add(call.index)
        if arguments:
            call.arguments.add(arguments)
        if call.name is not None:
            if arguments:
                self._sink.tool_call(call.index, arguments=arguments)
        elif name is not None:
            call.name = name
            # What came before the name was held back.
            self._sink.tool_call(call.index, call_id=call.id or call_id, name=name, arguments=call.arguments.text())

    def _find(self, index: int | None, call_id: str | None) -> _PiecedCall | None:
        key = call_id if index is None else index
        return self.begun[-1] if key is None else self._known.get(key)

    def _begin(self, index: int | None, call_id: str | None) -> _PiecedCall:
        if len(self.begun) >= self._limits.calls:
            raise self._limits.excess(f"more than {self._limits.calls:,} calls in one turn", "max_calls")
        call = _PiecedCall(len(self.begun), call_id)
        self.begun.append(call)
        if index is not None:
            self._known[index] = call
        if call_id is not None:
            self._known[call_id] = call
        return call


def _begins(call: _PiecedCall, call_id: str | None, name: str, arguments: str) -> bool:
    """Tell whether a piece that has a name is the beginning of another call."""
    if call_id is not None and call.id is not None and call_id != call.id:
        return True
    if name != call.name:
        return True
    return arguments.lstrip().startswith("{") and call.is_whole()


def _as_json(arguments: Any) -> str:
    if isinstance(arguments, str):
        return arguments
    return "" if arguments is None else msgspec.json.encode(arguments).decode()


REASONS = {
    "length": "length",
    "max_tokens": "length",
    "model_length": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "tool_use": "tool_calls",
    "content_filter": "content_filter",
    "safety": "content_filter",
    "error": "error",
    "abort": "error",
}
"""Why models stop; everything else (`stop`, `eos`, `end_turn`, …) is `stop`."""

_DONE = b"[DONE]"
UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What is raised for what cannot be decoded."""


class ChatAnswer:
    """Reads the chunks of one answer in any dialect and feeds the sink.

    Tokens used and the reason to stop are fed at the end, in this order and once: some servers count with every chunk,
    others only after the reason.
    """

    __slots__ = (
        "_alternatives",
        "_calls",
        "_held",
        "_items",
        "_kind",
        "_limits",
        "_logprobs",
        "_plain",
        "_reason",
        "_sink",
        "_tags",
        "_text",
        "_usage",
        "_whole",
        "begun",
        "done",
    )

    def __init__(self, limits: AnswerLimits, sink: TurnSink, alternatives: int | None = None) -> None:
        self.begun = False
        """Whether the model has said anything yet."""
        self.done = False
        """Whether the server said that nothing follows."""
        self._limits = limits
        self._sink = sink
        self._alternatives = alternatives
        """How many were asked for with each log probability; None if these were not asked for."""
        self._held: list[str] = []
        """Pieces of text that are fed together, before anything else is."""
        self._calls: ChatCalls | None = None
        self._items = 0
        self._kind = ""
        self._tags: ThinkTags | None = None
        """For an answer that may begin with a tag."""
        self._plain = False
        """Whether there is no tag to be looked for, from here on."""
        self._logprobs: list[JSON] = []
        """Those that wait for their text."""
        self._reason: str | None = None
        self._usage: Any = None
        self._whole = False
        """Whether it came as a whole: then nothing of it is missing, whatever it says of its end."""

    def take(self, payload: bytes) -> None:
        """Take a chunk. An error in it is raised as the API error it stands for."""
        try:
            chunk = decode_chunk(payload)
        except UNREADABLE:
            self._take_odd(payload)
        else:
            if chunk.usage is not None or chunk.error or not chunk.choices:
                self._take_chunk(chunk)
            else:  # as nearly always, so it is one call less
                self._take_choice(chunk.choices[0])

    def pass_on(self) -> None:
        """Feed the pieces of text that came together."""
        if self._held:
            held, self._held = self._held, []
            self._sink.text_burst(held)

    def take_whole(self, body: bytes) -> None:
        """Take an answer that came as a whole."""
        try:
            chunk = decode_whole(body)
        except UNREADABLE:
            raise BadGatewayError(
                f"The backend '{self._limits.backend}' answered with something that is no answer: {excerpt(body)} "
                "(check its url)",
                code=BROKEN,
            ) from None
        self._whole = True
        self._take_chunk(chunk)

    def end(self) -> None:
        """Feed what is known only at the end. An answer that never began is a BadGatewayError."""
        text = "" if self._tags is None else self._untagged_rest(self._tags)
        if text or self._logprobs:
            self._say(text, None)
        self.pass_on()
        if not self.begun and self._reason is None:
            raise BadGatewayError(
                f"The answer of the backend '{self._limits.backend}' ended before it began.", code=BROKEN
            )
        if self._calls is not None:
            self._calls.end()
        usage = usage_of(self._usage)
        if usage is not None:
            self._sink.usage(usage)
        self._sink.finish(self._finish_reason())

    def _take_chunk(self, chunk: ChatChunk) -> None:
        if chunk.usage is not None:
            self._usage = chunk.usage
        if chunk.error or not chunk.choices:
            self._take_aside(chunk)
        else:
            self._take_choice(chunk.choices[0])

    def _take_choice(self, choice: ChunkChoice) -> None:
        if choice.finish_reason:
            self._reason = choice.finish_reason
        delta = choice.delta
        if delta is None:
            delta = choice.message
            if delta is None:
                return
        if delta.reasoning_content or delta.reasoning or delta.reasoning_details:
            self._take_reasoning(delta)
        content = delta.content
        if choice.logprobs is not None:
            self._take_with_logprobs(content, choice.logprobs)
        elif content:
            if self._plain and self._kind == "text" and content.__class__ is str:
                self._held.append(content)
            else:
                self._take_content(content, None)
        if delta.refusal:
            self.begun = True
            self._turn_to("refusal")
            self.pass_on()
            self._sink.refusal(delta.refusal)
        if delta.tool_calls is not None or delta.function_call is not None:
            self._take_calls(delta)

    def _take_aside(self, chunk: ChatChunk) -> None:
        """Take a chunk without an answer: tokens used, a sign of life, or an error."""
        self.pass_on()
        if chunk.error:
            raise reported_error(self._limits.backend, chunk.error)
        message = chunk.detail or chunk.message
        if message:
            report = {"message": message, "code": chunk.code, "type": chunk.type, "param": chunk.param}
            raise reported_error(self._limits.backend, report)

    def _take_reasoning(self, delta: Delta) -> None:
        # Servers that renamed the field send both; the details repeat it.
        for value in (delta.reasoning_content, delta.reasoning, delta.reasoning_details):
            text = value if isinstance(value, str) else text_in_details(value)
            if text:
                self._leave_tags()  # what has a field of its own is not tagged in the text
                self._think(text)
                return

    def _take_with_logprobs(self, content: Any, sent: Any) -> None:
        logprobs = logprobs_of(sent, self._alternatives)
        if content:
            self._take_content(content, logprobs)
        elif logprobs is not None:
            self._keep(logprobs)

    def _take_content(self, content: Any, logprobs: list[JSON] | None) -> None:
        if isinstance(content, list):
            thought, content = texts_in_parts(content)
            self._think(thought)
        if not isinstance(content, str) or not content:
            return
        if self._tags is None and not may_be_tagged(content):  # as nearly always
            self._plain = True
        text = content if self._plain else self._untagged(content)
        if text:
            self._say(text, logprobs)
        elif logprobs is not None and self._tags is not None and self._tags.undecided:
            self._keep(logprobs)

    def _keep(self, logprobs: list[JSON]) -> None:
        """Keep log probabilities for the text that comes next."""
        if len(self._logprobs) < MOST_WAITING:
            self._logprobs += logprobs

    def _untagged(self, text: str) -> str:
        """Return what a piece adds to the answer itself."""
        tags = self._tags
        if tags is None:
            tags = self._tags = ThinkTags()
        thought, text = tags.take(text)
        self._think(thought)
        self._plain = tags.passed
        return text

    def _untagged_rest(self, tags: ThinkTags) -> str:
        """Return what was held back of the answer itself: it did not become a tag."""
        thought, text = tags.end()
        self._think(thought)
        return text

    def _take_calls(self, delta: Delta) -> None:
        self.pass_on()
        calls = self._calls
        if calls is None:
            calls = self._calls = ChatCalls(self._limits, self._sink)
        if delta.function_call is not None:
            calls.take_legacy(delta.function_call)
        if delta.tool_calls:
            self._leave_tags()
            calls.take(delta.tool_calls)
        if calls.begun:
            self.begun = True

    def _take_odd(self, payload: bytes) -> None:
        """Take what is not a chunk at first sight."""
        if payload.strip() == _DONE:
            self.done = True
            return
        try:
            chunk = decode_leniently(payload.decode(errors="replace"))
        except UNREADABLE:
            raise BadGatewayError(
                f"The backend '{self._limits.backend}' sent something that is no part of an answer: {excerpt(payload)}",
                code=BROKEN,
            ) from None
        self._take_chunk(chunk)

    def _leave_tags(self) -> None:
        """Stop looking for tags. What was held back goes first, unless it is blank: then it is no answer."""
        if self._plain:
            return
        self._plain = True
        if self._tags is not None:
            text = self._untagged_rest(self._tags)
            if text.strip():
                self._say(text, None)
        self._logprobs = []

    def _think(self, thought: str) -> None:
        if thought:
            self.begun = True
            self._turn_to("thought")
            self.pass_on()
            self._sink.reasoning(thought)

    def _say(self, text: str, logprobs: list[JSON] | None) -> None:
        self.begun = True
        self._turn_to("text")
        if self._logprobs:
            logprobs, self._logprobs = [*self._logprobs, *(logprobs or ())], []
        if logprobs is None:
            self._held.append(text)
        else:
            self.pass_on()
            self._sink.text(text, logprobs)

    def _turn_to(self, kind: str) -> None:
        """Take note of what comes next; a change begins another item."""
        if kind != self._kind:
            self._kind = kind
            self._items += 1
            if self._items > self._limits.items:
                raise self._limits.too_many_items()

    def _finish_reason(self) -> str:
        if self._reason is None and not self._whole:
            return self._reason_unsaid()
        known = REASONS.get(self._reason.lower(), "stop") if self._reason else "stop"
        if known == "error":
            raise BadGatewayError(f"The backend '{self._limits.backend}' gave up on its answer.", code=FAILED)
        return settled_reason(known, () if self._calls is None else self._calls.begun)

    def _reason_unsaid(self) -> str:
        """Return why a stream stopped that does not say: calls that are whole can be made, all else may be cut off."""
        calls = () if self._calls is None else self._calls.begun
        return "tool_calls" if calls and all(call.is_complete() for call in calls) else UNFINISHED


def settled_reason(reason: str, calls: Sequence[object]) -> str:
    """Return why a model stopped: some servers report `stop` beside calls, or calls where none came."""
    if reason in {"stop", "tool_calls"}:
        return "tool_calls" if calls else "stop"
    return reason
