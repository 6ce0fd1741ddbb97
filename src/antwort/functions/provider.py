"""What an app gives a provider to work with."""

import contextlib
import inspect
import re
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import (
    Any,
    ClassVar,
    Generic,
    Protocol,
    Self,
    TypedDict,
    cast,
    final,
    get_args,
    get_origin,
    overload,
    runtime_checkable,
)

from msgspec import Struct, field
from msgspec.structs import replace
from prometheus_client.registry import Collector
from typing_extensions import TypeVar, Unpack, override

from antwort.concurrency.load import ServerLoad
from antwort.concurrency.slots import Queues, Slots
from antwort.config import AgentConfig, LoadedConfig, Settings, validate_settings
from antwort.context import Context
from antwort.context.http_client import HttpClient
from antwort.context.values import Values
from antwort.errors import APIError, ConfigError, DefinitionError, FunctionError
from antwort.files.base import Files
from antwort.functions.calls import ToolCall
from antwort.functions.checks import CheckOptions, CheckSpec, CheckStage, check_stages
from antwort.functions.hosted_tool import OpenedTool
from antwort.functions.metrics import MetricDescriptor
from antwort.functions.resources import ResourceSource
from antwort.functions.results import ToolResult
from antwort.functions.spec import FunctionOptions, FunctionSpec, check_options
from antwort.sandbox import Sandbox
from antwort.storage.base import Questions, Records
from antwort.web.routes import Example, Route


class Signer(Protocol):
    """Signs data with a secret of the server, for one purpose and one tenant."""

    def sign(self, purpose: str, tenant: str, data: bytes) -> bytes:
        """Return data with a signature in front."""

    def verify(self, purpose: str, tenant: str, signed: bytes) -> bytes:
        """Return data that was signed for this purpose and tenant; a ValueError if it was not."""


class Services(Struct, frozen=True):
    """What a provider has from its app, from the beginning of its `lifespan` on."""

    http: HttpClient
    """The client for the world outside; functions and routes have it as `ctx.http` too."""
    records: Records
    """What the provider keeps in the app's database."""
    place: Path
    """Where its folder is, or would be."""
    values: Values | None = None
    """The variables of all tenants, for routes; functions have theirs as `ctx.variables`. None if no app runs."""
    questions: Questions | None = None
    """The questions of all runs, for routes; functions ask with `ctx.suspend`. None if no app runs."""
    sandbox: Sandbox = field(default_factory=Sandbox)
    """Where code runs that nobody trusts. Whoever needs it calls `prepare` in `lifespan`."""
    signer: Signer | None = None
    """Signs what a provider keeps where others could change it. None if no app runs."""
    files: Files | None = None
    """The files of all tenants; what is to be done when one is deleted is said in `lifespan`. None if no app runs."""
    command: Callable[..., list[str]] | None = None
    """Returns how this program is started once more, with the same configuration and the words of another command:
    for providers that start processes which work apart. None if nobody knows."""
    queues: Queues = field(default_factory=Queues)
    """The queues of the app, in which tenants take turns."""
    load: ServerLoad = field(default_factory=ServerLoad)
    """What is asked of this process: work in the background stands back behind it."""
    offer: Callable[[Sequence[FunctionSpec]], None] | None = None
    """Offers functions besides those that are marked, in the place of what it was called with before: for providers
    that learn only later, or again and again, what they have. Each has a handler. None if no app runs."""

    @property
    def folder(self) -> Path:
        """The folder in which the provider may keep files; it is made when it is asked for first.

        Nobody else of the machine can look into it, whoever made the folder around it.
        """
        self.place.parent.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        for folder in (self.place.parent, self.place):
            folder.mkdir(mode=0o700, exist_ok=True)
            if folder.stat().st_mode & 0o077:  # of an older release
                with contextlib.suppress(PermissionError):  # it is another user's, who shares it with us
                    folder.chmod(0o700)
        return self.place


class Workplace(Struct, frozen=True):
    """What a provider has in a process apart from the server: nothing that only one process may have open."""

    http: HttpClient
    folder: Path
    """The folder of the provider, which the server has made."""
    sandbox: Sandbox


