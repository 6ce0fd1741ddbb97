"""Completions of chats and texts, and embeddings: passed through to the model server that has the model."""

import asyncio
import logging
from typing import Any

import msgspec
from msgspec.structs import replace
from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive, Scope, Send

from antwort.backends import ModelRouter, ModelTarget, Reply, Transport
from antwort.backends.errors import DEADLINE, reply_error
from antwort.concurrency.large_work import LargeWork
from antwort.concurrency.stragglers import Stragglers
from antwort.context.scopes import RESPONSES_WRITE
from antwort.engine.planning.links import CheckUrl, check_links
from antwort.errors import APIError, BadRequestError, GatewayTimeoutError
from antwort.observability import Metrics, Tracer
from antwort.server.api.description import examples
from antwort.server.api.forwarded import Fields, read_forwarded
from antwort.server.http.sse import while_connected
from antwort.types import JSON
from antwort.web.asgi_scope import authenticated, named_headers
from antwort.web.bodies import read_body, require_json
from antwort.web.routes import AsgiRoute
from antwort.wire.requests import ChatRequest, CompletionRequest, EmbeddingsRequest

logger = logging.getLogger(__name__)


EVENTS = "text/event-stream"
MAX_ERROR = 64 * 1024
LARGE = 64 * 1024
"""Bytes from which on a body is read on a thread: as many can be some ten thousand values, each to be looked at."""
_PASSED = ("content-type", "retry-after", "retry-after-ms")
"""All that is kept of an answer's head. The rest speaks of the connection or of the server behind us."""
_OF_THE_CLIENT = frozenset({400, 404, 413, 422, 429})
"""Errors that tell the client something about its own request."""

_EMBEDDINGS = "/embeddings"
_encode = msgspec.json.encode


