"""A server whose app has its answers ready: it costs what its HTTP protocol does. A program, given the name of one."""

import asyncio
import signal
import socket
import sys
from typing import Any

import uvicorn
import uvloop
from starlette.types import ASGIApp, Receive, Scope, Send

from antwort.config import ServerConfig
from antwort.server.http.serve import Server

EVENTS = 64
OURS = "antwort's HttpProtocol"
PROTOCOLS = {OURS: "", "uvicorn's httptools": "httptools", "uvicorn's h11": "h11"}
"""What uvicorn calls them."""
JSON_HEADERS = [(b"content-type", b"application/json"), (b"content-length", b"300")]
STREAM_HEADERS = [(b"content-type", b"text/event-stream")]
EVENT = b"event: response.output_text.delta\ndata: %b\n\n" % (b"x" * 150)


async def app(_scope: Scope, receive: Receive, send: Send) -> None:
    """Read a request and answer it: with one body, or with events one by one."""
    body, more = b"", True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    if b'"stream"' not in body:
        await send({"type": "http.response.start", "status": 200, "headers": JSON_HEADERS})
        await send({"type": "http.response.body", "body": b"x" * 300})
        return
    await send({"type": "http.response.start", "status": 200, "headers": STREAM_HEADERS})
    for _ in range(EVENTS):
        await send({"type": "http.response.body", "body": EVENT, "more_body": True})
    await send({"type": "http.response.body", "body": b"data: [DONE]\n\n"})


async def serve_with(protocol: str, served: ASGIApp, sock: socket.socket) -> None:
    """Serve with one of the protocols until a signal comes."""
    if protocol == OURS:
        ours = Server(served, ServerConfig())
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ours.stop)
        await ours.serve([sock])
        return
    http: Any = PROTOCOLS[protocol]
    config = uvicorn.Config(
        served,
        loop="none",
        http=http,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=1,
    )
    await uvicorn.Server(config).serve(sockets=[sock])


def main() -> None:
    """Serve until a signal comes."""
    with (
        socket.create_server(("127.0.0.1", 0), backlog=2048) as sock,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        print(f"Listening on http://127.0.0.1:{sock.getsockname()[1]}", flush=True)
        runner.run(serve_with(sys.argv[1], app, sock))


if __name__ == "__main__":
    main()
