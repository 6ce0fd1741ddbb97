"""What is fuzzed: the shipped app with its providers on a socket, a model server behind it, plain clients before it."""

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.backends.conftest import Exchange, ModelServer
from tests.support.embeddings import embedded
from typing_extensions import override
from websockets.asyncio.client import ClientConnection, connect

from antwort import Antwort
from antwort.config import Config
from antwort.testing import running
from antwort.types import JSON

__all__ = ["Answer", "Client", "Complaints", "Stage", "staged"]

KEY = "sk-fuzz"
PATIENCE = 60


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back."""

    status: int
    kind: str
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class Client:
    """One connection, used again and again, and opened anew when the server has closed it."""

    _reader: asyncio.StreamReader
    _writer: asyncio.StreamWriter

    def __init__(self, url: str) -> None:
        self._url = url

    async def open(self) -> None:
        host, _, port = self._url.removeprefix("http://").partition(":")
        self._reader, self._writer = await asyncio.open_connection(host, int(port))

    async def close(self) -> None:
        self._writer.close()
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()

    async def ask(self, method: str, path: str, body: bytes = b"") -> Answer:
        """Send a request and read its answer to the end, whatever it is."""
        head = [f"{method} {path} HTTP/1.1", "host: localhost", f"authorization: Bearer {KEY}"]
        head += ["content-type: application/json", f"content-length: {len(body)}", "", ""]
        self._writer.write("\r\n".join(head).encode() + body)
        async with asyncio.timeout(PATIENCE):
            answer, closed = await self._answer()
        if closed:
            await self.close()
            await self.open()
        return answer

    async def _answer(self) -> tuple[Answer, bool]:
        head = await self._reader.readuntil(b"\r\n\r\n")
        status, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        if headers.get("transfer-encoding") == "chunked":
            body = b"".join([chunk async for chunk in self._chunks()])
        else:
            body = await self._reader.readexactly(int(headers.get("content-length", 0)))
        answer = Answer(int(status.split(" ")[1]), headers.get("content-type", ""), body)
        return answer, headers.get("connection") == "close"

    async def _chunks(self) -> AsyncIterator[bytes]:
        while size := int(await self._reader.readline(), 16):
            yield (await self._reader.readexactly(size + 2))[:-2]
        await self._reader.readline()


class Complaints(logging.Handler):
    """Keeps what the server logs as an error: whatever a client was told, that is one of ours."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    @override
    def emit(self, record: logging.LogRecord) -> None:
        self.found.append(logging.Formatter().format(record))

    def take(self) -> list[str]:
        """Return what was logged since the last time."""
        found, self.found = self.found, []
        return found


@dataclass
class Stage:
    """The server under test."""

    url: str
    complaints: Complaints

    async def client(self) -> Client:
        client = Client(self.url)
        await client.open()
        return client

    def socket(self) -> Any:
        """Return a WebSocket connection, to be used in an `async with` block."""
        address = self.url.replace("http", "ws", 1) + "/v1/responses"
        headers = {"authorization": f"Bearer {KEY}"}
        return connect(address, additional_headers=headers, proxy=None, max_size=None, open_timeout=PATIENCE)

    async def receive(self, socket: ClientConnection) -> JSON:
        """Return the next frame."""
        event: JSON = json.loads(await asyncio.wait_for(socket.recv(), PATIENCE))
        return event


@contextlib.asynccontextmanager
async def staged(tmp_path: Path, database: str, *, makes_chats: bool) -> AsyncIterator[Stage]:
    """Serve the shipped app. Its model servers speak both APIs, call what they are offered, and never fail.

    `makes_chats`: the engine makes chat completions, which are passed through else.
    """
    model = ModelServer()
    model.scripts.append(_answer)
    async with await asyncio.start_server(model.serve, "127.0.0.1", 0, limit=1 << 26) as listener:
        model.url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}/v1"
        app = await asyncio.to_thread(_app, tmp_path, database, model.url, makes_chats)
        serving = running(app)
        with _complaints() as complaints:
            server = await asyncio.to_thread(serving.__enter__)
            try:
                yield Stage(server.url, complaints)
            finally:
                await asyncio.to_thread(serving.__exit__, None, None, None)
        await model.stop()


@contextlib.contextmanager
def _complaints() -> Iterator[Complaints]:
    handler, logger = Complaints(), logging.getLogger("antwort")
    logger.addHandler(handler)
    try:
        yield handler
    finally:
        logger.removeHandler(handler)


async def look_up(word: str, times: int = 1) -> str:
    """Look a word up."""
    return word * times


