"""A host that answers whoever asks it without end, in one way or another, and a watch over the loop that reads it."""

import asyncio
import contextlib
import gzip
import socket
import threading
import time
import zlib
from dataclasses import dataclass
from types import TracebackType
from typing import Self

__all__ = ["ATTACKS", "DRIP", "REDIRECTS", "Attack", "HostileHost", "LoopWatch"]

_OK = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
_CHUNKED = _OK + b"transfer-encoding: chunked\r\n"
_BLOCK = 64 * 1024
_MOST = 1 << 30
"""Bytes after which it gives up: nobody reads so much."""


@dataclass(frozen=True)
class Attack:
    """What is sent first, and what again and again."""

    begin: bytes
    block: bytes
    pause: float = 0.0
    """Seconds between two blocks."""


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def _bomb() -> Attack:
    """Return zeros without end in gzip: what was flushed can be repeated."""
    packer = zlib.compressobj(9, zlib.DEFLATED, zlib.MAX_WBITS | 16)
    begin = packer.compress(b"\0") + packer.flush(zlib.Z_FULL_FLUSH)
    block = packer.compress(b"\0" * 1_000_000) + packer.flush(zlib.Z_FULL_FLUSH)
    return Attack(_CHUNKED + b"content-encoding: gzip\r\n\r\n" + _chunk(begin), _chunk(block * 16))


ATTACKS = {
    "interim answers": Attack(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 2000),
    "early hints": Attack(b"", b"HTTP/1.1 103 Early Hints\r\nlink: </a>; rel=preload\r\n\r\n" * 1000),
    "status line": Attack(b"HTTP/1.1 200 ", b"O" * _BLOCK),
    "headers": Attack(_OK, b"a: b\r\n" * 10_000),
    "one header": Attack(_OK + b"x: ", b"y" * _BLOCK),
    "chunked content": Attack(_CHUNKED + b"\r\n", _chunk(b"x" * _BLOCK)),
    "content without a length": Attack(_OK + b"\r\n", b"x" * _BLOCK),
    "gzip bomb": _bomb(),
    "nothing in gzip": Attack(_CHUNKED + b"content-encoding: gzip\r\n\r\n", _chunk(gzip.compress(b"") * 3000)),
    "tiny chunks": Attack(_CHUNKED + b"\r\n", b"1\r\nx\r\n" * 10_000),
    "chunk extension": Attack(_CHUNKED + b"\r\n1;", b"e" * _BLOCK),
    "extended chunks": Attack(_CHUNKED + b"\r\n", b"1;%b\r\nx\r\n" % (b"e" * 1000) * 60),
    "trailers": Attack(_CHUNKED + b"\r\n1\r\nx\r\n0\r\n", b"t: u\r\n" * 10_000),
}
"""What ends because it is counted."""
DRIP = {
    "dripping head": Attack(_OK + b"x: ", b"y", pause=0.005),
    "dripping content": Attack(_OK + b"content-length: 100000\r\n\r\n", b"x", pause=0.005),
    "dripping interim answers": Attack(b"", b"HTTP/1.1 100 Continue\r\n\r\n", pause=0.5),
}
"""What ends because time is up."""
REDIRECTS = Attack(
    b"HTTP/1.1 302 Found\r\nlocation: /again\r\nconnection: close\r\ncontent-length: 0\r\n\r\n", b"", pause=60
)
"""Each connection leads to the next one."""


class HostileHost:
    """Sends an attack to whoever connects, whatever is asked, until the other side has had enough."""

    def __init__(self, attack: Attack) -> None:
        self._attack = attack
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.place = f"127.0.0.1:{self.port}"
        self.url = f"http://{self.place}"
        self.connections = 0
        self.sent = 0
        """Bytes that went out, to all together."""
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []
        self._opened: list[socket.socket] = []

    def _accept(self) -> None:
        while True:
            try:
                opened, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            self._opened.append(opened)
            thread = threading.Thread(target=self._answer, args=(opened,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _answer(self, opened: socket.socket) -> None:
        attack = self._attack
        with opened, contextlib.suppress(OSError):
            opened.settimeout(60)
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BLOCK)
            opened.recv(_BLOCK)
            opened.sendall(attack.begin)
            while self.sent < _MOST and not self._over.is_set():
                opened.sendall(attack.block)
                self.sent += len(attack.block)
                if attack.pause:
                    self._over.wait(attack.pause)

    def __enter__(self) -> Self:
        thread = threading.Thread(target=self._accept, daemon=True)
        self._threads.append(thread)
        thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for opened in self._opened:  # the loop, which may be about to close the other end, waits for us meanwhile
            with contextlib.suppress(OSError):
                opened.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(60)


_TURN = 0.001
"""Seconds between two turns: to take one whenever the loop has it is all that a thread could do."""


class LoopWatch:
    """Takes turns of the loop, and says how many, and how much CPU its thread has used between two of them at most."""

    def __init__(self) -> None:
        self.turns = 0
        self.longest = 0.0

    async def _watch(self) -> None:
        before = time.thread_time()
        while True:
            await asyncio.sleep(_TURN)
            now = time.thread_time()
            self.longest = max(self.longest, now - before)
            self.turns, before = self.turns + 1, now

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._watch())
        await asyncio.sleep(0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])
