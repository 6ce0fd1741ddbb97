"""A connection to one MCP server over streamable HTTP, of either era.

Servers of 2026-07-28 know no sessions: each request says what it needs to. Older ones are greeted first, and many give
a session then. Which of the two a server is, it is asked with the first request.
"""

import asyncio
import itertools
import logging
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
from typing_extensions import override

from antwort.provider import (
    JSON,
    BlockedError,
    HttpAnswer,
    HttpClient,
    OutboundError,
    OutboundTimeoutError,
    SingleFlight,
    UnreachableError,
)
from antwort.providers.mcp.elicitation import DECLINED, METHOD
from antwort.providers.mcp.errors import McpError, McpHttpError, McpProtocolError, McpTimeoutError
from antwort.providers.mcp.messages import (
    AnswerEvents,
    StreamedEvents,
    decoded,
    header_value,
    read_answer,
    request_body,
)
from antwort.providers.mcp.oauth import ClientTokens
from antwort.providers.mcp.peer import (
    CAPABILITIES,
    CLIENT,
    GREETED,
    LIST_CHANGED,
    McpPeer,
    ServerTime,
    asked_within,
    opened_in,
)
from antwort.providers.mcp.sse import SseServer
from antwort.providers.mcp.waiting import Within

logger = logging.getLogger(__name__)

STATELESS = "2026-07-28"
_EVENTS = "text/event-stream"
_MOST_HEARD = 100
"""Messages of a stream that belongs to no call; after more it is opened anew, later."""
_LARGEST_HEARD = 1024**2
"""Bytes of such a stream."""
_RESUMED = frozenset(GREETED[:-1])
"""Versions whose servers may end the stream of an answer, and go on in another."""
_META = "io.modelcontextprotocol/"
_PATIENCE = 10.0
"""Seconds for a greeting."""
_SETTLE = 0.2
"""Seconds in which a server may end a stream whose answer is there: then the connection is good for another."""


