"""What a call gives back."""

import base64
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import force_setattr
from typing_extensions import override

from antwort.context.calls import Suspension
from antwort.errors import FunctionError
from antwort.functions.output import as_text
from antwort.types import JSON

STATUSES = frozenset(
    {"success", "error", "invalid_arguments", "timeout", "denied", "unavailable", "unknown", "cancelled", "suspended"}
)


LARGEST_IMAGES = 15 * 1024**2
"""Bytes of all images of one result: what a request may carry of one, in base64, with room for the rest."""
_MOST_PARTS = 100
"""Parts of a list that may have images among them; a longer one is a value like any other."""


_KINDS = {b"\x89PNG": "png", b"\xff\xd8\xff": "jpeg", b"GIF8": "gif"}


class Image(Struct, frozen=True):
    """A picture in a result, for models that see: return one, or a list of texts and pictures."""

    data: bytes
    media_type: str = "image/png"
    detail: Literal["low", "high", "auto"] = "auto"

    @override
    def __str__(self) -> str:
        """Return what is read where nobody sees it."""
        return f"[{self.media_type}, {len(self.data):,} bytes]"

    @classmethod
    def of(cls, data: bytes, detail: Literal["low", "high", "auto"] = "auto") -> "Image":
        """Return bytes as an image; a FunctionError if they are none that models see: PNG, JPEG, GIF or WebP."""
        kind = "webp" if data[8:12] == b"WEBP" else next((_KINDS[mark] for mark in _KINDS if data.startswith(mark)), "")
        if not kind:
            raise FunctionError("It is no image that can be shown: PNG, JPEG, GIF and WebP are.")
        return cls(data, f"image/{kind}", detail)

    def part(self) -> JSON:
        """Return it as content of the Responses API."""
        url = f"data:{self.media_type};base64,{base64.b64encode(self.data).decode()}"
        return {"type": "input_image", "image_url": url, "detail": self.detail}


MAY_HAVE_IMAGES = frozenset({Image, list, tuple})
"""Types of values that `has_images` has to look at."""


def has_images(value: Any) -> bool:
    """Tell whether a handler has returned an image, or a list with one."""
    if type(value) is Image:
        return True
    return type(value) in {list, tuple} and len(value) <= _MOST_PARTS and any(type(part) is Image for part in value)


class ToolResult(Struct, frozen=True, eq=False):
    """The result of a call. An error is a result too: the model reads it and can try something else.

    Two are equal if the model cannot tell them apart.
    """

    output: str
    """What the model reads."""
    is_error: bool = False
    status: str = "success"
    """One of `STATUSES`, which label metrics; anything else becomes `error` or `success`."""
    value: Any = None
    """What the handler returned, for callers in Python."""

    item: Mapping[str, Any] = {}
    """Fields for the output item of a hosted function, such as its results."""
    suspension: Suspension | None = None
    """What the call waits for, if it has no result yet."""
    images: Sequence[Image] = ()
    """Pictures that the model sees with the text, if it sees."""

    def __post_init__(self) -> None:
        output: object = self.output
        if type(output) is not str:  # a subclass of it is not what the wire knows
            force_setattr(self, "output", as_text(output))
        if self.status not in STATUSES or (self.is_error and self.status == "success"):
            force_setattr(self, "status", "error" if self.is_error else "success")

    @override
    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ToolResult):
            return NotImplemented
        if (self.output, self.is_error, self.status) != (other.output, other.is_error, other.status):
            return False
        return [*self.images] == [*other.images]

    @override
    def __hash__(self) -> int:
        return hash((self.output, self.is_error, self.status))

    @classmethod
    def of(cls, value: Any) -> "ToolResult":
        """Make a result out of whatever a handler returned."""
        if isinstance(value, ToolResult):
            return value
        if not has_images(value):
            return cls(as_text(value), value=value)
        parts = [value] if type(value) is Image else value
        images = [part for part in parts if type(part) is Image]
        return cls("\n".join(str(part) if type(part) is Image else as_text(part) for part in parts), images=images)

    @classmethod
    def error(cls, message: str, status: str = "error") -> "ToolResult":
        """Make an error result."""
        return cls(message, is_error=True, status=status)
