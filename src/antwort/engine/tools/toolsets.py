"""Toolsets: for each request, what the executors offer and what it brings, put together once and kept."""

from collections import OrderedDict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, TypeAlias, TypeVar
from weakref import WeakKeyDictionary

import msgspec
from msgspec.structs import replace

from antwort.backends.base import ToolDefinitions
from antwort.context import Agent, Context
from antwort.context.context import EVERYTHING, FUNCTIONS_CALL
from antwort.engine.tools.deferred import Deferral, DeferredFunctions, deferred_names
from antwort.engine.tools.targets import (
    DisabledToolError,
    NamedTools,
    Offer,
    OfferKey,
    Target,
    Toolset,
    UnavailableToolError,
    deferred_function,
    follow_references,
    includes_of,
)
from antwort.engine.tools.tool_search import SEARCH_OUTPUT, search_spec, searching
from antwort.errors import BadRequestError
from antwort.functions import Effect, FunctionSpec, ToolExecutor, tool_definition
from antwort.functions.absent import NONE_ABSENT, AbsentProviders
from antwort.storage.base import JournalEntry
from antwort.types import JSON
from antwort.wire.client_tools import TOOL_SEARCH
from antwort.wire.requests import CreateResponse, ReasoningOptions, TextConfig

# --- what items of an input change for the responses from there on ---------------------------------------------------


UPDATE = "configuration_update"
CHANGING = frozenset({"additional_tools", SEARCH_OUTPUT, UPDATE})
"""Types of items that change something."""
Brought: TypeAlias = tuple[str, JSON]
"""A tool, and the parameter that has it."""


def changing(items: Iterable[JSON], param: str | None = None) -> list[tuple[str, JSON]]:
    """Return the items that change something, each with the parameter that has it: its place in the input, or one."""
    return [(param or f"input[{index}]", item) for index, item in enumerate(items) if item.get("type") in CHANGING]


def changing_entries(entries: Sequence[JournalEntry]) -> list[JSON]:
    """Return the items that change something among entries."""
    return [entry.item for entry in entries if entry.item.get("type") in CHANGING]


def brought_tools(items: Iterable[tuple[str, JSON]], tools: Sequence[JSON], *, most: int) -> list[Brought]:
    """Return the tools that items bring, and that a request does not have itself; of two with a name the later one.

    Namespaces with the same name are one. With its own a request has at most so many.
    """
    own = {_key(tool): tool for tool in tools}
    found: dict[tuple[str, str], Brought] = {}
    for param, item in items:
        for index, tool in _tools_of(item):
            where, key = f"{param}.tools[{index}]", _key(tool)
            if tool.get("type") == "namespace":
                inner = {entry["name"]: entry for entry in tool["tools"]}
                if key in found:
                    inner = {entry["name"]: entry for entry in found[key][1]["tools"]} | inner
                for entry in own.get(key, {}).get("tools") or ():
                    inner.pop(entry.get("name"), None)
                if inner:
                    found[key] = where, {**tool, "tools": [*inner.values()]}
            elif key not in own:
                found[key] = where, tool
    if len(tools) + len(found) > most:
        raise BadRequestError(
            f"Invalid value for 'input': with its tools there are more than {most:,} (engine.max_tools).",
            param="input",
            code="invalid_value",
        )
    return [*found.values()]


def _tools_of(item: JSON) -> Iterator[tuple[int, JSON]]:
    """Yield the tools that an item brings, with their numbers; what was found is not deferred any more.

    What a server has found among deferred tools is that server's, or the request has it, so nobody brings it.
    """
    found, ours = item.get("type") == SEARCH_OUTPUT, item.get("execution") == "server"
    for index, tool in enumerate(item.get("tools") or ()):
        if not found:
            yield index, tool
        elif tool.get("type") == "namespace":
            inner = [entry for entry in tool["tools"] if not (ours and entry.get("defer_loading"))]
            if inner:
                yield index, {**tool, "tools": [*map(_undeferred, inner)]}
        elif not (ours and tool.get("defer_loading")):
            yield index, _undeferred(tool)


def _undeferred(tool: JSON) -> JSON:
    return {**tool, "defer_loading": False} if tool.get("defer_loading") else tool


def _key(tool: JSON) -> tuple[str, str]:
    return str(tool.get("type")), str(tool.get("name"))


def configured(create: CreateResponse, items: Iterable[tuple[str, JSON]]) -> CreateResponse:
    """Return a request with the settings that items change; the last one that does so counts."""
    reasoning, text = create.reasoning, create.text
    for _, item in items:
        if item.get("type") != UPDATE:
            continue
        if item.get("reasoning"):
            effort = item["reasoning"].get("effort")
            reasoning = ReasoningOptions(effort) if reasoning is None else replace(reasoning, effort=effort)
        if item.get("text"):
            form = item["text"]["format"]
            text = TextConfig(form) if text is None else replace(text, format=form)
    if reasoning is create.reasoning and text is create.text:
        return create
    return replace(create, reasoning=reasoning, text=text)


