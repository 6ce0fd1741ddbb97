"""Functions as tools of the protocol: how they are described, and how the results of their calls look."""

import asyncio
import base64
from collections.abc import Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import msgspec

from antwort.callables import HandlerKind
from antwort.engine.calls.direct_call import is_for_clients
from antwort.functions import FunctionSpec, ToolResult
from antwort.functions.signature import returned_object
from antwort.server.mcp.messages import INVALID_PARAMS, RpcError
from antwort.types import JSON

PAGE = 200
"""Tools of one page of the list."""
_AT_ONCE = 20
"""Tools that are described on the event loop; more take a thread."""
_TOO_LONG = "The result of {} is longer than what is given of it at once, so it cannot be given as the object it is."


class DescribedTool(msgspec.Struct, frozen=True):
    """A function as clients are told of it."""

    encoded: msgspec.Raw
    returns_object: bool
    """Whether it is told how the objects look that it returns."""


class DescribedTools:
    """Describes functions, each once."""

    def __init__(self) -> None:
        self._known: WeakKeyDictionary[FunctionSpec, DescribedTool] = WeakKeyDictionary()

    async def page(self, functions: Mapping[str, FunctionSpec], cursor: object) -> JSON:
        """Return a page of the list, the first or the one after another; RpcError if there is none such."""
        names = [name for name, spec in functions.items() if is_for_clients(spec)]
        start = 0
        if cursor is not None:
            if not isinstance(cursor, str) or cursor not in names:
                raise RpcError(INVALID_PARAMS, "The 'cursor' is none of this list, or of one that has changed.")
            start = names.index(cursor) + 1
        shown = names[start : start + PAGE]
        specs = [functions[name] for name in shown]
        if sum(spec not in self._known for spec in specs) > _AT_ONCE:
            await asyncio.to_thread(self._describe_all, specs)
        page: JSON = {"tools": [self.of(spec).encoded for spec in specs]}
        if start + PAGE < len(names):
            page["nextCursor"] = shown[-1]
        return page

    def of(self, spec: FunctionSpec) -> DescribedTool:
        """Return a function as clients are told of it."""
        found = self._known.get(spec)
        if found is None:
            found = self._known[spec] = _described(spec)
        return found

    def _describe_all(self, specs: Sequence[FunctionSpec]) -> None:
        for spec in specs:
            self.of(spec)


def _described(spec: FunctionSpec) -> DescribedTool:
    tool: JSON = {"name": spec.name, "description": spec.description, "inputSchema": dict(spec.parameters)}
    returned = None
    if spec.handler is not None and spec.kind is not HandlerKind.STREAM:
        returned = returned_object(spec.handler, name=spec.name)
    if returned is not None:
        tool["outputSchema"] = returned
    if annotations := _annotations(spec):
        tool["annotations"] = annotations
    return DescribedTool(msgspec.Raw(msgspec.json.encode(tool)), returned is not None)


def _annotations(spec: FunctionSpec) -> JSON:
    """Return what is known of what a function does; what is left out, clients take for the worst."""
    if spec.inline:  # it only computes
        return {"readOnlyHint": True, "openWorldHint": False}
    return {"idempotentHint": True} if spec.idempotent else {}


def result_of(spec: FunctionSpec, result: ToolResult, tool: DescribedTool) -> JSON:
    """Return the result of a call as clients get it."""
    if result.is_error:
        return _failed(result.output)
    content: list[JSON] = [{"type": "text", "text": result.output}]
    for image in result.images:
        data = base64.b64encode(image.data).decode()
        content.append({"type": "image", "data": data, "mimeType": image.media_type})
    structured = _object(result)
    if structured is not None:
        return {"content": content, "structuredContent": structured}
    return _failed(_TOO_LONG.format(spec.name)) if tool.returns_object else {"content": content}


def _failed(text: str) -> JSON:
    return {"content": [{"type": "text", "text": text}], "isError": True}


def _object(result: ToolResult) -> Any:
    """Return the object that a function has returned; None if it has returned something else, or more than is given."""
    if result.value is None or isinstance(result.value, str) or not result.output.startswith("{"):
        return None
    try:
        found = msgspec.json.decode(result.output)
    except (msgspec.DecodeError, RecursionError):  # its middle was left out
        return None
    return found if isinstance(found, dict) else None
