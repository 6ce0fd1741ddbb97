"""`ScriptServer`: a script behind a real socket, in the words of Chat Completions or Messages."""

import asyncio
import base64
import contextlib
import dataclasses
import hashlib
import json
import re
import struct
import threading
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from aiohttp import web
from msgspec.structs import replace

from antwort.backends.base import ModelRequest
from antwort.errors import APIError, BadRequestError
from antwort.server.http.serve import bind, url_of
from antwort.testing.chat import ChatWriter, Tokenizers, count_words, embedding, read_chat
from antwort.testing.messages import (
    MessagesWriter,
    Signed,
    messages_error,
    messages_failure,
    models_page,
    read_messages,
)
from antwort.testing.playback import Closed, Failed, TurnPiece, perform
from antwort.testing.prefix_cache import PrefixCache
from antwort.testing.script import Failure, Script, Turn
from antwort.testing.script_file import read_script
from antwort.types import JSON
from antwort.wire.responses import InputTokensDetails

# --- images: made up, and always the same for the same request -------------------------------------------------------


Action = Literal["generate", "edit"]
_CHOICES: Mapping[str, frozenset[object]] = {
    "background": frozenset({"transparent", "opaque", "auto"}),
    "moderation": frozenset({"auto", "low"}),
    "output_format": frozenset({"png", "jpeg", "webp"}),
    "quality": frozenset({"low", "medium", "high", "auto"}),
    "input_fidelity": frozenset({"high", "low"}),
    "n": frozenset({1}),
    "stream": frozenset({True, False}),
    "partial_images": frozenset({0, 1, 2, 3}),
}
_OF_EDITS = frozenset({"image", "mask", "input_fidelity"})
_IMAGE_FIELDS = frozenset({"prompt", "model", "size", "output_compression", *_CHOICES}) - _OF_EDITS
_SIZE = re.compile(r"auto|[1-9][0-9]{1,3}x[1-9][0-9]{1,3}")
_NUMBERS = ("n", "partial_images", "output_compression")


def read_form(fields: Mapping[str, Any]) -> JSON:
    """Return the fields of a form, where everything is text, with those that are numbers as such."""
    body: JSON = dict(fields)
    for name in _NUMBERS:
        if isinstance(body.get(name), str) and body[name].isdecimal():
            body[name] = int(body[name])
    if isinstance(body.get("stream"), str):
        body["stream"] = body["stream"] == "true"
    return body


def check_images(body: Mapping[str, Any], action: Action) -> None:
    """Raise BadRequestError for whatever is not as OpenAI's images API wants it."""
    known = _IMAGE_FIELDS | _OF_EDITS if action == "edit" else _IMAGE_FIELDS
    if unknown := sorted(body.keys() - known):
        raise BadRequestError(f"Unknown parameter: '{unknown[0]}'.", param=unknown[0])
    _check_prompt(body.get("prompt"))
    for name, choices in _CHOICES.items():
        if name in body and body[name] not in choices:
            raise BadRequestError(f"Invalid value for '{name}': {body[name]!r}.", param=name)
    if not _SIZE.fullmatch(str(body.get("size", "auto"))):
        raise BadRequestError(f"Invalid value for 'size': {body['size']!r}.", param="size")
    compression = body.get("output_compression", 100)
    if not isinstance(compression, int) or not 0 <= compression <= 100:
        raise BadRequestError("output_compression must be from 0 to 100", param="output_compression")
    if body.get("partial_images") and not body.get("stream"):
        raise BadRequestError("'partial_images' needs 'stream'.", param="partial_images")
    if action == "edit" and not body.get("image"):
        raise BadRequestError("image must be a file, or several", param="image")


def _check_prompt(prompt: object) -> None:
    if not isinstance(prompt, str) or not prompt.strip():
        raise BadRequestError("prompt must be a text", param="prompt")
    if "moderated" in prompt:
        raise BadRequestError("Your request was rejected by the safety system.", code="moderation_blocked")


