"""Services that speak OpenAI's embeddings API on a free port of this machine, as strictly as OpenAI does."""

import base64
import contextlib
import hashlib
import http.server
import json
import math
import re
import struct
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from typing_extensions import override

__all__ = ["DIMENSIONS", "Asked", "EmbeddingServer", "Reply", "Service", "embedded", "error", "vector_of"]

PATH = "/v1/embeddings"
DIMENSIONS = 64
"""The length of the vectors of an EmbeddingServer."""
KNOWN = {"input", "model", "encoding_format", "dimensions", "user"}


def vector_of(text: str, dimensions: int = 8) -> list[float]:
    """Return the vector the service has for a text: short binary fractions, the same in every encoding."""
    digest = hashlib.sha256(text.encode()).digest()
    return [(digest[place % 32] - 128) / 128 for place in range(dimensions)]


def embedded(text: str, dimensions: int = DIMENSIONS) -> list[float]:
    """Return the vector of a text: its words, hashed into so many places, of length 1. Common words make it near."""
    vector = [0.0] * dimensions
    for word in re.findall(r"\w+", text.lower()) or [text]:
        vector[int.from_bytes(hashlib.sha256(word.encode()).digest()[:4]) % dimensions] += 1.0
    length = math.sqrt(sum(value * value for value in vector))
    return [value / length for value in vector]


@dataclass(frozen=True)
class Asked:
    """A request as the service got it."""

    path: str
    headers: Mapping[str, str]
    body: dict[str, Any]


@dataclass(frozen=True)
class Reply:
    """An answer other than the true one."""

    status: int = 200
    body: bytes | dict[str, Any] = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    silent: bool = False
    """Close the connection without a word."""
    held: bool = False
    """Say nothing until the service is closed."""


def error(status: int, message: str, **headers: str) -> Reply:
    kind = "invalid_request_error" if status < 500 else "server_error"
    body = {"error": {"message": message, "type": kind, "param": None, "code": None}}
    return Reply(status, body, {name.replace("_", "-"): value for name, value in headers.items()})


class Service:
    """Embeds by hashing. `replies` are given first, one for each request."""

    def __init__(
        self,
        *,
        key: str | None = None,
        dimensions: int = 8,
        most: int = 2048,
        packed: bool = False,
        shuffled: bool = False,
    ) -> None:
        self.key = key
        self.dimensions = dimensions
        self.most = most
        self.packed = packed
        self.shuffled = shuffled
        self.replies: list[Reply] = []
        self.asked: list[Asked] = []
        self._closing = threading.Event()
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}{PATH}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)

    def vector(self, text: str, dimensions: int) -> list[float]:
        """Return the vector of a text."""
        return vector_of(text, dimensions)

    def reply(self, asked: Asked) -> Reply:
        """Return what to answer."""
        if self.replies:
            return self.replies.pop(0)
        problem = self._problem(asked)
        return problem or Reply(200, self._embeddings(asked.body))

    def _problem(self, asked: Asked) -> Reply | None:
        body, texts = asked.body, asked.body.get("input")
        if asked.path.partition("?")[0] != PATH:
            return error(404, f"Invalid URL (POST {asked.path})")
        if self.key is not None and asked.headers.get("authorization") != f"Bearer {self.key}":
            return error(401, "Incorrect API key provided")
        if asked.headers.get("content-type") != "application/json" or body.keys() - KNOWN:
            return error(400, f"unknown: {sorted(body.keys() - KNOWN)}")
        if not isinstance(texts, list) or not texts or not all(isinstance(text, str) and text for text in texts):
            return error(400, "'$.input' is invalid.")
        if len(texts) > self.most:
            return error(413, f"batch size {len(texts)} > maximum allowed batch size {self.most}")
        return None

    def _embeddings(self, body: dict[str, Any]) -> dict[str, Any]:
        length = int(body.get("dimensions", self.dimensions))
        data = [
            {"object": "embedding", "index": index, "embedding": self._spelled(self.vector(text, length))}
            for index, text in enumerate(body["input"])
        ]
        if self.shuffled:
            data.reverse()
        usage = {"prompt_tokens": 1, "total_tokens": 1}
        return {"object": "list", "data": data, "model": body.get("model", "default"), "usage": usage}

    def _spelled(self, vector: list[float]) -> list[float] | str:
        return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode() if self.packed else vector

    def _handler(self) -> type[http.server.BaseHTTPRequestHandler]:
        service = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            @override
            def log_message(self, format: str, *args: Any) -> None:
                """Say nothing."""

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                asked = Asked(self.path, {name.lower(): value for name, value in self.headers.items()}, body)
                service.asked.append(asked)
                reply = service.reply(asked)
                if reply.held:
                    service._closing.wait()
                if reply.silent or reply.held:
                    self.close_connection = True
                    return
                said = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
                self.send_response(reply.status)
                for name, value in {"content-length": str(len(said)), **reply.headers}.items():
                    self.send_header(name, value)
                with contextlib.suppress(ConnectionError):  # the server that asked may have been killed
                    self.end_headers()
                    self.wfile.write(said)

        return Handler

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop listening; requests that are held are dropped."""
        self._closing.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class EmbeddingServer(Service):
    """Texts that share words have near vectors. It can be told to fail."""

    def __init__(self, dimensions: int = DIMENSIONS) -> None:
        super().__init__(dimensions=dimensions)
        self.broken = False

    def texts(self) -> list[list[str]]:
        """Return the texts of each request."""
        return [asked.body["input"] for asked in self.asked]

    @override
    def vector(self, text: str, dimensions: int) -> list[float]:
        return embedded(text, dimensions)

    @override
    def reply(self, asked: Asked) -> Reply:
        return error(500, "out of order") if self.broken else super().reply(asked)