@runtime_checkable
class WorksApart(Protocol):
    """A provider that leaves work to processes apart from the server, such as `antwort ingest watch`.

    It is not started there: no `lifespan` is entered.
    """

    @property
    def name(self) -> str:
        """The provider's name."""

    async def work_apart(self, place: Workplace, *, idle: float | None = None) -> None:
        """Work for the server until cancelled; with `idle`, until there was nothing to do for so many seconds."""


F = TypeVar("F", bound=Callable[..., Any])
_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")
_SELF = frozenset({"self", "_self", "this", "_"})


@runtime_checkable
class FunctionProvider(Protocol):
    """What the registry needs of a provider. Each of the three lists may be empty."""

    @property
    def name(self) -> str:
        """The provider's name: its key in the configuration and its label in metrics."""

    def tools(self) -> Sequence[FunctionSpec]:
        """Return the functions. Those with a handler are run by the registry, the others by `execute`."""

    def can_execute(self, name: str) -> bool:
        """Tell whether a function can be executed now; asked before every call."""

    async def execute(self, ctx: Context, call: ToolCall) -> ToolResult:
        """Execute a function that has no handler of its own."""

    def routes(self) -> Sequence[Route]:
        """Return the management routes."""

    def collectors(self) -> Sequence[Collector]:
        """Return Prometheus collectors, to be shown at `/metrics`."""

    async def close(self) -> None:
        """Give everything back; called once, when the server stops."""


class NoSettings(Settings):
    """The settings of a provider that has none."""


S = TypeVar("S", bound=Settings, default=NoSettings)
_FUNCTION = "__antwort_function__"
_ROUTE = "__antwort_route__"
_CHECK = "__antwort_check__"
_MARKS = (_FUNCTION, _ROUTE, _CHECK)


@overload
def function(handler: F, /) -> F: ...


@overload
def function(**options: Unpack[FunctionOptions]) -> Callable[[F], F]: ...


def function(handler: F | None = None, /, **options: Unpack[FunctionOptions]) -> F | Callable[[F], F]:
    """Mark a method of a provider as a function that models may call. The method itself stays as it is."""
    check_options(options, FunctionOptions.__annotations__, "@function")

    def mark(target: F) -> F:
        setattr(target, _FUNCTION, options)
        return target

    return mark if handler is None else mark(handler)


def is_function(target: object) -> bool:
    """Tell whether something was marked with `@function`."""
    return hasattr(target, _FUNCTION)


def is_check(target: object) -> bool:
    """Tell whether something was marked with `@check`."""
    return hasattr(target, _CHECK)


def marked_options(target: object) -> FunctionOptions:
    """Return the options a function was marked with; none if it was not."""
    return cast("FunctionOptions", getattr(target, _FUNCTION, {}))


def check(*stages: CheckStage, **options: Unpack[CheckOptions]) -> Callable[[F], F]:
    """Mark a method of a provider as a check of one or more stages: `input`, `output`, `call`, `result`.

    Its parameters are found by their types: a `str` is the text, a `CheckedCall` the call, a `Context` who is calling.
    It returns a verdict: `Allow`, `Refuse`, `Mask`, and of a call `Ask`.
    """
    check_stages(stages)
    check_options(options, CheckOptions.__annotations__, "@check")

    def mark(target: F) -> F:
        setattr(target, _CHECK, (stages, options))
        return target

    return mark


class RouteOptions(TypedDict, total=False):
    """What `@route` takes besides method and path."""

    summary: str
    scope: str
    status: int
    media_type: str
    body: Any
    takes: str
    returns: Any
    streams: bool
    streams_body: bool
    errors: Sequence[type[APIError]]
    examples: Sequence[Example]


def route(method: str, path: str, **options: Unpack[RouteOptions]) -> Callable[[F], F]:
    """Mark a method of a provider as a management route. The registry adds authentication, tenant and metrics."""
    check_options(options, RouteOptions.__annotations__, "@route")

    def mark(target: F) -> F:
        setattr(target, _ROUTE, [*getattr(target, _ROUTE, ()), (method, path, options)])
        return target

    return mark


