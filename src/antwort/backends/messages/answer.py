"""One message, streamed or whole, fed to a sink."""

from collections.abc import Mapping
from itertools import dropwhile
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec import Struct

from antwort.backends.base import UNFINISHED, TurnSink, WholeCall, WholeTurn
from antwort.backends.dialects import Pieces, Tokens, usage_of
from antwort.backends.errors import BROKEN, DISCONNECTED, excerpt, reported_error
from antwort.backends.http.transport import AnswerLimits
from antwort.backends.messages.request import HiddenThoughts, SignedThoughts, sealed_thoughts
from antwort.errors import BadGatewayError
from antwort.types import JSON
from antwort.wire.responses import PLAIN_INPUT, PLAIN_OUTPUT, InputTokensDetails, OutputTokensDetails, Usage

# --- as servers write it; what is unknown is skipped ------------------------------------------------------------------


class SentBlock(Struct, gc=False):
    """A block, or the beginning of one."""

    type: str = ""
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    data: str | None = None
    id: str | None = None
    name: str | None = None
    input: Any = None


class SentDelta(Struct, gc=False):
    """A piece of a block, or how a message ends."""

    text: str | None = None
    partial_json: str | None = None
    thinking: str | None = None
    signature: str | None = None
    stop_reason: str | None = None
    stop_details: Any = None


class SentMessage(Struct, gc=False):
    """A message as a whole, or what is there at its beginning."""

    type: str = ""
    content: list[SentBlock] | None = None
    stop_reason: str | None = None
    stop_details: Any = None
    usage: Any = None
    error: Any = None
    detail: Any = None
    message: Any = None
    """Of an error that has no object of its own, like `detail`."""


class ThoughtTokens(Struct, gc=False):
    """What output tokens were."""

    thinking_tokens: Tokens | None = None


class CountedTokens(Struct, gc=False):
    """Tokens as Anthropic counts them: those of the cache beside those of the input."""

    input_tokens: Tokens = 0
    output_tokens: Tokens = 0
    cache_read_input_tokens: Tokens | None = None
    cache_creation_input_tokens: Tokens | None = None
    output_tokens_details: ThoughtTokens | None = None


class SentEvent(Struct, gc=False):
    """An event of a stream."""

    type: str = ""
    index: int | None = None
    delta: SentDelta | None = None
    content_block: SentBlock | None = None
    message: Any = None
    usage: Any = None
    error: Any = None


_decode_event = msgspec.json.Decoder(SentEvent).decode
_decode_whole = msgspec.json.Decoder(SentMessage).decode
_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_DONE = b"[DONE]"

_CUT_OFF: Mapping[str, str] = MappingProxyType(
    {
        "max_tokens": "length",
        "model_context_window_exceeded": "length",
        "pause_turn": "length",  # a tool of the server's own is to go on: it is not all there
        "refusal": "content_filter",
    }
)
"""Why a message is not whole; all other reasons (`end_turn`, `tool_use`, `stop_sequence`, …) say that it is."""


def finish_reason(stop_reason: str, *, has_calls: bool) -> str:
    """Return why a turn ends."""
    if stop_reason in _CUT_OFF:
        return _CUT_OFF[stop_reason]
    return "tool_calls" if has_calls else "stop"


def message_usage(told: Any) -> Usage | None:
    """Return the tokens used as responses count them: those of the cache are among those of the input."""
    if not told:
        return None
    try:
        counted = msgspec.convert(told, CountedTokens)
    except msgspec.ValidationError:
        return usage_of(told)  # whatever of it is a count
    read, written = counted.cache_read_input_tokens or 0, counted.cache_creation_input_tokens or 0
    details = counted.output_tokens_details
    thoughts = 0 if details is None else details.thinking_tokens or 0
    input_tokens = counted.input_tokens + read + written
    return Usage(
        input_tokens,
        InputTokensDetails(read, written) if read or written else PLAIN_INPUT,
        counted.output_tokens,
        OutputTokensDetails(thoughts) if thoughts else PLAIN_OUTPUT,
        input_tokens + counted.output_tokens,
    )


