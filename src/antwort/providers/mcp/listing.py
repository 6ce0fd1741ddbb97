"""The tools that a server has, as it says itself: read, bounded, and shown as an item."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from antwort.provider import JSON, ItemEvent, OpenedItem, printable
from antwort.providers.mcp.errors import McpError, McpProtocolError
from antwort.providers.mcp.peer import McpPeer, ServerTime

LIST = "mcp_list_tools"
APPROVAL, VERDICT = "mcp_approval_request", "mcp_approval_response"
_NAME = re.compile(r"[\w./:-]{1,128}", re.ASCII)
_REFERENCE = re.compile(rb'"\$(ref|dynamicRef|recursiveRef)"')
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}")
_IN_HEADERS = {"string", "integer", "boolean"}
"""Types of arguments that can be in headers, too."""
_MOST_PAGES = 100
_LONGEST_DESCRIPTION = 8_192
_LARGEST_SCHEMA = 128 * 1024
"""Bytes of the schema of one tool."""
_LARGEST_LIST = 4 * 1024**2
"""Bytes of all that a server says of its tools."""
_DEEPEST = 40
"""Levels of a schema."""
_LONGEST_CURSOR = 8_192
_LONGEST_FRESH = 300_000
"""Milliseconds for which a list counts that its server says stays the same."""


class ListedTool(Struct, frozen=True):
    """A tool that a server has."""

    name: str
    description: str
    schema: JSON
    annotations: JSON

    @classmethod
    def of(cls, given: Any, schema_key: str = "inputSchema") -> "ListedTool | None":
        """Return a tool as it is described; None for one that no model can be offered."""
        if not isinstance(given, dict) or not isinstance(name := given.get("name"), str) or not _NAME.fullmatch(name):
            return None
        schema = given.get(schema_key)
        annotations = given.get("annotations")
        described = given.get("description")
        description = printable(described)[:_LONGEST_DESCRIPTION] if isinstance(described, str) else ""
        if not isinstance(schema, dict) or schema.get("type", "object") != "object" or _is_deep(schema, _DEEPEST):
            return None
        if not _has_sound_headers(schema):
            return None
        schema = {"type": "object", "properties": {}, **schema}
        annotations = annotations if isinstance(annotations, dict) and not _is_deep(annotations, 2) else {}
        try:
            size = len(msgspec.json.encode([name, description, schema, annotations]))
        except (UnicodeEncodeError, RecursionError):
            return None
        return None if size > _LARGEST_SCHEMA else cls(name, description, schema, annotations)

    @property
    def reads_only(self) -> bool:
        """Whether its server says that it changes nothing."""
        return self.annotations.get("readOnlyHint") is True

    @property
    def is_repeatable(self) -> bool:
        """Whether its server says that a call may be made again."""
        return self.reads_only or self.annotations.get("idempotentHint") is True

    @property
    def refers(self) -> bool:
        """Whether its schema has references, which nobody follows here: a short one may be very long with them."""
        return _REFERENCE.search(msgspec.json.encode(self.schema)) is not None

    @property
    def header_names(self) -> Mapping[str, str]:
        """The headers that its arguments are in, too, by the names of the arguments."""
        properties = self.schema.get("properties")
        found = properties.items() if isinstance(properties, dict) else ()
        marked = {name: part.get("x-mcp-header") for name, part in found if isinstance(part, dict)}
        return {name: mark for name, mark in marked.items() if isinstance(mark, str)}

    def is_described_as(self, other: "ListedTool") -> bool:
        """Tell whether another one says the same of what it does and takes."""
        return (self.description, self.schema) == (other.description, other.schema)

    def shown(self) -> JSON:
        """Return it as an item shows it."""
        return {
            "name": self.name,
            "description": self.description or None,
            "input_schema": self.schema,
            "annotations": self.annotations or None,
        }


async def listed_tools(connection: McpPeer, *, most: int, seconds: float) -> tuple[list[ListedTool], float]:
    """Return the tools of a server, and for how many seconds they stay the same; McpError says why there are none."""
    tools: dict[str, ListedTool] = {}
    cursor, size, fresh = None, 0, 0.0
    time = ServerTime(seconds)
    for _ in range(_MOST_PAGES):
        page = await connection.list_page(cursor, time.left())
        given = page.get("tools")
        if not isinstance(given, list):
            raise McpProtocolError("The server has no list of tools.")
        if len(tools) + len(given) > most:
            raise McpProtocolError(f"The server has more than {most:,} tools.")
        for tool in map(ListedTool.of, given):
            if tool is not None:
                tools.setdefault(tool.name, tool)
                size += len(tool.description) + len(msgspec.json.encode(tool.schema))
        if size > _LARGEST_LIST:
            raise McpProtocolError("The server says more of its tools than is read.")
        fresh = _seconds(page.get("ttlMs"))
        cursor = page.get("nextCursor")
        if not cursor:
            return [*tools.values()], fresh
        if not isinstance(cursor, str) or len(cursor) > _LONGEST_CURSOR:
            raise McpProtocolError("The server goes on with its list in a way that is not understood.")
    raise McpProtocolError("The list of the server does not end.")


def _seconds(milliseconds: Any) -> float:
    if not isinstance(milliseconds, int | float) or milliseconds <= 0:
        return 0.0
    return min(milliseconds, _LONGEST_FRESH) / 1000  # an integer may be larger than any float


def list_item(
    label: str, tools: Sequence[ListedTool], error: McpError | None = None, *, renews: bool = False
) -> OpenedItem:
    """Return the item that says which tools a server has, or why it has none."""
    fields: JSON = {"type": LIST, "server_label": label, "tools": [tool.shown() for tool in tools], "error": None}
    if error is not None:
        fields |= {"error": str(error), "status": "failed"}
    last = ItemEvent("completed" if error is None else "failed")
    return OpenedItem(fields, "mcpl", {"tools": []}, [ItemEvent("in_progress"), last], renews=renews)


class KnownTools(NamedTuple):
    """What a response reads of the tools of a server."""

    tools: list[ListedTool] | None
    """Those that it was listed with last; None if it was not, or in vain."""
    asked_about: list[ListedTool] | None
    """Those that it was listed with when somebody was asked about a call that was not made since."""

    @classmethod
    def read(cls, label: str, items: Iterable[Mapping[str, Any]]) -> "KnownTools":
        """Read items, the latest first."""
        last: Mapping[str, Any] | None = None
        asked = _AskedApproval(label)
        for item in items:
            if item.get("type") == LIST and item.get("server_label") == label:
                last = item if last is None else last
                if asked.found:
                    return cls(_tools_of(last), _tools_of(item))
            else:
                asked.look(item)
            if last is not None and asked.found is False:
                break
        return cls(None if last is None else _tools_of(last), None)

    def has(self, wanted: Sequence[str]) -> bool:
        """Tell whether the server need not be asked: what is wanted by name was among what it was listed with."""
        names = {tool.name for tool in self.tools or ()}
        return self.tools is not None and names.issuperset(name for name in wanted if name != "*")


class _AskedApproval:
    """Finds out whether somebody was asked about a call of a server that was not made since."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._settled: set[Any] = set()
        self.found: bool | None = None
        """None as long as it is not known."""

    def look(self, item: Mapping[str, Any]) -> None:
        """Look at an item, the latest first."""
        kind = item.get("type")
        if self.found is not None:
            return
        if kind == APPROVAL and item.get("server_label") == self._label:
            self.found = True if item.get("id") not in self._settled else None
        elif kind == "reasoning" or item.get("role") == "assistant":
            self.found = False  # the model has gone on
        elif (kind == VERDICT and item.get("approve") is False) or (
            kind == "mcp_call" and item.get("status") != "in_progress"
        ):
            self._settled.add(item.get("approval_request_id"))


