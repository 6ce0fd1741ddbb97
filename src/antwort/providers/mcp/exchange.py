"""Messages to a server and from it in one stream, as with programs and the transport of 2024-11-05."""

import asyncio
import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable

import msgspec

from antwort.provider import JSON
from antwort.providers.mcp.elicitation import DECLINED, METHOD
from antwort.providers.mcp.errors import McpError, McpProtocolError, McpTimeoutError
from antwort.providers.mcp.messages import decoded, request_body, result_of
from antwort.providers.mcp.peer import CAPABILITIES, CLIENT, GREETED, asked_within
from antwort.providers.mcp.waiting import Within

_MOST_ANSWERS = 100
"""Requests of a server that are answered at the same time; further ones are not."""


class MessageExchange(ABC):
    """Asks a server, and is asked by it, until it is over."""

    def __init__(self, on_notification: Callable[[object], None], gone: Callable[[], McpError]) -> None:
        self._on_notification = on_notification
        self._gone = gone
        self._numbers = itertools.count(1)
        self._asked: dict[int, asyncio.Future[JSON]] = {}
        self._within: dict[int, tuple[asyncio.Timeout, Within | None]] = {}
        self._left: set[int] = set()
        """Requests that nobody awaits any more, and that the server has not answered: it may still ask for them."""
        self._answering: set[asyncio.Task[None]] = set()
        self.is_over = False

    @abstractmethod
    async def write(self, message: bytes) -> None:
        """Write a message, and wait until it is written."""

    @abstractmethod
    def put(self, message: bytes) -> None:
        """Have a message written as soon as the server reads."""

    def note_noise(self) -> None:  # noqa: B027 - there may be nothing to note
        """Take note of something that is no message."""

    async def greet(self, seconds: float) -> None:
        """Agree on a version."""
        params: JSON = {"protocolVersion": GREETED[0], "capabilities": CAPABILITIES, "clientInfo": CLIENT}
        result = await self.ask("initialize", params, seconds, None)
        if result.get("protocolVersion") not in GREETED:
            raise McpProtocolError("The server speaks no version of the protocol that is known here.")
        await self.write(request_body(None, "notifications/initialized", {}))

    async def ask(self, method: str, params: JSON, seconds: float, within: Within | None) -> JSON:
        """Return the result of a request."""
        number = next(self._numbers)
        answer: asyncio.Future[JSON] = asyncio.get_running_loop().create_future()
        clock = asyncio.timeout(seconds)
        self._asked[number], self._within[number] = answer, (clock, within)
        try:
            async with clock:
                if self.is_over:
                    raise self._gone()
                await self.write(request_body(number, method, params))
                return result_of(await answer)
        except (TimeoutError, asyncio.CancelledError) as error:
            del self._asked[number]
            self._left.add(number)
            self.put(request_body(None, "notifications/cancelled", {"requestId": number}))
            if isinstance(error, TimeoutError):
                raise McpTimeoutError(f"The server did not answer within {seconds:.3g} seconds.") from None
            raise
        finally:
            self._asked.pop(number, None)
            del self._within[number]

    def give_up(self, problem: McpError) -> None:
        """End: nothing that was asked is answered any more."""
        self.is_over = True
        for answer in self._asked.values():
            if not answer.done():
                answer.set_exception(problem)

    async def take(self, line: bytes) -> None:
        """Take a message of the server."""
        if not line.strip():
            return
        try:
            message = await decoded(line)
        except McpProtocolError:
            self.note_noise()
            return
        if "method" not in message:
            if not isinstance(number := message.get("id"), int):
                return
            self._left.discard(number)
            answer = self._asked.get(number)
            if answer is not None and not answer.done():
                answer.set_result(message)
        elif message.get("id") is None:
            self._on_notification(message["method"])
        elif len(self._answering) < _MOST_ANSWERS:
            task = asyncio.get_running_loop().create_task(self._answer(message))
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)

    async def _answer(self, asked: JSON) -> None:
        """Answer what the server asks: the user of the one call that is under way, if it is one.

        Messages do not say for which call they are, and another user's may not be asked for one that was given up.
        """
        answer: JSON = {"jsonrpc": "2.0", "id": asked["id"]}
        params = asked.get("params")
        clock, within = next(iter(self._within.values())) if self._is_one_call else (None, None)
        if asked["method"] == "ping":
            answer["result"] = {}
        elif asked["method"] != METHOD:
            answer["error"] = {"code": -32601, "message": "It is not known here."}
        elif clock is None or within is None or not isinstance(params, dict):
            answer["result"] = DECLINED
        else:
            answer["result"] = await asked_within(clock, within, params)
        await self.write(msgspec.json.encode(answer))

    @property
    def _is_one_call(self) -> bool:
        return len(self._within) == 1 and not self._left
