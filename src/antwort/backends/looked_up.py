"""Replicas that are the addresses of one host name: it is looked up again and again, and they come and go with it."""

import asyncio
import contextlib
import itertools
import logging
import socket
from collections.abc import Awaitable, Callable, Sequence

from typing_extensions import override

from antwort.backends.base import ModelInfo, ModelRequest, TurnSink
from antwort.backends.replicas import Replica, Replicas
from antwort.backends.resilience import NO_RETRIES, Retries

logger = logging.getLogger(__name__)

Lookup = Callable[[], Awaitable[Sequence[str]]]
"""Returns the addresses that there are now; raises OSError if there are none, or nobody knows."""
MISSES = 3
"""Answers in a row in which an address is missing that is gone then: some name servers tell but a part of them."""
MOST = 256
"""Addresses of which there are replicas."""


class LookedUpReplicas(Replicas):
    """The addresses of a host name. Until they are known there is one replica, which is asked for by the name.

    They are looked up as long as somebody asks, from the first time on, and not before. If that fails, those that are
    known stay.
    """

    def __init__(
        self,
        by_name: Replica,
        make: Callable[[str, str], Replica],
        lookup: Lookup,
        every: float,
        *,
        patience: float,
        retries: Retries = NO_RETRIES,
    ) -> None:
        """Take who makes a replica of a name and an address, and how long whoever asks first waits for addresses."""
        super().__init__(by_name.name, [by_name], retries)
        self._by_name = by_name
        self._make = make
        self._lookup = lookup
        self._every = every
        self._patience = patience
        self._places: dict[str, Replica] = {}
        self._missing: dict[str, int] = {}
        self._task: asyncio.Task[None] | None = None
        self._known = asyncio.Event()
        self._leaving: set[asyncio.Task[None]] = set()
        self.watch: Callable[[Sequence[Replica], Sequence[Replica]], None] = _nobody
        """Is told who has gone, and then who has come."""

    @override
    async def run(self, request: ModelRequest, sink: TurnSink) -> None:
        if not self._known.is_set():
            await self._first()
        await super().run(request, sink)

    @override
    async def models(self) -> Sequence[ModelInfo]:
        if not self._known.is_set():
            await self._first()
        return await super().models()

    @override
    async def close(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        self._known.clear()
        if self._leaving:
            await asyncio.wait(self._leaving)
        if self._by_name not in self._replicas:
            await self._by_name.close()
        await super().close()

    async def _first(self) -> None:
        """Begin to look, and wait for the first answer, which may be that there is none."""
        if self._task is None:
            self._task = asyncio.create_task(self._look(), name=f"the addresses of the backend '{self.name}'")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._patience):
                await self._known.wait()

    async def _look(self) -> None:
        failing = False
        while True:
            try:
                found = await self._lookup()
            except (OSError, UnicodeError) as error:
                if not failing:
                    logger.warning("the addresses of the backend '%s' cannot be looked up: %s", self.name, error)
                failing = True
            else:
                failing = False
                try:
                    self._take(sorted(found)[:MOST])
                except Exception:
                    logger.exception("the addresses of the backend '%s' cannot be taken", self.name)
            self._known.set()
            await asyncio.sleep(self._every)

    def _take(self, found: Sequence[str]) -> None:
        """Let replicas come and go with the addresses that there are now."""
        if not found:
            return
        left, come = self._left(found), self._come(found)
        if left or come:
            logger.info("the backend '%s' has %d addresses", self.name, len(self._places))
            self._replicas[:] = self._places.values()
            self.watch(left, come)
        for replica in left:
            if replica is not self._by_name:  # what is passed through goes by the name
                leaving = asyncio.create_task(replica.leave())
                self._leaving.add(leaving)
                leaving.add_done_callback(self._leaving.discard)

    def _left(self, found: Sequence[str]) -> list[Replica]:
        """Return those that have no address any more, and forget them."""
        self._missing = {place: self._missing.get(place, 0) + 1 for place in self._places if place not in found}
        gone = [place for place, count in self._missing.items() if count >= MISSES]
        for place in gone:
            del self._missing[place]
        left = [self._places.pop(place) for place in gone]
        return [self._by_name, *left] if self._by_name in self._replicas else left

    def _come(self, found: Sequence[str]) -> list[Replica]:
        """Return those at new addresses, each with the smallest number that is free."""
        taken = {replica.name for replica in self._places.values()}
        names = (name for number in itertools.count(1) if (name := f"{self.name}-{number}") not in taken)
        new = [place for place in found if place not in self._places]
        self._places.update((place, self._make(next(names), place)) for place in new)
        return [self._places[place] for place in new]


def lookup_of(host: str, port: int) -> Lookup:
    """Return who looks a host name up.

    Of its addresses those of one kind are taken, that which is to be tried first: a server often has one of each.
    """

    async def lookup() -> Sequence[str]:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        return list(dict.fromkeys(str(address[0]) for family, *_, address in found if family == found[0][0]))

    return lookup


def _nobody(_left: Sequence[Replica], _come: Sequence[Replica]) -> None:
    """Watch nothing."""
