"""The protocol between an agentic loop and whatever executes the calls of a model."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from antwort.context import Context
from antwort.functions.result import ToolResult
from antwort.functions.spec import FunctionSpec

__all__ = ["ToolExecutor"]


@runtime_checkable
class ToolExecutor(Protocol):
    """Something that offers functions and executes them. The loop has a list of these and cannot tell them apart."""

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