class Provider(Generic[S]):
    """The base of providers: functions and routes are marked methods, settings are typed, resources live in `lifespan`.

    `name` defaults to the class name in snake case. `aliases` maps other spellings of settings to their names.
    """

    name: str
    aliases: ClassVar[Mapping[str, str]] = {}
    profiles: ClassVar[Mapping[str, AgentConfig]] = {}
    """Agents that come with the provider; those of the configuration with the same names replace them."""
    settings_type: ClassVar[type[Settings]] = NoSettings
    settings: S
    parts: Sequence[object] = ()
    """Objects whose marked methods are functions, routes and checks of the provider, too, behind its own.

    They are set in `__init__`. What they need of `lifespan` they are given there.
    """
    resources: Sequence[ResourceSource] = ()
    """What it keeps that clients of the Model Context Protocol can read; set in `__init__`."""
    # Here and not in __init__, so that a provider that forgets to call super().__init__() still works.
    _exit: contextlib.AsyncExitStack | None = None
    _services: Services | None = None
    _specs: dict[str, FunctionSpec] | None = None

    @override
    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "name" not in cls.__dict__:
            cls.name = _snake_case(cls.__name__.removesuffix("Provider") or cls.__name__)
        if not _NAME.fullmatch(cls.name):
            raise DefinitionError(f"'{cls.name}' is not a provider name; use lower-case letters, digits and '_'")
        for name, value in vars(cls).items():
            if all(_mark(value, mark) is None for mark in _MARKS):
                continue
            if hasattr(Provider, name):
                raise DefinitionError(f"provider '{cls.name}': '{name}' would hide Provider.{name}; rename the method")
            _check_self(value, f"{cls.__name__}.{name}")
        if not inspect.isasyncgenfunction(cls.lifespan):
            raise DefinitionError(
                f"provider '{cls.name}': lifespan must be a plain `async def` that opens, yields once, and closes"
            )
        cls._take_settings_type()

    @classmethod
    def _take_settings_type(cls) -> None:
        """Read the type of the settings off `Provider[…]` among the bases."""
        for base in getattr(cls, "__orig_bases__", ()):
            arguments = get_args(base)
            if isinstance(get_origin(base), type) and issubclass(get_origin(base), Provider) and arguments:
                settings = arguments[0]
                if isinstance(settings, type) and issubclass(settings, Settings):
                    cls.settings_type = settings
                elif not isinstance(settings, TypeVar):
                    raise DefinitionError(
                        f"provider '{cls.name}': settings must be a subclass of antwort.provider.Settings"
                    )

    def __init__(self, settings: S | None = None) -> None:
        self.settings = (
            settings if settings is not None else cast("S", validate_settings(self.settings_type, {}, key=self.name))
        )

    @classmethod
    def from_settings(
        cls, raw: Mapping[str, Any], *, name: str | None = None, loaded: LoadedConfig | None = None
    ) -> Self:
        """Build the provider from its raw settings, under another name if given; ConfigError if they do not fit."""
        key = f"providers.{name or cls.name}.settings"
        values = dict(raw)
        for alias, setting in cls.aliases.items():
            if alias in values:
                if setting in values:
                    raise ConfigError(f"{key}: '{alias}' is another name for '{setting}'; keep one of the two")
                values[setting] = values.pop(alias)
                if loaded is not None:  # an error about the setting points at the line of its alias
                    origins = {**loaded.origins, f"{key}.{setting}": loaded.origin(f"{key}.{alias}")}
                    loaded = replace(loaded, origins=origins)
        settings = cast("S", validate_settings(cls.settings_type, values, key=key, loaded=loaded))
        provider = cls.__new__(cls)
        if name is not None:
            provider.name = name  # before __init__, which may already use a metric, and metrics carry the name
        provider.__init__(settings)  # type: ignore[misc]
        return provider

    async def lifespan(self) -> AsyncIterator[None]:
        """Open resources, yield once, close them. Override it; nothing else is needed for a clean stop."""
        yield

    async def examine(self) -> Sequence[str]:
        """Ask what the provider depends on, and return what is wrong, a line each; `antwort check` shows them.

        Override it if the provider starts although something that it needs is away.
        """
        return ()

    @property
    def named_models(self) -> Mapping[str, str | None]:
        """The models that its settings name, by the settings; `antwort check` looks whether there are such models."""
        return {}

    @property
    def service_health(self) -> Mapping[str, bool]:
        """What it depends on, by names that everybody may know, and whether that was there when it was asked last.

        `/readyz` tells it; nobody is asked then. Override it if the provider goes on without.
        """
        return {}

    @property
    def service_functions(self) -> Mapping[str, Sequence[str]]:
        """The functions that come from what it depends on, by the names of `service_health`."""
        return {}

    @property
    def finds_functions(self) -> bool:
        """Whether it offers functions that it knows only once it has started, by `services.offer`."""
        return False

    @property
    def one_process(self) -> str | None:
        """Why only one process at a time can have this provider, and the cure; None if several can.

        Override it if the provider keeps something to itself, such as files that it has open: a server with several
        workers does not start then, and says why.
        """
        return None

    @property
    def services(self) -> Services:
        """What the app gives the provider: an HTTP client, a place in its database, a folder."""
        if self._services is None:
            raise DefinitionError(f"provider '{self.name}' has no services: it was not started by an app")
        return self._services

    def slots(self, limit: int, queue: str | None = None) -> Slots:
        """Return so many slots, which tenants take turns at; those who wait are counted under the provider's name."""
        queues = Queues() if self._services is None else self._services.queues
        return Slots(limit, queues.named(queue or self.name))

    @final
    def attach(self, services: Services) -> None:
        """Take what the app gives; the registry calls this before `start`."""
        self._services = services

    @final
    async def start(self) -> None:
        """Enter `lifespan`; the registry calls this before the first request."""
        if self._exit is None:
            stack = contextlib.AsyncExitStack()
            await stack.enter_async_context(contextlib.asynccontextmanager(self.lifespan)())
            self._exit = stack

    @final
    async def close(self) -> None:
        """Leave `lifespan`; safe to call again."""
        stack, self._exit = self._exit, None
        if stack is not None:
            await stack.aclose()

    @final
    def tools(self) -> Sequence[FunctionSpec]:
        """Return the methods marked with `@function`, in the order of their definition, those of `parts` last."""
        if self._specs is None:
            specs = [
                FunctionSpec.of(
                    getattr(owner, name),
                    cast("FunctionOptions", {"scope": "core", **options, **self._described(name)}),
                    trusted=comes_with_antwort(self),
                )
                for owner, name, options in self._marked(_FUNCTION)
            ]
            specs = [spec for spec in specs if self.offers(spec.name)]
            self._specs = {spec.name: spec for spec in specs}
            if len(self._specs) < len(specs):
                raise DefinitionError(f"provider '{self.name}' has two functions of one name")
        return tuple(self._specs.values())

    @final
    def checks(self) -> Sequence[CheckSpec]:
        """Return the methods marked with `@check`, one for each of their stages, those of `parts` last."""
        specs = [
            CheckSpec.of(getattr(owner, name), stage, options)
            for owner, name, (stages, options) in self._marked(_CHECK)
            for stage in stages
        ]
        return [spec for spec in map(self.configures, specs) if spec is not None]

    def configures(self, check: CheckSpec) -> CheckSpec | None:
        """Return a check as the settings want it; None leaves it out. Override it if they have a say in that."""
        return check

    def offers(self, name: str) -> bool:  # noqa: ARG002 - for those who override it
        """Tell whether the settings ask for a function; asked once. Override it to leave some out."""
        return True

    def describes(self, name: str) -> str | None:  # noqa: ARG002 - for those who override it
        """Return what models read of a function; None is its docstring. Override it if that depends on the settings."""
        return None

    def _described(self, name: str) -> dict[str, str]:
        description = self.describes(name)
        return {} if description is None else {"description": description}

    def can_execute(self, name: str) -> bool:
        """Tell whether a function can be executed now. Override it to take functions away for a while."""
        return name in (self._specs or [spec.name for spec in self.tools()])

    async def prepare_tool(
        self,
        name: str,  # noqa: ARG002 - for those who override it
        tool: Mapping[str, Any],
        items: Iterable[Mapping[str, Any]],  # noqa: ARG002
        ctx: Context,  # noqa: ARG002
    ) -> Mapping[str, Any]:
        """Look at a hosted tool that a request names, before the model is asked; return it as calls of `name` get it.

        `items` are those that the response reads, the latest first. Override it to refuse what there is not: an
        APIError refuses the request, with a `param` relative to the tool. It has to be quick.
        """
        return tool

    async def open_tool(
        self,
        name: str,
        tool: Mapping[str, Any],  # noqa: ARG002 - for those who override it
        items: Iterable[Mapping[str, Any]],  # noqa: ARG002
        ctx: Context,  # noqa: ARG002
    ) -> OpenedTool:
        """Return what a hosted tool stands for that `opens`, before the model is asked; `name` makes the calls of it.

        `items` and errors are as with `prepare_tool`. It has its own time limit, since it may ask somebody.
        """
        raise DefinitionError(f"provider '{self.name}': the hosted tool of '{name}' opens, so override `open_tool`")

    @final
    async def execute(self, ctx: Context, call: ToolCall) -> ToolResult:  # noqa: ARG002 - the protocol's signature
        """Refuse: every function of this class has a handler, which the registry runs itself."""
        raise FunctionError(f"{call.name} is not a function of {self.name}.")

    @final
    def routes(self) -> Sequence[Route]:
        """Return the methods marked with `@route`, those of `parts` last."""
        return tuple(
            Route(method, path, getattr(owner, name), **options)
            for owner, name, marks in self._marked(_ROUTE)
            for method, path, options in marks
        )

    def _marked(self, mark: str) -> Iterator[tuple[object, str, Any]]:
        """Give the marked methods of the provider and of its parts: whose each is, its name, its mark."""
        for part in self.parts:
            _check_part(part, self.name)
        for owner in (self, *self.parts):
            for name, found in _marked(type(owner), mark):
                yield owner, name, found

    @final
    def collectors(self) -> Sequence[Collector]:
        """Return the metrics declared on the class, one set per provider object."""
        return tuple(getattr(self, name) for name, _ in _attributes(type(self), MetricDescriptor))

    @property
    def started(self) -> bool:
        """Tell whether `lifespan` is open."""
        return self._exit is not None

    @property
    def needs_start(self) -> bool:
        """Tell whether there is a `lifespan` to open."""
        return type(self).lifespan is not Provider.lifespan


