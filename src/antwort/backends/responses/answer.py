"""One answer of the Responses API, streamed or whole, fed to a sink."""

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Raw, Struct

from antwort.backends.base import TurnSink
from antwort.backends.dialects import logprobs_of, usage_of
from antwort.backends.errors import BROKEN, DISCONNECTED, FAILED, excerpt, reported_error
from antwort.backends.http.transport import AnswerLimits
from antwort.errors import APIError, BadGatewayError
from antwort.types import JSON

Key = tuple[str, int, int]
"""What kind of text, of which item, which part of it."""

BREAK = "\n\n"
"""Between two texts of which the server made two items or parts, and a turn has one."""


class _FedCall:
    """A function call as far as it was fed."""

    __slots__ = ("call_id", "fed", "index", "is_whole", "size")

    def __init__(self, index: int, call_id: str | None) -> None:
        self.index = index
        self.call_id = call_id
        self.fed: list[str] = []
        self.size = 0
        self.is_whole = False


class ResponsesOutput:
    """Feeds pieces of items, known by their index in the output. A whole gives what its pieces left out.

    Servers that tell no indexes have one call after the other: a piece is of the last one, a whole of the one with its
    id.
    """

    __slots__ = (
        "_all",
        "_alternatives",
        "_by_id",
        "_calls",
        "_fed",
        "_feed",
        "_items",
        "_last",
        "_limits",
        "_sink",
        "_streamed",
        "_text",
        "begun",
    )

    def __init__(self, limits: AnswerLimits, sink: TurnSink, alternatives: int | None = None) -> None:
        self.begun = False
        """Whether anything was fed."""
        self._limits = limits
        self._alternatives = alternatives
        """How many were asked for with each log probability; None if these were not asked for."""
        self._items = 0
        self._sink = sink
        self._text = sink.text
        self._calls: dict[int, _FedCall] = {}
        """The last call at each index."""
        self._all: list[_FedCall] = []
        self._by_id: dict[str, _FedCall] = {}
        self._feed = {"refusal": sink.refusal, "reasoning": sink.reasoning, "summary": sink.summary}
        self._streamed: set[tuple[str, int]] = set()
        self._fed: set[Key] = set()
        self._last: Key | None = None

    @property
    def has_calls(self) -> bool:
        """Whether there was a function call."""
        return bool(self._calls)

    # --- pieces ------------------------------------------------------------------------------------------------------

    def text(self, index: int, part: int, delta: Any, logprobs: Any = None) -> None:
        """Take a piece of the answer."""
        if isinstance(delta, str) and delta:
            shaped = logprobs_of({"content": logprobs}, self._alternatives) if logprobs else None
            self._text(self._piece(("text", index, part), delta), shaped)

    def piece(self, kind: str, index: int, part: int, delta: Any) -> None:
        """Take a piece of something else: `refusal`, `reasoning`, `summary`."""
        if isinstance(delta, str) and delta:
            self._feed[kind](self._piece((kind, index, part), delta))

    def arguments(self, index: int, delta: Any) -> None:
        """Take a piece of a call's arguments. What comes before the call's name comes again with the whole."""
        call = self._calls.get(index)
        if call is not None and isinstance(delta, str) and delta:
            self._extend(call, delta)

    # --- wholes ------------------------------------------------------------------------------------------------------

    def whole_part(self, kind: str, index: int, part: int, text: Any, logprobs: Any = None) -> None:
        """Take a whole text, or something else, unless its item came in pieces or this part of it is known."""
        key = (kind, index, part)
        if (kind, index) in self._streamed or key in self._fed or not isinstance(text, str) or not text:
            return
        self._fed.add(key)
        text = self._parted(key, text)
        if kind == "text":
            self._text(text, logprobs_of({"content": logprobs}, self._alternatives))
        else:
            self._feed[kind](text)

    def all_arguments(self, index: int, arguments: Any) -> None:
        """Take all arguments of a call, of which a part may be known."""
        call = self._calls.get(index)
        if call is not None:
            self._complete(call, arguments)

    # --- items -------------------------------------------------------------------------------------------------------

    def begin(self, index: int | None, item: Any) -> None:
        """Take the beginning of an item: a call's name is known by then.

        One that begins where another has ended is another call: not every server counts its indexes.
        """
        if isinstance(item, dict) and item.get("type") == "function_call":
            call = self._known(index, item)
            if call is None or call.is_whole:
                self._begin(index, item)

    def whole(self, index: int | None, item: Any) -> None:
        """Take a whole item. Those of other types are the server's own business."""
        if not isinstance(item, dict):
            return
        match item.get("type"):
            case "message":
                self._whole_message(index or 0, item)
            case "reasoning":
                self._whole_reasoning(index or 0, item)
            case "function_call":
                self._whole_call(index, item)

    def rest(self, items: Sequence[Any]) -> None:
        """Take of a whole answer what nothing came of before: its messages, its calls.

        Indexes in a stream are not always those of the response at its end, so single items are not compared.
        """
        fed = {kind for kind, _ in self._streamed} | {kind for kind, _, _ in self._fed}
        missing = {"message"} if not fed & {"text", "refusal"} else set()
        missing |= {"function_call"} if not self._calls else set()
        missing |= set() if self.begun else {"reasoning"}
        for index, item in enumerate(items):
            if isinstance(item, dict) and item.get("type") in missing:
                self.whole(index, item)

    def end(self) -> None:
        """Give calls without arguments empty ones."""
        for call in self._all:
            if not call.fed:
                self._sink.tool_call(call.index, arguments="{}")

    def _extend(self, call: _FedCall, delta: str) -> None:
        call.fed.append(delta)
        call.size += len(delta)
        self._sink.tool_call(call.index, arguments=delta)

    def _complete(self, call: _FedCall, arguments: Any) -> None:
        # Only what is longer is looked at, so that wholes that come again and again cost no more than they are long.
        if isinstance(arguments, str) and len(arguments) > call.size and arguments.startswith("".join(call.fed)):
            self._extend(call, arguments[call.size :])

    def _known(self, index: int | None, item: JSON) -> _FedCall | None:
        call_id = item.get("call_id")
        if index is None and isinstance(call_id, str):
            return self._by_id.get(call_id)
        return self._calls.get(index or 0)

    def _begin(self, index: int | None, item: JSON) -> _FedCall | None:
        name, call_id = item.get("name"), item.get("call_id")
        if not isinstance(name, str) or not name:
            return None
        if len(self._all) >= self._limits.calls:
            raise self._limits.excess(f"more than {self._limits.calls:,} calls in one turn", "max_calls")
        self.begun = True
        self._last = None
        call = self._calls[index or 0] = _FedCall(len(self._all), call_id if isinstance(call_id, str) else None)
        self._all.append(call)
        if call.call_id is not None:
            self._by_id[call.call_id] = call
        self._sink.tool_call(call.index, call_id=call.call_id, name=name)
        self._complete(call, item.get("arguments"))
        return call

    def _whole_call(self, index: int | None, item: JSON) -> None:
        call = self._known(index, item) or self._begin(index, item)
        if call is None:
            raise BadGatewayError(
                f"The backend '{self._limits.backend}' sent a function call without a name.", code=BROKEN
            )
        self._complete(call, item.get("arguments"))
        call.is_whole = True

    def _whole_message(self, index: int, item: JSON) -> None:
        for number, part in _parts(item.get("content")):
            if part.get("type") == "refusal":
                self.whole_part("refusal", index, number, part.get("refusal"))
            else:
                self.whole_part("text", index, number, part.get("text"), part.get("logprobs"))

    def _whole_reasoning(self, index: int, item: JSON) -> None:
        for number, part in _parts(item.get("content")):
            self.whole_part("reasoning", index, number, part.get("text"))
        for number, part in _parts(item.get("summary")):
            self.whole_part("summary", index, number, part.get("text"))
        sealed, key = item.get("encrypted_content"), ("sealed", index, 0)
        if isinstance(sealed, str) and sealed and key not in self._fed:
            self._fed.add(key)
            self._last = None
            self.begun = True
            self._note_item()
            self._sink.opaque(sealed)

    def _piece(self, key: Key, delta: str) -> str:
        """Note where a piece belongs, and part it from another text right before it."""
        if key == self._last:
            return delta
        self._streamed.add(key[:2])
        return self._parted(key, delta)

    def _parted(self, key: Key, text: str) -> str:
        last, self._last = self._last, key
        self.begun = True
        if last is not None and last[0] == key[0]:
            return BREAK + text
        self._note_item()
        return text

    def _note_item(self) -> None:
        self._items += 1
        if self._items > self._limits.items:
            raise self._limits.too_many_items()


