"""The tools of a request: which functions the model is offered, and whom each call is for."""

import logging
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar
from weakref import WeakKeyDictionary

import msgspec
from typing_extensions import override

from antwort.backends.base import ToolDefinitions
from antwort.context import Agent, Context
from antwort.engine.callers import DIRECT, PROGRAMMATIC, read_callers, with_stubs
from antwort.engine.custom_tools import custom_definition, custom_echo
from antwort.errors import BadRequestError, FunctionError
from antwort.functions import Effect, FunctionSpec, Hosted, ToolExecutor, tool_definition
from antwort.scopes import FUNCTIONS_CALL
from antwort.types import JSON
from antwort.wire.requests import read_type

logger = logging.getLogger(__name__)

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_NAMING = frozenset({"type", "name"})
"""What a tool has that is but the name of a function."""
K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Target(msgspec.Struct, frozen=True):
    """Whom a call is for: a function of an executor or, without one, the client."""

    name: str
    """The name the model sees."""
    definition: JSON
    spec: FunctionSpec | None = None
    executor: ToolExecutor | None = None
    options: JSON | None = None
    """The tool as the request named it, if it did."""
    is_custom: bool = False
    """A tool of the client that takes text."""
    callers: frozenset[str] | None = None
    """Who may call it, if the request says so: the model directly, programs, or both."""

    @property
    def is_direct(self) -> bool:
        """Tell whether the model may call it."""
        return self.callers is None or DIRECT in self.callers

    @property
    def is_programmatic(self) -> bool:
        """Tell whether functions may call it that call others; those of clients only if they are meant for it."""
        return self.executor is not None if self.callers is None else PROGRAMMATIC in self.callers

    @property
    def is_client(self) -> bool:
        """Tell whether the call is handed back to the client."""
        return self.executor is None

    @property
    def face(self) -> Hosted | None:
        """How the function shows itself to clients, if it does."""
        face = None if self.spec is None else self.spec.hosted
        if face is not None and face.only_named and (self.options or {}).get("type") not in face.types:
            return None
        return face

    @property
    def suspends(self) -> bool:
        """Tell whether a call of it waits for somebody."""
        return self.spec is not None and self.spec.suspends


class Toolset(msgspec.Struct, frozen=True):
    """The functions of one request. What it has of ours it shares with other requests, so nobody changes it."""

    targets: Mapping[str, Target] = {}
    definitions: ToolDefinitions = ToolDefinitions()
    """What the model server is told of them."""
    echo: list[JSON] = []
    """The tools as the response repeats them."""
    types: Mapping[str, str] = {}
    """The model's name of the function behind each hosted tool type that was named."""
    clients: frozenset[str] = frozenset()
    """The functions whose calls are handed back to the client."""
    custom: frozenset[str] = frozenset()
    """Those among them that take text."""
    includes: frozenset[str] = frozenset()
    """The values of `include` that wire faces declare."""
    groups: Mapping[str, frozenset[str]] = {}
    """Functions that came with the same tool of the request as others, and all of them."""
    follows_references: bool = False
    """Whether the model can read with one of ours what a reference stands for."""

    def together(self, name: str) -> frozenset[str]:
        """Return a function and the others that came with the same tool of the request."""
        return self.groups.get(name) or frozenset((name,))


class _JoinedTargets(Mapping[str, Target]):
    """Two mappings without a name in common as one; to copy a thousand targets would cost more than all the rest."""

    __slots__ = ("_first", "_second")

    def __init__(self, first: Mapping[str, Target], second: Mapping[str, Target]) -> None:
        self._first = first
        self._second = second

    @override
    def __getitem__(self, name: str) -> Target:
        found = self._first.get(name)
        return self._second[name] if found is None else found

    @override
    def __iter__(self) -> Iterator[str]:
        yield from self._first
        yield from self._second

    @override
    def __len__(self) -> int:
        return len(self._first) + len(self._second)


class _Available(NamedTuple):
    """A function that an agent may be offered, and who executes it."""

    spec: FunctionSpec
    executor: ToolExecutor


_Asked = tuple[tuple[FunctionSpec, ...], ...]
"""What the executors without a version have answered."""


