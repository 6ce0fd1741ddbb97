"""What is passed through to the model server that has the model: chats, texts, embeddings, moderations, images.

A chat completion is kept on its way, if its request wants that.
"""

import asyncio
import json
import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum, auto
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace
from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive, Scope, Send

from antwort.backends import ModelRouter, ModelTarget, Reply, Transport
from antwort.backends.errors import DEADLINE, reply_error
from antwort.backends.http.sse import EventSplitter
from antwort.concurrency.deadline import Stragglers
from antwort.concurrency.large_work import LargeWork
from antwort.context.context import RESPONSES_WRITE
from antwort.engine.planning.input_files import CheckUrl, check_links
from antwort.errors import APIError, BadRequestError, GatewayTimeoutError
from antwort.lazy_imports import compiled_on_use
from antwort.observability import Metrics, Tracer
from antwort.server.api.description import examples
from antwort.server.chat.keeping import ChatChunks, ChatKeeper, ChatKeeping
from antwort.server.http.sse import DONE, LIFE_SIGN, while_connected
from antwort.types import JSON
from antwort.web.requests import authenticated, check_values, named_headers, read_body, require_json
from antwort.web.routes import AsgiRoute
from antwort.wire.field_errors import no_json
from antwort.wire.requests import ChatRequest, CompletionRequest, EmbeddingsRequest, ImagesRequest, ModerationRequest

logger = logging.getLogger(__name__)


Fields = dict[str, msgspec.Raw]
Link = tuple[str, str]
"""Where a URL stands, and the URL."""


class Naming(Enum):
    """What the name of a value says about it."""

    LINK = auto()
    """Its texts are URLs, whatever they look like: `image_url`, `uri`."""
    MEDIA = auto()
    """Its texts are URLs, names of files, or the data itself: `image`, `audio`, `file_data`."""
    OTHER = auto()
    """Nobody knows: a text that looks like a URL may be one."""
    TEXT = auto()
    """Its texts are for the model or for people, and no URL that somebody fetches, even if they look like one."""
    OPAQUE = auto()
    """Nothing in it is fetched, and what its names mean is up to the client: schemas, arguments, metadata."""


_FETCHED = frozenset({Naming.LINK, Naming.MEDIA})
_LINK = compiled_on_use(r"(?:url|uri|href|src)s?\Z")
_MEDIA = compiled_on_use(r"image|img|picture|video|audio|sound|media|file|attachment")
_TEXTS = frozenset(
    {
        "content",
        "description",
        "file_name",
        "filename",
        "id",
        "input",
        "instruction",
        "instructions",
        "name",
        "output",
        "prompt",
        "query",
        "reasoning",
        "reasoning_content",
        "refusal",
        "role",
        "stop",
        "suffix",
        "text",
        "texts",
        "thinking",
        "title",
        "tool_call_id",
        "type",
        "user",
    }
)
_OPAQUE = frozenset(
    {
        "annotations",
        "arguments",
        "citations",
        "function",
        "function_call",
        "functions",
        "guided_json",
        "input_schema",
        "json_schema",
        "metadata",
        "output_schema",
        "parameters",
        "schema",
        "structured_outputs",
    }
)
_DATA = "data:"
_SCHEME = compiled_on_use(r"[\x00-\x20]*[a-z][a-z0-9+.-]*:", re.IGNORECASE)
_ADDRESS = compiled_on_use(r"[\x00-\x20]*(?:[a-z][a-z0-9+.-]*:[/\\]|(?:https?|ftps?|file|gopher):\S)", re.IGNORECASE)
_PATH = compiled_on_use(r"[\x00-\x20]*(?:[.~\\]|/(?!/|9j/))")
"""A file of the model server's. Data in base64 can begin with a slash too: `/9j/` is a JPEG, `//` is sound."""
_LONGEST_PATH = 1024


class Forwarded(msgspec.Struct, frozen=True):
    """A body that was read."""

    fields: Fields
    """As they were written."""
    links: list[Link]
    """What somebody who reads it could take for something to fetch."""