def _app(tmp_path: Path, database: str, url: str, makes_chats: bool) -> Antwort:
    config = {
        "data_dir": tmp_path,
        "storage": {"url": database},
        "server": {"chat_completions": {"functions": makes_chats}},
        "auth": {"api_keys": [{"id": "fuzz", "key": KEY, "tenant": "fuzz", "scopes": ["*"]}]},
        "backends": {
            "chat": {"url": url, "models": ["chat"], "retries": 0, "parameters": ["seed", "logit_bias"]},
            "responses": {"url": url, "api": "responses", "models": ["responses"], "retries": 0},
        },
        "providers": {
            "basics": {"enabled": True},
            "file_search": {"enabled": True, "settings": {"embedding_url": f"{url}/embeddings"}},
        },
    }
    return Antwort(Config.model_validate(config), functions=[look_up])


# --- the model -------------------------------------------------------------------------------------------------------


async def _answer(exchange: Exchange) -> None:
    try:
        asked = exchange.json() if exchange.body else {}
    except (ValueError, RecursionError):  # what is passed through is not looked at
        await _send(
            exchange, {"error": {"message": "No JSON.", "type": "t", "code": "invalid_json", "param": None}}, 400
        )
        return
    match exchange.path.removeprefix("/v1"):
        case "/models":
            await _send(exchange, {"object": "list", "data": [{"id": "chat"}, {"id": "responses"}]})
        case "/embeddings":
            texts = asked["input"] if isinstance(asked.get("input"), list) else [asked.get("input")]
            data = [{"index": index, "embedding": embedded(str(text))} for index, text in enumerate(texts)]
            await _send(exchange, {"object": "list", "data": data, "usage": {"prompt_tokens": 1, "total_tokens": 1}})
        case "/completions":
            await _send(exchange, {"object": "text_completion", "choices": [{"index": 0, "text": " a time"}]})
        case "/chat/completions":
            await _complete(exchange, asked)
        case "/responses":
            await _respond(exchange, asked)
        case _:
            await _send(exchange, {"error": {"message": "There is no such path."}}, 404)


async def _complete(exchange: Exchange, asked: JSON) -> None:
    messages, tools = asked.get("messages"), asked.get("tools")
    answered = not isinstance(messages, list) or any(
        isinstance(one, dict) and one.get("role") == "tool" for one in messages
    )
    message: JSON = {"role": "assistant", "content": _filled(asked.get("response_format"))}
    name = _first(tools, "function")
    if name is not None and not answered:
        function = {"name": name, "arguments": '{"query": "tea", "word": "tea"}'}
        message = {"role": "assistant", "tool_calls": [{"index": 0, "id": "c", "function": function}]}
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    if not asked.get("stream"):
        await _send(exchange, {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": usage})
        return
    chunk = {"choices": [{"index": 0, "delta": message, "finish_reason": "stop"}], "usage": usage}
    await _stream(exchange, [chunk])


def _filled(form: Any) -> str:
    """Return what fits a form, as decisions ask for it: the first of the codes, and a number beside each."""
    try:
        wanted = form["json_schema"]["schema"]["properties"]
        return json.dumps({name: one["enum"][0] if "enum" in one else 60 for name, one in wanted.items()})
    except (LookupError, TypeError, AttributeError):
        return "Hello"


async def _respond(exchange: Exchange, asked: JSON) -> None:
    given = asked.get("input")
    answered = isinstance(given, list) and any(one.get("type") == "function_call_output" for one in given)
    part = {"type": "output_text", "text": "Hello", "annotations": []}
    item: JSON = {"type": "message", "id": "m", "role": "assistant", "content": [part]}
    name = _first(asked.get("tools"), None)
    if name is not None and not answered:
        item = {"type": "function_call", "id": "f", "call_id": "c", "name": name, "arguments": '{"query": "tea"}'}
    response = {"id": "r", "status": "completed", "output": [item]}
    if asked.get("stream"):
        await _stream(exchange, [{"type": "response.completed", "response": response}])
    else:
        await _send(exchange, response)


def _first(tools: Any, inside: str | None) -> str | None:
    """Return the name of the first tool."""
    if not isinstance(tools, list) or not tools or not isinstance(tools[0], dict):
        return None
    tool = tools[0] if inside is None else tools[0].get(inside)
    name = tool.get("name") if isinstance(tool, dict) else None
    return name if isinstance(name, str) and name else None


async def _send(exchange: Exchange, value: Any, status: int = 200) -> None:
    body = json.dumps(value).encode()
    head = f"HTTP/1.1 {status} OK\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    await exchange.send(head.encode() + body)


async def _stream(exchange: Exchange, events: list[JSON]) -> None:
    await exchange.begin_stream()
    body = b"".join(b"data: " + json.dumps(one).encode() + b"\n\n" for one in events)
    await exchange.chunk(body + b"data: [DONE]\n\n")
    await exchange.send(b"0\r\n\r\n")