def plain_message(body: bytes, limits: AnswerLimits) -> WholeTurn | None:
    """Read a message that has texts, calls behind them, and nothing else; None for any other."""
    try:
        message = _decode_whole(body)
    except _UNREADABLE:
        return None
    if not message.content or message.error or message.stop_reason in {None, "refusal"}:
        return None
    used = [*dropwhile(_is_text, message.content)]
    count = len(message.content) - len(used)
    if len(used) > limits.calls or count > limits.items or not all(map(_is_call, used)):
        return None
    text = "".join(block.text or "" for block in message.content[:count])
    reason = finish_reason(message.stop_reason or "", has_calls=bool(used))
    return WholeTurn(text, [*map(_whole_call, used)], message_usage(message.usage), reason)


def _is_text(block: SentBlock) -> bool:
    return block.type == "text"


def _is_call(block: SentBlock) -> bool:
    return block.type == "tool_use" and bool(block.name)


def _whole_call(block: SentBlock) -> WholeCall:
    return WholeCall(block.id or None, block.name or "", _written(block.input) or "{}")


def _written(arguments: Any) -> str:
    """Return arguments that came as an object; nothing for none."""
    return msgspec.json.encode(arguments).decode() if arguments else ""


# --- an answer --------------------------------------------------------------------------------------------------------


