"""What a tool gives back, as the model reads it."""

import asyncio
import binascii
from base64 import b64decode
from typing import Any

import msgspec

from antwort.provider import JSON, FunctionError, Image, ToolResult, one_line
from antwort.providers.mcp.errors import McpError, McpProtocolError, execution_error

_MOST_PARTS = 1000
_LONGEST_ERROR = 10_000
"""Characters of what a tool says of its failure that an item shows."""
_AT_ONCE = 512 * 1024
"""Characters of an image that are decoded on the event loop."""


async def read_result(result: JSON, *, sees_images: bool) -> ToolResult:
    """Return the result of a call; McpProtocolError if it is none."""
    content = result.get("content")
    structured = result.get("structuredContent")
    if content is None and structured is not None:
        content = []
    if not isinstance(content, list) or len(content) > _MOST_PARTS:
        raise McpProtocolError("The result of the server is none of the protocol.")
    texts: list[str] = []
    images: list[Image] = []
    for part in content:
        kind = part.get("type") if isinstance(part, dict) else None
        texts.append(_text(part, kind))
        if (image := await _image(part, kind)) is not None:
            images.append(image)
            texts[-1] = f"{_head(part['resource'])} {image}" if kind == "resource" else str(image)
    if not content and structured is not None:
        texts.append(msgspec.json.encode(structured).decode())
    text = "\n".join(texts)
    if result.get("isError") is True:
        error = execution_error([{"type": "text", "text": text[:_LONGEST_ERROR]}])
        return ToolResult(text or "The tool has failed.", is_error=True, item={"error": error})
    return ToolResult(text, images=images if sees_images else [])


def failed(error: McpError) -> ToolResult:
    """Return the result of a call that the server has not answered."""
    return ToolResult(str(error), is_error=True, status=error.status, item={"error": error.item})


def _text(part: Any, kind: Any) -> str:
    """Return what a model reads of a part of a result."""
    if not isinstance(part, dict):
        return ""
    if kind == "text":
        return str(part.get("text") or "")
    if kind == "resource" and isinstance(resource := part.get("resource"), dict):
        head, text = _head(resource), resource.get("text")
        return f"{head}\n{text}" if isinstance(text, str) else f"{head} {_data(resource, 'blob')}"
    if kind == "resource_link":
        named = [str(part.get(name) or "") for name in ("uri", "name", "description")]
        return f"[resource {', '.join(one_line(text) for text in named if text)}]"
    return _data(part, "data")


def _head(resource: JSON) -> str:
    """Return what a model reads of a resource before what is in it."""
    return f"[resource {one_line(str(resource.get('uri') or ''))}]"


def _data(part: JSON, field: str) -> str:
    kind = one_line(str(part.get("mimeType") or part.get("type") or "data"))[:100]
    data = part.get(field)
    size = len(data) * 3 // 4 if isinstance(data, str) else 0
    return f"[{kind}, about {size:,} bytes]"


async def _image(part: Any, kind: Any) -> Image | None:
    """Return the image that a part is; None if it is none, or none that models see."""
    if kind == "image":
        data = part.get("data")
    elif kind == "resource" and isinstance(resource := part.get("resource"), dict):
        data = resource.get("blob") if str(resource.get("mimeType")).startswith("image/") else None
    else:
        return None
    if not isinstance(data, str):
        return None
    try:
        read = b64decode(data) if len(data) <= _AT_ONCE else await asyncio.to_thread(b64decode, data)
        return Image.of(read)
    except (binascii.Error, ValueError, FunctionError):
        return None
