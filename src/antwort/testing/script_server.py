"""`ScriptServer`: a script behind a real socket, in the words of Chat Completions."""

import asyncio
import contextlib
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from aiohttp import web

from antwort.errors import APIError, BadRequestError
from antwort.server.http.serve import bind, url_of
from antwort.testing.chat import ChatWriter, Tokenizers, embedding, read_chat
from antwort.testing.images import Action, check_images, image_events, images, read_form
from antwort.testing.playback import Closed, Failed, TurnPiece, perform
from antwort.testing.reranking import ranking
from antwort.testing.script import Failure, Script, Turn
from antwort.testing.script_file import read_script
from antwort.types import JSON

_PATIENCE = 30.0
_DIMENSIONS = 16
_EVENTS = {"content-type": "text/event-stream", "cache-control": "no-cache"}


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
                await runner.cleanup()

    # --- answers -----------------------------------------------------------------------------------------------------

    async def _list(self, _request: web.Request) -> web.Response:
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
            number, step = self.script.take(asked)
            self._on_request(f"{_asked(body)} -> step {number}: {step}")
            return await self._answer(request, body, number, step)
        except APIError as error:
            self._on_request(f"{_asked(body)} -> {error.message}")
            # Asking again would only be answered by the wrong step.
            retry = {"x-should-retry": "false"}
            return await _sent(request, web.json_response(error.envelope(), status=error.status, headers=retry))
        finally:
            self._running -= 1
            if self.script.finished and not self._running:
                self._on_finished()

    async def _answer(self, request: web.Request, body: JSON, number: int, step: Turn) -> web.StreamResponse:
        if step.raw is not None:
            return await self._raw(request, step, step.raw)
        writer = ChatWriter(step, number, body)
        try:
            async with contextlib.aclosing(perform(step)) as bursts:
                if body.get("stream"):
                    return await _stream(request, writer, step, bursts)
                pieces = [piece async for burst in bursts for piece in burst]
                return await _sent(request, web.json_response(writer.completion(pieces)))
        except Failed as failed:
            return await _sent(request, _failure(failed.failure))
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
    request: web.Request, writer: ChatWriter, step: Turn, bursts: AsyncIterator[list[TurnPiece]]
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
        if step.dialect.done:
            await response.write(b"data: [DONE]\n\n")
    except Failed as failed:
        await _write(response, [_envelope(failed.failure)])
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
    frames = "".join(f"data: {json.dumps(chunk, ensure_ascii=False)}\n\n" for chunk in chunks)
    if frames:
        await response.write(frames.encode())


def _closed(request: web.Request) -> web.StreamResponse:
    """Drop the connection."""
    if request.transport is not None:
        request.transport.close()
    return web.Response(status=500)


def _failure(failure: Failure) -> web.Response:
    headers = dict(failure.headers)
    if failure.body is None:
        return web.json_response(_envelope(failure), status=failure.status, headers=headers)
    headers.setdefault("content-type", "text/plain; charset=utf-8")
    return web.Response(body=failure.body.encode(), status=failure.status, headers=headers)


def _envelope(failure: Failure) -> JSON:
    error = {"message": failure.message, "type": failure.type, "param": None, "code": failure.code}
    return {"error": error}


def _asked(body: Mapping[str, Any]) -> str:
    how = "stream" if body.get("stream") else "json"
    return f"{body.get('model')} {how} {len(body.get('messages') or [])} messages {len(body.get('tools') or [])} tools"
