"""OpenAI's `image_generation` tool: what a request may ask of it, and how a call looks."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct
from typing_extensions import override

from antwort.provider import JSON, BadRequestError, HostedCall, HostedTool, ItemEnd, ToolResult

ITEM = "image_generation_call"
Action = Literal["generate", "edit", "auto"]
_SIZE = re.compile(r"auto|[1-9][0-9]{1,4}x[1-9][0-9]{1,4}")
_MADE = ("background", "moderation", "output_compression", "output_format", "quality", "size")
"""Options that the image server gets as they are."""
_UNSERVED = ("complexity", "frame_count", "frame_duration_ms", "svg")
_FORMATS = ("png", "jpeg", "webp")
_MOST_GIVEN = 16
"""Pictures that one is made from."""
_GIVEN = "given_images"
"""Where a prepared tool has the pictures of the conversation."""
SHOWN = "The image was made, and the user sees it."
LIKE = ("background", "output_format", "quality", "size")
"""What an item, and the events of a picture, say about it."""


class Options(Struct, frozen=True):
    """What a request asks of a picture."""

    fields: JSON
    """Fields for the image server."""
    model: str | None
    action: Action
    partial_images: int
    input_fidelity: str | None
    mask: JSON | None
    given: Sequence[JSON]
    """The pictures of the conversation that one can be made from, as parts of content."""

    @classmethod
    def read(cls, tool: Mapping[str, Any]) -> "Options":
        """Read a tool; a wish that cannot be fulfilled is a BadRequestError."""
        for name in _UNSERVED:
            if tool.get(name) is not None:
                raise BadRequestError(f"'{name}' is not served.", param=name, code="unsupported_parameter")
        fields = {name: tool[name] for name in _MADE if tool.get(name) is not None}
        kind, size = fields.get("output_format", "png"), fields.get("size", "auto")
        if kind not in _FORMATS:
            raise _wrong("output_format", f"must be one of {', '.join(_FORMATS)}")
        if not _SIZE.fullmatch(size):
            raise _wrong("size", "must be 'auto', or width and height such as '1024x1536'")
        if kind == "jpeg" and fields.get("background") == "transparent":
            raise _wrong("background", "cannot be 'transparent' in a JPEG; 'png' and 'webp' can")
        if kind == "png" and fields.get("output_compression", 100) != 100:
            raise _wrong("output_compression", "is for 'jpeg' and 'webp'")
        mask = tool.get("input_image_mask")
        if mask is not None and not (mask.get("image_url") or mask.get("file_id")):
            raise _wrong("input_image_mask", "needs 'image_url' or 'file_id'")
        return cls(
            fields,
            tool.get("model"),
            tool.get("action") or "auto",
            tool.get("partial_images") or 0,
            tool.get("input_fidelity"),
            mask,
            tool.get(_GIVEN) or (),
        )


def _wrong(name: str, why: str) -> BadRequestError:
    return BadRequestError(f"'{name}' {why}.", param=name, code="invalid_value")


def with_given(tool: Mapping[str, Any], items: Iterable[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return a tool with the pictures that came last in a conversation, of whoever; `items` has the latest first."""
    for item in items:
        found = _pictures(item)
        if found:
            return {**tool, _GIVEN: found[:_MOST_GIVEN]}
    return tool


def _pictures(item: Mapping[str, Any]) -> list[JSON]:
    if item.get("type") == ITEM:
        result = item.get("result")
        kind = item.get("output_format") or "png"
        return [{"image_url": f"data:image/{kind};base64,{result}"}] if isinstance(result, str) and result else []
    content = item.get("content") if item.get("role") == "user" else None
    if not isinstance(content, list):
        return []
    return [part for part in content if isinstance(part, dict) and part.get("type") == "input_image"]


class ImageTool(HostedTool):
    """How calls look, and are read again."""

    types = ("image_generation",)
    item = ITEM
    phases = ("in_progress",)
    tool_defaults: Mapping[str, Any] = {
        "background": "auto",
        "moderation": "auto",
        "output_compression": 100,
        "output_format": "png",
        "quality": "auto",
        "size": "auto",
    }

    @override
    def check(self, tool: Mapping[str, Any]) -> Options:
        return Options.read(tool)

    @override
    def begin(self, call: HostedCall) -> JSON:
        return {"result": None}

    @override
    def end(self, call: HostedCall, result: ToolResult) -> ItemEnd:
        if not result.is_error:
            return ItemEnd(result.item)
        error = {"type": "image_generation_error", "code": result.status, "message": result.output, "param": None}
        return ItemEnd({"error": error}, status="failed")

    @override
    def read_arguments(self, item: Mapping[str, Any]) -> JSON:
        return {"prompt": str(item.get("revised_prompt") or "")}

    @override
    def read_output(self, item: Mapping[str, Any]) -> str | None:
        if item.get("result"):
            return SHOWN
        error = item.get("error")
        return str(error.get("message")) if isinstance(error, Mapping) else None
