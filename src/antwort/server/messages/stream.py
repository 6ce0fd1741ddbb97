"""The stream of a message: the events of its response become those of Messages, block by block."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec import Struct
from starlette.types import Send
from typing_extensions import override

from antwort.server.http.exchange import Exchange
from antwort.server.http.sse import EventStream, frame
from antwort.types import JSON
from antwort.wire.messages.answers import (
    MessageUsage,
    begun_message,
    citation,
    item_blocks,
    searches_in,
    stop_reason,
)
from antwort.wire.responses import ResponseObject

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.decode
_MESSAGE, _HEAD = b'"item":{"type":"message"', 160
"""How the item of an event begins that is a text, and in how many bytes of that."""
_INDEX, _DELTA = b'"output_index":', b',"delta":'
_TEXT, _THOUGHT, _CALL = "text", "thinking", "tool_use"
_HEADS = {
    _TEXT: b',"delta":{"type":"text_delta","text":',
    _THOUGHT: b',"delta":{"type":"thinking_delta","thinking":',
    _CALL: b',"delta":{"type":"input_json_delta","partial_json":',
}
_EMPTY: dict[str, JSON] = {
    _TEXT: {"type": _TEXT, _TEXT: ""},
    _THOUGHT: {"type": _THOUGHT, _THOUGHT: "", "signature": ""},
}
"""Blocks of which nothing has been said."""


class _Block(Struct, eq=False):
    """A block that is being written."""

    kind: str
    index: int
    head: bytes
    """How its deltas begin."""
    pieces: list[str] = []
    """The arguments of a call, as JSON texts."""
    frames: list[tuple[str, bytes]] = []
    """What waits for the blocks before it to end."""
    is_over: bool = False


class MessageEvents(EventStream):
    """Takes the events of a response and writes those of a message.

    Blocks come one after the other, and items may not: calls of one turn are open until it ends. So a block that begins
    while another one is open waits for that to end; a call has ended, too, when its arguments are a whole.
    """

    end_mark = b""
    life_sign = frame("ping", b'{"type":"ping"}')

    def __init__(
        self,
        send: Send,
        response: ResponseObject,
        exchange: Exchange | None = None,
        *,
        thoughts: bool = True,
        omitted: bool = False,
    ) -> None:
        super().__init__(send, exchange)
        self._response = response
        self._thoughts = thoughts
        self._omitted = omitted
        self.stopped_by: Callable[[], str | None] = _by_nothing
        """Tells the stop sequence at which the message has ended."""
        self._blocks: list[_Block] = []
        """Those that have not ended, and those that wait for them."""
        self._of_items: dict[int, _Block] = {}
        self._count = 0
        self._told: dict[str, Callable[[bytes], None]] = {
            "response.created": self._begin,
            "response.output_item.added": self._item_added,
            "response.output_text.annotation.added": self._annotation,
            "response.output_item.done": self._item_done,
            "response.completed": self._end,
            "response.incomplete": self._end,
            "error": self._error,
        }

    @override
    def put(self, kind: str, *events: bytes) -> None:
        if kind in _DELTAS:  # some that are not written one after the other
            for event in events:
                found = _decode(event)
                self.put_deltas(kind, b'"output_index":%d,"delta":' % found["output_index"], [found["delta"]])
        elif (tell := self._told.get(kind)) is not None:
            for event in events:
                tell(event)

    def put_deltas(self, kind: str, middle: bytes, deltas: Sequence[str]) -> None:
        """Take pieces of a text, of thoughts or of arguments that come together: the hot path."""
        shown = _DELTAS[kind]
        if shown == _THOUGHT and (self._omitted or not self._thoughts):
            return
        if shown == _CALL:
            block = self._of_items[int(middle[middle.rindex(_INDEX) + len(_INDEX) : -len(_DELTA)])]
            block.pieces += deltas
        else:
            block = self._last(shown) or self._start(shown, _EMPTY[shown])
        head = block.head
        written = [b"".join((head, _encode(delta), b"}}")) for delta in deltas]
        if block is self._blocks[0]:
            super().put("content_block_delta", *written)
        else:
            block.frames += [("content_block_delta", one) for one in written]

    # --- the message -------------------------------------------------------------------------------------------------

    def _begin(self, _event: bytes) -> None:
        super().put("message_start", _encode({"type": "message_start", "message": begun_message(self._response)}))

    def _end(self, _event: bytes) -> None:
        response, stopped_by = self._response, self.stopped_by()
        for block in [*self._blocks]:
            self._close(block)
        delta = {"stop_reason": stop_reason(response, stopped_by), "stop_sequence": stopped_by}
        usage = MessageUsage.of(response.usage, searches_in(response))
        super().put("message_delta", _encode({"type": "message_delta", "delta": delta, "usage": usage}))
        super().put("message_stop", b'{"type":"message_stop"}')

    def _error(self, event: bytes) -> None:
        said = _decode(event)
        kind = "rate_limit_error" if said["code"] == "rate_limit_exceeded" else "api_error"
        super().put("error", _encode({"type": "error", "error": {"type": kind, "message": said["message"]}}))

    # --- blocks ------------------------------------------------------------------------------------------------------

    def _start(self, kind: str, block: JSON) -> _Block:
        """Begin a block."""
        for open_call in [one for one in self._blocks if one.kind == _CALL and _is_whole(one)]:
            self._close(open_call)
        index = self._count
        self._count += 1
        head = b'{"type":"content_block_delta","index":%d%s' % (index, _HEADS.get(kind, b',"delta":'))
        found = _Block(kind, index, head)
        self._blocks.append(found)
        self._tell(found, "content_block_start", {"index": index, "content_block": block})
        return found

    def _tell(self, block: _Block, kind: str, fields: JSON) -> None:
        event = _encode({"type": kind, **fields})
        if block is self._blocks[0]:
            super().put(kind, event)
        else:
            block.frames.append((kind, event))

    def _close(self, block: _Block) -> None:
        """End a block, and write what has waited for that."""
        if block.is_over:
            return
        block.is_over = True
        self._tell(block, "content_block_stop", {"index": block.index})
        while self._blocks and self._blocks[0].is_over:
            self._blocks.pop(0)
            if self._blocks:
                waiting, self._blocks[0].frames = self._blocks[0].frames, []
                for kind, event in waiting:
                    super().put(kind, event)

    # --- items -------------------------------------------------------------------------------------------------------

    def _item_added(self, event: bytes) -> None:
        if _MESSAGE in event[:_HEAD]:  # as most, and texts begin with their first piece
            return
        found = _decode(event)
        item = found["item"]
        if item["type"] == "function_call":
            call = {"type": _CALL, "id": item["call_id"], "name": item["name"], "input": {}}
            self._of_items[found["output_index"]] = self._start(_CALL, call)

    def _annotation(self, event: bytes) -> None:
        cited = citation(_decode(event)["annotation"])
        if cited is not None and (block := self._last(_TEXT)) is not None:
            delta = {"type": "citations_delta", "citation": cited}
            self._tell(block, "content_block_delta", {"index": block.index, "delta": delta})

    def _item_done(self, event: bytes) -> None:
        if _MESSAGE in event[:_HEAD]:
            self._end_text()
            return
        found = _decode(event)
        item = found["item"]
        kind = item["type"]
        if kind == "function_call":
            self._close(self._of_items.pop(found["output_index"]))
        elif kind == "message":
            self._end_text()
        elif kind == "reasoning":
            self._end_thoughts(item)
        else:
            for shown in item_blocks(item, thoughts=True, omitted=False):
                self._whole(shown)

    def _end_text(self) -> None:
        if (block := self._last(_TEXT)) is not None:
            self._close(block)

    def _last(self, kind: str) -> _Block | None:
        """Return the block that was begun last, if it is of a kind and still open."""
        if not self._blocks or self._blocks[-1].kind != kind or self._blocks[-1].is_over:
            return None
        return self._blocks[-1]

    def _end_thoughts(self, item: JSON) -> None:
        """End thoughts with their seal; some are nothing but that."""
        sealed = item.get("encrypted_content") or ""
        if not self._thoughts:
            return
        block = self._last(_THOUGHT)
        if block is None:
            if not (self._omitted and (item.get("content") or item.get("summary"))):
                if sealed:
                    self._whole({"type": "redacted_thinking", "data": sealed})
                return
            block = self._start(_THOUGHT, _EMPTY[_THOUGHT])
        if sealed:
            delta = {"type": "signature_delta", "signature": sealed}
            self._tell(block, "content_block_delta", {"index": block.index, "delta": delta})
        self._close(block)

    def _whole(self, block: JSON) -> None:
        """Write a block at once; what is asked of a tool comes in a piece, as clients expect it."""
        if "input" not in block:
            self._close(self._start(block["type"], block))
            return
        begun = self._start(block["type"], {**block, "input": {}})
        delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"], ensure_ascii=False)}
        self._tell(begun, "content_block_delta", {"index": begun.index, "delta": delta})
        self._close(begun)


_SUMMARY = "response.reasoning_summary_text.delta"
_THOUGHTS = frozenset({"response.reasoning_text.delta", "response.reasoning.delta", _SUMMARY})
_DELTAS = {
    "response.output_text.delta": _TEXT,
    "response.refusal.delta": _TEXT,
    "response.function_call_arguments.delta": _CALL,
    **dict.fromkeys(_THOUGHTS, _THOUGHT),
}
"""The events that are pieces, and the blocks they are pieces of."""


def _is_whole(call: _Block) -> bool:
    """Tell whether the arguments of a call have come to their end."""
    if not call.pieces:
        return False
    try:
        found: Any = _decode("".join(call.pieces))
    except (msgspec.MsgspecError, RecursionError):
        return False
    return isinstance(found, dict)


def _by_nothing() -> None:
    """Tell that a message has not ended at a stop sequence."""
