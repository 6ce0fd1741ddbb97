"""One WebSocket connection: requests one after the other, and what is remembered between them."""

import asyncio
import contextlib
import logging
import re
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec
from prometheus_client import Counter
from starlette.types import Message, Receive, Send

from antwort.concurrency.large_work import MUCH
from antwort.config import ServerConfig
from antwort.context import Context, Principal
from antwort.engine.engine import Engine
from antwort.engine.output.events import Events, replay_response
from antwort.engine.plan import Shown
from antwort.engine.turns.ending import end_unanswered
from antwort.engine.turns.loop import Loop
from antwort.errors import APIError, BadRequestError, PermissionDeniedError, RateLimitError
from antwort.observability import bind_log_context
from antwort.runs.limits import TenantLimits
from antwort.server.gate import BodyBudget
from antwort.server.http.sse import GRACE, Heartbeats
from antwort.storage.base import ACTIVE, JournalEntry
from antwort.web.answers import as_api_error
from antwort.web.requests import check_values
from antwort.wire.field_errors import no_json
from antwort.wire.requests import CreateResponse, decode_create

# --- what a connection remembers of responses that are kept nowhere else ---------------------------------------------


PRICE = 1024
"""Bytes that a response counts for besides its items."""
LANES = 64
"""Responses that are remembered at most."""

_encode = msgspec.json.Encoder().encode


class _Remembered(msgspec.Struct, frozen=True):
    """A response with all that came before it."""

    lane: str | None
    entries: Sequence[JournalEntry]
    size: int


