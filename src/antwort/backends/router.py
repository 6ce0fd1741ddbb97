"""Which backend gets a request: by the model it names."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from antwort.backends.base import FileReading, ModelBackend, ModelInfo, ModelRequest, TurnSink
from antwort.backends.errors import UNAVAILABLE, UNREACHABLE
from antwort.backends.findings import Finding, finding_of
from antwort.backends.known_models import KnownModels
from antwort.backends.transport import Transport
from antwort.errors import NotFoundError, ServiceUnavailableError, near_names

MOST_NAMES = 1000
"""Names of models whose place is remembered."""
LONGEST_NAME = 1000
"""Characters of a model's name; no model has a longer one."""


class ModelRoute(Struct, frozen=True):
    """A backend and the models it is asked for; without any, those it says it has."""

    backend: ModelBackend
    models: tuple[str, ...] = ()
    aliases: Mapping[str, str] = field(default_factory=dict)
    any_model: bool = False
    """Whether it takes names of models that it does not list."""
    transport: Transport | None = None
    """The way to the server itself, for requests that are passed through as they are."""
    parameters: frozenset[str] = frozenset()
    """Fields of a request beyond the API that it takes."""
    files: FileReading = "text"
    """Which files it reads."""


class ModelTarget(Struct, frozen=True):
    """Where a request goes, and the model's name there."""

    route: ModelRoute
    model: str

    @property
    def backend(self) -> ModelBackend:
        """The backend to ask."""
        return self.route.backend