class MessagesAnswer:
    """Reads the events of one message and feeds the sink.

    Blocks come one after the other. Those of tools that the server executes itself are its own business, and passed
    over, as are citations. Tokens used and the reason to stop are fed at the end, in this order and once.
    """

    __slots__ = (
        "_calls",
        "_details",
        "_has_arguments",
        "_held",
        "_index",
        "_items",
        "_kind",
        "_limits",
        "_reason",
        "_signature",
        "_sink",
        "_start",
        "_thoughts",
        "_usage",
        "begun",
        "done",
    )

    def __init__(self, limits: AnswerLimits, sink: TurnSink) -> None:
        self._limits = limits
        self._sink = sink
        self.begun, self.done = False, False
        self._held: list[str] = []
        """Pieces of text that came together, and are fed before anything else."""
        self._kind = ""
        """Of the block that is open; empty if none is."""
        self._index: int | None = None
        self._start = SentBlock()
        self._thoughts = Pieces()
        self._signature = Pieces()
        self._has_arguments = False
        self._calls = 0
        self._items = 0
        self._reason: str | None = None
        self._details: Any = None
        self._usage: JSON = {}

    def take(self, payload: bytes) -> None:
        """Take an event. An error in it is raised as the API error it stands for; unknown ones are passed over."""
        try:
            event = _decode_event(payload)
        except _UNREADABLE:
            if payload.strip() != _DONE:
                raise self._no_part(payload) from None
            self.done = True
            return
        if event.type == "content_block_delta" and event.delta is not None:  # as nearly always
            self._take_piece(event.index, event.delta)
        else:
            self._take_other(event, payload)

    def pass_on(self) -> None:
        """Feed the text that was held back."""
        held = self._held
        if held:
            self._held = []
            self._sink.text_burst(held)

    def take_whole(self, body: bytes) -> None:
        """Take an answer that came as a whole."""
        try:
            message = _decode_whole(body)
        except _UNREADABLE:
            raise self._no_message(body) from None
        if report := message.error or message.detail or (message.content is None and message.message):
            raise reported_error(self._limits.backend, report)
        if message.content is None:
            raise self._no_message(body)
        for block in message.content:
            self._begin(None, block)
            self._end_block()
        self._take_end(message.stop_reason, message.stop_details, message.usage)
        self.done = True

    def end(self) -> None:
        """Feed what is known only at the end. An answer without an end is a BadGatewayError."""
        if self._reason is None and not self.done:
            raise BadGatewayError(
                f"The answer of the backend '{self._limits.backend}' ended before its end.", code=DISCONNECTED
            )
        self._end_block()
        self.pass_on()
        if isinstance(self._details, dict) and isinstance(why := self._details.get("explanation"), str) and why:
            self._sink.refusal(why)
        usage = message_usage(self._usage)
        if usage is not None:
            self._sink.usage(usage)
        reason = self._reason
        self._sink.finish(UNFINISHED if reason is None else finish_reason(reason, has_calls=self._calls > 0))

    # --- events ------------------------------------------------------------------------------------------------------

    def _take_other(self, event: SentEvent, payload: bytes) -> None:
        match event.type:
            case "content_block_start":
                if event.content_block is not None:
                    self._begin(event.index, event.content_block)
            case "content_block_stop":
                self._end_block()
            case "message_start":
                started = event.message if isinstance(event.message, dict) else {}
                self._take_end(None, None, started.get("usage"))
            case "message_delta":
                delta = event.delta or SentDelta()
                self._take_end(delta.stop_reason, delta.stop_details, event.usage)
            case "message_stop":
                self.done = True
            case _:
                if event.type == "error" or event.error:
                    raise reported_error(self._limits.backend, event.error or {"message": event.message})
                if not event.type:
                    raise self._no_part(payload)

    def _take_piece(self, index: int | None, delta: SentDelta) -> None:
        if not self._kind or index != self._index:
            raise BadGatewayError(
                f"The backend '{self._limits.backend}' sent a piece of a block that has not begun, or is over.",
                code=BROKEN,
            )
        kind = self._kind
        if kind == "text":
            if delta.text:
                self._held.append(delta.text)
        elif kind == "tool_use":
            if delta.partial_json:
                self._has_arguments = True
                self._sink.tool_call(self._calls - 1, arguments=delta.partial_json)
        elif kind == "thinking":
            if delta.thinking:
                self._thoughts.add(delta.thinking)
                self._sink.reasoning(delta.thinking)
            elif delta.signature:
                self._signature.add(delta.signature)

    def _take_end(self, reason: str | None, details: Any, usage: Any) -> None:
        """Take why the message ends, and the tokens used so far: those that are not told again stay."""
        if reason is not None:
            self._reason, self._details = reason, details
        if isinstance(usage, dict):
            self._usage.update((name, value) for name, value in usage.items() if value is not None)

    # --- blocks ------------------------------------------------------------------------------------------------------

    def _begin(self, index: int | None, block: SentBlock) -> None:
        self._end_block()
        self._kind, self._index, self._start = block.type, index, block
        self.begun = True
        self._items += 1
        if self._items > self._limits.items:
            raise self._limits.too_many_items()
        if block.type == "text":
            if block.text:
                self._held.append(block.text)
            return
        self.pass_on()
        if block.type == "thinking":
            self._thoughts, self._signature = Pieces(), Pieces()
            if block.signature:
                self._signature.add(block.signature)
            if block.thinking:
                self._thoughts.add(block.thinking)
                self._sink.reasoning(block.thinking)
        elif block.type == "tool_use":
            self._begin_call(block)

    def _begin_call(self, block: SentBlock) -> None:
        if not block.name:
            raise BadGatewayError(
                f"The backend '{self._limits.backend}' sent a function call without a name.", code=BROKEN
            )
        if self._calls >= self._limits.calls:
            raise self._limits.excess(f"more than {self._limits.calls:,} calls in one turn", "max_calls")
        self._has_arguments = False
        self._sink.tool_call(self._calls, call_id=block.id or None, name=block.name)
        self._calls += 1

    def _end_block(self) -> None:
        kind, block, self._kind = self._kind, self._start, ""
        if kind == "tool_use" and not self._has_arguments:
            self._sink.tool_call(self._calls - 1, arguments=_written(block.input) or "{}")
        elif kind == "thinking" and self._signature:
            self._sink.opaque(sealed_thoughts(SignedThoughts(self._thoughts.text(), self._signature.text())))
        elif kind == "redacted_thinking" and block.data:
            self._sink.opaque(sealed_thoughts(HiddenThoughts(block.data)))

    # --- errors ------------------------------------------------------------------------------------------------------

    def _no_part(self, payload: bytes) -> BadGatewayError:
        return BadGatewayError(
            f"The backend '{self._limits.backend}' sent something that is no part of a message: {excerpt(payload)} "
            "(check its url and api)",
            code=BROKEN,
        )

    def _no_message(self, body: bytes) -> BadGatewayError:
        return BadGatewayError(
            f"The backend '{self._limits.backend}' answered with something that is no message: {excerpt(body)} "
            "(check its url and api)",
            code=BROKEN,
        )