class _Name:
    """A name that equals no other, so that a dictionary has all of them."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


def _named(kind: type, text: Any) -> Any:
    return kind(text)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise _twice(name for name, _ in pairs)
    return found


def _number(_: str) -> None:
    """Leave numbers out: none is looked at, and some are larger than Python reads."""


_decode_fields = msgspec.json.Decoder(dict[_Name, msgspec.Raw], dec_hook=_named).decode
_decode_value = json.JSONDecoder(
    object_pairs_hook=_unique, parse_int=_number, parse_float=_number, parse_constant=_number, strict=False
).decode


def read_forwarded(body: bytes | bytearray, max_values: int) -> Forwarded:
    """Read a JSON object; BadRequestError if it is none, names something twice, or has too many values in objects.

    Lists without objects, such as the tokens of texts to embed, are not read, and have any number of values.
    """
    try:
        named = _decode_fields(body)
    except msgspec.ValidationError as error:
        raise BadRequestError(f"The body must be a JSON object: {error}.", code="invalid_type") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise no_json(body, error) from None
    fields = {name.text: raw for name, raw in named.items()}
    # Whoever takes names in any case takes `Model` for another `model`, and this server has looked at one of them.
    if len({name.casefold() for name in fields}) < len(named):
        raise _twice(name.text for name in named)
    namings = _top_namings(fields)
    values = {
        name: _read(name, bytes(raw), max_values)
        for name, raw in fields.items()
        if namings[name] in _FETCHED or (namings[name] is not Naming.OPAQUE and _has_objects(bytes(raw)))
    }
    return Forwarded(fields, list(body_links(values, namings)))


def _has_objects(raw: bytes) -> bool:
    """Tell whether there are objects in a value; braces in its texts are none."""
    if b"{" not in raw:
        return False
    outside = raw.replace(rb"\\", b"").replace(rb"\"", b"").split(b'"')[::2]
    return b"{" in b"".join(outside)


def _read(name: str, raw: bytes, max_values: int) -> Any:
    try:
        text = raw.decode()
        check_values(text, max_values)
        return _decode_value(text)
    except (ValueError, RecursionError) as error:
        raise BadRequestError(f"The body is not valid JSON: {error}.", param=name, code="invalid_json") from None


def _twice(names: Iterable[str]) -> BadRequestError:
    seen: set[str] = set()
    for name in names:
        if (folded := name.casefold()) in seen:
            break
        seen.add(folded)
    return BadRequestError(
        f"The name '{name[:100]}' stands twice in one object. Leave one of them out.",
        param=name[:100],
        code="duplicate_name",
    )


def _naming(name: str) -> Naming:
    folded = name.casefold()
    if folded in _TEXTS:
        return Naming.TEXT
    if folded in _OPAQUE:
        return Naming.OPAQUE
    if _LINK.search(folded):
        return Naming.LINK
    return Naming.MEDIA if _MEDIA.search(folded) else Naming.OTHER


def _top_namings(fields: Fields) -> dict[str, Naming]:
    """Tell what the names of a request's fields say; there, unknown ones are settings, and no parts of a message."""
    namings = {name: _naming(name) for name in fields}
    # Embedding servers for images take their URLs as plain texts, if the request says that they are images.
    modal = any(name.casefold() == "modality" and bytes(raw) != b'"text"' for name, raw in fields.items())
    for name, naming in namings.items():
        if modal and name.casefold() == "input":
            namings[name] = Naming.MEDIA
        elif naming is Naming.OTHER:
            namings[name] = Naming.TEXT
    return namings


def body_links(fields: Mapping[str, Any], namings: Mapping[str, Naming]) -> Iterator[Link]:
    """Give what could be fetched of the fields of a request, in their order."""
    known: dict[str, Naming] = {}
    left = [(name, fields[name], namings[name]) for name in reversed(list(fields))]
    while left:  # not by recursion: how deep it goes is the client's to choose
        where, value, naming = left.pop()
        if isinstance(value, str):
            if _is_link(value, naming):
                yield where, value
        elif isinstance(value, list):
            left += [(f"{where}[{index}]", value[index], naming) for index in reversed(range(len(value)))]
        elif isinstance(value, dict):
            left += reversed(_members(value, where, naming, known))


def _members(
    value: dict[str, Any], where: str, naming: Naming, known: dict[str, Naming]
) -> list[tuple[str, Any, Naming]]:
    """Return what is to be looked at of an object; the texts of ordinary messages are left out at once."""
    is_media = any(
        len(name) == len("type") and isinstance(kind, str) and name.casefold() == "type" and _MEDIA.search(kind.lower())
        for name, kind in value.items()
    )
    members: list[tuple[str, Any, Naming]] = []
    for name, member in value.items():
        own = known.get(name)
        if own is None:
            own = known[name] = _naming(name)
        if own is Naming.TEXT and is_media:
            own = Naming.OTHER
        elif own is Naming.OTHER and naming in _FETCHED:
            own = Naming.MEDIA
        if own is Naming.OPAQUE or (own is Naming.TEXT and isinstance(member, str)):
            continue
        # `image_url` and `image_url.url` are one place for those who know the API.
        members.append((where if naming is Naming.LINK else f"{where}.{name}", member, own))
    return members


def _is_link(text: str, naming: Naming) -> bool:
    if naming is Naming.TEXT or text[: len(_DATA)].lower() == _DATA:
        return False
    if naming is Naming.LINK:
        return True
    if naming is Naming.MEDIA:
        return bool(_SCHEME.match(text) or (len(text) < _LONGEST_PATH and _PATH.match(text)))
    return bool(_ADDRESS.match(text))


EVENTS = "text/event-stream"
MAX_ERROR = 64 * 1024
LARGE = 64 * 1024
"""Bytes from which on a body is read on a thread: as many can be some ten thousand values, each to be looked at."""
_PASSED = ("content-type", "retry-after", "retry-after-ms")
"""All that is kept of an answer's head. The rest speaks of the connection or of the server behind us."""
_OF_THE_CLIENT = frozenset({400, 404, 413, 422, 429})
"""Errors that tell the client something about its own request."""