class ModelRouter:
    """Several backends that look like one.

    The first that claims a name gets it: by an alias; by a model listed in the configuration; as `backend/model`; by a
    model that a backend without a list in the configuration says it has. A name that nobody claims goes to the first of
    these that takes any name, or does not say which it has; else there is no such model. No name means the default
    model, else the first model of the first backend.
    """

    name = "router"

    def __init__(
        self,
        routes: Sequence[ModelRoute],
        *,
        default_model: str | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._routes = tuple(routes)
        self._default = default_model
        self._known = {
            id(route): KnownModels(route.backend.name, route.backend.models, clock) for route in self._routes
        }
        self.parameters = frozenset[str]().union(*(route.parameters for route in self._routes))
        """Fields of a request beyond the API that some backend takes."""
        self._open = [route for route in self._routes if not route.models]
        self._resolved: dict[str, ModelTarget] = {}
        """Where models are that stay there, whatever backends say they have."""

    def run(self, request: ModelRequest, sink: TurnSink) -> Coroutine[Any, Any, None]:
        """Perform one turn on the backend its model belongs to."""
        target = self._resolved.get(request.model)
        if target is None or target.model != request.model:
            return self._run_found(request, sink)
        return target.route.backend.run(request, sink)

    async def _run_found(self, request: ModelRequest, sink: TurnSink) -> None:
        """Perform one turn of a model that has to be looked for, or has another name there."""
        target = await self.resolve(request.model)
        await target.backend.run(replace(request, model=target.model), sink)

    async def count_tokens(self, request: ModelRequest) -> int | None:
        """Have the backend that would get a turn count its input tokens; None if it does not."""
        target = await self.resolve(request.model)
        return await target.backend.count_tokens(replace(request, model=target.model))

    async def context_window(self, model: str) -> int | None:
        """Return how many tokens a model takes where it would be asked, None if that is not known."""
        target = await self.resolve(model)
        return await target.backend.context_window(target.model)

    def is_known(self, model: str) -> bool:
        """Tell whether it is known where a model is, whatever backends say they have."""
        return model in self._resolved

    async def resolve(self, model: str | None) -> ModelTarget:
        """Tell where a model is. A name that cannot be anywhere is a NotFoundError that offers near ones."""
        if not self._routes:
            raise ServiceUnavailableError("No backend is configured; add one below `backends`.", code="no_backend")
        name = model or self._default
        if not name:
            return await self._first()
        known = self._resolved.get(name)
        if known is not None:
            return known
        if len(name) > LONGEST_NAME:
            raise self._unknown(name)
        target = self._configured(name)
        if target is not None:
            return self._remembered(name, target)
        if len(self._open) == 1 and self._open[0].any_model:  # there is nothing to choose, and no reason to ask
            return self._remembered(name, ModelTarget(self._open[0], name))
        await self._discover()
        target = self._listed_by(name)
        if target is None:
            lists = [self._known[id(route)] for route in self._open]
            if old := [known.renew() for known in lists if not known.is_recent()]:
                await asyncio.gather(*old)
            target = self._listed_by(name) or self._untold(name)
        # Where there is nothing to choose, the server itself says what has become of a model.
        return self._remembered(name, target) if len(self._open) == 1 else target

    def _listed_by(self, name: str) -> ModelTarget | None:
        """Return where a model is by what the backends say they have."""
        holders = (route for route in self._open if name in self._known[id(route)].names)
        return next((ModelTarget(route, name) for route in holders), None)

    def _untold(self, name: str) -> ModelTarget:
        """Return where a model may be that nobody lists: with who takes any name, or gives no list."""
        for route in self._open:
            if route.any_model or self._known[id(route)].failed or not self._known[id(route)].models:
                return ModelTarget(route, name)
        raise self._unknown(name)

    def _remembered(self, name: str, target: ModelTarget) -> ModelTarget:
        if len(self._resolved) < MOST_NAMES:  # clients can invent any number
            self._resolved[name] = target
        return target

    async def models(self) -> Sequence[ModelInfo]:
        """List all models and aliases; a backend that cannot be asked adds none."""
        await self._discover()
        found: dict[str, ModelInfo] = {}
        for route in self._routes:
            for info in self._listed(route):
                found.setdefault(info.id, info)
        return tuple(found.values())

    async def findings(self) -> list[Finding]:
        """Ask all backends for their models, as far as that is due, and tell what was found."""
        await asyncio.gather(*(known.update() for known in self._known.values()))
        return self.last_findings()

    def last_findings(self) -> list[Finding]:
        """Tell what was found when the backends were asked last, and have those asked again for which it is time."""
        for known in self._known.values():
            known.begin_update()
        return [finding_of(route.backend.name, self._known[id(route)]) for route in self._routes]

    def transports(self) -> list[Transport]:
        """Return the ways to the servers themselves, where there are servers."""
        return [route.transport for route in self._routes if route.transport is not None]

    async def close(self) -> None:
        """Give all connections back."""
        for known in self._known.values():
            await known.close()
        for route in self._routes:
            await route.backend.close()

    def _configured(self, name: str) -> ModelTarget | None:
        for route in self._routes:
            if name in route.aliases:
                return ModelTarget(route, route.aliases[name])
        for route in self._routes:
            if name in route.models:
                return ModelTarget(route, name)
        prefix, slash, rest = name.partition("/")
        for route in self._routes:
            if slash and rest and route.backend.name == prefix:
                model = route.aliases.get(rest, rest)
                if route.models and model not in {*route.models, *route.aliases.values()}:
                    raise self._unknown(name)
                return ModelTarget(route, model)
        return None

    async def _first(self) -> ModelTarget:
        route = self._routes[0]
        if route.models:
            return ModelTarget(route, route.models[0])
        known = self._known[id(route)]
        await known.update()
        if known.models:
            return ModelTarget(route, known.models[0].id)
        if known.problem is not None:
            # What a backend says may repeat what others have asked it.
            told = f": {known.problem.message}" if known.problem.code == UNREACHABLE else " at the moment."
            raise ServiceUnavailableError(
                f"The request names no model, and the backend '{route.backend.name}' cannot be asked for one{told}"
                " Name a model, or try again later.",
                code=UNAVAILABLE,
            )
        raise NotFoundError(
            f"The request names no model, and the backend '{route.backend.name}' has none.",
            param="model",
            code="model_not_found",
        )

    def _listed(self, route: ModelRoute) -> Iterator[ModelInfo]:
        owner = route.backend.name
        if route.models:
            yield from (ModelInfo(name, owner) for name in route.models)
        else:
            yield from self._known[id(route)].models
        yield from (ModelInfo(alias, owner) for alias in route.aliases)

    async def _discover(self) -> None:
        waiting = [self._known[id(route)] for route in self._open]
        if due := [known.update() for known in waiting if known.is_due()]:
            await asyncio.gather(*due)

    def _unknown(self, name: str) -> NotFoundError:
        known = [info.id for route in self._routes for info in self._listed(route)]
        near = near_names(name, known, most=3, likeness=0.5) or known[:10]
        hint = f" There is {', '.join(repr(other) for other in near)}." if near else ""
        return NotFoundError(f"The model '{name}' does not exist.{hint}", param="model", code="model_not_found")
