"""Asks a server for a sign of life every 5 ms; tells the longest wait whenever a line comes in, and begins anew."""

import json
import select
import socket
import sys
import time

EVERY = 0.005
PATIENCE = 30.0
REQUEST = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"


class Pinger:
    """One connection, opened again when it is lost."""

    def __init__(self, port: int) -> None:
        self._port = port
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
        self._connection.sendall(REQUEST)
        answer = b""
        while b"\r\n\r\n" not in answer or not answer.endswith(b"}"):
            piece = self._connection.recv(65_536)
            if not piece:
                raise ConnectionError("closed")
            answer += piece

    def report(self) -> str:
        """Tell the figures since the last time."""
        waits, self.waits = sorted(self.waits), []
        lost, self.lost = self.lost, 0
        middle = waits[len(waits) // 2] if waits else 0.0
        worst = waits[-1] if waits else 0.0
        return json.dumps({"worst": worst, "median": middle, "pings": len(waits), "lost": lost})


def main() -> None:
    pinger = Pinger(int(sys.argv[1]))
    while True:
        pinger.ping()
        if select.select([sys.stdin], [], [], EVERY)[0]:
            if not sys.stdin.readline():
                return
            print(pinger.report(), flush=True)


if __name__ == "__main__":
    main()