# --- toolsets --------------------------------------------------------------------------------------------------------


K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

_AGENTS = 64
"""Agents for which an offer is kept."""
_TOOLSETS = 8
"""Toolsets that are kept of each."""
_NONE_HIDDEN: frozenset[str] = frozenset()
_UNNAMED: JSON = {}
"""The tool of a function that no request has named."""
_version_of = attrgetter("tools_version")
_SELF_CONTAINED = ("function", "custom", "namespace", TOOL_SEARCH)
"""Types of tools that mean the same whenever the same is offered besides."""
_MOST_BYTES = 2 * 1024**2
"""JSON of tools whose toolsets are kept, of all clients together. In memory they take several times as much."""
_LEAST_BYTES = 4096
"""What a toolset counts at least."""


class ToolsetBuilder:
    """Puts together, for each request, what the executors offer and what the request brings.

    What is offered is made once and kept, until an executor has something else. Tools that nobody has are refused, or
    left out.
    """

    def __init__(
        self,
        executors: Sequence[ToolExecutor],
        *,
        ignores_unavailable: bool = False,
        absent: AbsentProviders = NONE_ABSENT,
        defer_above: int | None = None,
        most_found: int = 5,
    ) -> None:
        self.deferral = Deferral(defer_above, most_found, search_spec)
        self._executors = executors
        self._ignores_unavailable = ignores_unavailable
        self._absent = absent
        self._definitions: WeakKeyDictionary[FunctionSpec, JSON] = WeakKeyDictionary()
        self._versioned: list[Any] = [one for one in executors if getattr(one, "tools_version", None) is not None]
        self._unversioned = [one for one in executors if one not in self._versioned]
        self._versions: list[object] = []
        self._offers: dict[Agent, Offer] = {}
        self._sent = _SentTools()

    def build(
        self,
        tools: Sequence[JSON],
        ctx: Context,
        functions: Iterable[str] | None = None,
        *,
        waits: bool = False,
        listed: bool = False,
        brought: Sequence[Brought] = (),
        again: bool = False,
    ) -> Toolset:
        """Return the functions of a request; what was switched off since is left out if it was built before.

        A request with a list of tools, as `listed` says, even an empty one, says with it which hosted types it wants:
        functions that answer others are not offered besides. What an agent's profile names is offered all the same.
        `brought` are tools that items of its input bring.

        Functions that wait for somebody are offered if they are named, and to responses that can wait, as `waits` says.
        A sub-agent is always offered what ends it, and of what the request names only functions of ours.

        The request's own functions come first and hide ours of the same name. `functions`, if given, are all that is
        offered of ours besides what the request names. Callers that may not call functions are offered none of ours,
        nor those whose scopes they lack, and naming one is a PermissionDeniedError.
        """
        offer = self._offer(ctx)
        if ctx.agent.depth:  # nobody answers the calls that are not ours, nor those that it may not make
            tools = list(filter(offer.has, tools))
        wanted = None if functions is None else tuple(functions)
        permitted = ctx.grants(FUNCTIONS_CALL)
        withheld = _withheld(offer, ctx) if offer.scoped and EVERYTHING not in ctx.scopes else _NONE_HIDDEN
        hidden = offer.hosted if listed and wanted is None else _NONE_HIDDEN
        if any((brought, again)):  # neither is ever the same again
            return self._named(offer, tools, wanted, ctx, hidden, waits=waits, brought=brought, again=again)
        if not tools:
            hidden = hidden | withheld if withheld else hidden
            return self._unnamed(offer, (wanted, hidden, waits), ctx.agent) if permitted else Toolset()
        sent = _written(tools) if permitted and not withheld else None
        if sent is None:
            return self._named(offer, tools, wanted, ctx, hidden, waits=waits)
        toolset = self._sent.find((offer, wanted, sent, waits, listed))
        if toolset is None:
            toolset = self._named(offer, tools, wanted, ctx, hidden, waits=waits)
            self._sent.keep((offer, wanted, sent, waits, listed), toolset)
        return toolset

    def _named(
        self,
        offer: Offer,
        tools: Sequence[JSON],
        wanted: tuple[str, ...] | None,
        ctx: Context,
        hidden: frozenset[str],
        *,
        waits: bool,
        brought: Sequence[Brought] = (),
        again: bool = False,
    ) -> Toolset:
        """Return what a request names, and what it has besides; `hidden` are functions that it has only by name."""
        permitted = ctx.grants(FUNCTIONS_CALL)
        withheld = _withheld(offer, ctx)
        named = NamedTools(offer, self._definition, self._absent, withheld)
        own = len(tools)
        for number, (param, tool) in enumerate([*_numbered(tools), *brought]):
            if not permitted and offer.has(tool):
                ctx.require(FUNCTIONS_CALL, param=param, purpose="to use a function of the server")
            if withheld and (ours := offer.named(tool)) is not None:
                for scope in offer.scoped.get(ours.spec.name, ()):
                    ctx.require(scope, param=param, purpose=f"to use '{ours.spec.name}'")
            try:
                (named.add if number < own else named.add_besides)(tool, param)
            except UnavailableToolError as error:
                if not (self._ignores_unavailable or (again and isinstance(error, DisabledToolError))):
                    raise
        named.add_hosted()
        if permitted:
            hidden = named.hidden() | withheld | hidden
            toolset = named.toolset(self._offered(offer, wanted, hidden, ctx.agent, waits=waits))
        else:
            toolset = named.toolset(Toolset())
        return toolset if toolset.unopened else searching(toolset, self.deferral)

    def _unnamed(self, offer: Offer, key: OfferKey, agent: Agent) -> Toolset:
        """Return what is offered to a request that names nothing, with the function that finds what is deferred."""
        wanted, hidden, waits = key
        offered = self._offered(offer, wanted, hidden, agent, waits=waits)
        if not offered.deferred:
            return offered
        searched = offer.searched.get(key)
        if searched is None:
            searched = searching(offered, self.deferral)
            _keep(offer.searched, key, searched, _TOOLSETS)
        return searched

    def find(self, name: str, ctx: Context) -> Target | None:
        """Return a function of ours by name, offered or not; None if there is none for the agent and the caller."""
        offer = self._offer(ctx)
        found = None if name in _withheld(offer, ctx) else offer.by_name.get(name)
        return None if found is None else Target(name, self._definition(found.spec), found.spec, found.executor)

    def callable_by(self, ctx: Context) -> dict[str, FunctionSpec]:
        """Return our functions that an agent and its caller may call, offered or only on request, by name."""
        if not ctx.grants(FUNCTIONS_CALL):
            return {}
        offer = self._offer(ctx)
        withheld = _withheld(offer, ctx)
        return {name: found.spec for name, found in offer.by_name.items() if name not in withheld}

    def showing(self, item_type: str, toolset: Toolset, ctx: Context) -> list[tuple[str, FunctionSpec]]:
        """Return our functions whose calls are items of a type, offered or not, with the model's names of them.

        There are none if the request has a tool of its client with such items.
        """
        if any(tool.call_type == item_type for tool in toolset.client_tools.values()):
            return []
        found = [available.spec for available in self._offer(ctx).by_item.get(item_type, ())]
        names = {target.spec: target.name for target in toolset.targets.values()} if found else {}
        opened = [(t.name, t.spec) for t in toolset.opened if t.spec and t.hosted and t.hosted.item == item_type]
        return [*opened, *((names.get(spec, spec.name), spec) for spec in found)]

    def _offer(self, ctx: Context) -> Offer:
        """Return what the executors have for the agent of a context. Those without a version are asked each time."""
        versions = list(map(_version_of, self._versioned))
        if versions != self._versions:
            self._versions = versions
            self._offers.clear()
            self._sent.clear()
        asked: tuple[tuple[FunctionSpec, ...], ...] = ()
        if self._unversioned:
            asked = self._ask(ctx)
        offer = self._offers.get(ctx.agent)
        if offer is None or offer.asked != asked:
            offer = self._new_offer(ctx, asked)
        return offer

    # Functions within functions cost those around them something each time, so they have methods of their own.

    def _ask(self, ctx: Context) -> tuple[tuple[FunctionSpec, ...], ...]:
        return tuple([tuple(executor.discovered_tools(ctx)) for executor in self._unversioned])

    def _new_offer(self, ctx: Context, asked: tuple[tuple[FunctionSpec, ...], ...]) -> Offer:
        answers = iter(asked)
        specs = [
            (executor, next(answers) if executor in self._unversioned else executor.discovered_tools(ctx))
            for executor in self._executors
        ]
        offer = Offer(specs, asked)
        _keep(self._offers, ctx.agent, offer, _AGENTS)
        return offer

    def _offered(
        self, offer: Offer, wanted: tuple[str, ...] | None, hidden: frozenset[str], agent: Agent, *, waits: bool
    ) -> Toolset:
        """Return the functions of ours that a request has without naming them, but for those that it hides."""
        toolset = offer.toolsets.get((wanted, hidden, waits))
        return self._new_toolset(offer, wanted, hidden, agent, waits=waits) if toolset is None else toolset

    def _new_toolset(
        self, offer: Offer, wanted: tuple[str, ...] | None, hidden: frozenset[str], agent: Agent, *, waits: bool
    ) -> Toolset:
        names = None if wanted is None else set(wanted)

        def is_offered(name: str, spec: FunctionSpec) -> bool:
            if not agent.is_root and spec.effect is Effect.END_AGENT:
                return True
            if names is not None:
                return name in names
            return spec.offer != "on_request" and (waits or not spec.suspends)

        targets = {
            name: Target(name, self._definition(spec), spec, executor)
            for name, (spec, executor) in offer.by_name.items()
            if name not in hidden and is_offered(name, spec)
        }
        specs = {name: spec for name, (spec, _) in offer.by_name.items() if name in targets}
        later = deferred_names(specs, self.deferral.above)
        deferred = frozenset(later)
        toolset = Toolset(
            targets,
            ToolDefinitions(target.definition for name, target in targets.items() if name not in deferred),
            includes=includes_of(targets.values()),
            follows_references=follow_references(targets.values()),
            deferred=[_deferred_functions(targets, later)] if later else (),
        )
        _keep(offer.toolsets, (wanted, hidden, waits), toolset, _TOOLSETS)
        return toolset

    def _definition(self, spec: FunctionSpec, tool: JSON = _UNNAMED) -> JSON:
        """Return what a model is told of a function that a tool names, or none."""
        found = self._definitions.get(spec)
        if found is None:
            found = self._definitions[spec] = tool_definition(spec)
        narrows = () if spec.hosted is None else spec.hosted.narrows
        return _narrowed(found, {name: tool.get(name) or () for name in narrows}) if narrows else found


