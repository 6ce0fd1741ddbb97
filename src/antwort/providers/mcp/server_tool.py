"""OpenAI's `mcp` tool: what a request says of a server, and how calls of its tools look."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal
from urllib.parse import urlsplit

from msgspec import Struct
from typing_extensions import override

from antwort.provider import JSON, BadRequestError, HostedCall, HostedTool, ItemEnd, ItemEvent, ToolResult
from antwort.providers.mcp.errors import REQUEST_TIMEOUT, protocol_error

ITEM = "mcp_call"
Approval = Literal["always", "never"]
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,200}")
_RESERVED = frozenset({"host", "content-length", "transfer-encoding", "connection", "content-type", "accept"})
_LONGEST_LABEL = 64
_MOST_HEADERS = 50
_LONGEST_VALUE = 16_384


class ServerTool(Struct, frozen=True):
    """A server as a request names it."""

    label: str
    url: str | None
    """None for one of the operator's."""
    headers: Mapping[str, str]
    description: str | None
    allowed: JSON | None
    """Which of its tools there are: names, and whether they only read; None is all."""
    approval: Any
    """`always`, `never`, or which tools are the one and which the other; None leaves it to the operator."""
    connector: str | None = None
    """What names one of the operator's, if it is not the label."""

    @property
    def own(self) -> str:
        """The name of one of the operator's."""
        return self.label if self.connector is None else self.connector

    @classmethod
    def read(cls, tool: Mapping[str, Any]) -> "ServerTool":
        """Read a tool; BadRequestError names what is wrong with it."""
        label = tool["server_label"]
        if not label or len(label) > _LONGEST_LABEL or not label.isprintable():
            raise _wrong("server_label", f"is a name of 1 to {_LONGEST_LABEL} characters")
        if tool.get("tunnel_id") is not None:
            raise BadRequestError("'tunnel_id' is not served.", param="tunnel_id", code="unsupported_parameter")
        url = tool.get("server_url")
        connector = tool.get("connector_id")
        if url and connector is not None:
            raise _wrong("connector_id", "names a server, and 'server_url' another; give one of them")
        if url and _scheme(url) not in {"http", "https"}:
            raise _wrong("server_url", "is a URL that begins with https:// or http://")
        allowed = tool.get("allowed_tools")
        if isinstance(allowed, list):
            allowed = None if allowed == ["*"] else {"tool_names": allowed}
        return cls(
            label,
            url or None,
            _headers(tool.get("headers") or {}, tool.get("authorization")),
            tool.get("server_description"),
            allowed,
            tool.get("require_approval"),
            connector,
        )

    @classmethod
    def of_label(cls, label: str) -> "ServerTool":
        """Return one of the operator's as a request names it that says nothing else of it."""
        return cls(label, None, {}, None, None, None)

    def allows(self, name: str, *, read_only: bool) -> bool:
        """Tell whether the request has a tool of the server."""
        return self.allowed is None or _fits(self.allowed, name, read_only=read_only)

    @property
    def named(self) -> Sequence[str]:
        """The tools that the request names, if it does."""
        return (self.allowed or {}).get("tool_names") or ()

    def approval_of(self, name: str, *, read_only: bool, otherwise: Approval) -> Approval:
        """Return whether calls of a tool wait for an approval; what a filter does not say of it is that they do."""
        said = self.approval
        if said is None:
            return otherwise
        if not isinstance(said, Mapping):
            return "never" if said == "never" else "always"
        always, never = said.get("always"), said.get("never")
        if always is not None and _fits(always, name, read_only=read_only):
            return "always"
        return "never" if never is not None and _fits(never, name, read_only=read_only) else "always"


