"""A server that speaks OpenAI's embeddings API. Texts that share words have near vectors."""

import hashlib
import http.server
import json
import math
import re
import threading
from types import TracebackType
from typing import Any, Self

from typing_extensions import override

__all__ = ["DIMENSIONS", "EmbeddingServer", "embedded"]

DIMENSIONS = 64


def embedded(text: str, dimensions: int = DIMENSIONS) -> list[float]:
    """Return the vector of a text: its words, hashed into so many places, of length 1."""
    vector = [0.0] * dimensions
    for word in re.findall(r"\w+", text.lower()) or [text]:
        vector[int.from_bytes(hashlib.sha256(word.encode()).digest()[:4]) % dimensions] += 1.0
    length = math.sqrt(sum(value * value for value in vector))
    return [value / length for value in vector]


class EmbeddingServer:
    """Answers at `url`, the whole address of the endpoint. It can be told to fail."""

    def __init__(self, dimensions: int = DIMENSIONS) -> None:
        self.dimensions = dimensions
        self.asked: list[dict[str, Any]] = []
        self.broken = False
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/v1/embeddings"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)

    def texts(self) -> list[list[str]]:
        """Return the texts of each request."""
        return [body["input"] for body in self.asked]

    def _answer(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        self.asked.append(body)
        if self.broken:
            return 500, {"error": {"message": "out of order", "type": "server_error", "param": None, "code": None}}
        texts = [body["input"]] if isinstance(body["input"], str) else body["input"]
        data = [
            {"object": "embedding", "index": index, "embedding": embedded(text, self.dimensions)}
            for index, text in enumerate(texts)
        ]
        usage = {"prompt_tokens": 0, "total_tokens": 0}
        return 200, {"object": "list", "data": data, "model": body.get("model", "hashing"), "usage": usage}

    def _handler(self) -> type[http.server.BaseHTTPRequestHandler]:
        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            @override
            def log_message(self, format: str, *args: Any) -> None:
                """Say nothing."""

            def do_POST(self) -> None:
                content = self.rfile.read(int(self.headers["content-length"]))
                if self.path == "/v1/embeddings":
                    status, answer = server._answer(json.loads(content))
                else:
                    status, answer = 404, {"error": {"message": "not found"}}
                body = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

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
