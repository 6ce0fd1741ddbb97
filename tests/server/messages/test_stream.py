"""Blocks come one after the other, however a model server mixes the pieces of a turn."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from starlette.types import Message
from tests.http.messages import check_order, frames

from antwort.engine.output.emitter import Emitter, EmitterOptions
from antwort.server.messages.stream import MessageEvents
from antwort.types import JSON
from antwort.wire.responses import ResponseObject

ARGUMENTS = '{"city": "Uji", "days": [1, 2]}'


class Turn:
    """A turn of a model whose pieces are fed to the stream of a message."""

    def __init__(self) -> None:
        self._body = b""
        self._response = ResponseObject(id="resp_1", created_at=1, model="m")
        self._stream = MessageEvents(self._send, self._response)
        self.emitter = Emitter(self._response, self._stream, EmitterOptions())
        self.emitter.client_functions = {"f"}
        self.emitter.announce("created")

    async def _send(self, message: Message) -> None:
        self._body += message.get("body", b"")

    async def end(self) -> list[JSON]:
        """End it, and return the events."""
        self.emitter.end_turn()
        self._response.status = "completed"
        self.emitter.announce("completed")
        await self._stream.end()
        read = [*frames(self._body.decode())]
        check_order(read)
        return read


def said(read: list[JSON]) -> list[Any]:
    """Return what the blocks say, in their order."""
    blocks: dict[int, list[str]] = {}
    for event in read:
        if event["type"] == "content_block_start":
            blocks[event["index"]] = []
        elif event["type"] == "content_block_delta":
            delta = event["delta"]
            blocks[event["index"]].append(delta.get("text") or delta.get("thinking") or delta.get("partial_json") or "")
    return ["".join(pieces) for pieces in blocks.values()]


@given(pieces=st.lists(st.sampled_from(["call 0", "call 1", "call 2", "text", "thought"]), max_size=40))
async def test_pieces_in_any_order_make_blocks_in_one(pieces: list[str]) -> None:
    turn = Turn()
    calls: dict[int, int] = {}
    texts: list[str] = []
    for piece in pieces:
        if piece == "text":
            turn.emitter.text("x")
            texts.append("x")
        elif piece == "thought":
            turn.emitter.reasoning("y")
            texts.append("y")
        else:
            index = int(piece[-1])
            start = calls.get(index, 0)
            name = None if index in calls else "f"
            calls[index] = start + 4
            turn.emitter.tool_call(index, name=name, arguments=ARGUMENTS[start : start + 4])
    for index, start in calls.items():
        turn.emitter.tool_call(index, arguments=ARGUMENTS[start:])
    read = await turn.end()

    found = said(read)
    assert sorted("".join(found).replace(ARGUMENTS, "")) == sorted(texts)
    assert [json.loads(text) for text in found if text.startswith("{")] == [json.loads(ARGUMENTS)] * len(calls)
    assert read[-2]["delta"]["stop_reason"] == ("tool_use" if calls else "end_turn")


async def test_a_call_ends_when_its_arguments_are_whole() -> None:
    turn = Turn()
    turn.emitter.tool_call(0, name="f", arguments="{}")
    turn.emitter.tool_call(1, name="f", arguments='{"a')
    turn.emitter.text("Meanwhile.")
    turn.emitter.tool_call(1, arguments='": 1}')
    read = await turn.end()
    assert said(read) == ["{}", '{"a": 1}', "Meanwhile."]
