"""What a call is, and the protocol between a loop and whatever executes calls."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from msgspec import Struct

from antwort.context import Context
from antwort.functions.results import ToolResult
from antwort.functions.spec import FunctionSpec


class ToolCall(Struct, frozen=True):
    """A call as a provider's `execute` receives it: the arguments are already checked."""

    name: str
    arguments: Mapping[str, Any]
    id: str | None = None


@runtime_checkable
class ToolExecutor(Protocol):
    """Something that offers functions and executes them. The loop has a list of these and cannot tell them apart.

    One that has many functions may have an attribute `tools_version` besides, a number that changes whenever its
    functions do. What it offers may then depend on the agent of a context only, and is asked for once for each agent;
    others are asked with every request. One that has a coroutine `prepare_tool(name, tool, items, ctx)` is asked about
    each hosted tool that a request names, as `Provider.prepare_tool` is; one that has `open_tool`, with the same
    arguments, about those that stand for functions.
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
