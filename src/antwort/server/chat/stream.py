"""The stream of a chat completion: the events of its response become chunks."""

from collections.abc import Awaitable, Callable, Sequence

import msgspec
from starlette.types import Send
from typing_extensions import override

from antwort.server.http.exchange import Exchange
from antwort.server.http.sse import EventStream
from antwort.types import JSON
from antwort.wire.chat.answers import (
    BETWEEN,
    CompletionUsage,
    chat_id,
    citation,
    client_call,
    finish_reason,
    written_text,
)
from antwort.wire.responses import ResponseObject

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.decode
_INDEX = b'"output_index":'
_TEXT, _REFUSAL, _THOUGHT, _CALL, _INPUT = "content", "refusal", "reasoning_content", "arguments", "input"
_DELTAS = {
    "response.output_text.delta": _TEXT,
    "response.refusal.delta": _REFUSAL,
    "response.reasoning_text.delta": _THOUGHT,
    "response.reasoning.delta": _THOUGHT,
    "response.reasoning_summary_text.delta": _THOUGHT,
    "response.function_call_arguments.delta": _CALL,
    "response.custom_tool_call_input.delta": _INPUT,
}
"""The events that are pieces, and what they are pieces of."""
_CALLS = {_CALL: b'"function":{"arguments":', _INPUT: b'"custom":{"input":'}
_MESSAGE, _BEGINNING = b'"item":{"type":"message"', 160
"""How the item of an event begins that is a text, and in how many bytes of that."""


class ChatEvents(EventStream):
    """Takes the events of a response and writes the chunks of a completion."""

    def __init__(
        self,
        send: Send,
        response: ResponseObject,
        exchange: Exchange | None,
        *,
        usage: bool,
        keep: Callable[[ResponseObject], Awaitable[object]] | None,
    ) -> None:
        super().__init__(send, exchange)
        self._response = response
        self._usage = usage
        self._keep = keep
        """What keeps the completion before its stream ends."""
        head: JSON = {"id": chat_id(response.id), "object": "chat.completion.chunk", "created": response.created_at}
        self._head = _encode(head)[:-1]
        self._tail = b',"usage":null}' if usage else b"}"
        self._calls: dict[int, int] = {}
        """The indices of calls, by those of their items."""
        self._length = 0
        """Characters that were said."""
        self._began = 0
        """Where the text began that is being said."""
        self._is_over = False
        self._told: dict[str, Callable[[bytes], None]] = {
            "response.created": self._begin,
            "response.output_item.added": self._item_added,
            "response.output_text.annotation.added": self._annotation,
            "response.output_item.done": self._item_done,
            "response.completed": self._end_chat,
            "response.incomplete": self._end_chat,
            "error": self._error,
        }

    @override
    def put(self, kind: str, *events: bytes) -> None:
        if kind in _DELTAS:
            for event in events:
                self._put_whole_delta(kind, _decode(event))
        elif (tell := self._told.get(kind)) is not None:
            for event in events:
                tell(event)

    def put_deltas(self, kind: str, middle: bytes, deltas: Sequence[str]) -> None:
        """Take pieces that come together: the hot path."""
        shown = _DELTAS[kind]
        if shown in _CALLS:
            found = middle.rindex(_INDEX) + len(_INDEX)
            index = self._calls[int(middle[found : middle.index(b",", found)])]
            for delta in deltas:
                self._write_delta(b'{"tool_calls":[{"index":%d,%b%b}}]}' % (index, _CALLS[shown], _encode(delta)))
            return
        for delta in deltas:
            self._write_delta(b'{"%b":%b}' % (shown.encode(), _encode(delta)))
            if shown == _TEXT:
                self._length += len(delta)

    @override
    async def end(self) -> None:
        if self._is_over and self._keep is not None:
            await self._keep(self._response)
        await super().end()

    # --- writing -----------------------------------------------------------------------------------------------------

    def _write_chunk(self, choices: bytes, tail: bytes) -> None:
        model = _encode(self._response.model)  # which is known once somebody has answered
        self._frames += (b"data: ", self._head, b',"model":', model, b',"choices":', choices, tail, b"\n\n")

    def _write_delta(self, delta: bytes, logprobs: bytes = b"null", finish: bytes = b"null") -> None:
        choice = b'[{"index":0,"delta":%b,"logprobs":%b,"finish_reason":%b}]' % (delta, logprobs, finish)
        self._write_chunk(choice, self._tail)

    def _put_whole_delta(self, kind: str, event: JSON) -> None:
        """Take a piece with all that its event says."""
        logprobs = event.get("logprobs")
        if not logprobs:
            self.put_deltas(kind, b'"output_index":%d,"delta":' % event["output_index"], [event["delta"]])
            return
        self._length += len(event["delta"])
        self._write_delta(_encode({_TEXT: event["delta"]}), _encode({_TEXT: logprobs, _REFUSAL: None}))

    # --- the completion ----------------------------------------------------------------------------------------------

    def _begin(self, _event: bytes) -> None:
        self._write_delta(b'{"role":"assistant","content":"","refusal":null}')

    def _end_chat(self, _event: bytes) -> None:
        self._is_over = True
        self._write_delta(b"{}", finish=_encode(finish_reason(self._response)))
        if self._usage:
            self._write_chunk(b"[]", b',"usage":%b}' % _encode(CompletionUsage.of(self._response.usage)))

    def _error(self, event: bytes) -> None:
        said = _decode(event)
        kind = "rate_limit_error" if said["code"] == "rate_limit_exceeded" else "server_error"
        error = {"message": said["message"], "type": kind, "param": said.get("param"), "code": said["code"]}
        self._frames += (b"data: ", _encode({"error": error}), b"\n\n")

    # --- items -------------------------------------------------------------------------------------------------------

    def _item_added(self, event: bytes) -> None:
        if _MESSAGE in event[:_BEGINNING]:
            self._begin_text()
            return
        found = _decode(event)
        call = client_call(found["item"])
        if call is not None:
            index = self._calls[found["output_index"]] = len(self._calls)
            self._write_delta(_encode({"tool_calls": [{"index": index, **call}]}))

    def _begin_text(self) -> None:
        if self._length:
            self.put_deltas("response.output_text.delta", b"", [BETWEEN])
        self._began = self._length

    def _annotation(self, event: bytes) -> None:
        cited = citation(_decode(event)["annotation"], self._began)
        if cited is not None:
            self._write_delta(_encode({"annotations": [cited]}))

    def _item_done(self, event: bytes) -> None:
        if _MESSAGE in event[:_BEGINNING]:
            return
        item = _decode(event)["item"]
        if item["type"] != "message" and (text := written_text(item)):
            self._begin_text()
            self.put_deltas("response.output_text.delta", b"", [text])