class McpConnection(McpPeer):
    """Asks one server, with the headers of whoever has named it."""

    def __init__(
        self,
        http: HttpClient,
        url: str,
        headers: Mapping[str, str],
        *,
        guarded: bool,
        max_bytes: int,
        tenant: str = "",
        tokens: ClientTokens | None = None,
    ) -> None:
        self._http = http
        self._tokens = tokens
        self._tenant = tenant
        self._url = url
        self._given = {name.lower(): value for name, value in headers.items()}
        self._guarded = guarded
        self._max_bytes = max_bytes
        self._numbers = itertools.count(1)
        self.announces_changes = False
        """Whether the server says that it tells when it has other tools."""
        self._version: str | None = None
        """What the server speaks; None as long as it was not asked."""
        self._session: str | None = None
        self._greeting = SingleFlight(self._greet)
        self._waiting = 0
        """How many wait for it."""
        self._stream: SseServer | None = None
        """How it is asked if it is one of 2024-11-05, whose answers come in a stream of their own."""

    @override
    async def asks_within(self) -> bool:
        """Tell whether the server asks while it works, if it does: an older one."""
        if self._version is None:
            await self._greeted()
        return self._version != STATELESS

    @override
    async def close(self) -> None:
        """End the session, if there is one."""
        if self._stream is not None:
            await self._stream.close()
        if self._session is not None:
            try:
                await self._send("DELETE", None, self._headers(), seconds=2.0)
            except (OutboundError, McpError):
                logger.debug("the session of an MCP server could not be ended")

    async def hear_changes(self, seconds: float, *, again: bool) -> bool:
        """Listen to what the server says of its own accord, until its stream or the time ends; tell whether it has one.

        After one that has ended something may have been missed, so `again` counts as a change. McpError or
        OutboundError for a server that cannot be listened to now.
        """
        if self._stream is not None:
            return False  # what it says comes with its answers
        if self._version is None:
            raise McpHttpError("The server has to be greeted before.")
        headers, body = self._headers(), None
        if self._version == STATELESS:
            headers["mcp-method"] = "subscriptions/listen"
            params = {"notifications": {"toolsListChanged": True}, "_meta": _envelope()}
            body = request_body(next(self._numbers), "subscriptions/listen", params)
        events, heard = StreamedEvents(), itertools.count(1)

        def note_head(head: Mapping[str, str]) -> None:
            if again and head.get("content-type", "").startswith(_EVENTS):
                self.note(LIST_CHANGED)

        async def take(piece: bytes) -> None:
            async for _, data in events.of(piece):
                if next(heard) > _MOST_HEARD:
                    raise McpProtocolError("The server says more of its own accord than is heard.")
                if data.strip():
                    await self._hear(await decoded(data))

        sent = {**headers, "accept": headers["accept"] if body else _EVENTS}
        method = "GET" if body is None else "POST"
        try:
            async with asyncio.timeout(seconds):
                answer = await self._send(
                    method, body, sent, seconds, take, on_head=note_head, max_bytes=_LARGEST_HEARD, standing=True
                )
        except TimeoutError:
            return True
        if answer.status == 401 and self._tokens is not None:
            self._tokens.forget()
        return answer.status not in {405, 501} and (answer.status >= 300 or answer.content_type == _EVENTS)

    async def _hear(self, message: JSON) -> None:
        """Take a message of a stream that belongs to no call."""
        if "method" in message and message.get("id") is None:
            self.note(message["method"])
        elif "method" in message:  # nobody knows which user could be asked: he declines
            await self._answer(None, asyncio.timeout(None), message)

    # --- one request -------------------------------------------------------------------------------------------------

    @override
    async def _ask_greeted(
        self, method: str, params: JSON, headers: Mapping[str, str], seconds: float, *, within: Within | None = None
    ) -> JSON:
        """Ask a server that is greeted before if it has to be; once more if it has forgotten that meanwhile."""
        for is_last in (False, True):
            session, time = self._session, ServerTime(seconds)
            try:
                if self._version is None:
                    await opened_in(time, self._greeted())
                    session = self._session
                return await self._ask(method, params, headers, time.left(), within)
            except McpError as error:
                if is_last or not self._may_have_forgotten(error, session):
                    raise
        raise AssertionError("the last try returns or raises")

    def _may_have_forgotten(self, error: McpError, session: str | None) -> bool:
        """Tell whether a server may have done nothing but forget its session, or the token: both are renewed then."""
        if error.http_status == 401 and self._tokens is not None:
            self._tokens.forget()
            return True
        if session is None or error.http_status not in {400, 404}:
            return False
        if self._session == session:  # nobody has greeted it anew meanwhile
            self._version = self._session = None
        return True

    async def _ask(
        self, method: str, params: JSON, headers: Mapping[str, str], seconds: float, within: Within | None
    ) -> JSON:
        if self._stream is not None:
            return await self._stream.ask(method, params, seconds, within)
        sent = {**self._headers(), **headers}
        if self._version == STATELESS:
            params = {**params, "_meta": _envelope()}
            sent["mcp-method"] = method
            if isinstance(name := params.get("name"), str):
                sent["mcp-name"] = header_value(name)
        return await self._request(method, params, sent, seconds, within=within)

    async def _request(
        self,
        method: str,
        params: Mapping[str, Any],
        headers: Mapping[str, str],
        seconds: float,
        *,
        on_head: Callable[[Mapping[str, str]], None] | None = None,
        within: Within | None = None,
    ) -> JSON:
        number = next(self._numbers)
        clock = asyncio.timeout(seconds)
        events = AnswerEvents(number, partial(self._answer, within, clock), lambda: _settle(clock), self.note)
        longest = seconds if within is None else math.inf  # the clock counts, which stands still meanwhile
        answer: HttpAnswer | None = None
        try:
            async with clock:
                body = request_body(number, method, params)
                answer = await self._send_resumed(body, headers, longest, events, on_head)
        except TimeoutError:
            if events.answer is None:
                raise McpTimeoutError(f"The server did not answer within {seconds:.3g} seconds.") from None
        except BlockedError:
            raise
        except OutboundTimeoutError:
            raise McpTimeoutError(f"The server did not answer within {seconds:.3g} seconds.") from None
        except OutboundError as error:
            if events.answer is None:
                raise McpHttpError(str(error)) from None
        if answer is None:
            answer = HttpAnswer(self._url, 200, {}, b"")
        return await read_answer(answer, events)

    async def _send_resumed(
        self,
        body: bytes,
        headers: Mapping[str, str],
        seconds: float,
        events: AnswerEvents,
        on_head: Callable[[Mapping[str, str]], None] | None,
    ) -> HttpAnswer | None:
        """Send a request; if its stream ends before the answer, ask an older server for the rest, as often as it wants.

        The caller sees to the time. The request itself is sent once: nobody knows what has been done for it.
        """
        answer: HttpAnswer | None = None
        broken: UnreachableError | None = None
        try:
            answer = await self._send("POST", body, headers, seconds, events.take, on_head=on_head)
        except UnreachableError as error:
            broken = error
        is_stream = answer is None or answer.status == 200
        while is_stream and events.answer is None and events.last_id is not None and self._version in _RESUMED:
            await asyncio.sleep(events.pause)
            events.begin_again()
            asking = {**self._headers(), "accept": "text/event-stream", "last-event-id": events.last_id}
            rest = await self._send("GET", None, asking, seconds, events.take)
            if rest.status != 200:
                break
            answer, broken = rest, None
        if broken is not None:
            raise broken
        return answer

    async def _send(
        self,
        method: str,
        body: bytes | None,
        headers: Mapping[str, str],
        seconds: float,
        on_piece: Callable[[bytes], Awaitable[None]] | None = None,
        *,
        url: str | None = None,
        on_head: Callable[[Mapping[str, str]], None] | None = None,
        max_bytes: int | None = None,
        standing: bool = False,
    ) -> HttpAnswer:
        if self._tokens is not None:
            headers = {**headers, "authorization": f"Bearer {await self._tokens.token()}"}
        return await self._http.call(
            method,
            url or self._url,
            headers=headers,
            body=body,
            time_limit=seconds + 1,
            max_bytes=max_bytes or self._max_bytes,
            on_piece=on_piece,
            guarded=self._guarded,
            on_head=on_head,
            tenant=self._tenant,
            standing=standing,
        )

    def _headers(self) -> dict[str, str]:
        headers = {
            **self._given,
            "accept": "application/json, text/event-stream",
            "content-type": "application/json",
        }
        if self._version is not None:
            headers["mcp-protocol-version"] = self._version
        if self._session is not None:
            headers["mcp-session-id"] = self._session
        return headers

    # --- the greeting ------------------------------------------------------------------------------------------------

    async def _greeted(self) -> None:
        """Wait until it is known what the server speaks; the last one who leaves gives up the greeting."""
        while self._version is None:
            self._waiting += 1
            try:
                await self._greeting.outcome()
            except asyncio.CancelledError:
                me = asyncio.current_task()
                if me is not None and me.cancelling():
                    if self._waiting == 1:
                        await self._greeting.close()
                    raise  # else somebody has given up what this one waits for, too
            finally:
                self._waiting -= 1

    async def _greet(self) -> None:
        """Find out what the server speaks."""
        if self._version is not None:
            return
        if STATELESS in await self._supported():
            self._version = STATELESS
        else:
            try:
                await self._initialize()
            except McpHttpError as error:
                if _is_final(error) or isinstance(error, McpTimeoutError):
                    raise
                await self._open_stream(error)

    async def _supported(self) -> Sequence[str]:
        """Return the versions that a server says it speaks; none if it is an older one, which does not know that."""
        headers = {**self._headers(), "mcp-protocol-version": STATELESS, "mcp-method": "server/discover"}
        for is_last in (False, True):
            try:
                found = await self._request("server/discover", {"_meta": _envelope()}, headers, _PATIENCE)
            except (McpProtocolError, McpHttpError) as error:
                if isinstance(error, McpTimeoutError) or _is_final(error):
                    raise
                if is_last or not isinstance(error, McpProtocolError) or STATELESS not in error.supported:
                    break  # else it has refused the version that it says it speaks: it may know better now
            else:
                self.announces_changes = _announces(found)
                supported = found.get("supportedVersions")
                return supported if isinstance(supported, list) else []
        return []

    async def _open_stream(self, refused: McpHttpError) -> None:
        """Ask a server as those of 2024-11-05 are asked, if it is one; else raise what it has said otherwise."""

        async def send(
            method: str,
            url: str,
            body: bytes | None,
            seconds: float,
            *,
            on_piece: Callable[[bytes], Awaitable[None]] | None = None,
        ) -> HttpAnswer:
            headers = {**self._headers(), "accept": "text/event-stream" if body is None else "application/json"}
            return await self._send(method, body, headers, seconds, on_piece, url=url)

        stream = SseServer(self._url, send, self.note)
        try:
            await stream.open()
        except McpError as error:
            await stream.close()
            raise (refused if isinstance(error, McpHttpError) else error) from None
        self._stream, self._version = stream, GREETED[-1]

    async def _initialize(self) -> None:
        params = {"protocolVersion": GREETED[0], "capabilities": CAPABILITIES, "clientInfo": CLIENT}
        head: dict[str, str] = {}  # at once: what has the answer may be a stream that nobody ends
        result = await self._request("initialize", params, self._headers(), _PATIENCE, on_head=head.update)
        version = result.get("protocolVersion")
        if version not in GREETED:
            raise McpProtocolError("The server speaks no version of the protocol that is known here.")
        self._version, self._session = version, head.get("mcp-session-id")
        self.announces_changes = _announces(result)
        try:
            await self._send("POST", request_body(None, "notifications/initialized", {}), self._headers(), _PATIENCE)
        except OutboundError as error:
            raise McpHttpError(str(error)) from None

    async def _answer(self, within: Within | None, clock: asyncio.Timeout, asked: JSON) -> None:
        """Answer what an older server asks while it works: the user, whether we are there, or what nobody answers."""
        answer: JSON = {"jsonrpc": "2.0", "id": asked.get("id")}
        params = asked.get("params")
        if asked["method"] == "ping":
            answer["result"] = {}
        elif asked["method"] != METHOD:
            answer["error"] = {"code": -32601, "message": "It is not known here."}
        elif within is None or not isinstance(params, dict):
            answer["result"] = DECLINED
        else:
            answer["result"] = await asked_within(clock, within, params)
        try:
            await self._send("POST", msgspec.json.encode(answer), self._headers(), _PATIENCE)
        except OutboundError:
            logger.debug("the question of an MCP server could not be answered")


def _envelope() -> JSON:
    """Return what each request says of whoever sends it."""
    said = {"protocolVersion": STATELESS, "clientInfo": CLIENT, "clientCapabilities": CAPABILITIES}
    return {f"{_META}{name}": value for name, value in said.items()}


def _announces(found: JSON) -> bool:
    """Tell whether a server says that it tells when it has other tools."""
    capabilities = found.get("capabilities")
    tools = capabilities.get("tools") if isinstance(capabilities, dict) else None
    return isinstance(tools, dict) and tools.get("listChanged") is True


def _settle(clock: asyncio.Timeout) -> None:
    clock.reschedule(asyncio.get_running_loop().time() + _SETTLE)


def _is_final(error: McpError) -> bool:
    """Tell whether an error is no sign of an older server, which refuses what it does not know."""
    if error.http_status in {401, 403}:
        return True
    return isinstance(error, McpHttpError) and not 400 <= error.http_status < 500
