"""The sessions of all containers: one each, begun when it is needed, closed when it is idle."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import TypeVar

from antwort.provider import FunctionError, Slots
from antwort.providers.code_interpreter.containers import Container
from antwort.providers.code_interpreter.session import Session

_LONGEST_PAUSE = 30.0

T = TypeVar("T")
Start = Callable[[Container], Awaitable[Session]]
Work = AbstractAsyncContextManager[Callable[[Session], Awaitable[T]]]
"""What is done in a session: entered when it is its turn, before there is a session."""


class _SessionSlot:
    """Where the session of a container is, or will be; one call at a time."""

    def __init__(self, tenant: str) -> None:
        self.tenant = tenant
        self.lock = asyncio.Lock()
        self.waiting = 0
        """Calls that have it, or want it."""
        self.session: Session | None = None
        self.birth = ""
        """Which container the session is for, as one that was deleted may have had the same id."""
        self.is_taken = False
        """Whether there is going to be a session."""
        self.used = time.monotonic()

    def has_session_of(self, container: Container) -> bool:
        """Tell whether the session of a container is here, and alive."""
        return self.session is not None and self.session.is_alive and self.birth == container.about.birth


class Sessions:
    """Executes code in the session of a container."""

    def __init__(self, start: Start, *, idle: float, most: int, max_wait: float, slots: Slots) -> None:
        self._start = start
        self._idle = idle
        self._most = most
        self._max_wait = max_wait
        self._slots = slots
        self._changed = asyncio.Event()
        self._places: dict[tuple[str, str], _SessionSlot] = {}

    async def execute(self, container: Container, work: Work[T]) -> tuple[T, bool]:
        """Let work be done in a session; also tell whether the session was begun for it."""
        key = container.tenant, container.id
        place = self._places.get(key)
        if place is None:
            place = self._places[key] = _SessionSlot(container.tenant)
        place.waiting += 1
        try:
            async with place.lock:
                try:
                    if is_new := not place.has_session_of(container):
                        await self._take(place)
                    # Nobody who waits for anything else has a slot, and who waits for one takes nothing of the disk.
                    async with self._slots.taken_by(place.tenant), work as run:
                        if not place.has_session_of(container):
                            await self._begin(place, container)
                        assert place.session is not None  # noqa: S101 - it was just begun
                        return await run(place.session), is_new
                finally:
                    place.is_taken = False
        finally:
            place.waiting -= 1
            place.used = time.monotonic()
            if place.session is not None and not place.session.is_alive:
                await self._close(place)
            if place.session is None and not place.waiting:
                self._forget(place)
            self._changed.set()

    async def close(self, container: Container) -> None:
        """Close the session of a container, whatever it does."""
        place = self._places.pop((container.tenant, container.id), None)
        if place is not None:
            await self._close(place)
            self._changed.set()

    async def close_all(self) -> None:
        """Close all sessions."""
        places = list(self._places.values())
        self._places.clear()
        await asyncio.gather(*map(self._close, places))

    async def sweep_regularly(self) -> None:
        """Close sessions that are idle, again and again."""
        while True:
            await asyncio.sleep(min(self._idle / 4, _LONGEST_PAUSE))
            await self.sweep()

    async def sweep(self) -> int:
        """Close sessions that are idle; return how many that were."""
        late = time.monotonic() - self._idle
        idle = [place for place in self._places.values() if not place.waiting and place.used <= late]
        for place in idle:
            self._forget(place)
            await self._close(place)
        return len(idle)

    @property
    def count(self) -> int:
        """How many sessions there are."""
        return sum(place.session is not None for place in list(self._places.values()))

    async def _take(self, place: _SessionSlot) -> None:
        """See to it that there is room for a session: that of the tenant which was idle longest goes if there is none.

        If all are at work this waits for one of them; FunctionError if that takes too long.
        """
        await self._close(place)
        try:
            async with asyncio.timeout(self._max_wait):
                while len(taken := self._taken(place.tenant)) >= self._most and all(map(_works, taken)):
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise FunctionError(f"{self._most} sessions are at work, which is the limit. Try again later.") from None
        place.is_taken = True
        if len(taken) >= self._most:
            oldest = min((one for one in taken if not _works(one)), key=lambda one: one.used)
            self._forget(oldest)
            await self._close(oldest)

    def _taken(self, tenant: str) -> list[_SessionSlot]:
        """Return the places of a tenant that have a session, or are going to have one."""
        places = [one for one in self._places.values() if one.tenant == tenant]
        return [one for one in places if one.session is not None or one.is_taken]

    async def _begin(self, place: _SessionSlot, container: Container) -> None:
        await self._close(place)
        place.session = await self._start(container)
        place.birth = container.about.birth

    def _forget(self, place: _SessionSlot) -> None:
        for key in [key for key, one in self._places.items() if one is place]:
            del self._places[key]

    @staticmethod
    async def _close(place: _SessionSlot) -> None:
        session, place.session = place.session, None
        if session is not None:
            with contextlib.suppress(ProcessLookupError):
                await session.close()


def _works(place: _SessionSlot) -> bool:
    return place.waiting > 0
