"""One answer of the Responses API, streamed or whole, fed to a sink."""

from typing import Any

import msgspec
from msgspec import Raw, Struct

from antwort.backends.base import TurnSink
from antwort.backends.errors import BROKEN, DISCONNECTED, FAILED, excerpt, reported_error
from antwort.backends.http.limits import AnswerLimits
from antwort.backends.responses.output import ResponsesOutput
from antwort.backends.usage import usage_of
from antwort.errors import APIError, BadGatewayError

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
