"""The tools of a request: which functions the model is offered, and whom each call is for."""

import hmac
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import msgspec
from msgspec import Struct
from typing_extensions import override

from antwort.backends.base import ToolDefinitions
from antwort.config import ApprovalPolicy
from antwort.engine.tools.deferred import DeferredFunction, DeferredFunctions, Key
from antwort.engine.window import APPROVAL_REQUEST
from antwort.errors import BadRequestError, FunctionError, did_you_mean
from antwort.functions import Effect, FunctionSpec, HostedTool, OpenedFunction, ToolExecutor
from antwort.functions.absent import AbsentProviders
from antwort.functions.stubs import python_stub
from antwort.lazy_imports import imported_on_use
from antwort.storage.base import JournalEntry, Question
from antwort.storage.call_record import CallRecord
from antwort.types import JSON
from antwort.wire.client_tools import (
    CLIENT_TYPES,
    TOOL_SEARCH,
    ClientTool,
    client_definition,
    custom_definition,
    custom_echo,
    public_tool,
    qualified_name,
)
from antwort.wire.field_errors import read_type
from antwort.wire.ids import made_at, new_id

DIRECT, PROGRAMMATIC = "direct", "programmatic"
"""Who calls a function: the model, or a function that calls others."""


def read_callers(tool: JSON, param: str) -> frozenset[str] | None:
    """Read who may call a tool, None if it does not say so; BadRequestError if nobody could."""
    given = tool.get("allowed_callers")
    if given is None:
        return None
    if not isinstance(given, list) or not given or any(caller not in (DIRECT, PROGRAMMATIC) for caller in given):
        raise BadRequestError(
            f"Invalid value for '{param}.allowed_callers': it is a list of '{DIRECT}', '{PROGRAMMATIC}', or both.",
            param=f"{param}.allowed_callers",
            code="invalid_value",
        )
    return frozenset(given)


def with_stubs(definition: JSON, hidden: Iterable[JSON]) -> JSON:
    """Return the definition of a function that calls others, with those that the model does not see otherwise."""
    stubs = "\n\n".join(map(python_stub, hidden))
    return {**definition, "description": f"{definition.get('description', '')}\n\nFurther functions:\n\n{stubs}"}


if TYPE_CHECKING:
    from antwort.wire import tool_shapes
else:
    tool_shapes = imported_on_use("antwort.wire.tool_shapes")

logger = logging.getLogger(__name__)

_NAMING = frozenset({"type", "name"})
"""What a tool has that is but the name of a function."""
_A_SLIP = 0.85
"""How alike a name has to be to one of ours to be it, mistyped; functions of clients may resemble ours."""
_MOST_SLIPS = 10
"""Functions of a request that are only named and held against ours: to compare takes long, and both may be many."""


class Target(msgspec.Struct, frozen=True):
    """Whom a call is for: a function of an executor or, without one, the client."""

    name: str
    """The name the model sees."""
    definition: JSON
    spec: FunctionSpec | None = None
    executor: ToolExecutor | None = None
    options: JSON | None = None
    """The tool as the request named it, if it did."""
    tool: ClientTool | None = None
    """A tool of the client whose calls are not plain ones."""
    callers: frozenset[str] | None = None
    """Who may call it, if the request says so: the model directly, programs, or both."""
    opened: OpenedFunction | None = None
    """What it is among the functions that a tool of the request stands for, if it is one of them."""

    @property
    def shown_name(self) -> str:
        """The name by which clients know it."""
        return self.name if self.opened is None else self.opened.name

    @property
    def opened_name(self) -> str | None:
        """The name with its label, if it is a function that a tool of the request stands for."""
        return None if self.opened is None else f"{self.opened.label}.{self.opened.name}"

    @property
    def has_changed(self) -> bool:
        """Tell whether it is described otherwise than when somebody was asked about a call of it."""
        return self.opened is not None and self.opened.changed

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
    def hosted(self) -> HostedTool | None:
        """The hosted tool that the function is in this request, if it is one."""
        hosted = None if self.spec is None else self.spec.hosted
        if hosted is not None and hosted.only_named and (self.options or {}).get("type") not in hosted.types:
            return None
        return hosted

    @property
    def suspends(self) -> bool:
        """Tell whether a call of it waits for somebody."""
        return self.spec is not None and self.spec.suspends


