"""The function by which a model finds those that are deferred, and what it is offered once it has found some."""

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace
from typing_extensions import override

from antwort.context import Context
from antwort.engine.tools.deferred import Deferral, DeferredFunction, DeferredFunctions, Key, found, listed
from antwort.engine.tools.targets import JoinedTargets, Target, Toolset
from antwort.functions import Effect, FunctionSpec, HostedCall, HostedTool, ItemEnd, Scope, ToolResult
from antwort.storage.base import JournalEntry
from antwort.types import JSON
from antwort.wire.client_tools import TOOL_SEARCH, found_names

SEARCH_OUTPUT = "tool_search_output"
_CALL = "tool_search_call"
_MANY = 100
"""Functions from which on a thread searches them."""
_DESCRIPTION = (
    "Find functions that are not listed here: those that it finds are listed from the next turn on and can be called "
    "then. Say in a few words what is to be done, or write names of functions. There are {} of them:\n{}"
)
_SHOWN = 100
"""Characters of a query in vain that the model reads again."""


class ToolSearch(HostedTool):
    """How a search looks to clients."""

    types = (TOOL_SEARCH,)
    item = _CALL
    output_items = (SEARCH_OUTPUT,)
    id_prefix = "tsc"

    @override
    def begin(self, call: HostedCall) -> Mapping[str, Any]:
        return {"execution": "server", "arguments": call.decoded}

    @override
    def end(self, call: HostedCall, result: ToolResult) -> ItemEnd:
        tools = result.item.get("tools", [])
        status = "incomplete" if result.is_error else "completed"
        output = {"type": SEARCH_OUTPUT, "execution": "server", "tools": tools, "status": status}
        return ItemEnd(status=status, events=(), items=(output,))


def search_spec() -> FunctionSpec:
    """Return the function that searches, as it is described where there is nothing to be found."""
    query = {"type": "string", "description": "What is to be done, or names of functions, parted by blanks."}
    return FunctionSpec(
        TOOL_SEARCH,
        "Find functions that are not listed here.",
        {"type": "object", "properties": {"query": query}, "required": ["query"], "additionalProperties": False},
        scope=Scope.CORE,
        idempotent=True,
        effect=Effect.NONE,
        hosted=ToolSearch(),
    )


class ToolSearcher:
    """Searches the deferred functions of one toolset: an executor with one function."""

    def __init__(self, deferral: Deferral, deferred: Sequence[DeferredFunctions]) -> None:
        self._deferral = deferral
        self._deferred = deferred

    def discovered_tools(self, ctx: Context | None = None) -> Sequence[FunctionSpec]:  # noqa: ARG002 - as executors have it
        """Return the function."""
        return [self._deferral.spec]

    def can_execute(self, name: str) -> bool:
        """Tell whether it is the function."""
        return name == self._deferral.spec.name

    async def execute(
        self,
        name: str,  # noqa: ARG002 - there is but one
        params: str | bytes | Mapping[str, Any],
        ctx: Context | None = None,  # noqa: ARG002
    ) -> ToolResult:
        """Search; whoever asks for nothing is told how to."""
        query = _query(params)
        if not query:
            return ToolResult.error('Say what is to be done: {"query": "…"}.', "invalid_arguments")
        if sum(len(functions.names) for functions in self._deferred) < _MANY:
            fitting = found(self._deferred, query, self._deferral.most)
        else:
            fitting = await asyncio.to_thread(found, self._deferred, query, self._deferral.most)
        if not fitting:
            return ToolResult(
                f"Nothing was found for '{query[:_SHOWN]}'. Try other words: what is to be done, and with what.",
                item={"tools": []},
            )
        names = ", ".join(function.name for function in fitting)
        return ToolResult(f"These tools can be called now: {names}.", item={"tools": _shown(fitting, self._deferred)})

    async def close(self) -> None:
        """Do nothing: it holds nothing open."""


def _query(params: str | bytes | Mapping[str, Any]) -> str:
    """Return what is searched for; models that write a list of words, or a text alone, are understood too."""
    given: Any = params
    if isinstance(params, str | bytes):
        try:
            given = msgspec.json.decode(params or b"{}")
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            given = params if isinstance(params, str) else ""
    if isinstance(given, Mapping):
        given = given.get("query", next(iter(given.values()), ""))
    if isinstance(given, list):
        given = " ".join(str(part) for part in given)
    return given.strip() if isinstance(given, str) else ""


