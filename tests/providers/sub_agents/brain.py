"""A model that decides what to say by what it reads, and takes note of how it is asked."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from antwort.backends.base import ModelInfo, ModelRequest, TurnSink
from antwort.backends.chat.request import ChatDialect, chat_body
from antwort.engine.window import is_summary
from antwort.testing import Turn, turn
from antwort.types import JSON
from antwort.wire.responses import Usage

Decide = Callable[[ModelRequest], Turn | str]
TOKENS = Usage(input_tokens=10, output_tokens=5, total_tokens=15)


class Brain:
    """A model backend. What it says depends on the request alone, so that requests may come in any order."""

    name = "brain"

    def __init__(self, decide: Decide, *, pause: float = 0) -> None:
        self._decide = decide
        self._pause = pause
        self._changed = asyncio.Event()
        self.asked = 0
        self.in_flight = 0
        self.most_in_flight = 0
        self.cancelled = 0
        self.largest = 0
        """Bytes of the largest request, as a server would get it."""
        self.read: list[list[JSON]] = []
        """What it has read that was no sub-agent's: requests with more than one item."""

    async def run(self, request: ModelRequest, sink: TurnSink) -> None:
        """Say what is decided."""
        self.asked += 1
        self.in_flight += 1
        self._changed.set()
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        self.largest = max(self.largest, size_of(request))
        if len(request.items) > 1:
            self.read.append([*request.items])
        try:
            await asyncio.sleep(self._pause)
            said = self._decide(request)
            said = turn(said) if isinstance(said, str) else said
            if said.wait_for is not None:
                await said.wait_for.wait()
            await _say(said, sink, self.asked)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.in_flight -= 1
            self._changed.set()

    async def until(self, in_flight: int) -> None:
        """Wait until so many requests are under way."""
        while self.in_flight != in_flight:
            self._changed.clear()
            await self._changed.wait()

    async def models(self) -> Sequence[ModelInfo]:
        """List the one model."""
        return [ModelInfo("scripted", self.name)]

    async def count_tokens(self, request: ModelRequest) -> int | None:
        """Count nothing."""
        return None

    async def context_window(self, model: str) -> int | None:
        """Tell nothing."""
        return None

    async def close(self) -> None:
        """Do nothing."""


async def _say(said: Turn, sink: TurnSink, number: int) -> None:
    for piece in said.text:
        assert isinstance(piece, str)
        sink.text(piece)
    for index, made in enumerate(said.calls):
        sink.tool_call(index, call_id=f"call_{number}_{index}", name=made.name, arguments="".join(made.arguments))
    sink.usage(said.usage or TOKENS)
    sink.finish(said.finish)
    await sink.flush()


def size_of(request: ModelRequest) -> int:
    """Return the bytes of a request as a model server gets it."""
    return len(msgspec.json.encode(chat_body(request, ChatDialect(), "brain", {})))


def texts(request: ModelRequest) -> list[str]:
    """Return what calls have returned, as the model reads it."""
    return [str(item["output"]) for item in request.items if item["type"] == "function_call_output"]


def prompt(request: ModelRequest) -> str:
    """Return what was asked last by a user, or by a parent."""
    said: list[Any] = [item["content"] for item in request.items if item.get("role") == "user" and not is_summary(item)]
    return said[-1] if isinstance(said[-1], str) else "".join(part["text"] for part in said[-1])
