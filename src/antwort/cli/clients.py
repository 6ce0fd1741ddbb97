"""Clients of the Responses API, which give the events of a stream: of an app in this process, and of a server."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from typing import Any, Protocol
from urllib.parse import quote, urlencode, urlsplit

import click
import msgspec
from pydantic import SecretStr

from antwort.app import Antwort
from antwort.backends import Reply, Transport
from antwort.backends.errors import excerpt
from antwort.backends.http.sse import EventSplitter
from antwort.backends.http.transport import AnswerLimits
from antwort.cli.output import Misuse
from antwort.config import BackendConfig, mask_urls
from antwort.context import ANONYMOUS_TENANT, Context
from antwort.context.agents import AgentInfo
from antwort.context.context import EVERYTHING
from antwort.engine.plan import Shown
from antwort.engine.planning.past import NotOverError
from antwort.errors import APIError, BadGatewayError, ServiceUnavailableError, did_you_mean
from antwort.functions.absent import NONE_ABSENT
from antwort.server.api.endpoints import ModelEndpoints
from antwort.server.api.functions import FunctionEndpoints
from antwort.server.api.run_stories import RunReader
from antwort.server.api.shown_texts import LONGEST, Texts
from antwort.storage import Question
from antwort.types import JSON
from antwort.wire.requests import decode_create

_MAX_ERROR = 64 * 1024
_END = b"[DONE]"
_RESPONSE = "resp_"
_PAGE = 100
_CURE = "Start the server ('antwort serve'), or say where it is with --url."

_encode = msgspec.json.Encoder().encode


class ResponseClient(Protocol):
    """Makes responses."""

    @property
    def description(self) -> str:
        """What answers, for people."""

    @property
    def place(self) -> str:
        """What is said to another command that is to look at what is stored here, after a space; empty if nothing."""

    async def start(self) -> None:
        """Make ready."""

    async def close(self) -> None:
        """Give everything back, also if the start failed."""

    def respond(self, request: Mapping[str, Any]) -> AsyncGenerator[JSON, None]:
        """Make a response and yield its events as they come; who leaves early cancels it. Raise APIError."""

    async def questions(self, name: str, *, status: str = "") -> list[JSON]:
        """Return the question of an id, or those of a response, the oldest first, as the API shows them."""

    async def trace(self, name: str) -> JSON:
        """Return the story of the run that a response belongs to, as the API tells it."""

    async def functions(self) -> list[JSON]:
        """Return the functions that models can call, as the API shows them."""

    async def models(self) -> list[str]:
        """Return the names of the models that can be asked."""

    async def check_model(self, name: str) -> None:
        """Raise an APIError if a model cannot be asked."""


class LocalClient:
    """An app of our own, which must have some functions; with `scratch`, its responses are gone at the end.

    With `show_calls`, the events have those of functions that have no items of their own.
    """

    def __init__(
        self, app: Antwort, functions: Mapping[str, str], *, scratch: bool = False, show_calls: bool = False
    ) -> None:
        """Take an app, and the functions that it must have, with the options that name them."""
        self._app = app
        self._shown = Shown(calls=show_calls)
        self._functions = functions
        self._scratch = scratch
        self.place = ""
        self._watcher: Callable[[AgentInfo], None] | None = None
        self.notice: str | None = None
        """What is said on standard error before the first answer, once it is known that there will be one."""

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
        known = [*(spec.name for spec in self._app.registry.list()), *self._app.asleep.tools]
        for name, option in self._functions.items():
            if name not in known:
                hint = did_you_mean(name, known) or "; 'antwort functions list' shows those there are"
                raise Misuse(f"{option} {name}: there is no such function{hint}")
        await self._app.start(recover=False, scratch=self._scratch)
        if self._watcher is not None:
            self._app.runs.agents.watch(self._watcher)

    async def close(self) -> None:
        """Close the app."""
        await self._app.close()

    async def respond(self, request: Mapping[str, Any]) -> AsyncGenerator[JSON, None]:
        """Make a response."""
        create = decode_create(_encode({**request, "stream": True}))
        ctx = Context(ANONYMOUS_TENANT, subject="cli", scopes=frozenset({EVERYTHING}))
        try:
            plan = await self._app.engine.plan(create, ctx, shown=self._shown)
        except NotOverError:
            if not await self._app.runs.answer(create, ctx):
                raise
            async for event in self._app.runs.events(ctx.tenant, create.previous_response_id or "", to_rest=True):
                yield msgspec.json.decode(event.data)
            return
        if self.notice is not None:
            click.echo(f"antwort: {self.notice}", err=True)
            self.notice = None
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

    async def questions(self, name: str, *, status: str = "") -> list[JSON]:
        """Return questions of the app's store."""
        questions = self._app.runs.questions
        if not name.startswith(_RESPONSE):
            return [_question_object(await questions.get(ANONYMOUS_TENANT, name))]
        page = await questions.page(ANONYMOUS_TENANT, response_id=name, status=status, limit=_PAGE, order="asc")
        return [_question_object(question) for question in page.data]

    async def trace(self, name: str) -> JSON:
        """Return the story of a run of the app's store."""
        reader = RunReader(self._app.engine, self._app.redactor)
        texts = Texts(self._app.redactor, LONGEST)
        told: JSON = msgspec.to_builtins(await reader.trace(ANONYMOUS_TENANT, name, texts))
        return told

    async def functions(self) -> list[JSON]:
        """Return the functions of the app; those of providers that sleep are found when they are called."""
        functions = FunctionEndpoints(self._app.registry, self._app.switches, NONE_ABSENT)
        found: list[JSON] = msgspec.to_builtins((await functions.list_functions()).data)
        return found

    async def models(self) -> list[str]:
        """Return the models of the app."""
        return [info.id for info in await self._app.router.models()]

    async def check_model(self, name: str) -> None:
        """Ask the app's model servers."""
        await ModelEndpoints(self._app.router).retrieve(name)


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
    """A server that speaks the Responses API; `show_calls` as with `LocalClient`."""

    def __init__(self, url: str, key: str | None, *, show_calls: bool = False, is_named: bool = False) -> None:
        """Take where the server is, and whether its user has said so."""
        self._headers = {"antwort-show-calls": "1"} if show_calls else {}
        try:
            if not urlsplit(url).path.strip("/"):
                url = f"{url.rstrip('/')}/v1"
            self._config = BackendConfig(url=url, api_key=SecretStr(key) if key else None)
        except ValueError:
            if url.startswith(("http://", "https://")):
                raise Misuse("--url must be the base URL of a server, such as http://127.0.0.1:8080/v1") from None
            raise Misuse("--url must begin with http:// or https://") from None
        self.description = mask_urls(url)
        self.place = f" --url {self.description}" if is_named else ""

    async def start(self) -> None:
        """Do nothing: each request has a connection of its own, for a person's pauses outlast any other."""

    async def close(self) -> None:
        """Do nothing."""

    async def respond(self, request: Mapping[str, Any]) -> AsyncGenerator[JSON, None]:
        """Ask the server for a response."""
        transport = Transport(self.description, self._config)
        try:
            with _cure():
                reply = await transport.post("/responses", _encode({**request, "stream": True}), self._headers)
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

    async def events(self, response_id: str, *, after: int = -1) -> AsyncGenerator[JSON, None]:
        """Yield the events of a stored response after one, until it is over; a connection that ends before is a 502."""
        query = {"stream": "true", **({"starting_after": after} if after >= 0 else {})}
        transport = Transport(self.description, self._config)
        try:
            with _cure():
                reply = await transport.get(
                    f"/responses/{quote(response_id, safe='')}?{urlencode(query)}", self._headers
                )
            try:
                async for event in self._events(reply):
                    yield event
            finally:
                reply.abort()
        finally:
            await transport.close()

    async def _events(self, reply: Reply) -> AsyncGenerator[JSON, None]:
        if reply.status != 200:
            raise await _refusal(reply)
        splitter = EventSplitter(AnswerLimits.default(self.description))
        while chunk := await reply.chunk():
            for data in splitter.feed(chunk):
                if data == _END:
                    return
                yield _event(data, self.description)
        raise BadGatewayError(f"{self.description} ended the connection.")

    async def questions(self, name: str, *, status: str = "") -> list[JSON]:
        """Ask the server for questions."""
        if not name.startswith(_RESPONSE):
            return [await self.request(f"/questions/{quote(name, safe='')}")]
        return await self.listed_questions(response_id=name, status=status, order="asc", limit=_PAGE)

    async def listed_questions(self, **query: object) -> list[JSON]:
        """Return questions as the server lists them; what is empty is not sent."""
        sent = urlencode({name: value for name, value in query.items() if value})
        return _listed(await self.request(f"/questions?{sent}"))

    async def trace(self, name: str) -> JSON:
        """Ask the server for a trace."""
        return await self.request(f"/responses/{quote(name, safe='')}/trace")

    async def functions(self) -> list[JSON]:
        """Ask the server for its functions."""
        return _listed(await self.request("/functions"))

    async def models(self) -> list[str]:
        """Ask the server for its models."""
        return [str(model["id"]) for model in _listed(await self.request("/models"))]

    async def check_model(self, name: str) -> None:
        """Ask the server for one model."""
        await self.request(f"/models/{quote(name, safe='')}")

    async def at_root(self, path: str) -> tuple[int, bytes]:
        """Return status and body of what a server has beside its API, such as `/readyz`, whatever the status is."""
        parts = urlsplit(str(self._config.url))
        root = self._config.model_copy(update={"url": f"{parts.scheme}://{parts.netloc}"})
        transport = Transport(self.description, root)
        try:
            with _cure():
                reply = await transport.get(path)
            try:
                return reply.status, await reply.read()
            finally:
                reply.abort()
        finally:
            await transport.close()

    async def request(self, path: str, body: Mapping[str, Any] | None = None) -> JSON:
        """Ask the server for something else than a response: with a body by POST. Raise APIError."""
        transport = Transport(self.description, self._config)
        try:
            with _cure():
                reply = await (transport.get(path) if body is None else transport.post(path, _encode(body)))
            try:
                if reply.status != 200:
                    raise await _refusal(reply)
                return _event(await reply.read(), self.description)
            finally:
                reply.abort()
        finally:
            await transport.close()


def _listed(page: JSON) -> list[JSON]:
    found = page.get("data")
    return found if isinstance(found, list) else []


def _question_object(question: Question) -> JSON:
    """Return a question as the API shows it, as far as it is read here."""
    shown: JSON = msgspec.to_builtins(question)
    return {**shown, "run_id": question.root_id}


@contextlib.contextmanager
def _cure() -> Iterator[None]:
    """Say what to do if there is no server."""
    try:
        yield
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