class _Offer:
    """All functions that the executors have for an agent; the first executor with a name, or a tool type, wins."""

    __slots__ = ("asked", "by_name", "by_type", "named", "toolsets")

    def __init__(self, offered: Iterable[tuple[ToolExecutor, Iterable[FunctionSpec]]], asked: _Asked) -> None:
        self.asked = asked
        self.by_name: dict[str, _Available] = {}
        self.by_type: dict[str, _Available] = {}
        self.toolsets: dict[tuple[tuple[str, ...] | None, frozenset[str], bool], Toolset] = {}
        """What is offered without being named, by the functions that are wanted, those that are hidden, and waiting."""
        self.named: dict[tuple[tuple[str, ...] | None, tuple[str, ...], bool], Toolset] = {}
        """What requests have that say nothing of functions but their names: by those wanted, the names, and waiting."""
        for executor, specs in offered:
            for spec in specs:
                if spec.name not in self.by_name:
                    available = self.by_name[spec.name] = _Available(spec, executor)
                    for kind in spec.hosted.types if spec.hosted is not None else ():
                        self.by_type.setdefault(kind, available)

    def has(self, tool: JSON) -> bool:
        """Tell whether a tool of a request names functions of the server."""
        if tool.get("type") == "function":
            return tool.get("parameters") is None and tool.get("name") in self.by_name
        return tool.get("type") in self.by_type


_AGENTS = 64
"""Agents for which an offer is kept."""
_TOOLSETS = 8
"""Toolsets that are kept of each."""


class ToolsetBuilder:
    """Puts together, for each request, what the executors offer and what the request brings.

    What is offered is made once and kept, until an executor has something else.
    """

    def __init__(self, executors: Sequence[ToolExecutor]) -> None:
        self._executors = executors
        self._definitions: WeakKeyDictionary[FunctionSpec, JSON] = WeakKeyDictionary()
        self._versions: list[object] = []
        self._unversioned: list[ToolExecutor] = []
        self._offers: dict[Agent, _Offer] = {}

    def build(
        self,
        tools: Sequence[JSON],
        ctx: Context,
        functions: Iterable[str] | None = None,
        *,
        waits: bool = False,
    ) -> Toolset:
        """Return the functions of a request.

        Functions that wait for somebody are offered if they are named, and to responses that can wait, as `waits` says.
        A sub-agent is always offered what ends it, and of what the request names only functions of ours.

        The request's own functions come first and hide ours of the same name. `functions`, if given, are all that is
        offered of ours besides what the request names. Callers that may not call functions are offered none of ours,
        and naming one is a PermissionDeniedError.
        """
        offer = self._offer(ctx)
        if not ctx.agent.is_root:  # nobody answers the calls that are not ours, nor those that it may not make
            tools = [tool for tool in tools if offer.has(tool)]
        wanted = None if functions is None else tuple(functions)
        permitted = ctx.grants(FUNCTIONS_CALL)
        if not tools:
            return self._offered(offer, wanted, frozenset(), ctx.agent, waits=waits) if permitted else Toolset()
        names = _only_names(tools) if permitted else None
        if names is None:
            return self._named(offer, tools, wanted, ctx, waits=waits)
        toolset = offer.named.get((wanted, names, waits))
        if toolset is None:
            toolset = self._named(offer, tools, wanted, ctx, waits=waits)
            _keep(offer.named, (wanted, names, waits), toolset, _TOOLSETS)
        return toolset

    def _named(
        self, offer: _Offer, tools: Sequence[JSON], wanted: tuple[str, ...] | None, ctx: Context, *, waits: bool
    ) -> Toolset:
        """Return what a request names, and what it has besides."""
        permitted = ctx.grants(FUNCTIONS_CALL)
        named = _NamedTools(offer, self._definition)
        for index, tool in enumerate(tools):
            if not permitted and offer.has(tool):
                ctx.require(FUNCTIONS_CALL, param=f"tools[{index}]", purpose="to use a function of the server")
            named.add(tool, index)
        named.add_hosted()
        if not permitted:
            return named.toolset(Toolset())
        return named.toolset(self._offered(offer, wanted, named.hidden(), ctx.agent, waits=waits))

    def find(self, name: str, ctx: Context) -> Target | None:
        """Return a function of ours by name, offered or not; None if there is none for the agent."""
        found = self._offer(ctx).by_name.get(name)
        return None if found is None else Target(name, self._definition(found.spec), found.spec, found.executor)

    def _offer(self, ctx: Context) -> _Offer:
        """Return what the executors have for the agent of a context. Those without a version are asked each time."""
        versions = [getattr(executor, "tools_version", None) for executor in self._executors]
        if versions != self._versions:
            self._versions = versions
            self._unversioned = [e for e, version in zip(self._executors, versions, strict=True) if version is None]
            self._offers.clear()
        asked = tuple([tuple(executor.discovered_tools(ctx)) for executor in self._unversioned])
        offer = self._offers.get(ctx.agent)
        if offer is None or offer.asked != asked:
            answers = iter(asked)
            specs = [
                (executor, next(answers) if version is None else executor.discovered_tools(ctx))
                for executor, version in zip(self._executors, versions, strict=True)
            ]
            offer = _Offer(specs, asked)
            _keep(self._offers, ctx.agent, offer, _AGENTS)
        return offer

    def _offered(
        self, offer: _Offer, wanted: tuple[str, ...] | None, hidden: frozenset[str], agent: Agent, *, waits: bool
    ) -> Toolset:
        """Return the functions of ours that a request has without naming them, but for those that it hides."""
        toolset = offer.toolsets.get((wanted, hidden, waits))
        if toolset is None:
            names = None if wanted is None else set(wanted)

            def is_offered(name: str, spec: FunctionSpec) -> bool:
                if not agent.is_root and spec.effect is Effect.END_AGENT:
                    return True
                if names is not None:
                    return name in names
                return spec.offer == "always" and (waits or not spec.suspends)

            targets = {
                name: Target(name, self._definition(spec), spec, executor)
                for name, (spec, executor) in offer.by_name.items()
                if name not in hidden and is_offered(name, spec)
            }
            toolset = Toolset(
                targets,
                ToolDefinitions(target.definition for target in targets.values()),
                includes=_includes(targets.values()),
                follows_references=_follow_references(targets.values()),
            )
            _keep(offer.toolsets, (wanted, hidden, waits), toolset, _TOOLSETS)
        return toolset

    def _definition(self, spec: FunctionSpec) -> JSON:
        found = self._definitions.get(spec)
        if found is None:
            found = self._definitions[spec] = tool_definition(spec)
        return found


