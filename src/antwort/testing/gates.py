"""Gates: points in a scripted stream where it waits for the test, so that no test has to sleep."""

import asyncio
import threading

from typing_extensions import override

__all__ = ["Gate"]

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