def _scheme(url: str) -> str:
    """Return the scheme of a URL; empty if it is none."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return ""
    return parts.scheme.lower() if parts.netloc else ""


def _fits(wanted: Mapping[str, Any], name: str, *, read_only: bool) -> bool:
    names, reads = wanted.get("tool_names"), wanted.get("read_only")
    if names is None and reads is None:
        return False
    return (names is None or name in names or names == ["*"]) and (reads is None or reads is read_only)


def _headers(given: Mapping[str, str], authorization: str | None) -> dict[str, str]:
    """Return the headers of all requests to a server."""
    if len(given) > _MOST_HEADERS:
        raise _wrong("headers", f"has more than {_MOST_HEADERS} entries")
    for name, value in given.items():
        if name.lower() == "authorization":
            raise _wrong("headers", "has an 'Authorization': give the token as 'authorization'")
        if not _HEADER.fullmatch(name) or name.lower() in _RESERVED or name.lower().startswith("mcp-"):
            raise _wrong("headers", f"has '{name[:80]}', which cannot be set")
        _check_value(value, "headers")
    if authorization is None:
        return dict(given)
    _check_value(authorization, "authorization")
    token = authorization.strip()
    bearer = token if token.lower().startswith("bearer ") else f"Bearer {token}"
    return {**given, "authorization": bearer}


def _check_value(value: str, param: str) -> None:
    if len(value) > _LONGEST_VALUE or not value.isascii() or not value.isprintable():
        raise _wrong(param, "has a value that no header can have")


def _wrong(name: str, why: str) -> BadRequestError:
    return BadRequestError(f"'{name}' {why}.", param=name, code="invalid_value")


class McpServerTool(HostedTool):
    """How the tool of a request is read."""

    types = ("mcp",)
    item: str | None = ITEM
    id_prefix = "mcp"
    opens = True
    only_named = True
    secrets = ("authorization", "headers")
    tool_defaults: Mapping[str, Any] = {
        "allowed_tools": None,
        "headers": None,
        "require_approval": "always",
        "server_description": None,
    }

    @override
    def check(self, tool: Mapping[str, Any]) -> ServerTool:
        return ServerTool.read(tool)

    @override
    def read_arguments(self, item: Mapping[str, Any]) -> None:
        """Leave items to the tools of the servers that a request names."""


class McpCallTool(HostedTool):
    """How calls of one tool of a server look."""

    types: tuple[str, ...] = ("mcp",)
    item = ITEM
    id_prefix = "mcp"
    arriving: Mapping[str, Any] = {"arguments": ""}

    def __init__(self, label: str, name: str) -> None:
        self._names = {"server_label": label, "name": name}

    @override
    def begin(self, call: HostedCall) -> JSON:
        fields = {"arguments": call.arguments, "approval_request_id": call.approval, "output": None, "error": None}
        return {**self._names, **fields}

    @override
    def events(self, item: Mapping[str, Any]) -> list[ItemEvent]:
        arguments = item["arguments"]
        return [
            ItemEvent("in_progress"),
            ItemEvent("delta", {"delta": arguments}, "arguments"),
            ItemEvent("done", {"arguments": arguments}, "arguments"),
        ]

    @override
    def end(self, call: HostedCall, result: ToolResult) -> ItemEnd:
        if not result.is_error:
            return ItemEnd({"output": result.output})
        code = REQUEST_TIMEOUT if result.status == "timeout" else -32603
        error = result.item.get("error") or protocol_error(code, result.output)
        return ItemEnd({"error": error}, "failed", [ItemEvent("failed")])

    @override
    def read_arguments(self, item: Mapping[str, Any]) -> Mapping[str, Any] | str | None:
        if any(item.get(name) != value for name, value in self._names.items()):
            return None
        return super().read_arguments(item)

    @override
    def read_output(self, item: Mapping[str, Any]) -> str | None:
        error = item.get("error")
        if not isinstance(error, Mapping):
            return error if isinstance(error, str) else super().read_output(item)
        parts = error.get("content")
        texts = (
            [str(part.get("text")) for part in parts if isinstance(part, Mapping)] if isinstance(parts, list) else []
        )
        return "\n".join(texts) or str(error.get("message") or "")
