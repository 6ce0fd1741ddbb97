"""The server itself: listening sockets, what answers on them, and as many open files as its connections need."""

import asyncio
import contextlib
import errno
import logging
import resource
import socket
from collections.abc import Callable, Sequence
from functools import partial

from starlette.types import ASGIApp

from antwort.config import ServerConfig
from antwort.errors import ConfigError
from antwort.server.http.client_connections import CommonState, ConnectionRoom, Connections, OpenConnection
from antwort.server.http.protocol import HttpProtocol

logger = logging.getLogger(__name__)


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


_SPARE = 64
"""Handles for files, the database and whatever else is open."""


def raise_limit() -> None:
    """Let this process open as many files as its user may: the limit that shells give is for interactive programs."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError) as error:  # some systems have a limit below the one they tell
        logger.info("the limit of open files stays at %d: %s", soft, error)


def most_connections() -> int:
    """Return how many connections leave room for as many to model servers."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return 1_000_000
    return max(16, (soft - _SPARE) // 2)


_BACKLOG = 2048
"""Connections that wait to be taken."""
_CUT_OFF_TIMEOUT = 5.0
"""Seconds that requests get to end after they were cancelled."""
_SWEEP = 1.0
"""Seconds between two sweeps over the connections."""
_LOOK = 0.05
"""Seconds between two looks at whether the last request has ended."""


def bind(host: str, port: int, *, shared: bool = False) -> socket.socket:
    """Open a listening socket; port 0 takes a free one. A port that is shared can be bound again by the same user."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        sock.bind((host.strip("[]"), port))
        sock.listen(_BACKLOG)  # now, so that a second server on the same port fails here and not later
    except (OSError, OverflowError) as error:
        sock.close()
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ConfigError(f"cannot listen on {host}:{port}: {reason}; choose another with --host and --port") from error
    return sock


def bind_many(host: str, port: int, count: int) -> list[socket.socket]:
    """Open listening sockets on one port, over which the kernel spreads connections; port 0 takes a free one."""
    with bind(host, port) as sock:  # nobody else has it: a shared port would let a second server take half of it
        port = sock.getsockname()[1]
    return [bind(host, port, shared=True) for _ in range(count)]


def url_of(sock: socket.socket) -> str:
    """Return the URL under which a listening socket answers."""
    host, port = sock.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class Server:
    """Has an app answer on sockets until it is told to stop. The app's start and end are somebody else's business."""

    def __init__(
        self,
        app: ASGIApp,
        settings: ServerConfig,
        *,
        on_ready: Callable[[], None] = lambda: None,
        on_stop: Callable[[], None] = lambda: None,
    ) -> None:
        """Take who is told when it listens, and who before it waits for the requests that are running."""
        self._settings = settings
        self._on_ready = on_ready
        self._on_stop = on_stop
        self._state = CommonState(app, settings, most=settings.connections.max_open or most_connections())
        self._stop = asyncio.Event()
        self._hurry = False

    @property
    def stopping(self) -> bool:
        """Whether it was told to stop."""
        return self._stop.is_set()

    def stop(self, *, hurry: bool = False) -> None:
        """Stop, after the requests that are running; told a second time by somebody in a hurry, wait for none."""
        self._hurry = self._hurry or (hurry and self.stopping)
        self._stop.set()

    async def serve(self, sockets: Sequence[socket.socket]) -> None:
        """Listen until told to stop, and until what is running has ended or was cut off; close the sockets."""
        state = self._state
        state.note_time()
        acceptors = [Acceptor(sock, partial(HttpProtocol, state), state.watch) for sock in sockets]
        for acceptor in acceptors:
            acceptor.resume()
        self._on_ready()
        while not self.stopping:
            state.note_time()
            state.watch.sweep()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_SWEEP):
                    await self._stop.wait()
        self._on_stop()
        state.watch.tell()
        for acceptor in acceptors:
            await acceptor.close()
        # Not for the last connection, as `wait_closed` does since 3.12: a client that does not read never leaves.
        await self._wait_for_requests()

    async def _wait_for_requests(self) -> None:
        """Wait for the requests that are running, and cut off those that take too long."""
        state = self._state
        loop = asyncio.get_running_loop()
        end = loop.time() + max(1.0, self._settings.shutdown_timeout)
        if state.tasks:
            logger.info(
                "stopping; requests that are still running: %d (a second signal cuts them off)", len(state.tasks)
            )
        told: set[OpenConnection] = set()
        while True:  # uvicorn's WebSockets leave without a word
            for connection in state.connections - told:  # some were accepted before, and are made only now
                connection.shutdown()
                told.add(connection)
            if not (state.connections or state.tasks) or self._hurry or loop.time() >= end:
                break
            await asyncio.sleep(_LOOK)
        if cut_off := set(state.tasks):
            logger.warning("stopping; requests that are cut off: %d", len(cut_off))
            for task in cut_off:
                task.cancel()
            await asyncio.wait(cut_off, timeout=_CUT_OFF_TIMEOUT)  # they store what they have before the app is closed
