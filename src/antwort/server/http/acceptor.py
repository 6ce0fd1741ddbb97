"""Takes connections from a listening socket while there is room for them; until then they wait in its backlog."""

import asyncio
import errno
import socket
from collections.abc import Callable

from antwort.server.http.client_connections import ConnectionRoom, Connections

_AT_ONCE = 64
"""Connections that are taken before others get their turn."""
_NO_HANDLES = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
_GONE = {errno.EAGAIN, errno.ECONNABORTED, errno.EINTR, errno.EPROTO}
"""There is none, or it has left again."""


class Acceptor:
    """Takes connections from one socket.

    An event loop's own server takes all there are, and those for which it finds no file handle it throws away: libuv
    keeps a handle to do so. This one asks before it takes one. What it leaves alone is not lost, only late.
    """

    def __init__(self, sock: socket.socket, make: Callable[[bool], asyncio.Protocol], connections: Connections) -> None:
        """Take who makes a protocol; it is told whether its connection is one too many."""
        self._sock = sock
        self._make = make
        self._connections = connections
        self._loop = asyncio.get_running_loop()
        self._coming: set[asyncio.Task[object]] = set()
        """Connections that have no protocol yet."""
        self._listens = False
        self._batch = 1
        sock.setblocking(False)
        connections.on_room(self.resume)

    def resume(self) -> None:
        """Take connections again, if it has stopped to."""
        if not self._listens and self._sock.fileno() >= 0:
            self._listens = True
            self._loop.add_reader(self._sock, self._accept)

    def pause(self) -> None:
        """Let connections wait."""
        if self._listens:
            self._listens = False
            self._loop.remove_reader(self._sock)

    async def close(self) -> None:
        """Take no more, and wait for those that were taken to have their protocols."""
        self.pause()
        self._sock.close()
        if self._coming:
            await asyncio.wait(self._coming)

    def _accept(self) -> None:
        most, self._batch = self._batch, 1  # mostly one waits, and to look for another costs a tenth of it
        for number in range(most):
            if number and self._connections.is_full(len(self._coming)):
                return  # only one surely waits, and others would make room for nobody
            room = self._connections.room(len(self._coming))
            if room is ConnectionRoom.LATER:
                self.pause()
                return
            try:
                sock, _ = self._sock.accept()
            except OSError as error:
                if error.errno in _GONE:
                    return
                if error.errno not in _NO_HANDLES:
                    raise
                self._connections.note_no_handle(error)
                self.pause()
                return
            sock.setblocking(False)
            self._begin(sock, is_refused=room is ConnectionRoom.NONE)
        self._batch = min(2 * most, _AT_ONCE)

    def _begin(self, sock: socket.socket, *, is_refused: bool) -> None:
        making = self._loop.connect_accepted_socket(lambda: self._make(is_refused), sock)
        task: asyncio.Task[object] = self._loop.create_task(making)
        self._coming.add(task)
        task.add_done_callback(self._coming.discard)