_EMBEDDINGS, _CHAT = "/embeddings", "/chat/completions"
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
        keeper: ChatKeeper,
        deadline: float | None = None,
    ) -> None:
        self._router = router
        self._keeper = keeper
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
        passed = partial(AsgiRoute, "POST", scope=RESPONSES_WRITE, returns=JSON, upstream=True)
        return [
            passed(
                "/v1/chat/completions",
                self.chat_completions,
                "Complete a chat.",
                body=ChatRequest,
                streams=True,
                examples=examples.CHAT,
            ),
            passed(
                "/v1/completions",
                self.completions,
                "Complete a text.",
                body=CompletionRequest,
                streams=True,
                examples=examples.COMPLETION,
            ),
            passed(
                "/v1/embeddings",
                self.embeddings,
                "Embed texts.",
                body=EmbeddingsRequest,
                examples=examples.EMBEDDINGS,
            ),
            passed(
                "/v1/moderations",
                self.moderations,
                "Judge texts and images.",
                body=ModerationRequest,
                examples=examples.MODERATIONS,
            ),
            passed(
                "/v1/images/generations",
                self.images,
                "Make images.",
                body=ImagesRequest,
                streams=True,
                examples=examples.IMAGES,
            ),
        ]

    async def moderations(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Judge texts and images on the server that has the model; request and answer are passed on as they are."""
        await self._pass_and_count("/moderations", scope, receive, send)

    async def images(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Make images on the server that has the model; request and answer are passed on as they are."""
        await self._pass_and_count("/images/generations", scope, receive, send)

    async def chat_completions(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Complete a chat on the server that has the model; request and answer are passed on as they are.

        With `store`, the completion is kept with its `metadata`, of both of which the server is not told, and has an id
        of this server. What breaks off, or is left by its client, is not kept.
        """
        await self._pass_and_count(_CHAT, scope, receive, send)

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
        keeping = await self._keeping(fields, asked or target.model, tenant) if path == _CHAT else None
        if keeping is not None or target.model != asked:
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
                    await _answer(reply, target, transport, send, model=echoed, keeping=keeping)
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

    async def _keeping(self, fields: Fields, model: str, tenant: str) -> ChatKeeping | None:
        """Return what keeps the answer of a request that wants it so, and take out of it what says so."""
        return await self._keeper.begin(fields, model, tenant) if _is_true(fields.get("store")) else None


async def _answer(
    reply: Reply,
    target: ModelTarget,
    transport: Transport,
    send: Send,
    *,
    model: str | None = None,
    keeping: ChatKeeping | None = None,
) -> None:
    """Pass an answer on; one that came as a whole may be given the name by which the client knows the model.

    One that is kept is so before the client has the end of it.
    """
    if reply.status >= 300:
        await _pass_error(reply, target, transport, send)
    elif _kind(reply) == EVENTS:
        await _pass_events(reply, transport, send, keeping)
    else:
        body = await reply.read()
        if keeping is not None:
            body = await keeping.whole(body)
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
        where = "is on a server that has no such endpoint" if target.route.guards else "runs inside this server"
        made = " With `server.chat_completions.functions` this server makes them itself."
        raise BadRequestError(
            f"The model '{target.model}' {where}, and '/v1{path}' only passes requests through to model"
            f" servers. Use '/v1/responses', or name a model of another backend.{made if path == _CHAT else ''}",
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


async def _pass_events(reply: Reply, transport: Transport, send: Send, keeping: ChatKeeping | None = None) -> None:
    """Pass on bytes as they arrive; a client that does not read stops the reading of the server."""
    headers = [*_headers(reply), (b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no")]
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    try:
        data = await reply.chunk()
        reply.limit_silence(transport.timeouts.chunk)
        if keeping is not None:
            data = await _pass_kept(data, reply, transport, send, keeping)
        while data:
            await send({"type": "http.response.body", "body": data, "more_body": True})
            data = await reply.chunk()
    except APIError as error:
        # The status is gone; clients read an error among the events. The blank line ends a frame that was cut off.
        logger.warning("a stream that was passed through broke off: %s", error.message)
        data = b"\n\ndata: " + _encode(error.envelope()) + b"\n\n"
    await send({"type": "http.response.body", "body": data})


async def _pass_kept(data: bytes, reply: Reply, transport: Transport, send: Send, keeping: ChatKeeping) -> bytes:
    """Pass on the chunks of a completion that is kept; its end, which is returned, comes when it is."""
    chunks, splitter = ChatChunks(keeping.id), EventSplitter(transport.limits)
    while data:
        body = chunks.frames(splitter.feed(data)) or LIFE_SIGN
        await send({"type": "http.response.body", "body": body, "more_body": True})
        if chunks.is_over:
            break
        data = await reply.chunk()
    if rest := chunks.frames(splitter.end()):
        await send({"type": "http.response.body", "body": rest, "more_body": True})
    await keeping.assembled(chunks)
    return DONE if chunks.is_over else b""
