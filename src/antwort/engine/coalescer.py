"""Fewer, larger deltas for runs whose every event is stored."""

import asyncio
from collections.abc import Sequence

from antwort.engine.emitter import Emitter
from antwort.types import JSON
from antwort.wire.responses import Usage

SECONDS = 0.05
BYTES = 4096


class Coalescer:
    """A turn sink that joins deltas before they are numbered: those of 50 ms, at most 4 KiB.

    What is joined here is stored and then sent, so that a reader who comes back sees the very same events. A model that
    pauses does not keep back what it has said before.
    """

    def __init__(self, emitter: Emitter) -> None:
        self._emitter = emitter
        self._loop = asyncio.get_running_loop()
        self._kind = ""
        self._pieces: list[str] = []
        self._size = 0
        self._logprobs: list[JSON] = []
        self._due = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._sending: asyncio.Task[None] | None = None

    def text(self, delta: str, logprobs: list[JSON] | None = None) -> None:
        """Take a piece of the answer."""
        self._add("text", delta)
        if logprobs:
            self._logprobs += logprobs

    def text_burst(self, deltas: Sequence[str]) -> None:
        """Take pieces of the answer that came together."""
        self._add("text", "".join(deltas))

    def reasoning(self, delta: str) -> None:
        """Take a piece of the model's thoughts."""
        self._add("reasoning", delta)

    def summary(self, delta: str) -> None:
        """Take a piece of a summary of the model's thoughts."""
        self._add("summary", delta)

    def opaque(self, content: str) -> None:
        """Take the thoughts as only the model server reads them."""
        self._pass_on()
        self._emitter.opaque(content)

    def refusal(self, delta: str) -> None:
        """Take a piece of a refusal."""
        self._add("refusal", delta)

    def tool_call(
        self, index: int, *, call_id: str | None = None, name: str | None = None, arguments: str = ""
    ) -> None:
        """Take a piece of a function call."""
        self._pass_on()
        self._emitter.tool_call(index, call_id=call_id, name=name, arguments=arguments)

    def usage(self, usage: Usage) -> None:
        """Take the tokens used."""
        self._emitter.usage(usage)

    def finish(self, reason: str) -> None:
        """Take why the model stopped."""
        self._pass_on()
        self._emitter.finish(reason)

    async def flush(self) -> None:
        """Send what is due."""
        await self.settle()  # its failure is the turn's
        if self._pieces and self._loop.time() < self._due:
            return
        self._pass_on()
        await self._emitter.flush()

    async def settle(self) -> None:
        """Wait for what is being sent: the end of a turn is stored together with its items, and not before them."""
        if self._sending is not None:
            sending, self._sending = self._sending, None
            await sending

    def stop(self) -> None:
        """Pass on what is left of a turn, however it ended; whoever ends the response sends it."""
        self._pass_on()
        if self._sending is not None:
            self._sending.add_done_callback(_forget)
            self._sending = None

    def _add(self, kind: str, delta: str) -> None:
        if not delta:
            return
        size = len(delta) if delta.isascii() else len(delta.encode())
        if kind != self._kind or self._size + size > BYTES:
            self._pass_on()
            self._kind = kind
        if not self._pieces:
            self._due = self._loop.time() + SECONDS
            self._timer = self._loop.call_at(self._due, self._send)
        self._pieces.append(delta)
        self._size += size

    def _send(self) -> None:
        """Send what the model said before it paused."""
        self._pass_on()
        self._sending = self._loop.create_task(self._emitter.flush())

    def _pass_on(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._pieces:
            return
        joined = "".join(self._pieces)
        if self._kind == "text":
            self._emitter.text(joined, self._logprobs or None)
        elif self._kind == "reasoning":
            self._emitter.reasoning(joined)
        elif self._kind == "summary":
            self._emitter.summary(joined)
        else:
            self._emitter.refusal(joined)
        self._pieces, self._logprobs, self._size = [], [], 0


def _forget(sending: "asyncio.Task[None]") -> None:
    """Look at a failure nobody waits for any more: whoever writes next meets it too."""
    if not sending.cancelled():
        sending.exception()
