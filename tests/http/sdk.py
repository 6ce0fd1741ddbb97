"""The shipped app on a socket, a scripted model behind it, the official SDK before it; every answer is linted."""

import contextlib
import json
import re
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import httpx2
from openai import AsyncOpenAI, OpenAI
from openai.types.responses import Response
from typing_extensions import override

from antwort import Antwort
from antwort.backends import ModelRequest
from antwort.config import Config
from antwort.testing import (
    LintedStream,
    RunningApp,
    ScriptedBackend,
    ScriptServer,
    Turn,
    lint_response,
    lint_stream,
    running,
)
from antwort.types import JSON

__all__ = [
    "CLIENT_TOOL",
    "DATABASE",
    "AsyncRecording",
    "Recording",
    "Served",
    "create",
    "done",
    "outputs",
    "served",
    "served_provider",
]

CLIENT_TOOL: Any = {
    "type": "function",
    "name": "get_weather",
    "description": "Tell the weather.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
    "strict": True,
}
"""A function of the client."""
DATABASE: ContextVar[str | None] = ContextVar("DATABASE", default=None)
"""The database of the apps that are served."""
_RESPONSE = re.compile(r"/responses(/resp_[^/]+(/cancel)?)?$")


@dataclass
class Served:
    """An app that is being served."""

    server: RunningApp
    model: ScriptedBackend | ScriptServer
    closing: contextlib.ExitStack
    tapes: "list[Tape]" = field(default_factory=list)

    @property
    def requests(self) -> list[ModelRequest]:
        """What the model was asked, whichever way."""
        return self.model.script.requests

    @property
    def bodies(self) -> list[JSON]:
        """What the model was asked over HTTP."""
        assert isinstance(self.model, ScriptServer)
        return self.model.requests

    def client(self, key: str = "none", *, strict: bool = True) -> OpenAI:
        """Return an SDK client. It tries nothing again."""
        client = OpenAI(
            base_url=f"{self.server.url}/v1",
            api_key=key,
            max_retries=0,
            timeout=60,
            http_client=httpx2.Client(transport=Recording(self.tapes)),
            _strict_response_validation=strict,
        )
        self.closing.callback(client.close)
        return client

    @contextlib.asynccontextmanager
    async def async_client(self, key: str = "none") -> AsyncIterator[AsyncOpenAI]:
        """Give an asynchronous SDK client."""
        async with AsyncOpenAI(
            base_url=f"{self.server.url}/v1",
            api_key=key,
            max_retries=0,
            timeout=60,
            http_client=httpx2.AsyncClient(transport=AsyncRecording(self.tapes)),
            _strict_response_validation=True,
        ) as client:
            yield client

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        """Send a request without the SDK."""
        return httpx.request(method, f"{self.server.url}/v1{path}", timeout=60, **options)

    def stream(self, **body: Any) -> LintedStream:
        """Create a streamed response without the SDK, and lint it."""
        found = self.request("POST", "/responses", json={**body, "stream": True})
        assert found.status_code == 200, found.text
        assert found.headers["content-type"] == "text/event-stream; charset=utf-8"
        return lint_stream(found.content)

    def resume(self, response_id: str, after: int | None = None, **lint: Any) -> LintedStream:
        """Stream a response again, and lint it."""
        query = {"stream": "true"} | ({} if after is None else {"starting_after": str(after)})
        found = self.request("GET", f"/responses/{response_id}", params=query)
        assert found.status_code == 200, found.text
        return lint_stream(found.content, starting_after=after, **lint)


@contextlib.contextmanager
def served(
    tmp_path: Path,
    steps: Iterable[Turn | str],
    *,
    over_http: bool = False,
    backend: JSON | None = None,
    functions: Sequence[Any] = (),
    providers: Sequence[Any] = (),
    section: JSON | None = None,
    **sections: Any,
) -> Iterator[Served]:
    """Serve an app whose model plays a script, in process or over HTTP; lint every answer its clients have read.

    `providers` are given in code, `section` are those of the configuration.
    """
    with ScriptServer(steps) if over_http else ScriptedBackend(steps) as model:
        if isinstance(model, ScriptServer):
            sections["backends"] = {"main": {"url": model.url, "retries": 0, **(backend or {})}}
        sections["providers"] = section or {}
        sections.setdefault("storage", {"url": DATABASE.get()})
        app = Antwort(
            Config(data_dir=tmp_path, **sections),
            backend=model if isinstance(model, ScriptedBackend) else None,
            functions=functions,
            providers=providers,
        )
        with running(app) as server, contextlib.ExitStack() as closing:
            stage = Served(server, model, closing)
            yield stage
        for tape in stage.tapes:
            tape.lint()