def comes_with_antwort(provider: FunctionProvider) -> bool:
    """Tell whether a provider is one of ours: what it declares was checked by its tests, and need not be at a start."""
    return type(provider).__module__.startswith("antwort.providers.")


def _snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def _attributes(cls: type, kind: type | None = None) -> Iterator[tuple[str, Any]]:
    """Yield the attributes of a class and its bases, bases first, in the order of definition, each name once."""
    found: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        found |= vars(base)  # a name that is defined again stays where it was
    for name, value in found.items():
        if kind is None or isinstance(value, kind):
            yield name, value


def _marked(cls: type, mark: str) -> Iterator[tuple[str, Any]]:
    for name, value in _attributes(cls):
        found = _mark(value, mark)
        if found is not None:
            yield name, found


def _check_part(part: object, provider: str) -> None:
    """Raise DefinitionError for what is no part of a provider: it would be left out, or never be started."""
    kind = part.__name__ if isinstance(part, type) else type(part).__name__
    if isinstance(part, type):
        raise DefinitionError(f"provider '{provider}': parts are objects, and {kind} is a class; make one of it")
    if isinstance(part, Provider):
        raise DefinitionError(f"provider '{provider}': {kind} is a provider, not a part of one; register it by itself")
    marked = {name for mark in _MARKS for name, _ in _marked(type(part), mark)}
    if not marked:
        raise DefinitionError(f"provider '{provider}': its part {kind} has no @function, no @route and no @check")
    for name, value in _attributes(type(part)):
        if name in marked:
            _check_self(value, f"{kind}.{name}")


def _check_self(value: object, where: str) -> None:
    """Raise DefinitionError for a method whose first parameter is not the object: it would be swallowed."""
    if not inspect.isfunction(value):  # a staticmethod, a classmethod, or something callable of its own
        return
    first = next(iter(inspect.signature(value).parameters.values()), None)
    if first is not None and first.kind is first.VAR_POSITIONAL:
        return  # of a decorator that hands everything on
    if first is None or first.name not in _SELF or first.annotation is not first.empty:
        given = "has no parameter" if first is None else f"begins with '{first.name}'"
        raise DefinitionError(f"{where} is a method and {given}: put `self` first, or make it a @staticmethod")


def _mark(value: object, mark: str) -> Any:
    """Return a mark, also through `staticmethod` and `classmethod`, in whichever order the decorators stand."""
    return getattr(value, mark, getattr(getattr(value, "__func__", None), mark, None))
