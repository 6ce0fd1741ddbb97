"""An app with functions of all kinds on a socket, and the official client of the protocol before it."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import httpx2
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client
from pydantic import BaseModel
from tests.providers.mcp.stage import PIXEL

from antwort import Antwort
from antwort.config import Config
from antwort.provider import Context, FunctionError, Image, Progress
from antwort.testing import ScriptedBackend, running
from antwort.types import JSON

__all__ = ["MODES", "STATELESS_META", "Face", "Point", "call", "first_text", "request", "serving", "texts"]

MODES = ("2026-07-28", "legacy", "auto")
"""How the official client finds out what a server speaks."""
STATELESS_META: JSON = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}
KEYS = [
    {"id": "acme", "key": "key-of-acme", "tenant": "acme"},
    {"id": "other", "key": "key-of-other", "tenant": "other"},
    {"id": "talker", "key": "key-of-talker", "tenant": "acme", "scopes": ["responses:*"]},
    {"id": "caller", "key": "key-of-caller", "tenant": "acme", "scopes": ["functions:call"]},
]


class Point(BaseModel):
    """A point of the plane."""

    x: int
    y: int = 0


@dataclass
class Face:
    """An app that is served."""

    url: str
    began: threading.Event = field(default_factory=threading.Event)
    """Set when a call of `wait` is under way."""
    cancelled: threading.Event = field(default_factory=threading.Event)
    """Set when it was cancelled."""

    @contextlib.asynccontextmanager
    async def client(self, mode: str, key: str = "key-of-acme", **options: Any) -> AsyncIterator[Client]:
        """Give a client of the official SDK."""
        async with httpx2.AsyncClient(headers={"authorization": f"Bearer {key}"}, timeout=60) as http:
            transport = streamable_http_client(f"{self.url}/mcp", http_client=http)
            async with Client(transport, mode=mode, **options) as client:
                yield client

    def post(self, body: Any, key: str | None = "key-of-acme", **headers: str) -> httpx.Response:
        """Send a message without the SDK."""
        named = {"accept": "application/json, text/event-stream"}
        if key is not None:
            named["authorization"] = f"Bearer {key}"
        named |= {name.replace("_", "-"): value for name, value in headers.items()}
        return httpx.post(f"{self.url}/mcp", json=body, headers=named, timeout=60)


@contextlib.contextmanager
def serving(tmp_path: Path, functions: Any = (), said: Iterable[Any] = (), **sections: Any) -> Iterator[Face]:
    """Serve an app whose model says so much, and else nothing: nobody asks it."""
    face = Face("")
    sections.setdefault("auth", {"api_keys": KEYS})
    with ScriptedBackend([*said]) as model:
        config = Config.model_validate({"data_dir": tmp_path, "providers": {}, **sections})
        app = Antwort(config, backend=model, functions=[*functions_of(face), *functions])
        with running(app) as server:
            face.url = server.url
            yield face


def functions_of(face: Face) -> list[Any]:
    """Return functions of all kinds."""

    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    def point(x: int) -> Point:
        """Make a point."""
        return Point(x=x)

    def whose(ctx: Context) -> str:
        """Tell for whom a call is made."""
        return f"{ctx.tenant}, {ctx.subject}"

    def picture() -> Image:
        """Show a picture."""
        return Image(PIXEL)

    def fail() -> str:
        """Fail."""
        raise FunctionError("It is out of order.")

    def much(size: int) -> dict[str, str]:
        """Say very much."""
        return {"text": "x" * size}

    async def count(ctx: Context, to: int) -> str:
        """Count, and tell how far it is."""
        for number in range(to + 1):
            ctx.emit(Progress(f"{number} of {to}", number / to))
        return f"counted to {to}"

    async def wait(ctx: Context) -> str:
        """Wait for ever."""
        ctx.emit(Progress("it begins"))
        face.began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            face.cancelled.set()
            raise
        return "over"

    return [add, point, whose, picture, fail, much, count, wait]


def request(method: str, number: int = 1, **params: Any) -> JSON:
    """Return a request."""
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


def call(name: str, number: int = 1, **arguments: Any) -> JSON:
    """Return the request of a call."""
    return request("tools/call", number, name=name, arguments=arguments)


def texts(result: Any) -> list[str]:
    """Return the texts of a result."""
    return [part.text for part in result.content if part.type == "text"]


def first_text(response: httpx.Response) -> str:
    """Return the text of the result that a message was answered with."""
    text: str = response.json()["result"]["content"][0]["text"]
    return text
