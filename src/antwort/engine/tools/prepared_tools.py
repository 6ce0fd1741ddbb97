"""Hosted tools of a request, as whoever executes them wants them: looked at once, before the model is asked."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import TypeVar

from antwort.context import Context
from antwort.engine.tools.targets import Target, Toolset
from antwort.errors import APIError, InternalServerError
from antwort.storage.base import JournalEntry
from antwort.types import JSON

logger = logging.getLogger(__name__)

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