def image_events(body: Mapping[str, Any], action: Action) -> Iterator[JSON]:
    """Yield the events of an image that is streamed, the whole one last."""
    kind = f"image_{'edit' if action == 'edit' else 'generation'}"
    count = body.get("partial_images") or 0
    for index in range(count):
        yield {"type": f"{kind}.partial_image", "partial_image_index": index, **_image(body, f"partial {index}")}
    yield {"type": f"{kind}.completed", "usage": _usage(body), **_image(body, "whole")}


def images(body: Mapping[str, Any]) -> JSON:
    """Return the answer with an image."""
    image = _image(body, "whole")
    data = [{"b64_json": image.pop("b64_json"), "revised_prompt": f"{body['prompt']}, in oil"}]
    return {**image, "created": image.pop("created_at"), "data": data, "usage": _usage(body)}


def _image(body: Mapping[str, Any], stage: str) -> JSON:
    """Return an image with what it is like: a single point, whose colour says what was asked for."""
    asked = f"{sorted((name, str(body[name])) for name in ('prompt', 'size') if name in body)}{stage}"
    given = {name: body.get(name, default) for name, default in _LIKE.items()}
    return {"b64_json": base64.b64encode(point(asked)).decode(), "created_at": 0, **given}


_LIKE: Mapping[str, str] = {"background": "opaque", "output_format": "png", "quality": "high", "size": "1024x1024"}


