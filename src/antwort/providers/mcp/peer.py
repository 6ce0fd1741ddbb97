"""What connections to servers have in common, whichever way their messages go."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from time import monotonic
from typing import NamedTuple, TypeVar

from antwort.provider import JSON
from antwort.providers.mcp.elicitation import checked_requests
from antwort.providers.mcp.errors import McpProtocolError, McpTimeoutError
from antwort.providers.mcp.waiting import CallUser, Within

T = TypeVar("T")
GREETED = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
"""Versions of servers that are greeted."""
LIST_CHANGED = "notifications/tools/list_changed"
CLIENT = {"name": "antwort", "version": "1"}
CAPABILITIES: JSON = {"elicitation": {"form": {}, "url": {}}}
_LONGEST_STATE = 64 * 1024
"""Characters of the state that a server wants to be given back."""
_MOST_ROUNDS = 8
"""How often a call is made again with answers that the server wants."""


class ServerTime:
    """The time that a server has in all, however many requests it makes of it."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._ends: float | None = None

    def left(self) -> float:
        """Return the seconds for the next request, all of them for the first; McpTimeoutError if there are none."""
        now = monotonic()
        if self._ends is None:
            self._ends = now + self._seconds
        if now >= self._ends:
            raise McpTimeoutError(f"The server did not answer within {self._seconds:g} seconds.")
        return self._ends - now


class ToolRequest(NamedTuple):
    """A call as it is sent."""

    name: str
    arguments: JSON
    headers: Mapping[str, str]
    """What of the arguments is in headers, too."""

    @property
    def params(self) -> JSON:
        """The call as the protocol has it."""
        return {"name": self.name, "arguments": self.arguments}


class McpPeer(ABC):
    """Asks one server."""

    on_list_changed: Callable[[], None] | None = None
    """Called when the server says that it has other tools now."""

    def note(self, method: object) -> None:
        """Take a notification."""
        if method == LIST_CHANGED and self.on_list_changed is not None:
            self.on_list_changed()

    async def list_page(self, cursor: str | None, seconds: float) -> JSON:
        """Return a page of the tools that the server has."""
        return await self._ask_greeted("tools/list", {} if cursor is None else {"cursor": cursor}, {}, seconds)

    async def call_tool(self, request: ToolRequest, seconds: float, user: CallUser) -> JSON:
        """Call a tool, and return the result; what the server wants to know is asked the user, between its answers."""
        number, besides = await user.begin()
        time = ServerTime(seconds)
        while True:
            params = {**request.params, **besides}
            result = await self._ask_greeted("tools/call", params, request.headers, time.left())
            if result.get("resultType") != "input_required":
                return result
            if (number := number + 1) == _MOST_ROUNDS:
                raise McpProtocolError("The server asks for more and more.")
            besides = await user.answer(number, checked_requests(result.get("inputRequests")), _state(result))

    async def call_held(self, request: ToolRequest, seconds: float, within: Within | None) -> JSON:
        """Call a tool of a server that asks `within` its answer, and return the result."""
        return await self._ask_greeted("tools/call", request.params, request.headers, seconds, within=within)

    @abstractmethod
    async def asks_within(self) -> bool:
        """Tell whether the server asks while it works, if it does: an older one."""

    @abstractmethod
    async def close(self) -> None:
        """End what there is of it."""

    @abstractmethod
    async def _ask_greeted(
        self, method: str, params: JSON, headers: Mapping[str, str], seconds: float, *, within: Within | None = None
    ) -> JSON:
        """Ask a server that is greeted before if it has to be."""


async def opened_in(time: ServerTime, opening: Awaitable[T]) -> T:
    """Wait for a server to be there, out of the time that a request has; McpTimeoutError if that is over first."""
    seconds = time.left()
    try:
        async with asyncio.timeout(seconds):
            return await opening
    except TimeoutError:
        raise McpTimeoutError(f"The server did not answer within {seconds:.3g} seconds.") from None


async def asked_within(clock: asyncio.Timeout, within: Within, params: JSON) -> JSON:
    """Return what the user says to a server while a call is under way, whose clock stands still meanwhile."""
    now, ends = asyncio.get_running_loop().time, clock.when()
    left = None if ends is None else ends - now()
    clock.reschedule(None)
    answer = await within(params)
    clock.reschedule(None if left is None else now() + left)
    return answer


def _state(result: JSON) -> str | None:
    """Return what a server wants to be given back."""
    state = result.get("requestState")
    if state is not None and (not isinstance(state, str) or len(state) > _LONGEST_STATE):
        raise McpProtocolError("The server wants more to be kept for it than is.")
    return state