class UnopenedTool(msgspec.Struct, frozen=True):
    """A tool of a request that stands for functions, which nobody knows yet."""

    tool: JSON
    spec: FunctionSpec
    """Of the function that makes their calls."""
    executor: ToolExecutor
    param: str
    callers: frozenset[str] | None = None


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
    client_tools: Mapping[str, ClientTool] = {}
    """Those among them whose calls are not plain ones."""
    includes: frozenset[str] = frozenset()
    """The values of `include` that hosted tools have."""
    groups: Mapping[str, frozenset[str]] = {}
    """Functions that came with the same tool of the request as others, and all of them."""
    named: frozenset[str] = frozenset()
    """The functions that came with the tools of the request."""
    follows_references: bool = False
    """Whether the model can read with one of ours what a reference stands for."""
    unopened: Sequence[UnopenedTool] = ()
    """Tools that stand for functions, which are still to be found."""
    opened: Sequence[Target] = ()
    """Those that were found."""
    secrets: Mapping[str, tuple[str, ...]] = {}
    """Fields of tools that nobody is told again, by the type of the tool."""
    deferred: Sequence[DeferredFunctions] = ()
    """Targets that the model server is told of once the model has found them."""
    search: str | None = None
    """The model's name of the function of ours that finds them."""
    loaded: Sequence[str] = ()
    """Those of them that the model server is told of, in the order in which they were found."""
    found: Sequence[Key] = ()
    """What was found before, as items name it."""

    def opened_as(self, tool: Mapping[str, object]) -> frozenset[str]:
        """Return the names of those functions that belong to a label, or of the one of them with a name."""
        label, name = tool.get("server_label"), tool.get("name")
        return frozenset(
            target.name
            for target in self.opened
            if target.opened is not None and target.opened.label == label and name in {None, target.opened.name}
        )

    def together(self, name: str) -> frozenset[str]:
        """Return a function and the others that came with the same tool of the request."""
        return self.groups.get(name) or frozenset((name,))


class JoinedTargets(Mapping[str, Target]):
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


class Available(NamedTuple):
    """A function that an agent may be offered, and who executes it."""

    spec: FunctionSpec
    executor: ToolExecutor


Asked = tuple[tuple[FunctionSpec, ...], ...]
"""What the executors without a version have answered."""


OfferKey: TypeAlias = tuple[tuple[str, ...] | None, frozenset[str], bool]
"""The functions that are wanted, those that are hidden, and whether the response can wait."""


class Offer:
    """All functions that the executors have for an agent; the first executor with a name, or a tool type, wins."""

    __slots__ = ("asked", "by_item", "by_name", "by_type", "hosted", "scoped", "searched", "toolsets")

    def __init__(self, offered: Iterable[tuple[ToolExecutor, Iterable[FunctionSpec]]], asked: Asked) -> None:
        self.asked = asked
        self.by_name: dict[str, Available] = {}
        self.by_type: dict[str, Available] = {}
        self.by_item: dict[str, list[Available]] = {}
        """Those whose calls are shown as items of a type of their own; several may share one."""
        self.scoped: dict[str, tuple[str, ...]] = {}
        """The scopes of those that are not for everybody who may call functions."""
        self.toolsets: dict[OfferKey, Toolset] = {}
        """What is offered without being named."""
        self.searched: dict[OfferKey, Toolset] = {}
        """The same with the function that finds what is deferred, for requests that name nothing besides."""
        for executor, specs in offered:
            for spec in specs:
                if spec.name not in self.by_name:
                    available = self.by_name[spec.name] = Available(spec, executor)
                    if spec.needs:
                        self.scoped[spec.name] = tuple(spec.needs.split())
                    if spec.hosted is None:
                        continue
                    for kind in spec.hosted.types:
                        self.by_type.setdefault(kind, available)
                    if spec.hosted.item is not None:
                        self.by_item.setdefault(spec.hosted.item, []).append(available)
        self.hosted = frozenset(name for name, found in self.by_name.items() if found.spec.hosted is not None)
        """Those that answer tool types, or belong to one that does."""

    def has(self, tool: JSON) -> bool:
        """Tell whether a tool of a request names functions of the server."""
        return self.named(tool) is not None

    def named(self, tool: JSON) -> Available | None:
        """Return the function of the server that a tool of a request names, if it does."""
        if tool.get("type") == "function":
            return self.by_name.get(str(tool.get("name"))) if tool.get("parameters") is None else None
        return self.by_type.get(str(tool.get("type")))