class Memory:
    """The latest response of each lane, as long as they take no more than `limit` bytes; the oldest goes first.

    It belongs to one connection, so what is in it can be continued there and nowhere else.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._windows: dict[str, _Remembered] = {}
        self._size = 0

    def recall(self) -> Mapping[str, Sequence[JournalEntry]]:
        """Return the entries of each response that is remembered, by its id."""
        return {response_id: window.entries for response_id, window in self._windows.items()}

    def remember(
        self, lane: str | None, response_id: str, entries: Sequence[JournalEntry], *, previous: str | None
    ) -> None:
        """Keep a response in place of the one before it in its lane; `previous` is the one that it continues."""
        known = self._windows.get(previous) if previous is not None else None
        # What was measured once is not measured again: a long conversation would cost more with each turn.
        begin, size = (0, 0) if known is None else (len(known.entries), known.size)
        size += sum(_size(entry) for entry in entries[begin:])
        self.leave(lane)
        self._windows[response_id] = _Remembered(lane, entries, size)
        self._size += size + PRICE
        while self._size > self._limit or len(self._windows) > LANES:
            self.forget(next(iter(self._windows)))

    def leave(self, lane: str | None) -> None:
        """Forget the latest response of a lane: there is a newer one."""
        for response_id in [name for name, window in self._windows.items() if window.lane == lane]:
            self.forget(response_id)

    def forget(self, response_id: str | None) -> None:
        """Forget a response, if it is known."""
        window = self._windows.pop(response_id, None) if response_id is not None else None
        if window is not None:
            self._size -= window.size + PRICE


def _size(entry: JournalEntry) -> int:
    return len(_encode(entry.item)) + (0 if entry.call is None else len(_encode(entry.call)))


# --- a connection ----------------------------------------------------------------------------------------------------


logger = logging.getLogger(__name__)

TEXTS = "antwort.texts"
"""An extension of `websocket.send`: several messages at once, each as the bytes of its text, leave in one write."""


Fields = dict[str, msgspec.Raw]
SendMessages = Callable[[list[bytes]], Awaitable[None]]
_decode = msgspec.json.Decoder(Fields).decode
_LANE = re.compile(r"[A-Za-z0-9_.-]{1,256}")
_OF_HTTP = ("stream", "stream_options")
"""Fields that mean nothing here: events are all there is. Clients send them all the same."""


class ClientMessage(msgspec.Struct):
    """What a client has sent: a request for a response, the end of one, or the reason why it is neither."""

    size: int
    create: CreateResponse | None = None
    generate: bool = True
    """Whether the model is to be asked; otherwise the request is only made ready to be continued."""
    lane: str | None = None
    """What the client calls `stream_id`: each event of the answer carries it."""
    previous: str | None = None
    cancels: str | None = None
    """The response that is to end as it is."""
    error: APIError | None = None


def read_message(event: Message, max_values: int) -> ClientMessage:
    """Read a message. Whatever is wrong with it is an error in the message, to be told in its turn."""
    text: str | None = event.get("text")
    if text is None:
        error = BadRequestError("Send text frames with JSON, not binary frames.", code="invalid_frame")
        return ClientMessage(len(event.get("bytes") or b""), error=error)
    message = ClientMessage(len(text))
    try:
        check_values(text, max_values)
        _read(text, message)
    except APIError as error:
        message.error = error
    return message


def _read(text: str, message: ClientMessage) -> None:
    fields = _fields(text)
    message.lane = _lane(fields)
    message.previous = _value(fields.get("previous_response_id"), str)
    kind = _value(fields.pop("type", None), str)
    if kind == "response.cancel":
        message.cancels = _cancelled(fields)
        return
    if kind != "response.create":
        raise _unknown_type(kind)
    message.generate = _generate(fields)
    for name in _OF_HTTP:
        fields.pop(name, None)
    create = decode_create(_encode(fields))
    _check_possible(create)
    message.create = create


def _fields(text: str) -> Fields:
    """Return the fields of a frame."""
    try:
        return _decode(text)
    except msgspec.ValidationError as error:
        raise BadRequestError(f"A frame must be a JSON object: {error}.", code="invalid_type") from None
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise no_json(text, error, "The frame") from None


def _unknown_type(kind: str | None) -> BadRequestError:
    """Return the error for a frame whose type is none of those taken."""
    if kind == "response.steer":
        return BadRequestError(
            "Steering is not supported by this server. Send what you have to say with the next 'response.create'.",
            param="type",
            code="steering_not_supported",
        )
    if kind == "response.inject":
        return BadRequestError(
            "Nothing can be injected into a response here: what its sub-agents call is executed by the server. Send "
            "the outputs of your own functions with the next 'response.create'.",
            param="type",
            code="inject_not_supported",
        )
    named = "no type" if kind is None else f"the type '{kind[:64]}'"
    return BadRequestError(
        f"The frame has {named}; those taken are 'response.create' and 'response.cancel'.",
        param="type",
        code="unknown_type",
    )


def _check_possible(create: CreateResponse) -> None:
    """Refuse what only a request over HTTP can ask for."""
    if create.background:
        raise BadRequestError(
            "'background' is not possible on a WebSocket. Create the response with POST /v1/responses.",
            param="background",
            code="unsupported_parameter",
        )
    if create.multi_agent is not None and create.multi_agent.enabled:
        raise BadRequestError(
            "'multi_agent' is not possible on a WebSocket: nothing can be injected into a response here. Create the "
            "response with POST /v1/responses, or name the functions for sub-agents in 'tools'.",
            param="multi_agent",
            code="unsupported_parameter",
        )


def _value(raw: msgspec.Raw | None, kind: Any) -> Any:
    """Return a field if it is of a type, else None."""
    if raw is None:
        return None
    try:
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.MsgspecError, UnicodeError):
        return None


def _lane(fields: Fields) -> str | None:
    raw = fields.pop("stream_id", None)
    if raw is None or bytes(raw) == b"null":
        return None
    lane: str | None = _value(raw, str)
    if lane is None or not _LANE.fullmatch(lane):
        raise BadRequestError(
            "Invalid value for 'stream_id': it must be 1 to 256 letters, digits, underscores, hyphens or periods.",
            param="stream_id",
            code="invalid_value",
        )
    return lane


def _cancelled(fields: Fields) -> str:
    response_id: str | None = _value(fields.get("response_id"), str)
    if response_id is None:
        raise BadRequestError(
            "A frame of the type 'response.cancel' needs a 'response_id': the response to cancel.",
            param="response_id",
            code="missing_required_parameter",
        )
    return response_id


def _generate(fields: Fields) -> bool:
    raw = fields.pop("generate", None)
    value = True if raw is None or bytes(raw) == b"null" else _value(raw, bool)
    if not isinstance(value, bool):
        raise BadRequestError(
            "Invalid value for 'generate': use true or false.", param="generate", code="invalid_value"
        )
    return value


def error_message(error: APIError, lane: str | None) -> bytes:
    """Return an error as a message: the envelope with the status that HTTP would have."""
    code = error.code or error.type  # the contract wants one
    body: dict[str, Any] = {"type": "error", "status": error.status}
    body["error"] = {**error.envelope()["error"], "code": code}
    if error.headers:
        body["error"]["headers"] = error.headers
    if lane is not None:
        body["stream_id"] = lane
    return _encode(body)


class MessageStream:
    """The sink of a response on a WebSocket: one message for each event, in order, sent when the loop says so."""

    def __init__(self, send: SendMessages, lane: str | None) -> None:
        self._send = send
        self._messages: list[bytes] = []
        self._sending = asyncio.Lock()
        self._tail = b"" if lane is None else b',"stream_id":%s' % _encode(lane)
        self._now = asyncio.get_running_loop().time
        self._begun = self._now()
        self._beating = False
        self.started = False

    def put(self, kind: str, *events: bytes) -> None:
        """Take events of one type."""
        tail = self._tail
        if kind == "error":  # on a WebSocket it has a status, even in the middle of a response
            status = 429 if msgspec.json.decode(events[0])["code"] == "rate_limit_exceeded" else 500
            tail += b',"status":%d' % status
        self._messages += [b"%s%s}" % (data[:-1], tail) for data in events] if tail else events

    async def flush(self) -> None:
        """Send what was taken; wait while the client does not read."""
        async with self._sending:
            messages, self._messages = self._messages, []
            if messages:
                self.started = True
                await self._send(messages)

    def is_due(self, silence: float) -> bool:  # noqa: ARG002 - pings are the signs of life here
        """Tell whether the beginning is to be told, although the model has said nothing yet."""
        return not self.started and not self._beating and self._now() - self._begun >= GRACE

    async def beat(self) -> None:
        """Tell the beginning."""
        self._beating = True
        try:
            await self.flush()
        finally:
            self._beating = False


GOING_AWAY = 1001
BROKEN = 1011


class Caller(msgspec.Struct, frozen=True):
    """Whose connection it is."""

    request_id: str
    shown: Shown
    admit: Callable[[], Awaitable[Principal]]
    """Check the credentials again and count a request; APIError if they are not good any more, or it is too many."""
    denied: Callable[[APIError, Principal], None]
    """Take note of a request for something that the credentials do not open."""


class Served(msgspec.Struct, frozen=True):
    """What all connections share."""

    engine: Engine
    config: ServerConfig
    heartbeats: Heartbeats
    bodies: BodyBudget
    limits: TenantLimits
    received: Counter
    sent: Counter


class Connection:
    """Reads all the time, so that it notices when the client leaves; answers one request at a time, in order."""

    def __init__(self, served: Served, caller: Caller, receive: Receive, send: Send, *, together: bool = False) -> None:
        settings = served.config.websocket
        self._served = served
        self._caller = caller
        self._receive = receive
        self._send = send
        self._together = together
        """Whether the server takes several messages at once."""
        self._memory = Memory(settings.memory)
        self._waiting: deque[ClientMessage] = deque()
        self._held = 0
        self._counted = 0
        self._news = asyncio.Event()
        self._expires = asyncio.get_running_loop().time() + 60 * settings.max_minutes
        self._leaving = False
        self._answered = 0
        self._making: Loop | None = None
        self._answering: asyncio.Task[None]

    def leave(self) -> None:
        """Let the response that is being made be the last one: the server stops."""
        self._leaving = True
        self._news.set()

    async def run(self) -> None:
        """Serve until the client leaves, the time is over or the server stops."""
        reading = asyncio.ensure_future(self._read())
        answering = self._answering = asyncio.create_task(self._answer())
        code = GOING_AWAY
        try:
            await asyncio.wait({reading, answering}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            # The client has left, or the server waits no longer: what is running is cancelled, and stored as that.
            reading.cancel()
            answering.cancel()
            for error in await asyncio.gather(answering, reading, return_exceptions=True):
                if isinstance(error, Exception):
                    logger.error("a WebSocket connection broke", exc_info=error)
                    code = BROKEN
            self._give_back(self._counted)
            await self._put({"type": "websocket.close", "code": code})

    # --- what comes in -----------------------------------------------------------------------------------------------

    async def _read(self) -> None:
        """Take messages until the client leaves."""
        while (event := await self._receive())["type"] != "websocket.disconnect":
            self._served.received.inc()
            large = len(event.get("text") or "") >= MUCH
            most = self._served.config.max_values
            message = await self._served.engine.large_work.run_if(large, read_message, event, most)
            if message.cancels is not None:
                self._call_off(message.cancels)
                continue
            try:
                self._take(message)
            except APIError as error:
                await self._refuse(error, message.lane)

    def _take(self, message: ClientMessage) -> None:
        """Let a message wait for its turn; APIError if it may not."""
        if not self._fits(message):
            raise _too_many(self._served.config.websocket.max_queue)
        self._served.bodies.take(message.size)
        self._counted += message.size
        self._waiting.append(message)
        self._held += message.size
        self._news.set()

    def _call_off(self, response_id: str) -> None:
        """End a response as it is, at once. One that is over stays as it is, and its end has been told."""
        loop = self._making
        if loop is None or loop.called_off or loop.response.id != response_id or loop.response.status not in ACTIVE:
            return
        loop.called_off = True
        self._answering.cancel()

    def _give_back(self, size: int) -> None:
        self._served.bodies.give_back(size)
        self._counted -= size

    def _fits(self, message: ClientMessage) -> bool:
        """Tell whether a message may wait: not too many, and together no larger than a single one may be."""
        config = self._served.config
        if len(self._waiting) >= config.websocket.max_queue:
            return False
        return not self._waiting or self._held + message.size <= config.max_body_bytes

    async def _next(self) -> ClientMessage | None:
        """Return the next message, None when there is to be no other answer."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(self._expires):
                while not (self._waiting or self._leaving):
                    self._news.clear()
                    await self._news.wait()
        if self._leaving or asyncio.get_running_loop().time() >= self._expires:
            return None
        message = self._waiting.popleft()
        self._held -= message.size
        return message

    # --- what goes out -----------------------------------------------------------------------------------------------

    async def _answer(self) -> None:
        """Answer messages in their order, until the connection has to end."""
        while (message := await self._next()) is not None:
            self._answered += 1
            request_id = f"{self._caller.request_id}.{self._answered}"
            with bind_log_context(request_id=request_id):
                try:
                    await self._respond(message, request_id)
                except Exception as error:  # noqa: BLE001 - whatever it is, the client is told and the log has it
                    # A continuation that failed cannot be tried again from the same place: so says the contract.
                    self._memory.forget(message.previous)
                    await self._refuse(as_api_error(error, "WebSocket /v1/responses", request_id), message.lane)
                finally:
                    self._give_back(message.size)
        if not self._leaving:
            await self._refuse(_expired(self._served.config.websocket.max_minutes), None)

    async def _respond(self, message: ClientMessage, request_id: str) -> None:
        principal = await self._caller.admit()  # first: a request that is refused counts too
        if message.error is not None:
            raise message.error
        create, memory, engine = message.create, self._memory, self._served.engine
        assert create is not None, "a frame without an error has a request"  # noqa: S101 - for the type checker
        ctx = Context.of(principal, request_id=request_id)
        try:
            plan = await engine.plan(create, ctx, shown=self._caller.shown, recall=memory.recall())
        except PermissionDeniedError as error:
            self._caller.denied(error, principal)
            raise
        limits = self._served.limits
        if limits.counts_bytes and (plan.stored or plan.conversation is not None):
            await limits.check_room(ctx.tenant, plan.unkept)
        journal = engine.journal(plan)
        stream = MessageStream(self._write, message.lane)
        if message.generate:
            with limits.making(ctx.tenant), self._served.heartbeats.watching(stream):
                await self._make(engine.loop(plan, journal, stream))
        else:
            await end_unanswered(plan.response, journal)
            replay_response(msgspec.to_builtins(plan.response), Events(stream.put))
        if plan.response.status == "failed":
            memory.forget(message.previous)
        elif plan.stored:
            memory.leave(message.lane)  # the store has it
        else:
            entries = engine.entries_so_far(plan, journal)
            memory.remember(message.lane, plan.response.id, entries, previous=message.previous)
        await stream.flush()

    async def _make(self, loop: Loop) -> None:
        self._making = loop
        try:
            await loop.run()
        except asyncio.CancelledError:
            # If the client has left as well, or the server waits no longer, there are no others to be answered.
            if not loop.called_off or self._answering.uncancel():
                raise
        finally:
            self._making = None

    async def _refuse(self, error: APIError, lane: str | None) -> None:
        await self._write([error_message(error, lane)])

    async def _write(self, messages: list[bytes]) -> None:
        if self._together:
            await self._put({"type": "websocket.send", TEXTS: messages})
        else:
            for text in messages:
                await self._put({"type": "websocket.send", "text": text.decode()})
        self._served.sent.inc(len(messages))

    async def _put(self, event: Message) -> None:
        """Send a message; to a client that has left, nothing: the reader notices, and ends it all."""
        with contextlib.suppress(OSError, RuntimeError):  # the latter if the closing has begun
            await self._send(event)


def _too_many(limit: int) -> RateLimitError:
    return RateLimitError(
        f"Too many requests wait on this connection: at most {limit} (server.websocket.max_queue), which together are"
        " no larger than a single one may be. Wait for an answer.",
        retry_after=1,
    )


def _expired(minutes: float) -> BadRequestError:
    return BadRequestError(
        f"A connection lasts {minutes:g} minutes (server.websocket.max_minutes). Open a new one.",
        code="websocket_connection_limit_reached",
    )
