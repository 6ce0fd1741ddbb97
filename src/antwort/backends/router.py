"""Which backend gets a request: by the model it names."""

import asyncio
import difflib
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from antwort.backends.base import ModelBackend, ModelInfo, ModelRequest, TurnSink
from antwort.backends.transport import Transport
from antwort.errors import APIError, NotFoundError, ServiceUnavailableError

__all__ = ["ModelRouter", "Route", "Target"]

logger = logging.getLogger(__name__)

REFRESH = 60.0
"""Seconds for which the list of a server's models is good."""
RETRY = 10.0
"""Seconds after which a server that did not give its list is asked again."""


@dataclass(frozen=True, slots=True)
class Route:
    """A backend and the models it is asked for; without any, those it says it has."""

    backend: ModelBackend
    models: tuple[str, ...] = ()
    aliases: Mapping[str, str] = field(default_factory=dict)
    transport: Transport | None = None
    """The way to the server itself, for requests that are passed through as they are."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where a request goes, and the model's name there."""

    route: Route
    model: str

    @property
    def backend(self) -> ModelBackend:
        """The backend to ask."""
        return self.route.backend


class ModelRouter:
    """Several backends that look like one.

    The first that claims a name gets it: by an alias; by a model listed in the configuration; as `backend/model`; by a
    model that a backend without a list of its own says it has. A name that nobody claims goes to the first backend
    without a list, as it is: servers may take names they do not list. No name means the default model, else the first
    model of the first backend.
    """

    name = "router"

    def __init__(
        self,
        routes: Sequence[Route],
        *,
        default_model: str | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._routes = tuple(routes)
        self._default = default_model
        self._listings = {id(route): _Listing(route.backend, clock) for route in self._routes if not route.models}
        self._open = [route for route in self._routes if not route.models]

    async def run(self, request: ModelRequest, sink: TurnSink) -> None:
        """Perform one turn on the backend its model belongs to."""
        target = await self.resolve(request.model)
        if target.model != request.model:
            request = replace(request, model=target.model)
        await target.backend.run(request, sink)

    async def resolve(self, model: str | None) -> Target:
        """Tell where a model is. A name that cannot be anywhere is a NotFoundError that offers near ones."""
        if not self._routes:
            raise ServiceUnavailableError("No backend is configured; add one below `backends`.", code="no_backend")
        name = model or self._default
        if not name:
            return await self._first()
        target = self._configured(name)
        if target is not None:
            return target
        # With one open backend there is nothing to choose, and no reason to ask for its list.
        if len(self._open) > 1:
            await self._discover()
            for route in self._open:
                if name in self._listings[id(route)].names:
                    return Target(route, name)
        if self._open:
            return Target(self._open[0], name)
        raise self._unknown(name)

    async def models(self) -> Sequence[ModelInfo]:
        """List all models and aliases; a backend that cannot be asked adds none."""
        await self._discover()
        found: dict[str, ModelInfo] = {}
        for route in self._routes:
            for info in self._listed(route):
                found.setdefault(info.id, info)
        return tuple(found.values())

    async def close(self) -> None:
        """Give all connections back."""
        for listing in self._listings.values():
            await listing.close()
        for route in self._routes:
            await route.backend.close()

    def _configured(self, name: str) -> Target | None:
        for route in self._routes:
            if name in route.aliases:
                return Target(route, route.aliases[name])
        for route in self._routes:
            if name in route.models:
                return Target(route, name)
        prefix, slash, rest = name.partition("/")
        for route in self._routes:
            if slash and rest and route.backend.name == prefix:
                model = route.aliases.get(rest, rest)
                if route.models and model not in {*route.models, *route.aliases.values()}:
                    raise self._unknown(name)
                return Target(route, model)
        return None

    async def _first(self) -> Target:
        route = self._routes[0]
        if route.models:
            return Target(route, route.models[0])
        listing = self._listings[id(route)]
        await listing.update()
        if listing.models:
            return Target(route, listing.models[0].id)
        if listing.problem is not None:
            raise ServiceUnavailableError(
                f"The request names no model, and the backend cannot be asked for one. {listing.problem}"
            )
        raise NotFoundError(
            f"The request names no model, and the backend '{route.backend.name}' has none.",
            param="model",
            code="model_not_found",
        )

    def _listed(self, route: Route) -> Iterator[ModelInfo]:
        owner = route.backend.name
        if route.models:
            yield from (ModelInfo(name, owner) for name in route.models)
        else:
            yield from self._listings[id(route)].models
        yield from (ModelInfo(alias, owner) for alias in route.aliases)

    async def _discover(self) -> None:
        waiting = [listing.update() for listing in self._listings.values() if listing.is_due()]
        if waiting:
            await asyncio.gather(*waiting)

    def _unknown(self, name: str) -> NotFoundError:
        known = [info.id for route in self._routes for info in self._listed(route)]
        near = difflib.get_close_matches(name, known, n=3, cutoff=0.5) or known[:10]
        hint = f" There is {', '.join(repr(other) for other in near)}." if near else ""
        return NotFoundError(f"The model '{name}' does not exist.{hint}", param="model", code="model_not_found")


class _Listing:
    """The models a backend says it has: asked for when needed, by one request however many wait for it.

    Only the first list is waited for; later ones are fetched while the one before is in use. A failure is logged, and
    what was known stays.
    """

    def __init__(self, backend: ModelBackend, clock: Callable[[], float]) -> None:
        self.models: tuple[ModelInfo, ...] = ()
        self.names: frozenset[str] = frozenset()
        self.problem: str | None = None
        self._backend = backend
        self._clock = clock
        self._due = float("-inf")
        self._task: asyncio.Task[None] | None = None

    def is_due(self) -> bool:
        """Tell whether the list is unknown, old, or being fetched."""
        return self._task is not None or self._clock() >= self._due

    async def update(self) -> None:
        """Fetch the list if it is due."""
        if self._task is None and self._clock() >= self._due:
            self._task = asyncio.create_task(self._fetch())
        if self._task is not None and not self.models and self.problem is None:
            # Shielded: whoever caused the request may leave while others wait for it.
            await asyncio.shield(self._task)

    async def close(self) -> None:
        """Give up a request that is under way."""
        if (task := self._task) is not None:
            task.cancel()
            await asyncio.wait([task])

    async def _fetch(self) -> None:
        try:
            self.models = tuple(await self._backend.models())
            self.names = frozenset(info.id for info in self.models)
            self.problem = None
            self._due = self._clock() + REFRESH
        except APIError as error:
            logger.warning("Cannot list the models of the backend '%s': %s", self._backend.name, error.message)
            self.problem = error.message
            self._due = self._clock() + RETRY
        finally:
            self._task = None
