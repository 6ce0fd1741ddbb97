"""Asks a server for a sign of life every 5 ms; tells the longest wait whenever a line comes in, and begins anew.

With the name of a model as a second argument it asks for responses instead, every 50 ms.
"""

import json
import select
import socket
import sys
import time

EVERY = 0.005
PATIENCE = 30.0
SIGN_OF_LIFE = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"


def asking(model: str) -> bytes:
    """Return a request for a response."""
    body = json.dumps({"model": model, "input": "Hello", "store": False})
    head = "POST /v1/responses HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    return f"{head}content-length: {len(body)}\r\n\r\n{body}".encode()


class Pinger:
    """One connection, opened again when it is lost."""

    def __init__(self, port: int, request: bytes = SIGN_OF_LIFE) -> None:
        self._port = port
        self._request = request
        self._connection: socket.socket | None = None
        self.waits: list[float] = []
        self.lost = 0

    def ping(self) -> None:
        """Ask once, and note how long the answer took."""
        started = time.perf_counter()
        try:
            self._ask()
        except OSError:
            self.lost += 1
            if self._connection is not None:
                self._connection.close()
                self._connection = None
        self.waits.append(time.perf_counter() - started)

    def _ask(self) -> None:
        if self._connection is None:
            self._connection = socket.create_connection(("127.0.0.1", self._port), PATIENCE)
        self._connection.sendall(self._request)
        answer = b""
        while b"\r\n\r\n" not in answer or not answer.endswith(b"}"):
            piece = self._connection.recv(65_536)
            if not piece:
                raise ConnectionError("closed")
            answer += piece
        if not answer.startswith(b"HTTP/1.1 200 "):
            raise ConnectionError(answer[:100].decode(errors="replace"))

    def report(self) -> str:
        """Tell the figures since the last time."""
        waits, self.waits = sorted(self.waits), []
        lost, self.lost = self.lost, 0
        middle = waits[len(waits) // 2] if waits else 0.0
        late = waits[len(waits) * 99 // 100] if waits else 0.0
        worst = waits[-1] if waits else 0.0
        return json.dumps({"worst": worst, "late": late, "median": middle, "pings": len(waits), "lost": lost})


def main() -> None:
    model = sys.argv[2] if len(sys.argv) > 2 else None
    pinger = Pinger(int(sys.argv[1]), asking(model) if model else SIGN_OF_LIFE)
    every = 10 * EVERY if model else EVERY
    while True:
        pinger.ping()
        if select.select([sys.stdin], [], [], every)[0]:
            if not sys.stdin.readline():
                return
            print(pinger.report(), flush=True)


if __name__ == "__main__":
    main()
