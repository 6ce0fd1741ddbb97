"""What a call gives back."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import force_setattr
from typing_extensions import override

from antwort.context.suspension import Suspension
from antwort.functions.output import as_text

STATUSES = frozenset(
    {"success", "error", "invalid_arguments", "timeout", "denied", "unavailable", "unknown", "cancelled", "suspended"}
)


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
        return (self.output, self.is_error, self.status) == (other.output, other.is_error, other.status)

    @override
    def __hash__(self) -> int:
        return hash((self.output, self.is_error, self.status))

    @classmethod
    def of(cls, value: Any) -> "ToolResult":
        """Make a result out of whatever a handler returned."""
        return value if isinstance(value, ToolResult) else cls(as_text(value), value=value)

    @classmethod
    def error(cls, message: str, status: str = "error") -> "ToolResult":
        """Make an error result."""
        return cls(message, is_error=True, status=status)