class UnavailableToolError(BadRequestError):
    """Nobody has a tool that a request names."""


class DisabledToolError(UnavailableToolError):
    """An operator has switched off what a request names."""


class NamedTools:
    """The tools that a request names, as far as they are read."""

    def __init__(
        self,
        offer: Offer,
        definition: Callable[[FunctionSpec, JSON], JSON],
        absent: AbsentProviders,
        withheld: frozenset[str] = frozenset(),
    ) -> None:
        self._offer = offer
        self._withheld = withheld
        self._absent = absent
        self._definition = definition
        self._targets: dict[str, Target] = {}
        self._echo: list[JSON] = []
        self._types: dict[str, str] = {}
        self._clients: list[str] = []
        self._client_tools: dict[str, ClientTool] = {}
        self._hosted: list[tuple[JSON, Available]] = []
        self._unopened: list[UnopenedTool] = []
        self._deferred: dict[str, JSON] = {}
        self._about: dict[str, str] = {}
        self._compared = 0

    def add(self, tool: JSON, param: str) -> None:
        """Read a tool; BadRequestError names what is wrong with it, in that parameter."""
        kind = read_type(tool, param)
        if kind in CLIENT_TYPES or kind in self._offer.by_type:
            tool_shapes.check_tool(tool, kind, param)
            tool = tool_shapes.known_fields(tool, kind)
        callers = read_callers(tool, param)
        if kind == "function":
            self._add_function(tool, param, callers)
        elif kind == "custom":
            name = self._name(tool, param)
            self._add_client(ClientTool(kind, name), custom_definition(tool), param, callers)
            self._echo.append(custom_echo(tool))
            if tool.get("defer_loading"):
                self._deferred[name] = tool
        elif kind == "namespace":
            self._add_namespace(tool, param)
        elif (standing := client_definition(tool)) is not None:
            self._add_client(ClientTool(kind, standing["name"]), standing, param, callers)
            self._types[kind] = standing["name"]
            self._echo.append(tool)
        elif kind == TOOL_SEARCH and kind not in self._offer.by_type:
            self._echo.append(tool)  # who searches, and whether there is something to be found, is seen in the end
        elif kind in self._offer.by_type or tool.get("external_web_access") is not False:
            self._note_hosted(kind, tool, param)  # nobody needs another one: nothing outside may be asked

    def _add_function(self, tool: JSON, param: str, callers: frozenset[str] | None) -> None:
        """Add a function of the client, or one of ours that the request names."""
        name = self._name(tool, param)
        ours = self._offer.by_name.get(name) if tool.get("parameters") is None else None
        if ours is not None:
            definition = self._definition(ours.spec, tool)
            self._targets[name] = Target(name, definition, ours.spec, ours.executor, tool, callers=callers)
            echo = _function_echo(definition)
            self._echo.append(echo if callers is None else {**echo, "allowed_callers": tool["allowed_callers"]})
        else:
            if tool.get("parameters") is None:
                self._check_enabled(name, param)
            if tool.keys() <= _NAMING:
                self._absent.check_tool(name)
                if self._compared < _MOST_SLIPS:
                    self._compared += 1
                    _check_spelling(name, self._offer.by_name, param)
            definition = _client_definition(tool)
            self._targets[name] = Target(name, definition, callers=callers)
            self._clients.append(name)
            self._echo.append(tool if definition is tool else _function_echo(tool))
        if tool.get("defer_loading"):
            self._deferred[name] = self._targets[name].definition if ours is not None else tool

    def _check_enabled(self, name: str, param: str) -> None:
        """Refuse a function of ours that is switched off: nobody would answer it."""
        if (off := self._absent.why_off(name)) is not None:
            raise DisabledToolError(
                f"The function '{name}' is disabled. The operator of this server can {off.cure}.",
                param=f"{param}.name",
                code="unsupported_tool",
            )

    def add_besides(self, tool: JSON, param: str) -> None:
        """Read a tool that an item of the input brings: the response does not repeat it."""
        count = len(self._echo)
        self.add(tool, param)
        del self._echo[count:]

    def _add_namespace(self, namespace: JSON, param: str) -> None:
        """Add the functions of a namespace, which the model sees under names that begin with it."""
        prefix = self._name(namespace, param)
        for index, tool in enumerate(namespace["tools"]):
            where = f"{param}.tools[{index}]"
            kind, name = tool["type"], str(tool["name"])
            definition = custom_definition(tool) if kind == "custom" else _client_definition(tool)
            definition = {**definition, "name": qualified_name(prefix, name)}
            if tool.get("defer_loading"):
                self._deferred[definition["name"]] = tool
                self._about[prefix] = str(namespace.get("description") or "")
            self._add_client(ClientTool(kind, name, prefix), definition, where, read_callers(tool, where))
        self._echo.append(namespace)

    def _add_client(self, tool: ClientTool, definition: JSON, param: str, callers: frozenset[str] | None) -> None:
        """Add a tool of the client whose calls are not plain ones."""
        name = definition["name"]
        self._check_free(name, param)
        self._targets[name] = Target(name, definition, tool=tool, callers=callers)
        self._clients.append(name)
        self._client_tools[name] = tool

    def _note_hosted(self, kind: str, tool: JSON, param: str) -> None:
        found = self._offer.by_type.get(kind)
        if found is None or found.spec.hosted is None:
            self._absent.check_tool(kind)
            available = ", ".join(sorted({*CLIENT_TYPES, *self._offer.by_type}))
            error = UnavailableToolError if self._absent.why_off(kind) is None else DisabledToolError
            raise error(
                f"Tools of type '{kind}' are not available here; available: {available}. The operator of this server "
                f"{self._absent.tool_cure(kind)}, or have them left out (`engine.unavailable_tools: ignore`).",
                param=f"{param}.type",
                code="unsupported_tool",
            )
        hosted = found.spec.hosted
        _check(hosted, tool, param)
        if hosted.opens:
            self._add_unopened(tool, found, param)
        else:
            self._hosted.append((tool, found))
        for other in (self._offer.by_name[name] for name in hosted.offered_with if name in self._offer.by_name):
            if other.spec.name in self._withheld:
                continue
            if other.spec.hosted is not None and kind in other.spec.hosted.types:
                self._hosted.append((tool, other))
        said = {name: value for name, value in tool.items() if value is not None or name not in hosted.tool_defaults}
        self._echo.append({**hosted.tool_defaults, **public_tool(said, hosted.secrets)})

    def _add_unopened(self, tool: JSON, found: Available, param: str) -> None:
        label = tool.get("server_label")
        if any(other.tool.get("server_label") == label for other in self._unopened):
            raise BadRequestError(
                f"There are two tools with the label '{label}'.", param=f"{param}.server_label", code="invalid_value"
            )
        self._unopened.append(UnopenedTool(tool, found.spec, found.executor, param, read_callers(tool, param)))

    def add_hosted(self) -> None:
        """Add the functions behind hosted tools, once the names of all others are known."""
        for tool, (spec, executor) in self._hosted:
            definition = self._definition(spec, tool)
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
        targets = describing(self._targets)
        return Toolset(
            JoinedTargets(targets, offered.targets) if offered.targets else targets,
            ToolDefinitions(
                [t.definition for t in targets.values() if t.is_direct and t.name not in self._deferred],
                offered.definitions,
            ),
            self._echo,
            self._types,
            frozenset(self._clients),
            self._client_tools,
            offered.includes | includes_of(ours) if ours else offered.includes,
            self._groups(),
            frozenset(targets),
            offered.follows_references or follow_references(ours),
            self._unopened,
            secrets={tool.tool["type"]: tool.spec.hosted.secrets for tool in self._unopened if tool.spec.hosted},
            deferred=[self._deferred_functions(), *offered.deferred] if self._deferred else offered.deferred,
        )

    def _deferred_functions(self) -> DeferredFunctions:
        """Return those that the request itself has deferred."""
        targets, tools = self._targets, self._deferred
        namespaces = [tool.namespace for name in tools if (tool := targets[name].tool) is not None]
        return DeferredFunctions(
            tools,
            lambda: [deferred_function(targets[name], tool) for name, tool in tools.items()],
            groups=Counter(filter(None, namespaces)),
            about=self._about,
            by_client=any(tool.type == TOOL_SEARCH for tool in self._client_tools.values()),
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

    def _name(self, tool: JSON, param: str) -> str:
        """Return the name of a tool of the request."""
        name = str(tool["name"])
        self._check_free(name, param)
        return name

    def _check_free(self, name: str, param: str) -> None:
        if name in self._targets:
            raise BadRequestError(f"There are two functions called '{name}'.", param=f"{param}.name")


def deferred_function(target: Target, tool: JSON) -> DeferredFunction:
    """Return a function that is to be found, which is this tool."""
    group, name = None, target.name
    if target.opened is not None:
        group, name = target.opened.label, target.opened.name
    elif target.tool is not None:
        group, name = target.tool.namespace, target.tool.name
    tool = {**tool, "name": name, "defer_loading": True}
    return DeferredFunction(target.name, group, name, tool, target.opened is not None)


def describing(targets: dict[str, Target]) -> dict[str, Target]:
    """Return targets, where those that call others describe the ones that the model does not see otherwise."""
    hidden = [target.definition for target in targets.values() if not target.is_direct]
    if not hidden:
        return targets
    calling = [target for target in targets.values() if target.spec is not None and target.spec.calls_functions]
    changed = {t.name: msgspec.structs.replace(t, definition=with_stubs(t.definition, hidden)) for t in calling}
    return {**targets, **changed}


def follow_references(targets: Iterable[Target]) -> bool:
    """Tell whether a model can read with one of them what a reference stands for."""
    return any(target.spec is not None and target.spec.reads_references for target in targets)


def includes_of(targets: Iterable[Target]) -> frozenset[str]:
    """Return the values of `include` that hosted tools among them have."""
    tools = (target.spec.hosted for target in targets if target.spec is not None)
    return frozenset(value for tool in tools if tool is not None for value in tool.includes)


def _check(hosted: HostedTool, tool: JSON, param: str) -> None:
    """Refuse a tool whose options cannot be used: its caller learns of it, not the model."""
    try:
        hosted.check(tool)
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


def _check_spelling(name: str, known: Iterable[str], param: str) -> None:
    """Refuse a function that is only named, and nearly as one of ours is: it was meant to be that one."""
    if hint := did_you_mean(name, known, likeness=_A_SLIP):
        raise BadRequestError(
            f"The server has no function '{name}'{hint} A function of your own is told from it by its 'parameters'.",
            param=f"{param}.name",
            code="unknown_function",
        )


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


# --- calls that are made only after somebody has said yes ------------------------------------------------------------


Sign = Callable[[bytes], bytes]
"""Returns data with a signature in front."""
_BEGIN, _SIGNED = len("mcpr_") + 14, 34
"""Characters of an id that say what it is and when it was made, and those that follow."""
_CARRIED_FOR = 30 * 86_400
"""Seconds for which a request can be answered that is stored nowhere."""
_NONE = Effect.NONE  # to look it up each time takes some hundred nanoseconds in Python 3.11


class ApprovedCall(Struct, frozen=True):
    """A call of the response before that was waiting for a yes or no, and has it now."""

    question: Question
    target: Target | None
    """Who executes it; None if nobody has the function any more."""
    carried: bool = False
    """Whether the client has sent back the request, too: it is stored nowhere."""
    confirmed: bool = True
    """Whether this response is the one that brings the answer: two may have been sent at the same time."""


class ResumedCall(Struct, frozen=True):
    """A call of the response before that was waiting for calls of its own, which have their answers now."""

    record: CallRecord
    """The call, as its entry has it."""
    target: Target | None
    """Who executes it; None if nobody has the function any more."""
    nested: Sequence[JournalEntry]
    """The calls that it has made itself, with the answers."""


def approved_calls(
    questions: Iterable[Question], toolset: Toolset, find: Callable[[str], Target | None], *, carried: bool = False
) -> list[ApprovedCall]:
    """Return calls that have their answer, with who executes them, whether the request offers them again or not."""
    return [ApprovedCall(question, _approved_target(question, toolset, find), carried) for question in questions]


def _approved_target(question: Question, toolset: Toolset, find: Callable[[str], Target | None]) -> Target | None:
    """Return who executes a call; of functions that a tool stands for, only those of the tool with the same label."""
    name, label = str(question.body["name"]), question.body.get("server_label")
    opened = toolset.opened_as({"server_label": label, "name": name})
    if opened:
        return toolset.targets[next(iter(opened))]
    target = toolset.targets.get(name) or find(name)
    return None if target is not None and provider_of(target) != label else target


def needs_approval(spec: FunctionSpec, policy: ApprovalPolicy | None) -> bool:
    """Tell whether a call is made only after a yes: by the agent's policy if it says so, else by the function's own.

    What is said for all functions of an agent leaves out those that talk to the user: they do nothing else.
    """
    if policy is not None and isinstance(policy, Mapping):
        policy = policy.get(spec.name)
    elif spec.effect is not _NONE:
        policy = None
    return (policy or spec.approval) == "always"


def approval_request(name: str, arguments: str, provider: str, sign: Sign | None = None) -> JSON:
    """Return the item that asks for a yes; its id is that of the question.

    With `sign` it is not stored: the id tells then that the item is ours, when a client sends it back.
    """
    item: JSON = {"id": new_id("mcpr"), "type": APPROVAL_REQUEST, "status": "completed", "name": name}
    item |= {"arguments": arguments, "server_label": provider}
    return item if sign is None else {**item, "id": _signed_id(item, item["id"], sign)}


def is_ours(request: JSON, sign: Sign) -> bool:
    """Tell whether a request that a client sends back is one that was made here, and stored nowhere."""
    given = request.get("id")
    return isinstance(given, str) and hmac.compare_digest(_signed_id(request, given, sign).encode(), given.encode())


def is_too_old(request_id: str) -> bool:
    """Tell whether one of these was made so long ago that nobody waits for an answer any more; its id says when."""
    return made_at(request_id) + _CARRIED_FOR < time.time()


def _signed_id(request: JSON, given: str, sign: Sign) -> str:
    """Return an id with the time of the given one; what is chance elsewhere is a signature of the request."""
    begin = given[:_BEGIN]
    said = msgspec.json.encode([begin, *(str(request.get(name)) for name in ("name", "arguments", "server_label"))])
    return f"{begin}{sign(said)[: _SIGNED // 2].hex()}"


def approval_body(request: JSON) -> JSON:
    """Return what whoever answers is shown of a request."""
    return {name: request[name] for name in ("name", "arguments", "server_label", "reason") if name in request}


def provider_of(target: Target) -> str:
    """Return the provider of a function, as far as its executor knows one, or the label of the tool that it is of."""
    if target.opened is not None:
        return target.opened.label
    ask = getattr(target.executor, "provider_of", None)
    return str(ask(target.spec.name)) if ask is not None and target.spec is not None else "functions"