class _NamedTools:
    """The tools that a request names, as far as they are read."""

    def __init__(self, offer: _Offer, definition: Callable[[FunctionSpec], JSON]) -> None:
        self._offer = offer
        self._definition = definition
        self._targets: dict[str, Target] = {}
        self._echo: list[JSON] = []
        self._types: dict[str, str] = {}
        self._clients: list[str] = []
        self._custom: list[str] = []
        self._hosted: list[tuple[JSON, _Available]] = []

    def add(self, tool: JSON, index: int) -> None:
        """Read a tool; BadRequestError names what is wrong with it."""
        kind = read_type(tool, f"tools[{index}]")
        callers = read_callers(tool, f"tools[{index}]")
        if kind == "function":
            name = self._name(tool, index)
            ours = self._offer.by_name.get(name) if tool.get("parameters") is None else None
            if ours is not None:
                definition = self._definition(ours.spec)
                self._targets[name] = Target(name, definition, ours.spec, ours.executor, tool, callers=callers)
                echo = _function_echo(definition)
                self._echo.append(echo if callers is None else {**echo, "allowed_callers": tool["allowed_callers"]})
            else:
                definition = _client_definition(tool)
                self._targets[name] = Target(name, definition, callers=callers)
                self._clients.append(name)
                self._echo.append(tool if definition is tool else _function_echo(tool))
        elif kind == "custom":
            name = self._name(tool, index)
            self._targets[name] = Target(name, custom_definition(tool), is_custom=True)
            self._clients.append(name)
            self._custom.append(name)
            self._echo.append(custom_echo(tool))
        else:
            self._note_hosted(kind, tool, f"tools[{index}]")

    def _note_hosted(self, kind: str, tool: JSON, param: str) -> None:
        found = self._offer.by_type.get(kind)
        if found is None or found.spec.hosted is None:
            available = ", ".join(["function", "custom", *sorted(self._offer.by_type)])
            raise BadRequestError(
                f"Tools of type '{kind}' are not available here; available: {available}. "
                "If a provider has it, the operator of this server can enable that.",
                param=f"{param}.type",
                code="unsupported_tool",
            )
        face = found.spec.hosted
        _check(face, tool, param)
        self._hosted.append((tool, found))
        for companion in (self._offer.by_name[name] for name in face.companions if name in self._offer.by_name):
            if companion.spec.hosted is not None and kind in companion.spec.hosted.types:
                self._hosted.append((tool, companion))
        self._echo.append({**face.tool_defaults, **tool})

    def add_hosted(self) -> None:
        """Add the functions behind hosted tools, once the names of all others are known."""
        for tool, (spec, executor) in self._hosted:
            definition = self._definition(spec)
            name = spec.name
            while name in self._targets:
                if self._targets[name].spec is spec:
                    break
                name = f"hosted_{name}"[:64]  # the client's function of that name keeps it
            if name != spec.name:
                definition = {**definition, "name": name}
            self._targets[name] = Target(name, definition, spec, executor, tool, callers=read_callers(tool, "tools"))
            self._types.setdefault(str(tool["type"]), name)

    def hidden(self) -> frozenset[str]:
        """Return the names of our functions that are not offered besides: the request has them, or their names."""
        ours = {target.spec.name for target in self._ours() if target.spec is not None}
        return frozenset(ours | (self._targets.keys() & self._offer.by_name.keys()))

    def toolset(self, offered: Toolset) -> Toolset:
        """Return them together with what else is offered."""
        ours = self._ours()
        targets = _describing(self._targets)
        return Toolset(
            _JoinedTargets(targets, offered.targets) if offered.targets else targets,
            ToolDefinitions([t.definition for t in targets.values() if t.is_direct], offered.definitions),
            self._echo,
            self._types,
            frozenset(self._clients),
            frozenset(self._custom),
            offered.includes | _includes(ours) if ours else offered.includes,
            self._groups(),
            offered.follows_references or _follow_references(ours),
        )

    def _ours(self) -> list[Target]:
        """Return the targets that are functions of the server."""
        if len(self._clients) == len(self._targets):
            return []
        return [target for target in self._targets.values() if target.spec is not None]

    def _groups(self) -> dict[str, frozenset[str]]:
        if len(self._hosted) < 2:
            return {}
        by_tool: dict[int, list[str]] = {}
        for target in self._ours():
            by_tool.setdefault(id(target.options), []).append(target.name)
        return {name: frozenset(group) for group in by_tool.values() if len(group) > 1 for name in group}

    def _name(self, tool: JSON, index: int) -> str:
        """Return the name of a function or custom tool of the request."""
        name = tool.get("name")
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            param = f"tools[{index}].name"
            raise BadRequestError(f"Invalid value for '{param}': use 1 to 64 letters, digits, '_' or '-'.", param=param)
        if name in self._targets:
            raise BadRequestError(f"There are two functions called '{name}'.", param=f"tools[{index}].name")
        return name