def _deferred_functions(targets: Mapping[str, Target], names: Sequence[str]) -> DeferredFunctions:
    return DeferredFunctions(
        names, lambda: [deferred_function(targets[name], targets[name].definition) for name in names]
    )


def _narrowed(definition: JSON, choices: Mapping[str, Sequence[str]]) -> JSON:
    """Return a definition whose arguments leave the model these choices: none where there is one thing, or nothing."""
    parameters = definition["parameters"]
    properties, required = dict(parameters["properties"]), set(parameters.get("required", ()))
    for name, among in choices.items():
        argument = properties.pop(name, None)
        if argument is not None and len(among) > 1:
            described = {key: argument[key] for key in ("description",) if key in argument}
            kind = ["array", "null"] if name in required else "array"  # a strict one is always given
            properties[name] = {**described, "type": kind, "items": {"type": "string", "enum": [*among]}}
    kept = [name for name in parameters.get("required", ()) if name in properties]
    return {**definition, "parameters": {**parameters, "properties": properties, "required": kept}}


_Sent = tuple[Offer, tuple[str, ...] | None, bytes, bool, bool]
"""What a toolset is made of: what is offered, the functions that are wanted, the tools of a request, whether it waits,
and whether the tools are its own list."""


class _SentTools:
    """Toolsets of the tools that were sent lately: clients send the same ones with each of their requests."""

    def __init__(self) -> None:
        self._kept: OrderedDict[_Sent, Toolset] = OrderedDict()
        self._bytes = 0

    def find(self, sent: _Sent) -> Toolset | None:
        found = self._kept.get(sent)
        if found is not None:
            self._kept.move_to_end(sent)
        return found

    def keep(self, sent: _Sent, toolset: Toolset) -> None:
        """Keep a toolset that is not there yet, in the place of those that were not asked for the longest."""
        self._kept[sent] = toolset
        self._bytes += _size(sent)
        while self._bytes > _MOST_BYTES:
            oldest, _ = self._kept.popitem(last=False)
            self._bytes -= _size(oldest)

    def clear(self) -> None:
        self._kept.clear()
        self._bytes = 0


def _numbered(tools: Sequence[JSON]) -> Iterator[Brought]:
    for index, tool in enumerate(tools):
        yield f"tools[{index}]", tool


def _withheld(offer: Offer, ctx: Context) -> frozenset[str]:
    """Return the functions whose scopes the caller's credentials lack."""
    return frozenset([name for name, scopes in offer.scoped.items() if not all(map(ctx.grants, scopes))])


def _size(sent: _Sent) -> int:
    return max(_LEAST_BYTES, len(sent[2]))


def _written(tools: Sequence[JSON]) -> bytes | None:
    """Return tools as JSON; None if what they mean depends on more than that, or if they cannot be written."""
    for tool in tools:
        if tool.get("type") not in _SELF_CONTAINED:
            return None
    try:
        return msgspec.json.encode(tools)
    except UnicodeEncodeError:
        return None


def _keep(kept: dict[K, V], key: K, value: V, most: int) -> None:
    """Keep something for the next request, in the place of the oldest if there are enough."""
    kept.pop(key, None)
    if len(kept) >= most:
        del kept[next(iter(kept))]
    kept[key] = value