def _parts(value: Any) -> list[tuple[int, JSON]]:
    parts = value if isinstance(value, list) else []
    return [(number, part) for number, part in enumerate(parts) if isinstance(part, dict)]


NOTHING = Raw(b"null")


class Event(Struct, gc=False):
    """An event of a stream. Whole responses stay unread: all but the last are of no use here."""

    type: str = ""
    output_index: int | None = None
    """Where the item stands; some servers do not tell."""
    content_index: int = 0
    summary_index: int = 0
    delta: Any = None
    text: Any = None
    refusal: Any = None
    arguments: Any = None
    logprobs: Any = None
    item: Any = None
    response: Raw = NOTHING
    error: Any = None
    code: Any = None
    message: Any = None
    param: Any = None


class ResponseBody(Struct):
    """A response."""

    status: str | None = None
    output: list[Any] | None = None
    usage: Any = None
    error: Any = None
    incomplete_details: Any = None
    detail: Any = None
    message: Any = None
    """Of an error that has no object of its own, like `detail`."""


decode_event = msgspec.json.Decoder(Event).decode
decode_answer = msgspec.json.Decoder(ResponseBody).decode


_DONE = b"[DONE]"
_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_ENDS = frozenset({"response.completed", "response.incomplete", "response.failed", "response.cancelled"})


