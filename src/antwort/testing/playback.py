"""How a scripted turn is played: its pieces in order, and where it waits for the test, hangs or breaks off."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from typing_extensions import override

from antwort.testing.script import Call, Failure, Turn, Waitable

_PATIENCE = 30.0


class _Flag:
    """Something that happens once, and that any thread or event loop can wait for."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._lock = threading.Lock()
        self._waiting: dict[asyncio.Future[None], asyncio.AbstractEventLoop] = {}

    def raise_(self) -> None:
        with self._lock:
            self._event.set()
            for future, loop in self._waiting.items():
                loop.call_soon_threadsafe(_finish, future)
            self._waiting.clear()

    def is_raised(self) -> bool:
        return self._event.is_set()

    async def wait(self) -> None:
        loop = asyncio.get_running_loop()
        with self._lock:
            if self._event.is_set():
                return
            future = loop.create_future()
            self._waiting[future] = loop
        try:
            await future
        finally:
            with self._lock:
                self._waiting.pop(future, None)

    def wait_blocking(self, what: str, timeout: float) -> None:
        assert self._event.wait(timeout), f"the gate was not {what} within {timeout:g} seconds"


def _finish(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class Gate:
    """A point where a scripted turn waits until the test opens it. It stays open.

    Give it to `turn` as `wait_for`, to hold the turn before its first byte, or put it among the deltas:

        gate = Gate()
        backend = ScriptedBackend([turn(["Hel", gate, "lo"])])
        ...
        await gate.reached()      # "Hel" was sent
        gate.open()               # now "lo" follows

    The turn may run on another thread, as in `ScriptServer`. A test that is not asynchronous uses the `wait_…` methods,
    which raise an AssertionError when nothing happens in time.
    """

    def __init__(self) -> None:
        self._opened = _Flag()
        self._reached = _Flag()
        self._abandoned = _Flag()

    def open(self) -> None:
        """Let the turn go on."""
        self._opened.raise_()

    async def wait(self) -> None:
        """Stand at the gate until it is opened; what the turn does."""
        self._reached.raise_()
        try:
            await self._opened.wait()
        except BaseException:
            self._abandoned.raise_()
            raise

    async def reached(self) -> None:
        """Wait until a turn stands at the gate."""
        await self._reached.wait()

    async def abandoned(self) -> None:
        """Wait until a turn that stood at the gate was cancelled: whoever asked for it has left."""
        await self._abandoned.wait()

    def wait_reached(self, timeout: float = _PATIENCE) -> None:
        """Block until a turn stands at the gate."""
        self._reached.wait_blocking("reached", timeout)

    def wait_abandoned(self, timeout: float = _PATIENCE) -> None:
        """Block until a turn that stood at the gate was cancelled."""
        self._abandoned.wait_blocking("abandoned", timeout)

    @override
    def __repr__(self) -> str:
        state = "open" if self._opened.is_raised() else "reached" if self._reached.is_raised() else "closed"
        return f"<Gate {state}>"


@dataclass(frozen=True, slots=True)
class TurnPiece:
    """One delta of a turn."""

    kind: Literal["reasoning", "summary", "opaque", "refusal", "text", "call"]
    delta: str
    index: int = 0
    call: Call | None = None
    """The call that begins with this piece."""


class Failed(Exception):  # noqa: N818 (an event of the script, not a mistake)
    """The script says that the turn fails here."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class Closed(Exception):  # noqa: N818 (an event of the script, not a mistake)
    """The script says that the connection is closed here."""


async def perform(turn: Turn) -> AsyncGenerator[list[TurnPiece], None]:
    """Yield the pieces that arrive together; wait where the script says so; raise Failed or Closed where it says so.

    Use it with `contextlib.aclosing`: the consumer may stop in the middle.
    """
    if turn.wait_for is not None:
        await turn.wait_for.wait()
    if turn.delay:
        await asyncio.sleep(turn.delay)
    sent = 0
    burst: list[TurnPiece] = []
    for piece in _pieces(turn):
        if _breaks(turn, sent) or (not isinstance(piece, TurnPiece)) or len(burst) == turn.burst:
            if burst:
                yield burst
                burst = []
                await asyncio.sleep(turn.pace)
            await _break_off(turn, sent)
        if isinstance(piece, TurnPiece):
            burst.append(piece)
            sent += 1
        else:
            await piece.wait()
    if burst:
        yield burst
    await _break_off(turn, None)


def _pieces(turn: Turn) -> Iterator[TurnPiece | Waitable]:
    opaque = (turn.opaque,) if turn.opaque else ()
    thoughts = (("reasoning", turn.reasoning), ("summary", turn.summary), ("opaque", opaque))
    for kind, deltas in (*thoughts, ("refusal", turn.refusal), ("text", turn.text)):
        for delta in deltas:
            yield TurnPiece(kind, delta) if isinstance(delta, str) else delta  # type: ignore[arg-type] # kinds are literals
    for index, call in enumerate(turn.calls):
        for number, delta in enumerate(call.arguments or ("",)):
            yield TurnPiece("call", delta, index, call if number == 0 else None)


def _breaks(turn: Turn, sent: int) -> bool:
    ends = (turn.error.after if turn.error else None, turn.close_after, turn.hang_after)
    return sent in ends


async def _break_off(turn: Turn, sent: int | None) -> None:
    """Fail, close or hang if the script says so after so many pieces; None stands for the end of the turn."""
    if turn.error is not None and (sent is None or turn.error.after == sent):
        raise Failed(turn.error)
    if turn.close_after is not None and (sent is None or turn.close_after == sent):
        raise Closed
    if turn.hang_after is not None and (sent is None or turn.hang_after == sent):
        await asyncio.Event().wait()


def logprob(token: str) -> dict[str, Any]:
    """Return the made-up log probability of a token; Responses and Chat Completions have the same shape."""
    return {"token": token, "logprob": -0.25, "bytes": list(token.encode()), "top_logprobs": []}