def served_provider(
    tmp_path: Path, name: str, steps: Iterable[Turn | str], settings: JSON
) -> contextlib.AbstractContextManager[Served]:
    """Serve an app with one provider and its settings; among them, `sections` are others of the configuration."""
    sections = {**settings.pop("sections", {})}
    section = sections.pop("providers", {name: {"enabled": True, "settings": settings}})
    return served(tmp_path / "data", steps, section=section, **sections)


def outputs(stage: Served) -> list[str]:
    """Return what the model has read of its calls, in the last request."""
    return [str(item["output"]) for item in stage.requests[-1].items if item.get("type") == "function_call_output"]


def create(stage: Served, stream: bool, **fields: Any) -> Response:
    """Create a response with the SDK, one way or the other."""
    client = stage.client()
    if not stream:
        response: Response = client.responses.create(model="scripted", **fields)
        return response
    *_, last = client.responses.create(model="scripted", stream=True, **fields)
    final: Response = last.response
    return final


def done(stage: Served, response_id: str) -> JSON:
    """Wait until a response is over, as clients do: by asking, less and less often."""
    pause = 0.001
    while True:
        found = stage.request("GET", f"/responses/{response_id}")
        if found.status_code == 200 and found.json()["status"] not in {"queued", "in_progress"}:
            body: JSON = found.json()
            return body
        assert found.status_code in {200, 404}, found.text
        time.sleep(pause)
        pause = min(1.5 * pause, 0.05)


# --- tapes -----------------------------------------------------------------------------------------------------------


class Tape:
    """The bytes of an answer as the SDK read them."""

    def __init__(self, request: httpx2.Request, response: httpx2.Response) -> None:
        self.chunks: list[bytes] = []
        self._after = request.url.params.get("starting_after")
        is_stream = response.headers.get("content-type", "").startswith("text/event-stream")
        self._streamed = is_stream and "/chat/" not in request.url.path
        is_response = request.method != "DELETE" and _RESPONSE.search(request.url.path) is not None
        self._wanted = is_response and response.status_code == 200

    def lint(self) -> None:
        """Check a response. A stream is checked if it was read to its end: the SDK leaves when it has seen an error."""
        whole = b"".join(self.chunks)
        if self._streamed and whole.endswith(b"data: [DONE]\n\n"):
            lint_stream(whole, starting_after=None if self._after is None else int(self._after))
        elif self._wanted and not self._streamed:
            lint_response(json.loads(whole))


class _Taped(httpx2.SyncByteStream):
    def __init__(self, inner: httpx2.SyncByteStream, tape: Tape) -> None:
        self._inner = inner
        self._tape = tape

    @override
    def __iter__(self) -> Iterator[bytes]:
        for chunk in self._inner:
            self._tape.chunks.append(chunk)
            yield chunk

    @override
    def close(self) -> None:
        self._inner.close()


class _AsyncTaped(httpx2.AsyncByteStream):
    def __init__(self, inner: httpx2.AsyncByteStream, tape: Tape) -> None:
        self._inner = inner
        self._tape = tape

    @override
    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._inner:
            self._tape.chunks.append(chunk)
            yield chunk

    @override
    async def aclose(self) -> None:
        await self._inner.aclose()


class Recording(httpx2.HTTPTransport):
    def __init__(self, tapes: list[Tape]) -> None:
        super().__init__()
        self._tapes = tapes

    @override
    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        response = super().handle_request(request)
        self._tapes.append(Tape(request, response))
        assert isinstance(response.stream, httpx2.SyncByteStream)
        response.stream = _Taped(response.stream, self._tapes[-1])
        return response


class AsyncRecording(httpx2.AsyncHTTPTransport):
    def __init__(self, tapes: list[Tape]) -> None:
        super().__init__()
        self._tapes = tapes

    @override
    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await super().handle_async_request(request)
        self._tapes.append(Tape(request, response))
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        response.stream = _AsyncTaped(response.stream, self._tapes[-1])
        return response
