"""Tools that a request allows among those it has: the others need not reach the model server."""

from collections.abc import Coroutine
from typing import Any

from msgspec.structs import replace
from typing_extensions import override

from antwort.backends.base import ModelRequest, ToolDefinitions, TurnSink
from antwort.backends.resilience import BackendWrapper


class AllowedTools(BackendWrapper):
    """Gives a model server only those tools that may be called: what a model does not see it does not call."""

    @override
    def run(self, request: ModelRequest, sink: TurnSink) -> Coroutine[Any, Any, None]:
        """Perform one turn."""
        return self.backend.run(request if request.allowed is None else _narrowed(request), sink)

    @override
    async def count_tokens(self, request: ModelRequest) -> int | None:
        return await self.backend.count_tokens(_narrowed(request))


def _narrowed(request: ModelRequest) -> ModelRequest:
    allowed = request.allowed
    if allowed is None:
        return request
    return replace(request, tools=ToolDefinitions(tool for tool in request.tools if tool["name"] in allowed))
