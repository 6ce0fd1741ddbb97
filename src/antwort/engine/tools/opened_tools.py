"""Tools of a request that stand for functions: they are opened before the model is asked, and offered then."""

import asyncio
import logging
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from antwort.backends.base import ToolDefinitions
from antwort.context import Context
from antwort.engine.sealing import Sealer, SealError
from antwort.engine.tools.deferred import Deferral, DeferredFunctions
from antwort.engine.tools.targets import (
    JoinedTargets,
    Target,
    Toolset,
    UnopenedTool,
    deferred_function,
    describing,
)
from antwort.engine.tools.tool_search import loading_found, searching
from antwort.errors import APIError, InternalServerError
from antwort.functions import OpenedFunction, OpenedItem, OpenedTool
from antwort.storage.base import JournalEntry
from antwort.types import JSON
from antwort.wire.client_tools import LONGEST_NAME, SECRETS, public_tool, qualified_name
from antwort.wire.requests import CreateResponse

# --- hosted tools are looked at once ---------------------------------------------------------------------------------


T = TypeVar("T")


async def prepared_tools(
    toolset: Toolset,
    ctx: Context,
    tools: Sequence[JSON],
    past: Sequence[Sequence[JournalEntry]],
    *,
    refuses: bool = True,
) -> Mapping[str, JSON]:
    """Return the tools that are to be other than the request has named them, by the model's names of their functions.

    `past` is all that the response reads, in order. An APIError of who prepares a tool refuses the request, and names
    the tool; without `refuses` it stays as it was, and calls say what is wrong.
    """
    prepared: dict[str, JSON] = {}
    for named in toolset.types.values():
        for name in toolset.together(named):
            target = toolset.targets[name]
            try:
                tool = await _prepared(target, latest_first(past), ctx)
            except APIError as error:
                if refuses:
                    raise _at(error, target, tools) from error
                continue
            if tool is not target.options and tool is not None:
                prepared[name] = dict(tool)
    return prepared


async def _prepared(target: Target, items: Iterable[JSON], ctx: Context) -> Mapping[str, object] | None:
    prepare = getattr(target.executor, "prepare_tool", None)
    if prepare is None or target.spec is None or target.options is None:
        return target.options
    prepared: Callable[[], Awaitable[Mapping[str, object]]] = partial(
        prepare, target.spec.name, target.options, items, ctx
    )
    return await asked(prepared, target.options, "prepared")


async def asked(ask: Callable[[], Awaitable[T]], tool: Mapping[str, object], done: str) -> T:
    """Return what an executor answers about a tool of a request; `done` is what is done to the tool.

    InternalServerError if the executor fails otherwise than by an APIError.
    """
    try:
        return await ask()
    except (APIError, asyncio.CancelledError, GeneratorExit):
        raise
    except BaseException as error:  # it may be anybody's
        logger.exception("a tool of the type '%s' cannot be %s", tool.get("type"), done)
        raise InternalServerError(f"A tool cannot be {done}. The server's log says why.", param="type") from error


def latest_first(past: Sequence[Sequence[JournalEntry]]) -> Iterable[JSON]:
    """Return the items of all that a response reads, the newest first."""
    return (entry.item for entry in chain.from_iterable(map(reversed, reversed(past))))


def _at(error: APIError, target: Target, tools: Sequence[JSON]) -> APIError:
    """Return an error that says which tool of the request it is about."""
    options = target.options or {}
    same = [index for index, tool in enumerate(tools) if tool is options]
    # One with fields that nobody knows was read without them.
    same += [index for index, tool in enumerate(tools) if tool.get("type") == options.get("type")]
    if same:
        error.param = f"tools[{same[0]}].{error.param}" if error.param else f"tools[{same[0]}]"
    return error


# --- tools that stand for functions are opened -----------------------------------------------------------------------


logger = logging.getLogger(__name__)

Opening = Callable[[Coroutine[Any, Any, tuple[Toolset, list[OpenedItem]]]], Coroutine[Any, Any, Any]]
"""Waits for tools that are opened, as long as their client does."""

_SEALED = "antwort:sealed"
"""Where a stored tool has its secrets, and the purpose that these are sealed for."""
_UNNAMEABLE = re.compile(r"[^a-zA-Z0-9_-]")


async def open_tools(
    toolset: Toolset,
    ctx: Context,
    past: Sequence[Sequence[JournalEntry]],
    deferral: Deferral,
    *,
    refuses: bool = True,
) -> tuple[Toolset, list[OpenedItem]]:
    """Return a toolset with the functions that its tools stand for, and the items that come first in the output.

    `past` is all that the response reads, in order. An APIError of who opens a tool refuses the request, and names the
    tool; without `refuses` its functions are not there.
    """
    opening = [_opened(unopened, latest_first(past), ctx) for unopened in toolset.unopened]
    opened = await asyncio.gather(*opening, return_exceptions=True)
    found: list[tuple[UnopenedTool, OpenedTool]] = []
    for unopened, result in zip(toolset.unopened, opened, strict=True):
        if isinstance(result, OpenedTool):
            found.append((unopened, result))
        elif not isinstance(result, APIError):
            raise result
        elif refuses:
            result.param = f"{unopened.param}.{result.param}" if result.param else unopened.param
            raise result
    targets, deferred = _offered(found, toolset, deferral)
    items = [item for _, tool in found for item in tool.items]
    searched = searching(_with_targets(toolset, targets, deferred), deferral)
    return loading_found(searched, toolset.found), items


