"""What goes wrong with an MCP server, as the model reads it and as items say it."""

from collections.abc import Sequence

from typing_extensions import override

from antwort.provider import JSON, FunctionError, one_line

_LONGEST_REASON = 300
"""Characters of a server's words about what went wrong."""
REQUEST_TIMEOUT = -32001
INTERNAL = -32603


class McpError(FunctionError):
    """A server has not done what it was asked for."""

    http_status = 0
    """That of its answer, if it was one of a refusal."""

    @property
    def item(self) -> JSON:
        """The error as an item of a call shows it."""
        return protocol_error(INTERNAL, str(self))


class McpProtocolError(McpError):
    """The server has refused a request, or its answer is none of the protocol."""

    def __init__(self, message: str, code: int = INTERNAL, status: int = 0, supported: object = None) -> None:
        super().__init__(message)
        self.code = code
        self.http_status = status
        self.supported = supported if isinstance(supported, list) else []
        """The versions that the server speaks, if it has refused the one it was asked in."""

    @property
    @override
    def item(self) -> JSON:
        return protocol_error(self.code, str(self))


class McpTimeoutError(McpProtocolError):
    """The server did not answer in time."""

    status = "timeout"

    def __init__(self, message: str) -> None:
        super().__init__(message, REQUEST_TIMEOUT)


class McpHttpError(McpError):
    """The server has refused a request by its status alone, or could not be reached: that is 0."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.http_status = status

    @property
    @override
    def item(self) -> JSON:
        return {"type": "http_error", "code": self.http_status, "message": str(self)}


def protocol_error(code: int, message: str) -> JSON:
    """Return an error of the protocol as an item of a call shows it."""
    return {"type": "mcp_protocol_error", "code": code, "message": message}


def execution_error(content: Sequence[JSON]) -> JSON:
    """Return the error of a tool that was executed in vain as an item of a call shows it."""
    return {"type": "mcp_tool_execution_error", "content": [*content]}


def said(words: object) -> str:
    """Return what a server says of an error, as it may be repeated."""
    text = one_line(words if isinstance(words, str) else "")
    return text if len(text) <= _LONGEST_REASON else f"{text[:_LONGEST_REASON]}…"
