"""Fewer, larger deltas for runs whose every event is stored."""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

from antwort.backends.base import WholeTurn
from antwort.backends.dialects import logprobs_size
from antwort.engine.output.emitter import Emitter
from antwort.types import JSON
from antwort.wire.responses import Usage

SECONDS = 0.05
UNREAD_SECONDS = 0.5
BYTES = 4096
UNSENT_BYTES = 16 * BYTES
"""What is kept in memory before it is stored, however little time has passed."""


class Coalescer:
    """A turn sink that joins deltas before they are numbered, and lets them be stored together.

    Those of 50 ms are joined, or, as long as nobody reads them, those of half a second; at most 4 KiB. What is joined
    here is stored and then sent, so that a reader who comes back sees the very same events. A model that pauses does
    not keep back what it has said before.
    """

    def __init__(self, emitter: Emitter) -> None:
        self._emitter = emitter
        self._loop = asyncio.get_running_loop()
        self._is_read = False
        self._kind = ""
        self._pieces: list[str] = []
        self._size = 0
        self._unsent = 0
        self._logprobs: list[JSON] = []
        self._timer: asyncio.TimerHandle | None = None
        """Goes off when what was taken is due; None if nothing was taken since it was sent."""
        self._sending: asyncio.Task[None] | None = None

    def note_readers(self, is_read: bool) -> None:
        """Take note whether somebody reads; whoever begins to is sent at once what was kept back."""
        self._is_read = is_read
        if is_read and self._timer is not None:
            self._send()

    def whole_turn(self, turn: WholeTurn) -> None:
        """Take a turn that came as a whole."""
        turn.feed(self)

    def text(self, delta: str, logprobs: list[JSON] | None = None) -> None:
        """Take a piece of the answer."""
        self._add("text", delta)
        if logprobs:
            self._logprobs += logprobs
            size = logprobs_size(logprobs)
            self._size += size
            self._unsent += size

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
        """Send what is due, and wait for it: whoever reads the model's answer goes no further than the store does."""
        timer = self._timer
        if timer is not None and (timer.when() <= self._loop.time() or self._unsent >= UNSENT_BYTES):
            self._send()
        await self.settle()

    async def take(self, turn: Coroutine[Any, Any, None]) -> None:
        """Let a turn come to its end, whose sink this is."""
        try:
            await turn
            await self.settle()
        finally:
            self.stop()

    async def settle(self) -> None:
        """Wait for what is being sent: the end of a turn is stored together with its items, and not before them."""
        if self._sending is not None:
            sending, self._sending = self._sending, None
            await sending  # its failure is the turn's

    def stop(self) -> None:
        """Pass on what is left of a turn, however it ended; whoever ends the response sends it."""
        self._pass_on()
        self._stop_timer()
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
        if self._timer is None:
            self._timer = self._loop.call_later(SECONDS if self._is_read else UNREAD_SECONDS, self._send)
        self._pieces.append(delta)
        self._size += size
        self._unsent += size

    def _send(self) -> None:
        """Send what was taken."""
        self._pass_on()
        self._stop_timer()
        self._sending = self._loop.create_task(self._flush_after(self._sending))

    async def _flush_after(self, sending: "asyncio.Task[None] | None") -> None:
        if sending is not None:
            await sending
        await self._emitter.flush()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._unsent = 0

    def _pass_on(self) -> None:
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