class Passthrough:
    """The endpoints that antwort has no part in but for credentials, limits and the choice of the server."""

    def __init__(
        self,
        router: ModelRouter,
        metrics: Metrics,
        tracer: Tracer,
        large_work: LargeWork,
        check_url: CheckUrl | None = None,
        *,
        max_values: int,
        deadline: float | None = None,
    ) -> None:
        self._router = router
        self._deadline = deadline
        self._tracer = tracer
        self._large_work = large_work
        self._check_url = check_url
        self._max_values = max_values
        self._stragglers = Stragglers()
        self._requests = metrics.counter(
            "antwort_passthrough_requests_total", "Requests passed through to model servers.", ["path", "status"]
        )

    def routes(self) -> list[AsgiRoute]:
        """Return the routes."""
        return [
            AsgiRoute(
                "POST",
                "/v1/chat/completions",
                self.chat_completions,
                "Complete a chat.",
                RESPONSES_WRITE,
                body=ChatRequest,
                returns=JSON,
                streams=True,
                upstream=True,
                examples=examples.CHAT,
            ),
            AsgiRoute(
                "POST",
                "/v1/completions",
                self.completions,
                "Complete a text.",
                RESPONSES_WRITE,
                body=CompletionRequest,
                returns=JSON,
                streams=True,
                upstream=True,
                examples=examples.COMPLETION,
            ),
            AsgiRoute(
                "POST",
                "/v1/embeddings",
                self.embeddings,
                "Embed texts.",
                RESPONSES_WRITE,
                body=EmbeddingsRequest,
                returns=JSON,
                upstream=True,
                examples=examples.EMBEDDINGS,
            ),
        ]

    async def chat_completions(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Complete a chat on the server that has the model; request and answer are passed on as they are."""
        await self._pass_and_count("/chat/completions", scope, receive, send)

    async def completions(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Complete a text on the server that has the model; request and answer are passed on as they are."""
        await self._pass_and_count("/completions", scope, receive, send)

    async def embeddings(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Embed texts on the server that has the model; request and answer are passed on as they are."""
        await self._pass_and_count(_EMBEDDINGS, scope, receive, send)

    async def _pass_and_count(self, path: str, scope: Scope, receive: Receive, send: Send) -> None:
        status = 499  # the client left before there was an answer, as proxies call it

        async def watched(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        try:
            require_json(named_headers(scope))
            body = await read_body(receive)
            passing = self._pass(path, body, watched, authenticated(scope).tenant)
            await while_connected(scope, receive, passing, self._stragglers)
        except ClientDisconnect:
            return
        except Exception as error:
            status = error.status if isinstance(error, APIError) else 500
            raise
        finally:
            self._requests.labels(f"/v1{path}", str(status)).inc()

    async def _pass(self, path: str, body: bytes | bytearray, send: Send, tenant: str) -> None:
        read = await self._large_work.run_if(len(body) >= LARGE, read_forwarded, body, self._max_values)
        fields = read.fields
        asked = _model(fields)
        target = await self._router.resolve(asked)
        transport = _transport(target, path)
        if self._check_url is not None:
            await check_links(read.links, self._check_url)
        if target.model != asked:
            fields["model"] = msgspec.Raw(_encode(target.model))
            body = _encode(fields)
        sent, headers = bytes(body), self._tracer.headers()
        streams = _is_true(fields.get("stream"))
        # An answer that is not streamed begins when it is complete: only the deadline tells how long that may take.
        times = transport.timeouts if streams else replace(transport.timeouts, first_byte=None)
        limit = asyncio.timeout(None if streams else self._deadline)
        try:
            async with limit:
                reply = await transport.post(path, sent, headers, times, tenant)
                try:
                    if not streams and _kind(reply) == EVENTS:
                        limit.reschedule(None)  # a stream unasked for: from here on, its pauses are limited
                        reply.limit_silence(transport.timeouts.chunk)
                    echoed = asked if path == _EMBEDDINGS and target.model != asked else None
                    await _answer(reply, target, transport, send, echoed)
                finally:
                    # Whatever was not read is not wanted: the server must stop working on it.
                    reply.abort()
        except TimeoutError:
            if not limit.expired():
                raise
            raise GatewayTimeoutError(
                f"The answer of the backend '{target.backend.name}' was not complete within {self._deadline:g} s"
                " (`engine.deadline`).",
                code=DEADLINE,
            ) from None


async def _answer(
    reply: Reply, target: ModelTarget, transport: Transport, send: Send, model: str | None = None
) -> None:
    """Pass an answer on; one that came as a whole may be given the name by which the client knows the model."""
    if reply.status >= 300:
        await _pass_error(reply, target, transport, send)
    elif _kind(reply) == EVENTS:
        await _pass_events(reply, transport, send)
    else:
        body = await reply.read()
        await _send_whole(send, reply, body if model is None else _renamed(body, model))


def _renamed(body: bytes, model: str) -> bytes:
    """Return an answer that names the model in a client's word for it; one that cannot be read as it is."""
    try:
        fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    except (msgspec.MsgspecError, UnicodeError):
        return body
    return _encode({**fields, "model": model}) if "model" in fields else body


def _is_true(value: msgspec.Raw | None) -> bool:
    return value is not None and bytes(value).strip() == b"true"


def _model(fields: Fields) -> str | None:
    try:
        return msgspec.json.decode(fields.get("model", b"null"), type=str | None)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise BadRequestError(
            "Invalid value for 'model': it must be a string.", param="model", code="invalid_type"
        ) from None


def _transport(target: ModelTarget, path: str) -> Transport:
    if target.route.transport is None:
        raise BadRequestError(
            f"The model '{target.model}' runs inside this server, and '/v1{path}' only passes requests through to model"
            " servers. Use '/v1/responses', or name a model of a configured backend.",
            param="model",
            code="unsupported_model",
        )
    return target.route.transport


def _kind(reply: Reply) -> str:
    return reply.headers.get("content-type", "").partition(";")[0].strip().lower()


def _headers(reply: Reply) -> list[tuple[bytes, bytes]]:
    kept = [(name, reply.headers[name]) for name in _PASSED if name in reply.headers]
    return [(name.encode(), value.encode(errors="surrogateescape")) for name, value in kept]


async def _pass_error(reply: Reply, target: ModelTarget, transport: Transport, send: Send) -> None:
    """Pass on what a server says about the request; what it says about itself is told in our words."""
    body = await reply.head(MAX_ERROR)
    if reply.status not in _OF_THE_CLIENT or not _is_envelope(body, transport):
        error = reply_error(target.backend.name, target.model, reply.status, reply.headers, body)
        transport.secrets.mask(error)
        raise error
    await _send_whole(send, reply, body)


def _is_envelope(body: bytes, transport: Transport) -> bool:
    """Tell whether an error can be passed on as it is: it looks as clients expect, and has nothing of ours in it."""
    try:
        document: Any = msgspec.json.decode(body)
        text = _encode(document).decode()  # however the server writes it
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return False
    error = document.get("error") if isinstance(document, dict) else None
    return isinstance(error, dict) and isinstance(error.get("message"), str) and not transport.secrets.are_in(text)


async def _send_whole(send: Send, reply: Reply, body: bytes) -> None:
    headers = [*_headers(reply), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _pass_events(reply: Reply, transport: Transport, send: Send) -> None:
    """Pass on bytes as they arrive; a client that does not read stops the reading of the server."""
    headers = [*_headers(reply), (b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no")]
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    try:
        data = await reply.chunk()
        reply.limit_silence(transport.timeouts.chunk)
        while data:
            await send({"type": "http.response.body", "body": data, "more_body": True})
            data = await reply.chunk()
    except APIError as error:
        # The status is gone; clients read an error among the events. The blank line ends a frame that was cut off.
        logger.warning("a stream that was passed through broke off: %s", error.message)
        data = b"\n\ndata: " + _encode(error.envelope()) + b"\n\n"
    await send({"type": "http.response.body", "body": data})
