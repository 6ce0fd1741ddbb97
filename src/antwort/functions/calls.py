"""What a call is, what it gives back, and the protocol between a loop and whatever executes calls."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from msgspec import Struct
from msgspec.structs import force_setattr
from typing_extensions import override

from antwort.context import Context
from antwort.context.suspension import Suspension
from antwort.functions.output import as_text
from antwort.functions.spec import FunctionSpec

STATUSES = frozenset(
    {"success", "error", "invalid_arguments", "timeout", "denied", "unavailable", "unknown", "cancelled", "suspended"}
)


class ToolCall(Struct, frozen=True):
    """A call as a provider's `execute` receives it: the arguments are already checked."""

    name: str
    arguments: Mapping[str, Any]
    id: str | None = None


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


@runtime_checkable
class ToolExecutor(Protocol):
    """Something that offers functions and executes them. The loop has a list of these and cannot tell them apart.

    One that has many functions may have an attribute `tools_version` besides, a number that changes whenever its
    functions do. What it offers may then depend on the agent of a context only, and is asked for once for each agent;
    others are asked with every request. One that has a coroutine `prepare_tool(name, tool, items, ctx)` is asked about
    each hosted tool that a request names, as `Provider.prepare_tool` is.
    """

    def discovered_tools(self, ctx: Context | None = None) -> Sequence[FunctionSpec]:
        """Return the functions it offers to the agent of this context."""

    def can_execute(self, name: str) -> bool:
        """Tell whether a call of this name is for this executor."""

    async def execute(
        self, name: str, params: str | bytes | Mapping[str, Any], ctx: Context | None = None
    ) -> ToolResult:
        """Execute a call. A failure is a result; nothing is raised but the caller's own cancellation."""

    async def close(self) -> None:
        """Give everything back."""
