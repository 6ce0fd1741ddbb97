"""The blocks of messages, as clients send them. Fields that nobody knows are ignored: new betas bring new ones."""

from typing import Any, Literal

from msgspec import Struct

from antwort.types import JSON


class CacheControl(Struct, tag="ephemeral", tag_field="type"):
    """Where a prompt can be cached up to; model servers cache by themselves."""

    ttl: Literal["5m", "1h"] | None = None


class _Input(Struct, kw_only=True, tag_field="type"):
    """A block."""

    cache_control: CacheControl | None = None


# --- what images and documents are read from --------------------------------------------------------------------------


class Base64Source(Struct, tag="base64", tag_field="type"):
    """Bytes in base64."""

    data: str
    media_type: str


class UrlSource(Struct, tag="url", tag_field="type"):
    """An address."""

    url: str


class FileSource(Struct, tag="file", tag_field="type"):
    """A file of the server."""

    file_id: str


class TextSource(Struct, tag="text", tag_field="type"):
    """A plain text."""

    data: str
    media_type: Literal["text/plain"] = "text/plain"


# --- blocks of users --------------------------------------------------------------------------------------------------


class TextInput(_Input, tag="text"):
    """Text."""

    text: str


class ImageInput(_Input, tag="image"):
    """An image."""

    source: Base64Source | UrlSource | FileSource


class ContentSource(Struct, tag="content", tag_field="type"):
    """A text or blocks in the place of a file."""

    content: str | list[TextInput | ImageInput]


class DocumentInput(_Input, tag="document"):
    """A document."""

    source: Base64Source | UrlSource | FileSource | TextSource | ContentSource
    title: str | None = None
    context: str | None = None


class SearchResultInput(_Input, tag="search_result"):
    """Something that was found elsewhere."""

    source: str
    title: str
    content: list[TextInput]


class ToolResultInput(_Input, tag="tool_result"):
    """What came of a call."""

    tool_use_id: str
    content: str | list[TextInput | ImageInput | DocumentInput | SearchResultInput] | None = None
    is_error: bool | None = None


# --- blocks of the assistant ------------------------------------------------------------------------------------------


class ThinkingInput(_Input, tag="thinking"):
    """What the model has thought, with the seal under which it was given."""

    thinking: str
    signature: str


class RedactedThinkingInput(_Input, tag="redacted_thinking"):
    """Thoughts that only the server reads."""

    data: str


class ToolUseInput(_Input, tag="tool_use"):
    """A call of a tool of the client."""

    id: str
    name: str
    input: JSON


class ServerToolUseInput(_Input, tag="server_tool_use"):
    """A call that a server has made."""

    id: str
    name: str
    input: JSON


class McpToolUseInput(_Input, tag="mcp_tool_use"):
    """A call of a tool of an MCP server."""

    id: str
    name: str
    server_name: str
    input: JSON


class McpToolResultInput(_Input, tag="mcp_tool_result"):
    """What came of it."""

    tool_use_id: str
    content: str | list[TextInput] | None = None
    is_error: bool | None = None


class WebSearchResultInput(_Input, tag="web_search_tool_result"):
    """What a search has found: results, or an error."""

    tool_use_id: str
    content: Any


class CodeResultInput(_Input, tag="code_execution_tool_result"):
    """What code has written: its output, or an error."""

    tool_use_id: str
    content: JSON


ResultInput = WebSearchResultInput | CodeResultInput | McpToolResultInput
"""What came of a call that a server has made."""
UseInput = ServerToolUseInput | McpToolUseInput
"""Such a call."""
ContentInput = TextInput | ImageInput | DocumentInput | SearchResultInput
"""What a user can say, and a tool return."""
BlockInput = (
    ContentInput | ToolResultInput | ThinkingInput | RedactedThinkingInput | ToolUseInput | UseInput | ResultInput
)
"""What a message can have; its role says which."""