def _only_names(tools: Sequence[JSON]) -> tuple[str, ...] | None:
    """Return the names of the functions of a request that says nothing else of any; None if it does."""
    names = [tool["name"] for tool in tools if tool.keys() == _NAMING and tool["type"] == "function"]
    return tuple(names) if len(names) == len(tools) and all(isinstance(name, str) for name in names) else None


def _describing(targets: dict[str, Target]) -> dict[str, Target]:
    """Return targets, where those that call others describe the ones that the model does not see otherwise."""
    hidden = [target.definition for target in targets.values() if not target.is_direct]
    if not hidden:
        return targets
    calling = [target for target in targets.values() if target.spec is not None and target.spec.calls_functions]
    changed = {t.name: msgspec.structs.replace(t, definition=with_stubs(t.definition, hidden)) for t in calling}
    return {**targets, **changed}


def _follow_references(targets: Iterable[Target]) -> bool:
    return any(target.spec is not None and target.spec.reads_references for target in targets)


def _keep(kept: dict[K, V], key: K, value: V, most: int) -> None:
    """Keep something for the next request, in the place of the oldest if there are enough."""
    kept.pop(key, None)
    if len(kept) >= most:
        del kept[next(iter(kept))]
    kept[key] = value


def _includes(targets: Iterable[Target]) -> frozenset[str]:
    faces = (target.spec.hosted for target in targets if target.spec is not None)
    return frozenset(value for face in faces if face is not None for value in face.includes)


def _check(face: Hosted, tool: JSON, param: str) -> None:
    """Refuse a tool whose options cannot be used: its caller learns of it, not the model."""
    try:
        if face.check is not None:
            face.check(tool)
    except FunctionError as error:
        raise BadRequestError(str(error), param=param, code="invalid_value") from None
    except BadRequestError as error:
        where = f"{param}.{error.param}" if error.param else param
        raise BadRequestError(error.message, param=where, code=error.code or "invalid_value") from None
    except BaseException as error:
        logger.exception("the check of a tool of type '%s' has failed", tool.get("type"))
        raise BadRequestError(
            f"A tool of type '{tool.get('type')}' cannot be read as it is given. The server's log says why.",
            param=param,
            code="invalid_value",
        ) from error


def _client_definition(tool: JSON) -> JSON:
    """Return a function of the client as model servers are told of it; one that has that and no more, as it is."""
    parameters = tool.get("parameters")
    if len(tool) == 5 and parameters is not None and tool.get("description") and tool.get("strict") is not None:
        return tool
    definition: JSON = {
        "type": "function",
        "name": tool["name"],
        "parameters": {"type": "object", "properties": {}} if parameters is None else parameters,
    }
    if tool.get("description"):
        definition["description"] = tool["description"]
    if tool.get("strict") is not None:
        definition["strict"] = tool["strict"]
    return definition


def _function_echo(tool: JSON) -> JSON:
    """Repeat a function with every key the contracts require."""
    return {"type": "function", "description": None, "parameters": None, "strict": None, **tool}