class ResponsesAnswer:
    """Reads the events of one answer and feeds the sink.

    Servers send deltas, whole parts, whole items, or only the response at the end. What came in one way is not taken in
    another. Tokens used and the reason to stop are fed at the end, in this order and once.
    """

    __slots__ = ("_answer", "_backend", "_output", "_sink", "done")

    def __init__(self, limits: AnswerLimits, sink: TurnSink, alternatives: int | None = None) -> None:
        self.done = False
        """Whether the server said that nothing follows."""
        self._backend = limits.backend
        self._sink = sink
        self._output = ResponsesOutput(limits, sink, alternatives)
        self._answer: ResponseBody | None = None

    @property
    def begun(self) -> bool:
        """Whether the model has said anything yet."""
        return self._output.begun

    def pass_on(self) -> None:
        """Hold nothing back."""

    def take(self, payload: bytes) -> None:
        """Take an event. An error in it is raised as the API error it stands for; unknown ones are passed over."""
        try:
            event = decode_event(payload)
        except _UNREADABLE:
            if payload.strip() == _DONE:
                self.done = True
                return
            raise BadGatewayError(
                f"The backend '{self._backend}' sent something that is no part of an answer: {excerpt(payload)}",
                code=BROKEN,
            ) from None
        if event.type == "response.output_text.delta":
            self._output.text(event.output_index or 0, event.content_index, event.delta, event.logprobs)
        elif event.type in _ENDS:
            self._take_answer(bytes(event.response))
            self.done = True
        else:
            self._take_other(event)

    def take_whole(self, body: bytes) -> None:
        """Take an answer that came as a whole."""
        self._take_answer(body)

    def end(self) -> None:
        """Feed what is known only at the end. An answer without an end is a BadGatewayError."""
        answer = self._answer
        if answer is None:
            raise BadGatewayError(
                f"The answer of the backend '{self._backend}' ended before its end.", code=DISCONNECTED
            )
        reason = self._finish_reason(answer)
        self._output.end()
        usage = usage_of(answer.usage)
        if usage is not None:
            self._sink.usage(usage)
        self._sink.finish(reason)

    def _take_other(self, event: Event) -> None:
        output, index = self._output, event.output_index or 0
        match event.type:
            case "response.function_call_arguments.delta":
                output.arguments(index, event.delta)
            case "response.function_call_arguments.done":
                output.all_arguments(index, event.arguments)
            case "response.reasoning_text.delta" | "response.reasoning.delta":
                output.piece("reasoning", index, event.content_index, event.delta)
            case "response.reasoning_text.done" | "response.reasoning.done":
                output.whole_part("reasoning", index, event.content_index, event.text)
            case "response.reasoning_summary_text.delta":
                output.piece("summary", index, event.summary_index, event.delta)
            case "response.reasoning_summary_text.done":
                output.whole_part("summary", index, event.summary_index, event.text)
            case "response.output_text.done":
                output.whole_part("text", index, event.content_index, event.text, event.logprobs)
            case "response.refusal.delta":
                output.piece("refusal", index, event.content_index, event.delta)
            case "response.refusal.done":
                output.whole_part("refusal", index, event.content_index, event.refusal)
            case "response.output_item.added":
                output.begin(event.output_index, event.item)
            case "response.output_item.done":
                output.whole(event.output_index, event.item)
            case _:
                self._check_error(event)

    def _check_error(self, event: Event) -> None:
        if event.type == "error" or (not event.type and (event.error or event.message)):
            report = event.error or {"message": event.message, "code": event.code, "param": event.param}
            raise reported_error(self._backend, report)

    def _take_answer(self, body: bytes) -> None:
        try:
            answer = decode_answer(body)
        except _UNREADABLE:
            raise BadGatewayError(
                f"The backend '{self._backend}' answered with something that is no answer: {excerpt(body)} "
                "(check its url and api)",
                code=BROKEN,
            ) from None
        message = answer.error or answer.detail or answer.message
        if message:
            raise reported_error(self._backend, message)
        if answer.status is None and answer.output is None:
            raise BadGatewayError(
                f"The answer of the backend '{self._backend}' is not one of the Responses API: {excerpt(body)} "
                "(check its url and api)",
                code=BROKEN,
            )
        self._output.rest(answer.output or ())
        self._answer = answer

    def _finish_reason(self, answer: ResponseBody) -> str:
        if answer.status == "incomplete":
            details = answer.incomplete_details
            reason = details.get("reason") if isinstance(details, dict) else None
            # Whatever else cut it short: it is not all there.
            return "content_filter" if reason == "content_filter" else "length"
        if answer.status in {None, "completed"}:
            return "tool_calls" if self._output.has_calls else "stop"
        raise self._given_up(answer.status)

    def _given_up(self, status: str | None) -> APIError:
        return BadGatewayError(
            f"The backend '{self._backend}' gave up on its answer, which is '{status}'.", code=FAILED
        )
