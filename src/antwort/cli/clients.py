"""Clients of the Responses API, which give the events of a stream: of an app in this process, and of a server."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import Any, Protocol
from urllib.parse import urlsplit

import msgspec
from pydantic import SecretStr, ValidationError

from antwort.agents import AgentInfo
from antwort.app import Antwort
from antwort.backends import Reply, Transport
from antwort.backends.errors import excerpt
from antwort.backends.limits import AnswerLimits
from antwort.backends.sse import EventSplitter
from antwort.cli.output import Misuse
from antwort.config import BackendConfig, mask_urls
from antwort.context import ANONYMOUS_TENANT, Context
from antwort.errors import APIError, BadGatewayError, ServiceUnavailableError, did_you_mean
from antwort.types import JSON
from antwort.wire.requests import decode_create

_MAX_ERROR = 64 * 1024
_END = b"[DONE]"
_CURE = "Start the server ('antwort serve'), or say where it is with --url."

_encode = msgspec.json.Encoder().encode


class ResponseClient(Protocol):
    """Makes responses."""

    @property
    def description(self) -> str:
        """What answers, for people."""

    async def start(self) -> None:
        """Make ready."""

    async def close(self) -> None:
        """Give everything back, also if the start failed."""

    def respond(self, request: Mapping[str, Any]) -> AsyncGenerator[JSON, None]:
        """Make a response and yield its events as they come; who leaves early cancels it. Raise APIError."""


class LocalClient:
    """An app of our own, which must have some functions; with `scratch`, its responses are gone at the end."""

    def __init__(self, app: Antwort, functions: Sequence[str] = (), *, scratch: bool = False) -> None:
        self._app = app
        self._functions = functions
        self._scratch = scratch
        self._watcher: Callable[[AgentInfo], None] | None = None

    @property
    def description(self) -> str:
        """What answers."""
        return self._app.model_description

    def watch_agents(self, watcher: Callable[[AgentInfo], None]) -> None:
        """Let somebody be told of the agents of the responses that are made here."""
        self._watcher = watcher

    def waiting_functions(self) -> list[str]:
        """Return the functions that wait for the user."""
        return [spec.name for spec in self._app.registry.list() if spec.suspends]

    async def start(self) -> None:
        """Start the app, but leave the background runs in its store to the server they belong to."""
        known = [spec.name for spec in self._app.registry.list()]
        for name in self._functions:
            if name not in known:
                hint = did_you_mean(name, known) or "; 'antwort functions list' shows those there are"
                raise Misuse(f"--function {name}: there is no such function{hint}")
        await self._app.start(recover=False, scratch=self._scratch)
        if self._watcher is not None:
            self._app.runs.agents.watch(self._watcher)

    async def close(self) -> None:
        """Close the app."""
        await self._app.close()

    async def respond(self, request: Mapping[str, Any]) -> AsyncGenerator[JSON, None]:
        """Make a response."""
        create = decode_create(_encode({**request, "stream": True}))
        ctx = Context(ANONYMOUS_TENANT, subject="cli", scopes=frozenset({"*"}))
        plan = await self._app.engine.plan(create, ctx)
        sink = _Batches()
        work = asyncio.ensure_future(self._app.engine.respond(plan, sink))
        work.add_done_callback(lambda _: sink.end())
        try:
            while (batch := await sink.next()) is not None:
                for data in batch:
                    yield msgspec.json.decode(data)
            await work
        finally:
            work.cancel()
            await asyncio.wait({work})


class _Batches:
    """An event sink that hands over, as one batch, what was written between two flushes."""

    def __init__(self) -> None:
        self.started = False
        self._pending: list[bytes] = []
        self._batches: asyncio.Queue[list[bytes] | None] = asyncio.Queue()

    def put(self, _kind: str, *events: bytes) -> None:
        """Take events."""
        self._pending += events

    async def flush(self) -> None:
        """Hand over what was taken, and let the reader have its turn."""
        if self._pending:
            self.started = True
            self._batches.put_nowait(self._pending)
            self._pending = []
            await asyncio.sleep(0)

    def end(self) -> None:
        """Hand over what is left, and say that nothing more will come."""
        if self._pending:
            self._batches.put_nowait(self._pending)
            self._pending = []
        self._batches.put_nowait(None)

    async def next(self) -> list[bytes] | None:
        """Wait for the next batch; None at the end."""
        return await self._batches.get()


class RemoteClient:
    """A server that speaks the Responses API."""

    def __init__(self, url: str, key: str | None) -> None:
        if not urlsplit(url).path.strip("/"):
            url = f"{url.rstrip('/')}/v1"
        try:
            self._config = BackendConfig(url=url, api_key=SecretStr(key) if key else None)
        except ValidationError:
            raise Misuse("--url must begin with http:// or https://") from None
        self.description = mask_urls(url)

    async def start(self) -> None:
        """Do nothing: each request has a connection of its own, for a person's pauses outlast any other."""

    async def close(self) -> None:
        """Do nothing."""

    async def respond(self, request: Mapping[str, Any]) -> AsyncGenerator[JSON, None]:
        """Ask the server for a response."""
        transport = Transport(self.description, self._config)
        try:
            reply = await _post(transport, request)
            try:
                if reply.status != 200:
                    raise await _refusal(reply)
                events = EventSplitter(AnswerLimits.default(self.description))
                while chunk := await reply.chunk():
                    for data in events.feed(chunk):
                        if data != _END:
                            yield _event(data, self.description)
            finally:
                reply.abort()
        finally:
            await transport.close()


async def _post(transport: Transport, request: Mapping[str, Any]) -> Reply:
    try:
        return await transport.post("/responses", _encode({**request, "stream": True}))
    except ServiceUnavailableError as error:
        raise ServiceUnavailableError(f"{error.message} {_CURE}", code=error.code) from None


def _event(data: bytes, server: str) -> JSON:
    try:
        event = msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        event = None
    if not isinstance(event, dict):
        raise BadGatewayError(f"{server} sent something that is no event: {excerpt(data)}")
    return event


async def _refusal(reply: Reply) -> APIError:
    """Return the error of an answer as the server words it."""
    body = await reply.head(_MAX_ERROR)
    try:
        message = str(msgspec.json.decode(body)["error"]["message"])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, LookupError, TypeError):
        message = f"the server answered {reply.status}: {excerpt(body)}"
    error = APIError(message)
    error.status = reply.status
    return error