def _offered(
    opened: Sequence[tuple[UnopenedTool, OpenedTool]], toolset: Toolset, deferral: Deferral
) -> tuple[dict[str, Target], list[DeferredFunctions]]:
    """Return the functions that tools stand for by the models' names of them, and those that models find first."""
    targets: dict[str, Target] = {}
    deferred: list[DeferredFunctions] = []
    times = Counter(function.name for _, tool in opened for function in tool.functions)
    defers = _defers(opened, deferral)
    for unopened, tool in opened:
        names = []
        for function in tool.functions:
            name = _free_name(function, toolset, targets, is_shared=times[function.name] > 1)
            if name is not None:
                targets[name] = _target(name, function, unopened)
                names.append(name)
        if names and defers(unopened, tool):
            deferred.append(_deferred_functions(targets, names, unopened))
    return targets, deferred


def _defers(
    opened: Sequence[tuple[UnopenedTool, OpenedTool]], deferral: Deferral
) -> Callable[[UnopenedTool, OpenedTool], bool]:
    """Return what tells of a tool whether a model is to find its functions: it says so, or there are too many."""

    def said(unopened: UnopenedTool, tool: OpenedTool) -> bool | None:
        given = unopened.tool.get("defer_loading")
        return given if isinstance(given, bool) else tool.deferred

    exceeded = deferral.is_exceeded(
        sum(len(tool.functions) for unopened, tool in opened if said(unopened, tool) is None)
    )

    def defers(unopened: UnopenedTool, tool: OpenedTool) -> bool:
        given = said(unopened, tool)
        return exceeded if given is None else given

    return defers


def _deferred_functions(
    targets: Mapping[str, Target], names: Sequence[str], unopened: UnopenedTool
) -> DeferredFunctions:
    label = str(unopened.tool.get("server_label"))
    about = str(unopened.tool.get("server_description") or "")
    return DeferredFunctions(
        names,
        lambda: [deferred_function(targets[name], targets[name].definition) for name in names],
        groups={label: len(names)},
        about={label: about},
    )


def sealed_tools(plan_tools: Sequence[JSON], toolset: Toolset, sealer: Sealer, tenant: str) -> list[JSON]:
    """Return the tools of a request as they are stored, with what nobody else is to know sealed.

    That is so of tools, too, that a request names and the toolset does not have.
    """
    secrets = {**SECRETS, **toolset.secrets}
    return [_sealed(tool, secrets.get(str(tool.get("type")), ()), sealer, tenant) for tool in plan_tools]


def _sealed(tool: JSON, secrets: Iterable[str], sealer: Sealer, tenant: str) -> JSON:
    shown = public_tool(tool, secrets)
    hidden = {name: value for name, value in tool.items() if value is not None and shown.get(name) != value}
    if not hidden:
        return tool
    return {**shown, _SEALED: sealer.seal(_SEALED, tenant, msgspec.json.encode(hidden).decode())}


def unsealed_request(stored: JSON, sealer: Sealer, tenant: str) -> CreateResponse:
    """Return a request as it was before it was stored; what cannot be opened any more is left out."""
    tools = stored.get("tools")
    if tools and any(_SEALED in tool for tool in tools):
        stored = {**stored, "tools": [_unsealed(tool, sealer, tenant) for tool in tools]}
    return msgspec.convert(stored, CreateResponse)


def _unsealed(tool: JSON, sealer: Sealer, tenant: str) -> JSON:
    tool = dict(tool)
    sealed = tool.pop(_SEALED, None)
    if isinstance(sealed, str):
        try:
            tool |= msgspec.json.decode(sealer.unseal(_SEALED, tenant, sealed))
        except SealError as error:
            logger.warning("what a request has given for a tool '%s' cannot be read: %s", tool.get("type"), error)
    return tool


async def _opened(unopened: UnopenedTool, items: Iterable[JSON], ctx: Context) -> OpenedTool:
    open_tool = getattr(unopened.executor, "open_tool", None)
    if open_tool is None:
        return OpenedTool()
    opened: Callable[[], Awaitable[OpenedTool]] = partial(open_tool, unopened.spec.name, unopened.tool, items, ctx)
    return await asked(opened, unopened.tool, "opened")


def _free_name(function: OpenedFunction, toolset: Toolset, taken: dict[str, Target], *, is_shared: bool) -> str | None:
    """Return the model's name of a function: its own, or one that begins with its label if that is somebody's already.

    None if there is no such name either: the tool has two functions of one name.
    """
    own = _UNNAMEABLE.sub("_", function.name)
    if own == function.name and len(own) <= LONGEST_NAME and not is_shared and own not in toolset.targets:
        return own
    name = qualified_name(_UNNAMEABLE.sub("_", function.label), own)
    return None if name in taken or name in toolset.targets else name


def _target(name: str, function: OpenedFunction, unopened: UnopenedTool) -> Target:
    definition: JSON = {"type": "function", "name": name, "description": function.description}
    definition |= {"parameters": function.parameters, "strict": False}
    options = dict(function.options)
    spec = unopened.spec.opened(function)
    return Target(name, definition, spec, unopened.executor, options, callers=unopened.callers, opened=function)


def _with_targets(toolset: Toolset, opened: dict[str, Target], deferred: Sequence[DeferredFunctions]) -> Toolset:
    targets = describing(dict(opened))
    later = frozenset[str]().union(*(functions.names for functions in deferred))
    return replace(
        toolset,
        targets=JoinedTargets(targets, toolset.targets) if targets else toolset.targets,
        definitions=ToolDefinitions(
            [t.definition for t in targets.values() if t.is_direct and t.name not in later], toolset.definitions
        ),
        named=toolset.named | targets.keys(),
        unopened=(),
        opened=tuple(opened.values()),
        deferred=[*deferred, *toolset.deferred],
    )