def point(text: str) -> bytes:
    """Return a PNG of one point, in a colour that belongs to a text."""
    colour = hashlib.sha256(text.encode()).digest()[:3]
    chunks = (
        (b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)),
        (b"IDAT", zlib.compress(b"\0" + colour)),
        (b"IEND", b""),
    )
    parts = (
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def _usage(body: Mapping[str, Any]) -> JSON:
    tokens = len(str(body["prompt"]).split())
    details = {"text_tokens": tokens, "image_tokens": 0}
    return {"input_tokens": tokens, "input_tokens_details": details, "output_tokens": 1, "total_tokens": tokens + 1}


# --- the server ------------------------------------------------------------------------------------------------------


_PATIENCE = 30.0
_DIMENSIONS = 16
_EVENTS = {"content-type": "text/event-stream", "cache-control": "no-cache"}
_VERSION = "anthropic-version"
_Writer = ChatWriter | MessagesWriter


class ScriptServer:
    """A model server that plays a script over HTTP, for tests of whatever talks to one.

        with ScriptServer([turn(calls=[call("add", a=1, b=2)], dialect="ollama"), turn("It is 3.")]) as server:
            client = OpenAI(base_url=server.url, api_key="none")

    It listens on a free port of the loopback interface, on a thread of its own, and answers
    `POST /v1/chat/completions` (streaming or not), `GET /v1/models`, `POST /v1/embeddings` (made-up vectors, the same
    for the same text), `POST /v1/rerank` (a score is the share of the query's words), and `POST /v1/images/generations`
    and `/v1/images/edits` (made-up pictures, streamed if asked to, unless `streams_images` is false). It is as
    strict as `ScriptedBackend`: a request that the script does not foresee gets a 500, and the end of the block raises
    a ScriptError for it and for steps that were never asked for.

    It speaks Anthropic's Messages as well: `POST /v1/messages`, `/v1/messages/count_tokens` and, for whoever sends
    `anthropic-version`, the list of models in pages. It refuses what Anthropic refuses, and thoughts that it has not
    signed itself; the signature is `opaque` of the step.

    With a `tokenizer` it counts tokens like that server: `vllm` at `/tokenize`, `llamacpp` at `/apply-template` and
    `/tokenize`; each word is one. With a `context_window` it refuses a request with more tokens, in the words of that
    server or of OpenAI, and plays no step for it. The list of models tells the window as that server does.

    `on_request` gets a line about each request for a completion. `on_finished` is called when an answer was sent and no
    step is left. Both are called on the thread of the server.
    """

    def __init__(
        self,
        steps: Iterable[Turn | str],
        *,
        models: Sequence[str] = ("scripted",),
        host: str = "127.0.0.1",
        port: int = 0,
        tokenizer: Literal["vllm", "llamacpp"] | None = None,
        context_window: int | None = None,
        streams_images: bool = True,
        prefix_cache: PrefixCache | None = None,
        on_request: Callable[[str], None] | None = None,
        on_finished: Callable[[], None] | None = None,
    ) -> None:
        self.script = Script(steps)
        self.requests: list[JSON] = []
        """The bodies of the requests for completions, in order of arrival."""
        self.headers: list[dict[str, str]] = []
        """Their headers, by lower-case name."""
        self.embedded: list[JSON] = []
        """The bodies of the requests for embeddings."""
        self.reranked: list[JSON] = []
        """The bodies of the requests for rankings."""
        self.images: list[JSON] = []
        """The bodies of the requests for images; files are bytes."""
        self.cancelled: list[int] = []
        """The numbers of the steps whose client left before the end."""
        self.tokenized: list[JSON] = []
        """The bodies of the requests to count tokens."""
        self.url = ""
        self._models = tuple(models)
        self._tokenizers = Tokenizers(tokenizer, context_window)
        self._streams_images = streams_images
        self._prefix_cache = prefix_cache
        self._window = context_window
        self._signed: Signed = set()
        self._address = (host, port)
        self._on_request = on_request or (lambda _line: None)
        self._on_finished = on_finished or (lambda: None)
        self._running = 0
        self._leave: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    @classmethod
    def from_yaml(cls, path: str | Path, **options: Any) -> Self:
        """Read the script from a file; `antwort.testing.script_file` describes the format."""
        file = read_script(path)
        return cls(file.steps, models=file.models, **options)

    # --- life --------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Listen; `url` is the base for clients, and ends with `/v1`. What goes wrong is raised here."""
        ready: Future[str] = Future()
        self._thread = threading.Thread(target=self._run, args=(ready,), name="antwort-script-server", daemon=True)
        self._thread.start()
        self.url = f"{ready.result(_PATIENCE)}/v1"

    def stop(self) -> None:
        """Stop listening and drop what still runs."""
        if self._thread is None:
            return
        if self._loop is not None and self._leave is not None:
            self._loop.call_soon_threadsafe(self._leave.set)
        self._thread.join(_PATIENCE)
        self._thread = None

    def assert_done(self) -> None:
        """Raise a ScriptError unless every step was played and nothing else was asked."""
        self.script.assert_done()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.stop()
        self.script.close_block(error)

    def _run(self, ready: "Future[str]") -> None:
        try:
            asyncio.run(self._serve(ready))
        except BaseException as error:
            if ready.done():
                raise
            ready.set_exception(error)

    async def _serve(self, ready: "Future[str]") -> None:
        leave = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        app = web.Application(client_max_size=1 << 30)
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_post("/v1/messages", self._message)
        app.router.add_post("/v1/messages/count_tokens", self._count_message)
        app.router.add_post("/v1/embeddings", self._embeddings)
        app.router.add_post("/v1/rerank", self._rerank)
        app.router.add_post("/v1/images/generations", partial(self._images, action="generate"))
        app.router.add_post("/v1/images/edits", partial(self._images, action="edit"))
        app.router.add_get("/v1/models", self._list)
        for path, answer in self._tokenizers.routes().items():
            app.router.add_post(path, self._counting(answer))
        runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
        with bind(*self._address) as sock:
            await runner.setup()
            try:
                await web.SockSite(runner, sock).start()
                self._leave = leave
                ready.set_result(url_of(sock))
                await leave.wait()
            finally:
                self._leave = None
                await end(runner)

    # --- answers -----------------------------------------------------------------------------------------------------

    async def _list(self, request: web.Request) -> web.Response:
        if _VERSION in request.headers:
            window = {} if self._window is None else {"max_input_tokens": self._window}
            return web.json_response(models_page(self._models, request.query, window))
        known = {"object": "model", "created": 0, "owned_by": "script", **self._tokenizers.listed()}
        data = [{"id": model, **known} for model in self._models]
        return web.json_response({"object": "list", "data": data})

    async def _embeddings(self, request: web.Request) -> web.Response:
        body = await _body(request)
        self.embedded.append(body)
        texts = body["input"] if isinstance(body["input"], list) else [body["input"]]
        size, encoding = body.get("dimensions") or _DIMENSIONS, body.get("encoding_format", "float")
        data = [
            {"object": "embedding", "index": index, "embedding": embedding(str(text), size, encoding)}
            for index, text in enumerate(texts)
        ]
        tokens = sum(len(str(text).split()) for text in texts)
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        return web.json_response({"object": "list", "model": body.get("model"), "data": data, "usage": usage})

    async def _rerank(self, request: web.Request) -> web.Response:
        body = await _body(request)
        self.reranked.append(body)
        try:
            return web.json_response(ranking(body))
        except APIError as error:
            return web.json_response(error.envelope(), status=error.status)

    async def _images(self, request: web.Request, *, action: Action) -> web.StreamResponse:
        body = await _form(request) if action == "edit" else await _body(request)
        self.images.append(body)
        try:
            check_images(body, action)
            if body.get("stream") and not self._streams_images:
                raise BadRequestError("Unknown parameter: 'stream'.", param="stream")
        except APIError as error:
            return web.json_response(error.envelope(), status=error.status)
        if not body.get("stream"):
            return web.json_response(images(body))
        response = web.StreamResponse(headers=_EVENTS)
        await response.prepare(request)
        for event in image_events(body, action):
            await response.write(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())
            await asyncio.sleep(0)
        await response.write_eof()
        return response

    def _counting(self, answer: Callable[[JSON], JSON]) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def count(request: web.Request) -> web.Response:
            body = await _body(request)
            self.tokenized.append(body)
            return web.json_response(answer(body))

        return count

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        body = await _body(request)
        self.requests.append(body)
        self.headers.append({name.lower(): value for name, value in request.headers.items()})
        self._running += 1
        try:
            asked = read_chat(body)
            if (refusal := self._tokenizers.refusal(asked)) is not None:
                self.script.refuse(asked)
                return await _sent(request, web.json_response(refusal, status=400))
            number, step = self._step(asked, body)
            return await self._answer(request, body, number, step, ChatWriter(step, number, body))
        except APIError as error:
            return await self._refused(request, body, error, error.envelope())
        finally:
            self._end()

    async def _message(self, request: web.Request) -> web.StreamResponse:
        body = await _body(request)
        self.requests.append(body)
        self.headers.append({name.lower(): value for name, value in request.headers.items()})
        self._running += 1
        try:
            if _VERSION not in request.headers:
                raise BadRequestError(f"{_VERSION}: header is required")
            asked = read_messages(body, self._signed)
            self._check_window(asked)
            number, step = self._step(asked, body)
            return await self._answer(request, body, number, step, MessagesWriter(step, number, body, self._signed))
        except APIError as error:
            return await self._refused(request, body, error, messages_error(error))
        finally:
            self._end()

    async def _count_message(self, request: web.Request) -> web.Response:
        body = await _body(request)
        self.tokenized.append(body)
        try:
            count = count_words(read_messages(body, self._signed, counts=True))
        except APIError as error:
            return web.json_response(messages_error(error), status=error.status)
        return web.json_response({"input_tokens": count})

    def _check_window(self, asked: ModelRequest) -> None:
        count = count_words(asked)
        if self._window is not None and count > self._window:
            self.script.refuse(asked)
            raise BadRequestError(f"prompt is too long: {count} tokens > {self._window} maximum")

    def _step(self, asked: ModelRequest, body: JSON) -> tuple[int, Turn]:
        """Return the step that answers a request, with its number."""
        number, step = self.script.take(asked)
        self._on_request(f"{_asked(body)} -> step {number}: {step}")
        if self._prefix_cache is not None and step.raw is None:
            step = _reading(step, *self._prefix_cache.take(body))
        return number, step

    async def _refused(self, request: web.Request, body: JSON, error: APIError, told: JSON) -> web.StreamResponse:
        self._on_request(f"{_asked(body)} -> {error.message}")
        # Asking again would only be answered by the wrong step.
        retry = {"x-should-retry": "false"}
        return await _sent(request, web.json_response(told, status=error.status, headers=retry))

    def _end(self) -> None:
        self._running -= 1
        if self.script.finished and not self._running:
            self._on_finished()

    async def _answer(
        self, request: web.Request, body: JSON, number: int, step: Turn, writer: _Writer
    ) -> web.StreamResponse:
        if step.raw is not None:
            return await self._raw(request, step, step.raw)
        try:
            async with contextlib.aclosing(perform(step)) as bursts:
                if body.get("stream"):
                    return await _stream(request, writer, step, bursts)
                pieces = [piece async for burst in bursts for piece in burst]
                return await _sent(request, web.json_response(writer.completion(pieces)))
        except Failed as failed:
            return await _sent(request, _failure(failed.failure, _told(failed.failure, writer)))
        except Closed:
            return _closed(request)
        except (asyncio.CancelledError, ConnectionResetError):
            self.cancelled.append(number)
            raise

    async def _raw(self, request: web.Request, step: Turn, chunks: Sequence[bytes]) -> web.StreamResponse:
        response = web.StreamResponse(status=step.status, headers=step.headers)
        await response.prepare(request)
        for chunk in chunks:
            await response.write(chunk)
            await asyncio.sleep(0)
        await response.write_eof()
        return response


def _reading(step: Turn, tokens: int, cached: int) -> Turn:
    """Return a step that says how much it has read, if it says that at all."""
    if step.usage is None:
        return step
    written = step.usage.output_tokens
    usage = replace(
        step.usage,
        input_tokens=tokens,
        input_tokens_details=InputTokensDetails(cached_tokens=cached),
        total_tokens=tokens + written,
    )
    return dataclasses.replace(step, usage=usage)


async def _body(request: web.Request) -> JSON:
    try:
        body = await request.json()
    except ValueError as error:
        raise web.HTTPBadRequest(text=f"the body is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise web.HTTPBadRequest(text="the body is not a JSON object")
    return body


async def _form(request: web.Request) -> JSON:
    """Return the fields of a form; files are bytes, in a list if there are several of one name."""
    fields: JSON = {}
    for name, value in (await request.post()).items():
        read = (
            value if isinstance(value, str) else value.file.read() if isinstance(value, web.FileField) else bytes(value)
        )
        key = name.removesuffix("[]")
        if name != key:
            fields.setdefault(key, []).append(read)
        else:
            fields[key] = read
    return read_form(fields)


async def _stream(
    request: web.Request, writer: _Writer, step: Turn, bursts: AsyncIterator[list[TurnPiece]]
) -> web.StreamResponse:
    """Send a turn as server-sent events. Nothing is sent, not even headers, before the first delta is due."""
    first: list[TurnPiece] = await anext(bursts, [])
    response = web.StreamResponse(headers=_EVENTS)
    await response.prepare(request)
    try:
        await _write(response, [*writer.start(), *writer.deltas(first)])
        async for burst in bursts:
            await _write(response, writer.deltas(burst))
        await _write(response, writer.end())
        if step.dialect.done and isinstance(writer, ChatWriter):
            await response.write(b"data: [DONE]\n\n")
    except Failed as failed:
        await _write(response, [_told(failed.failure, writer)])
    except Closed:
        return _closed(request)
    await response.write_eof()
    return response


async def _sent(request: web.Request, response: web.Response) -> web.Response:
    """Send a response now: whoever is told that the script is finished may stop the server."""
    await response.prepare(request)
    await response.write_eof()
    return response


async def _write(response: web.StreamResponse, chunks: Iterable[Mapping[str, Any]]) -> None:
    frames = "".join(f"{_named(chunk)}data: {json.dumps(chunk, ensure_ascii=False)}\n\n" for chunk in chunks)
    if frames:
        await response.write(frames.encode())


def _named(chunk: Mapping[str, Any]) -> str:
    """Return the line with the name of an event, if it has one."""
    return f"event: {chunk['type']}\n" if "type" in chunk else ""


def _closed(request: web.Request) -> web.StreamResponse:
    """Drop the connection."""
    if request.transport is not None:
        request.transport.close()
    return web.Response(status=500)


def _failure(failure: Failure, told: JSON) -> web.Response:
    headers = dict(failure.headers)
    if failure.body is None:
        return web.json_response(told, status=failure.status, headers=headers)
    headers.setdefault("content-type", "text/plain; charset=utf-8")
    return web.Response(body=failure.body.encode(), status=failure.status, headers=headers)


def _told(failure: Failure, writer: _Writer) -> JSON:
    """Return an error in the words of whoever writes."""
    if isinstance(writer, MessagesWriter):
        return messages_failure(failure)
    error = {"message": failure.message, "type": failure.type, "param": None, "code": failure.code}
    return {"error": error}


def _asked(body: Mapping[str, Any]) -> str:
    how = "stream" if body.get("stream") else "json"
    return f"{body.get('model')} {how} {len(body.get('messages') or [])} messages {len(body.get('tools') or [])} tools"


async def end(runner: web.AppRunner) -> None:
    """End a server, and every connection to it: also of a client that does not read, or that comes at this moment."""
    for site in list(runner.sites):
        await site.stop()
    await asyncio.sleep(0)
    server = runner.server
    found = [] if server is None else [one.transport for one in server.connections]
    await runner.cleanup()
    found += [] if server is None else [one.transport for one in server.connections]
    for transport in found:
        if transport is not None:
            transport.abort()
    await asyncio.sleep(0)  # it is in the next turn of the loop that they are closed


# --- rankings ---------------------------------------------------------------------------------------------------------


_FIELDS = frozenset({"model", "query", "documents", "top_n", "return_documents"})
_WORD = re.compile(r"\w+")


def ranking(body: Mapping[str, Any]) -> JSON:
    """Return the documents of a request, best first: a score is the share of the query's words that a document has.

    BadRequestError for whatever is not as Cohere, Jina and vLLM want it.
    """
    query, documents = body.get("query"), body.get("documents")
    if unknown := sorted(body.keys() - _FIELDS):
        raise BadRequestError(f"unknown field: {unknown[0]}", param=unknown[0])
    if not isinstance(query, str) or not query.strip():
        raise BadRequestError("query must be a text", param="query")
    if not isinstance(documents, list) or not documents or not all(isinstance(one, str) for one in documents):
        raise BadRequestError("documents must be texts, at least one", param="documents")
    top = body.get("top_n", len(documents))
    if not isinstance(top, int) or isinstance(top, bool) or top < 1:
        raise BadRequestError("top_n must be a number from 1 on", param="top_n")
    scores = [_score(query, document) for document in documents]
    best = sorted(range(len(scores)), key=lambda index: (-scores[index], index))[:top]
    results = [{"index": index, "relevance_score": scores[index]} for index in best]
    return {"id": "rerank-0", "model": body.get("model"), "results": results}


def _score(query: str, document: str) -> float:
    wanted, there = (set(_WORD.findall(text.casefold())) for text in (query, document))
    return len(wanted & there) / max(1, len(wanted))
