"""Real MCP servers on sockets, written with the official SDK, and the shipped app before them."""

import asyncio
import base64
import contextlib
import json
import socket
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvicorn
from mcp.server.mcpserver import Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ToolAnnotations
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from tests.http.sdk import Served, served

from antwort.types import JSON

__all__ = ["ERAS", "PIXEL", "McpServer", "calculator", "mcp_tool", "nowhere", "running_server", "staged"]

ERAS = ("stateless", "greeted")
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
TOKEN = "a-token-that-nobody-else-may-see"


@dataclass
class McpServer:
    """A server that runs."""

    url: str
    methods: list[str] = field(default_factory=list)
    """What it was asked, in order."""
    headers: list[dict[str, str]] = field(default_factory=list)
    calls: list[Any] = field(default_factory=list)
    """What its tools have done."""


class Door:
    """Stands before a server: notes what comes, refuses those without the token, and what an older server would."""

    def __init__(self, app: ASGIApp, server: McpServer, *, greeted: bool, token: str | None) -> None:
        self._app = app
        self._server = server
        self._greeted = greeted
        self._token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        method = str(json.loads(body).get("method")) if body else str(scope["method"])
        self._server.methods.append(method)
        self._server.headers.append(headers)
        if self._token is not None and headers.get("authorization") != f"Bearer {self._token}":
            await _answer(send, 401, {"error": "invalid_token"})
        elif self._greeted and headers.get("mcp-protocol-version") == "2026-07-28":
            await _answer(send, 400, {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "Old."}})
        else:
            await self._app(scope, _replayed(body, receive), send)


def _replayed(body: bytes, receive: Receive) -> Receive:
    sent = False

    async def again() -> Message:
        nonlocal sent
        if sent:
            return await receive()
        sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


async def _answer(send: Send, status: int, body: JSON) -> None:
    head = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": json.dumps(body).encode()})


@contextlib.contextmanager
def on_socket(app: ASGIApp) -> Iterator[str]:
    """Serve an app on a free port; give its address."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()  # whoever comes before the server has started waits, and is not refused
        config = uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=1, timeout_keep_alive=60)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=lambda: asyncio.run(server.serve([listening])))
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


@contextlib.contextmanager
def running_server(
    tools: MCPServer | None = None, *, era: str = "stateless", token: str | None = None, events: bool = False
) -> Iterator[McpServer]:
    """Run a server of the official SDK."""
    state = McpServer("")
    made = calculator(state) if tools is None else tools
    app = Door(made.streamable_http_app(json_response=not events), state, greeted=era == "greeted", token=token)
    with on_socket(app) as url:
        state.url = f"{url}/mcp"
        yield state


def calculator(state: McpServer) -> MCPServer:
    """Return a server with tools of all kinds."""
    server = MCPServer("calculator")

    @server.tool(annotations=ToolAnnotations(read_only_hint=True))
    def add(a: int, b: int) -> str:
        """Add two numbers."""
        state.calls.append((a, b))
        return f"{a + b}"

    @server.tool()
    def forget(what: str) -> str:
        """Forget something."""
        state.calls.append(what)
        return f"{what} is forgotten"

    @server.tool()
    def fail() -> str:
        """Fail."""
        raise ToolError("It is out of order.")

    @server.tool()
    def picture() -> Image:
        """Show a picture."""
        return Image(data=PIXEL, format="png")

    @server.tool()
    def point() -> dict[str, int]:
        """Return a point."""
        return {"x": 1, "y": 2}

    @server.tool()
    def much(size: int) -> str:
        """Say very much."""
        return "x" * size

    return server


def nowhere() -> str:
    """Return the address of a server that is gone."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{closed.getsockname()[1]}/mcp"


def mcp_tool(server: McpServer | str, label: str = "calc", **fields: Any) -> Any:
    """Return the tool that names a server; its calls need no approval unless it is said."""
    url = server if isinstance(server, str) else server.url
    return {"type": "mcp", "server_label": label, "server_url": url, "require_approval": "never", **fields}


@contextlib.contextmanager
def staged(
    tmp_path: Path, steps: Iterable[Any], *, allow: Iterable[str] = ("127.0.0.1",), **options: Any
) -> Iterator[Served]:
    """Serve an app that may reach servers of this machine."""
    settings = {"list_timeout": 120, **options.pop("settings", {})}
    section = {"mcp": {"enabled": True, "settings": settings}, **options.pop("section", {})}
    with served(tmp_path, steps, section=section, outbound={"allow": [*allow]}, **options) as stage:
        yield stage