def differing(before: Iterable[ListedTool], now: Iterable[ListedTool]) -> frozenset[str]:
    """Return the names of tools that are not described any more as they were before."""
    found = {tool.name: tool for tool in now}
    return frozenset(
        tool.name for tool in before if tool.name not in found or not tool.is_described_as(found[tool.name])
    )


def _tools_of(item: Mapping[str, Any]) -> list[ListedTool] | None:
    if item.get("error") or not isinstance(item.get("tools"), list):
        return None
    return [tool for tool in (ListedTool.of(one, "input_schema") for one in item["tools"]) if tool is not None]


def _has_sound_headers(schema: JSON) -> bool:
    """Tell whether what a tool wants in headers can be there; the protocol has clients leave out tools of others."""
    properties, names = schema.get("properties"), set[str]()
    for part in properties.values() if isinstance(properties, dict) else ():
        if not isinstance(part, dict) or "x-mcp-header" not in part:
            continue
        name, kinds = part["x-mcp-header"], part.get("type", ())
        if not isinstance(name, str) or not _HEADER.fullmatch(name) or name.lower() in names:
            return False
        given = [kinds] if isinstance(kinds, str) else kinds
        if not isinstance(given, list) or {*map(str, given)} - {"null"} - _IN_HEADERS or given == ["null"]:
            return False
        names.add(name.lower())
    return True


def _is_deep(value: Any, levels: int) -> bool:
    """Tell whether a value has more levels than so many."""
    inner: Iterable[Any] = ()
    if isinstance(value, dict):
        inner = value.values()
    elif isinstance(value, list):
        inner = value
    else:
        return False
    return levels == 0 or any(_is_deep(part, levels - 1) for part in inner)