def _shown(fitting: Iterable[DeferredFunction], deferred: Iterable[DeferredFunctions]) -> list[JSON]:
    """Return functions as the tools that items have: those of one namespace, or of one server, as one tool."""
    about = {name: said for functions in deferred for name, said in functions.about.items()}
    tools: list[JSON] = []
    groups: dict[str, JSON] = {}
    for function in fitting:
        group = function.group
        if group is None:
            tools.append(function.tool)
            continue
        tool = groups.get(group)
        if tool is None:
            tool = groups[group] = _group_tool(function, group, about.get(group, ""))
            tools.append(tool)
        if function.is_of_server:
            tool["allowed_tools"].append(function.own_name)
        else:
            tool["tools"].append(function.tool)
    return tools


def _group_tool(function: DeferredFunction, group: str, about: str) -> JSON:
    if function.is_of_server:
        return {"type": "mcp", "server_label": group, "allowed_tools": [], "defer_loading": True}
    return {"type": "namespace", "name": group, "description": about, "tools": []}


# --- what is deferred, and what was found ----------------------------------------------------------------------------


def searching(toolset: Toolset, deferral: Deferral) -> Toolset:
    """Return a toolset with the function that finds those that are deferred, if there are any."""
    deferred = [functions for functions in toolset.deferred if not functions.by_client]
    count = sum(len(functions.names) for functions in deferred)
    if not count:
        return toolset
    name = TOOL_SEARCH
    while name in toolset.targets:
        name = f"hosted_{name}"  # the client's function of that name keeps it
    spec = deferral.spec
    definition: JSON = {
        "type": "function",
        "name": name,
        "description": _DESCRIPTION.format(f"{count:,}", listed(deferred)),
        "parameters": spec.parameters,
        "strict": False,
    }
    target = Target(name, definition, spec, ToolSearcher(deferral, deferred), {"type": TOOL_SEARCH})
    named = toolset.named
    if not named.isdisjoint(name for functions in deferred for name in functions.names):
        named |= {name}
    return replace(
        toolset,
        targets=JoinedTargets({name: target}, toolset.targets),
        definitions=toolset.definitions.followed_by([definition]),
        types={TOOL_SEARCH: name, **toolset.types},
        named=named,
        search=name,
    )


def loading(toolset: Toolset, names: Iterable[str]) -> Toolset:
    """Return a toolset of whose deferred functions these are offered too, behind all others, in this order."""
    new = [name for name in dict.fromkeys(names) if name not in toolset.loaded and _is_deferred(toolset, name)]
    if not new:
        return toolset
    definitions = toolset.definitions.followed_by(_definitions(toolset, new))
    return replace(toolset, definitions=definitions, loaded=(*toolset.loaded, *new))


def loading_found(toolset: Toolset, keys: Iterable[Key]) -> Toolset:
    """Return a toolset of whose deferred functions those are offered too that items say were found."""
    return loading(toolset, _names(toolset, keys)) if toolset.deferred else toolset


def loading_chosen(toolset: Toolset, among: Collection[str] | None) -> Toolset:
    """Return a toolset where what a request chooses among is offered, unless the model is to search among that."""
    if among is None or toolset.search in among:
        return toolset
    return loading(toolset, [name for name in toolset.targets if name in among])


def found_keys(items: Iterable[JSON]) -> list[Key]:
    """Return the functions that searches have found, in order, as items name them."""
    return [key for item in items if item.get("type") == SEARCH_OUTPUT for key in found_names(item)]


def loaded_since(toolset: Toolset, said: Iterable[JournalEntry]) -> list[str]:
    """Return the deferred functions that were found in a response, or called, and that it did not begin with."""
    names: dict[str, None] = {}
    for entry in said:
        if entry.item.get("type") == SEARCH_OUTPUT:
            names.update(dict.fromkeys(_names(toolset, found_names(entry.item))))
        elif entry.call is not None and entry.direction == "output" and _is_deferred(toolset, entry.call.name):
            names[entry.call.name] = None
    return [name for name in names if name not in toolset.loaded]


def loaded_definitions(toolset: Toolset, names: Sequence[str]) -> Sequence[JSON]:
    """Return what a model server is told of a toolset with these behind all others."""
    return toolset.definitions.followed_by(_definitions(toolset, names))


def _definitions(toolset: Toolset, names: Iterable[str]) -> list[JSON]:
    targets = map(toolset.targets.__getitem__, names)
    return [target.definition for target in targets if target.is_direct]


def _is_deferred(toolset: Toolset, name: str) -> bool:
    return any(name in functions.names for functions in toolset.deferred)


def _names(toolset: Toolset, keys: Iterable[Key]) -> list[str]:
    """Return the models' names of deferred functions that items name."""
    found = []
    for key in keys:
        for functions in toolset.deferred:
            name = key[1] if key[0] is None and key[1] in functions.names else functions.by_key.get(key)
            if name is not None:
                found.append(name)
                break
    return found
