"""Several servers with the same models: which one gets a turn.

A model server keeps what it has computed of a prompt, and what begins alike costs it little. So turns that begin alike
go to the same server, as long as that is there and not much busier than the others: of all servers each turn has an
order of its own, by hashes of how it begins and of their names, so that one that leaves or comes changes the places of
its share only.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from hashlib import blake2b
from typing import TypeVar

import msgspec
from typing_extensions import override

from antwort.backends.base import BackendWrapper, ModelBackend, ModelInfo, ModelRequest, TurnSink
from antwort.backends.errors import worth_another_backend
from antwort.backends.http.transport import Transport
from antwort.backends.resilience import NO_RETRIES, CircuitBreaker, GuardedBackend, Retries, WatchedSink, watched
from antwort.errors import APIError

logger = logging.getLogger(__name__)
T = TypeVar("T")

UNEVEN = 1.25
"""How many times as many turns as all have on average one may have, before the next one in order is asked."""
FEW = 8
"""Turns that one may have in any case: so many at the same time hold up none of them."""
_BEGINNING = 4096
"""Bytes of the first item that say where a turn goes."""


class Replica(GuardedBackend):
    """One of several servers, with a breaker of its own. It is not tried again: another one is asked."""

    def __init__(
        self, backend: ModelBackend, breaker: CircuitBreaker, place: str, transport: Transport | None = None
    ) -> None:
        super().__init__(backend, breaker, NO_RETRIES, transport)
        self._place = blake2b(place.encode()).digest()
        self.turns = 0
        """How many are under way."""
        self._leaves = False

    def weight(self, beginning: bytes) -> bytes:
        """Return what puts it before or behind others for turns that begin so."""
        return blake2b(beginning, digest_size=8, key=self._place).digest()

    @override
    async def run(self, request: ModelRequest, sink: TurnSink) -> None:
        self.turns += 1
        try:
            await super().run(request, sink)
        finally:
            self.turns -= 1
            if self._leaves:
                await self.leave()

    async def leave(self) -> None:
        """Give everything back as soon as no turn is under way."""
        self._leaves = True
        if not self.turns:
            await self.close()


class Replicas(BackendWrapper):
    """Looks like one backend. A turn that fails before its answer began is another one's."""

    def __init__(self, name: str, replicas: Sequence[Replica], retries: Retries = NO_RETRIES) -> None:
        super().__init__(replicas[0])
        self.name = name
        self._replicas = list(replicas)
        self._retries = retries

    @override
    async def run(self, request: ModelRequest, sink: TurnSink) -> None:
        watch = watched(sink)
        attempt = 0
        while True:
            try:
                await self._ask(lambda replica: replica.run(request, watch), self.order(request), watch)
            except APIError as error:
                final = watch.begun or watch.raised(error)
                pause = None if final else self._retries.pause(attempt, error, request)
                if pause is None:
                    raise
            else:
                return
            await self._retries.sleep(pause)
            attempt += 1

    @property
    def replicas(self) -> Sequence[Replica]:
        """All of them, in the order of the configuration."""
        return self._replicas

    def order(self, request: ModelRequest) -> list[Replica]:
        """Return the replicas in the order in which they are asked for a turn."""
        beginning = beginning_of(request)
        there = sorted(self._replicas, key=lambda replica: replica.weight(beginning))
        most = UNEVEN * (sum(replica.turns for replica in there) + 1) / len(there)
        return sorted(there, key=lambda replica: (replica.breaker.is_open, replica.turns >= max(most, FEW)))

    @override
    async def models(self) -> Sequence[ModelInfo]:
        return await self._ask(lambda replica: replica.models())

    @override
    async def count_tokens(self, request: ModelRequest) -> int | None:
        return await self._ask(lambda replica: replica.count_tokens(request))

    @override
    async def context_window(self, model: str) -> int | None:
        return await self._ask(lambda replica: replica.context_window(model))

    @override
    async def close(self) -> None:
        for replica in self._replicas:
            await replica.close()

    async def _ask(
        self, ask: Callable[[Replica], Awaitable[T]], order: Sequence[Replica] = (), watch: WatchedSink | None = None
    ) -> T:
        """Ask one after the other until one answers, or has begun to."""
        *others, last = order or sorted(self._replicas, key=lambda replica: replica.breaker.is_open)
        for replica in others:
            try:
                return await ask(replica)
            except APIError as error:
                begun = watch is not None and (watch.begun or watch.raised(error))
                if begun or not worth_another_backend(error):
                    raise
                logger.warning("%s; asking another replica", error.message.rstrip("."))
        return await ask(last)


def beginning_of(request: ModelRequest) -> bytes:
    """Return what is the same for turns that a server should have together: of one run, conversation or cache key."""
    if request.prompt_cache_key is not None:
        return msgspec.json.encode([request.tenant, request.prompt_cache_key])
    first = request.items[0] if request.items else {}
    said = msgspec.json.encode(_short(first.get("content", first)))[:_BEGINNING]
    instructions = request.instructions or ""
    return blake2b(b"%s\0%s\0%s" % (request.model.encode(), instructions.encode(), said)).digest()


def _short(said: object) -> object:
    """Return so much of what an item says that its beginning is the same: images in it may have megabytes."""
    if isinstance(said, str):
        return said[:_BEGINNING]
    if isinstance(said, list):
        return [_short(part) for part in said[:_BEGINNING]]
    if isinstance(said, dict):
        return {key: _short(value) for key, value in said.items()}
    return said
