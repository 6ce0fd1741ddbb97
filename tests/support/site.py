"""A web server on a free port of this machine, for whatever looks at the web."""

import http.server
import ssl
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

from typing_extensions import override

__all__ = ["Asked", "Reply", "Site"]


@dataclass(frozen=True)
class Asked:
    """A request as the server got it."""

    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    """By lower-case name."""


@dataclass(frozen=True)
class Reply:
    """What the server answers."""

    body: bytes | str = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    type: str = "text/html; charset=utf-8"
    silent: bool = False
    """Close the connection without a word."""


class Site:
    """Answers paths with replies, or with what functions make of requests; `*` stands for every other path."""

    def __init__(
        self, pages: Mapping[str, Reply | Callable[[Asked], Reply]], *, tls: ssl.SSLContext | None = None
    ) -> None:
        self.pages = dict(pages)
        self.asked: list[Asked] = []
        self.connections = 0
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self.port = int(self._server.server_address[1])
        self.place = f"127.0.0.1:{self.port}"
        self.url = f"{'https' if tls else 'http'}://{self.place}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)

    def _handler(self) -> type[http.server.BaseHTTPRequestHandler]:
        site = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            @override
            def setup(self) -> None:
                site.connections += 1
                super().setup()

            @override
            def log_message(self, format: str, *args: Any) -> None:
                """Say nothing."""

            def do_GET(self) -> None:
                parts = urlsplit(self.path)
                query = {name: values[0] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
                asked = Asked(parts.path, query, {name.lower(): value for name, value in self.headers.items()})
                site.asked.append(asked)
                page = site.pages.get(parts.path, site.pages.get("*", Reply("not found", 404)))
                reply = page if isinstance(page, Reply) else page(asked)
                if reply.silent:
                    self.close_connection = True
                    return
                body = reply.body.encode() if isinstance(reply.body, str) else reply.body
                self.send_response(reply.status)
                for name, value in {"content-type": reply.type, "content-length": str(len(body))}.items():
                    if name not in reply.headers and "transfer-encoding" not in reply.headers:
                        self.send_header(name, value)
                for name, value in reply.headers.items():
                    self.send_header(name, value)
                try:
                    self.end_headers()
                    self.wfile.write(body)
                except OSError:
                    self.close_connection = True  # the client has seen enough

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("content-length") or 0))
                self.do_GET()

        return Handler

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
