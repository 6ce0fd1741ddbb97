"""Which backend gets a request: by the model it names."""

import asyncio
import itertools
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from antwort.backends.base import FileReading, ModelBackend, ModelInfo, ModelRequest, TurnSink
from antwort.backends.errors import UNAVAILABLE, UNREACHABLE
from antwort.backends.findings import Finding, finding_of
from antwort.backends.http.transport import Transport
from antwort.backends.looked_up import LookedUpReplicas
from antwort.backends.models import KnownModels, ModelNames, is_pattern
from antwort.backends.resilience import GuardedBackend
from antwort.errors import NotFoundError, ServiceUnavailableError, near_names

_ROOM_LASTS = 600.0
"""Seconds for which a server is given no more than it took: it may be started with a larger window."""
_MOST_ROOMS = 1000

MOST_NAMES = 1000
"""Names of models whose place is remembered."""
LONGEST_NAME = 1000
"""Characters of a model's name; no model has a longer one."""


class ModelRoute(Struct, frozen=True):
    """A backend and the models it is asked for; without any, those it says it has."""

    backend: ModelBackend
    models: tuple[str, ...] = ()
    """Names, and patterns with `*`."""
    aliases: Mapping[str, str] = field(default_factory=dict)
    any_model: bool = False
    """Whether it takes names of models that it does not list."""
    transport: Transport | None = None
    """The way to the server itself, for requests that are passed through as they are."""
    guards: Sequence[GuardedBackend] = ()
    """The server itself and its replicas, each with its health, where there are servers."""
    looked_up: LookedUpReplicas | None = None
    """Those of them that come and go, if they do."""
    parameters: frozenset[str] = frozenset()
    """Fields of a request beyond the API that it takes."""
    files: FileReading = "text"
    """Which files it reads."""
    images: bool | None = None
    """Whether its models take images; None if nobody knows."""


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
    model that a backend without a list in the configuration says it has; by one that has the name with another tag or
    prefix; by a pattern. A name that nobody claims goes to the first backend that takes any name, else to the first
    that does not say which it has; else there is no such model. No name means the default model, else the first model
    of the first backend.

    A backend that is alone, and has no list in the configuration, gets every name as it is: it knows best what it has.
    """

    name = "router"

    def __init__(
        self,
        routes: Sequence[ModelRoute],
        *,
        default_model: str | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._default = default_model
        self._clock = clock
        self._lay(routes)

    def _lay(self, routes: Sequence[ModelRoute]) -> None:
        self._routes = tuple(routes)
        self._known = {
            id(route): KnownModels(route.backend.name, route.backend.models, self._clock) for route in self._routes
        }
        self.parameters = frozenset[str]().union(*(route.parameters for route in self._routes))
        """Fields of a request beyond the API that some backend takes."""
        self._configured = {id(route): ModelNames(route.models) for route in self._routes}
        self._open = [route for route in self._routes if not route.models]
        self._asked = [route for route in self._routes if not route.models or any(map(is_pattern, route.models))]
        self._alone = self._open[0] if len(self._routes) == len(self._open) == 1 else None
        self.some_see = any(route.images for route in self._routes)
        """Whether models of any backend are known to take images."""
        self._resolved: dict[str, ModelTarget] = {}
        self._rooms: dict[str, tuple[int, float]] = {}
        """Tokens that models may be given, as far as that was measured, and until when that counts."""
        """Where models are that stay there, whatever backends say they have."""

    async def replace(self, routes: Sequence[ModelRoute]) -> None:
        """Ask other backends from now on. Turns that the ones before have begun must need no connection of theirs."""
        before, known = self._routes, self._known
        self._lay(routes)
        await _close(before, known)

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

    def note_room(self, model: str, tokens: int) -> None:
        """Take note of how many tokens a model may be given, by our estimate: its server has refused more."""
        self._rooms.pop(model, None)
        if len(self._rooms) >= _MOST_ROOMS:  # the one that was noted first
            del self._rooms[next(iter(self._rooms))]
        self._rooms[model] = tokens, time.monotonic() + _ROOM_LASTS

    def room(self, model: str) -> int | None:
        """Return how many tokens a model may be given, if its server has refused more lately."""
        tokens, until = self._rooms.get(model, (0, 0.0))
        return tokens if time.monotonic() < until else None

    def is_known(self, model: str) -> bool:
        """Tell whether it is known where a model is, whatever backends say they have."""
        return model in self._resolved

    def takes_images(self, model: str) -> bool:
        """Tell whether a model that was found is known to take images."""
        target = self._resolved.get(model) or self._named(model) or self._listed_by(model) or self._matching(model)
        return self._routes[0].images is True if target is None else target.route.images is True

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
        target = self._named(name)
        if target is not None:
            return self._remembered(name, target)
        target = await self._addressed(name)
        if target is not None:
            told = target.route.models or self._known[id(target.route)].lists_models
            return self._remembered(name, target) if told else target
        if self._alone is not None:  # there is nothing to choose, and no reason to ask
            return self._remembered(name, ModelTarget(self._alone, name))
        return await self._claimed(name)

    async def _claimed(self, name: str) -> ModelTarget:
        """Return where a model is by what the backends say they have, and what they take."""
        await self._discover()
        target = self._listed_by(name) or self._matching(name)
        if target is None:
            lists = [self._known[id(route)] for route in self._open]
            if old := [known.renew() for known in lists if not known.is_recent()]:
                await asyncio.gather(*old)
            target = self._listed_by(name) or self._matching(name) or self._untold(name)
        return target

    def _names(self, route: ModelRoute) -> ModelNames:
        """Return the names by which a backend is asked: those of the configuration, else those that it says."""
        return self._configured[id(route)] if route.models else self._known[id(route)].names

    def _listed_by(self, name: str) -> ModelTarget | None:
        """Return where a model is by what the backends say they have."""
        holders = (route for route in self._open if name in self._known[id(route)].names)
        return next((ModelTarget(route, name) for route in holders), None)

    def _matching(self, name: str) -> ModelTarget | None:
        """Return where a model is that has another tag or prefix in a list, or fits a pattern in one."""
        for find in (ModelNames.same, ModelNames.matching):
            for route in self._routes:
                model = find(self._names(route), name)
                if model is not None:
                    return ModelTarget(route, model)
        return None

    def _untold(self, name: str) -> ModelTarget:
        """Return where a model may be that nobody lists: with who takes any name, else with who gives no list."""
        silent = (route for route in self._open if not self._known[id(route)].lists_models)
        route = next((route for route in self._routes if route.any_model), None) or next(silent, None)
        if route is None:
            raise self._unknown(name)
        return ModelTarget(route, name)

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

    async def find(self, name: str) -> ModelInfo | None:
        """Return a model of the list, however its name is written; None if the list does not have it."""
        found = {info.id: info for info in await self.models()}
        listed = name if name in found else ModelNames(found).listed(name)
        return None if listed is None else found[listed]

    async def problem_of(self, name: str) -> str | None:
        """Return what speaks against a model, for the operator who names it; None if it is there, or nobody can tell.

        A name is passed on that its backend does not list, and so it is known only when it is asked for.
        """
        try:
            target = await self.resolve(name)
        except NotFoundError as error:
            return error.message
        route, known = target.route, self._known[id(target.route)]
        if route.models or route.any_model or not known.lists_models or known.names.find(target.model) is not None:
            return None
        near = near_names(target.model, [info.id for info in known.models], most=3, likeness=0.5)
        hint = f" It has {', '.join(repr(other) for other in near)}." if near else ""
        return (
            f"The backend '{route.backend.name}' does not list the model '{target.model}'.{hint}"
            " If it takes the name all the same, say `any_model: true` there."
        )

    def learn(self, backend: str, models: Iterable[str]) -> None:
        """Take a backend's list of models that somebody else has asked for."""
        for route in self._routes:
            if route.backend.name == backend:
                self._known[id(route)].learn([ModelInfo(name, backend) for name in models])

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
        ways = [[route.transport, *(guard.transport for guard in route.guards)] for route in self._routes]
        return [way for way in dict.fromkeys(itertools.chain.from_iterable(ways)) if way is not None]

    def guards(self) -> Mapping[str, Sequence[GuardedBackend]]:
        """Return the servers with their health, by the backends that they belong to."""
        return {route.backend.name: route.guards for route in self._routes if route.guards}

    def looked_up(self) -> list[LookedUpReplicas]:
        """Return the replicas that come and go."""
        return [route.looked_up for route in self._routes if route.looked_up is not None]

    async def close(self) -> None:
        """Give all connections back."""
        await _close(self._routes, self._known)

    def _named(self, name: str) -> ModelTarget | None:
        """Return where a model is by its name in the configuration."""
        for route in self._routes:
            if name in route.aliases:
                return ModelTarget(route, route.aliases[name])
        for route in self._routes:
            if name in self._configured[id(route)]:
                return ModelTarget(route, name)
        return None

    async def _addressed(self, name: str) -> ModelTarget | None:
        """Return where a model is whose name begins with that of its backend; such a name may also be its own."""
        prefix, slash, rest = name.partition("/")
        route = next((route for route in self._routes if route.backend.name == prefix), None)
        if not slash or not rest or route is None:
            return None
        if not route.models:
            await self._known[id(route)].update()
            if name in self._known[id(route)].names and rest not in route.aliases:
                return ModelTarget(route, name)
        model = route.aliases.get(rest, rest)
        if not route.models or route.any_model or model in route.aliases.values():
            return ModelTarget(route, model)
        found = self._configured[id(route)].find(model)
        if found is None:
            raise self._unknown(name)
        return ModelTarget(route, found)

    async def _first(self) -> ModelTarget:
        route = self._routes[0]
        known = self._known[id(route)]
        if not route.models or is_pattern(route.models[0]):
            await known.update()
        first = next(self._listed(route, aliases=False), None)
        if first is not None:
            return ModelTarget(route, first.id)
        if known.problem is not None:
            # What a backend says may repeat what others have asked it.
            told = f": {known.problem.message}" if known.problem.code == UNREACHABLE else " at the moment."
            raise ServiceUnavailableError(
                f"The request names no model, and the backend '{route.backend.name}' cannot be asked for one{told}"
                " See that its server runs and that its URL is right, or name a model.",
                code=UNAVAILABLE,
            )
        raise NotFoundError(
            f"The request names no model, and the backend '{route.backend.name}' has none.",
            param="model",
            code="model_not_found",
        )

    def _listed(self, route: ModelRoute, *, aliases: bool = True) -> Iterator[ModelInfo]:
        """Yield the models of a backend; of what it says it has, those that fit patterns of the configuration."""
        owner = route.backend.name
        known = self._known[id(route)].models
        if route.models:
            for name in route.models:
                if not is_pattern(name):
                    yield ModelInfo(name, owner)
            known = tuple(info for info in known if self._configured[id(route)].matching(info.id))
        yield from (info for info in known if not is_pattern(info.id))
        if aliases:
            yield from (ModelInfo(alias, owner) for alias in route.aliases)

    async def _discover(self) -> None:
        """Ask backends for what they have, where that is not said in the configuration."""
        waiting = [self._known[id(route)] for route in self._asked]
        if due := [known.update() for known in waiting if known.is_due()]:
            await asyncio.gather(*due)

    def _unknown(self, name: str) -> NotFoundError:
        known = [info.id for route in self._routes for info in self._listed(route)]
        near = near_names(name, known, most=3, likeness=0.5) or known[:10]
        hint = f" There is {', '.join(repr(other) for other in near)}." if near else ""
        cure = " A backend is asked for names that it does not list if its setting `any_model` is true."
        message = f"The model '{name}' does not exist.{hint}{cure}"
        return NotFoundError(message, param="model", code="model_not_found")


async def _close(routes: Iterable[ModelRoute], lists: Mapping[int, KnownModels]) -> None:
    for known in lists.values():
        await known.close()
    for route in routes:
        await route.backend.close()
