"""Tools of servers that stand for a hosted tool of the OpenAI API: how their calls look, then."""

from collections.abc import Mapping, Sequence
from typing import Any

from typing_extensions import override

from antwort.provider import JSON, HostedCall, HostedTool, ItemEnd, ToolResult
from antwort.providers.mcp.listing import ListedTool
from antwort.providers.mcp.server_tool import McpCallTool

_QUERY = "query"


def answering_tool(types: Sequence[str], arguments: Mapping[str, str], tool: ListedTool, label: str) -> HostedTool:
    """Return how calls of a tool look that answers tool types; the item is that of the first.

    `arguments` are what its server calls the arguments that the item shows. Types whose items show more than a query
    have those of MCP calls.
    """
    if types[0] in _SEARCHES:
        return _SearchCall(tuple(types), arguments.get(_QUERY) or _query_of(tool), f"{types[0]}_call")
    answering = McpCallTool(label, tool.name)
    answering.types = tuple(types)
    return answering


class _SearchCall(HostedTool):
    """A search, of which the item shows what was looked for."""

    phases = ("in_progress", "searching")

    def __init__(self, types: tuple[str, ...], query: str, item: str) -> None:
        self.types = types
        self.item = item
        self._query = query

    @override
    def begin(self, call: HostedCall) -> JSON:
        return _SEARCHES[self.types[0]](call.text(self._query))

    @override
    def end(self, call: HostedCall, result: ToolResult) -> ItemEnd:
        return ItemEnd({}, "failed" if result.is_error else "completed")

    @override
    def read_arguments(self, item: Mapping[str, Any]) -> JSON | None:
        action = item.get("action")
        queries = (action if isinstance(action, Mapping) else item).get("queries")
        found = [str(query) for query in queries] if isinstance(queries, list) else []
        return {self._query: "; ".join(found)} if found else None


def _web_search(query: str) -> JSON:
    return {"action": {"type": "search", "query": query, "queries": [query]}}


def _file_search(query: str) -> JSON:
    return {"queries": [query], "results": None}


_SEARCHES = {"web_search": _web_search, "file_search": _file_search}


def _query_of(tool: ListedTool) -> str:
    """Return the argument that is the query, if nobody has said so: one of that name, or the first that is needed."""
    properties = tool.schema.get("properties")
    known = properties if isinstance(properties, dict) else {}
    required = tool.schema.get("required")
    for name in [_QUERY, *(required if isinstance(required, list) else ()), *known]:
        if name in known:
            return str(name)
    return _QUERY
