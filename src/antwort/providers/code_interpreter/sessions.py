"""The sessions of all containers: one each, begun when it is needed, closed when it is idle."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable

from antwort.provider import FunctionError
from antwort.providers.code_interpreter.containers import Container
from antwort.providers.code_interpreter.session import Outcome, Session

_LONGEST_PAUSE = 30.0

Start = Callable[[Container], Awaitable[Session]]


class _Place:
    """Where the session of a container is, or will be; one call at a time."""

    def __init__(self, tenant: str) -> None:
        self.tenant = tenant
        self.lock = asyncio.Lock()
        self.waiting = 0
        """Calls that have it, or want it."""
        self.session: Session | None = None
        self.birth = ""
        """Which container the session is for, as one that was deleted may have had the same id."""
        self.is_starting = False
        self.used = time.monotonic()


class Sessions:
    """Executes code in the session of a container."""

    def __init__(self, start: Start, *, idle: float, most: int) -> None:
        self._start = start
        self._idle = idle
        self._most = most
        self._places: dict[tuple[str, str], _Place] = {}

    async def execute(self, container: Container, run: Callable[[Session], Awaitable[Outcome]]) -> tuple[Outcome, bool]:
        """Let a session execute something; also tell whether the session was begun for it."""
        key = container.tenant, container.id
        place = self._places.get(key)
        if place is None:
            place = self._places[key] = _Place(container.tenant)
        place.waiting += 1
        try:
            async with place.lock:
                is_same = place.birth == container.about.birth
                is_new = place.session is None or not place.session.is_alive or not is_same
                if is_new:
                    await self._begin(place, container)
                assert place.session is not None  # noqa: S101 - it was just begun
                return await run(place.session), is_new
        finally:
            place.waiting -= 1
            place.used = time.monotonic()
            if place.session is not None and not place.session.is_alive:
                await asyncio.shield(self._close(place))
            if place.session is None and not place.waiting:
                self._forget(place)

    async def close(self, container: Container) -> None:
        """Close the session of a container, whatever it does."""
        place = self._places.pop((container.tenant, container.id), None)
        if place is not None:
            await self._close(place)

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
        return sum(place.session is not None for place in self._places.values())

    async def _begin(self, place: _Place, container: Container) -> None:
        """Begin a session, in the place of the one of the tenant that was idle longest if there are too many."""
        await self._close(place)
        others = [one for one in self._places.values() if one.tenant == place.tenant]
        taken = [one for one in others if one.session is not None or one.is_starting]
        oldest = None
        if len(taken) >= self._most:
            idle = [one for one in taken if not one.waiting]
            if not idle:
                raise FunctionError(f"{self._most} sessions are at work, which is the limit. Try again later.")
            oldest = min(idle, key=lambda one: one.used)
            self._forget(oldest)
        place.is_starting = True
        try:
            if oldest is not None:
                await self._close(oldest)
            place.session = await self._start(container)
            place.birth = container.about.birth
        finally:
            place.is_starting = False

    def _forget(self, place: _Place) -> None:
        for key in [key for key, one in self._places.items() if one is place]:
            del self._places[key]

    @staticmethod
    async def _close(place: _Place) -> None:
        session, place.session = place.session, None
        if session is not None:
            with contextlib.suppress(ProcessLookupError):
                await session.close()
