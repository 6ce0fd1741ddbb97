"""All connections of clients: which of them wait for what, since when, and which have to go."""

import asyncio
import enum
import logging
import os
import select
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from email.utils import formatdate
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Protocol

from starlette.types import ASGIApp

from antwort.config import ConnectionsConfig, ServerConfig
from antwort.lazy_imports import imported_on_use

logger = logging.getLogger(__name__)
GRACE = 1.0
"""Seconds in which a connection may be one too many: many can be opened before the first of them is read from."""
LEAVING = 64
"""Connections that may be leaving, when all others are in use, before more of them are taken to be refused."""
_LOOKED_AT = 32
"""Idle connections that are looked at to find one that can go."""
QUIET = 10.0
"""Seconds between two lines of the log about the same thing."""
NO_ROOM = "refused %d connections: as many as may be open are in use (server.connections.max_open)"
MADE_ROOM = "closed %d idle connections to make room for others (server.connections.max_open)"
NO_REQUEST = "closed %d connections that had not sent a request in time (server.connections.head_timeout)"
TOO_MANY_IDLE = "closed %d idle connections of addresses with too many (server.connections.max_idle_per_address)"


class ConnectionRoom(enum.Enum):
    """Whether another connection can be taken."""

    FREE = "free"
    NONE = "none"
    """All are in use: it is taken to be told so."""
    LATER = "later"
    """Nobody knows yet: some have only come, and are in use or idle in a moment."""


class ClientConnection(Protocol):
    """A connection, as the sweep sees it."""

    transport: asyncio.Transport

    @property
    def address(self) -> str:
        """Where it comes from."""

    def too_late(self) -> None:
        """End it: the head of a request has not come in time."""

    def find_stall(self, now: float, elapsed: float) -> str | None:
        """End it if its client neither sends nor reads, and tell which clients those are."""


class Connections:
    """Keeps time for all connections, in one sweep for all of them: none has a timer of its own.

    A connection either waits for the head of a request, rests between two requests, has a request under way, or is
    leaving: its last answer was sent, and what its client still sends is thrown away for a while. Only the second and
    the third move with each request, which costs two changes of dictionaries.
    """

    def __init__(
        self,
        limits: ConnectionsConfig,
        everyone: Collection[object],
        *,
        most: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.limits = limits
        self.clock = clock
        self._everyone = everyone
        self._most = most
        # By the time they got there: the first are the oldest.
        self._waiting: dict[ClientConnection, float] = {}
        self._resting: dict[ClientConnection, float] = {}
        self._leaving: dict[ClientConnection, float] = {}
        self._busy: dict[ClientConnection, None] = {}
        self._notices: dict[str, _Notice] = {}
        self._wanting_room: list[Callable[[], None]] = []
        self._swept = clock()

    def __len__(self) -> int:
        """Return the number of connections, of all kinds."""
        return len(self._everyone)

    @property
    def idle(self) -> int:
        """The number of connections without a request under way."""
        return len(self._waiting) + len(self._resting)

    # --- room --------------------------------------------------------------------------------------------------------

    def room(self, coming: int) -> ConnectionRoom:
        """Tell whether another connection can be taken, at the cost of an idle one if there are too many.

        `coming` are those that were taken and are not here yet.
        """
        if not self.is_full(coming):
            return ConnectionRoom.FREE
        leaving = len(self._leaving)
        if leaving + coming >= min(LEAVING, max(4, self._most // 4)):  # each has a file handle, too
            return ConnectionRoom.LATER
        if self._make_room():
            return ConnectionRoom.FREE
        return ConnectionRoom.LATER if self._waiting or coming else ConnectionRoom.NONE

    def is_full(self, coming: int) -> bool:
        """Tell whether as many connections are open as may be, but for those that are leaving."""
        return len(self._everyone) - len(self._leaving) + coming >= self._most

    def on_room(self, listener: Callable[[], None]) -> None:
        """Have somebody told whenever there may be room again: when a connection has gone, and about each second."""
        self._wanting_room.append(listener)

    def note_gone(self, connection: ClientConnection) -> None:
        """Take note that a connection is closed."""
        self.forget(connection)
        self._tell_of_room()

    def note_no_handle(self, error: OSError) -> None:
        """Take note that a connection could not be taken; it waits."""
        text = f"no file handle can be opened, so connections have to wait: {error.strerror}; raise 'ulimit -n'"
        self._notices.setdefault(text, _Notice()).count += 1

    def _tell_of_room(self) -> None:
        for listener in self._wanting_room:
            listener()

    # --- what connections tell ---------------------------------------------------------------------------------------

    def admit(self, connection: ClientConnection) -> None:
        """Take note of a new connection."""
        self._waiting[connection] = self.clock()

    def note_head(self, connection: ClientConnection) -> None:
        """Take note that the head of a request has begun, and is not complete."""
        if self._resting.pop(connection, None) is not None:
            self._waiting[connection] = self.clock()

    def note_request(self, connection: ClientConnection) -> None:
        """Take note that a request is under way."""
        if self._resting.pop(connection, None) is None:
            self._waiting.pop(connection, None)
        self._busy[connection] = None

    def note_rest(self, connection: ClientConnection) -> None:
        """Take note that a connection has answered its requests, and may bring others."""
        self._busy.pop(connection, None)
        self._leaving.pop(connection, None)
        self._resting[connection] = self.clock()

    def let_go(self, connection: ClientConnection, seconds: float) -> None:
        """Let a connection last some seconds more, in which its client may take note of its last answer."""
        self.forget(connection)
        self._leaving[connection] = self.clock() + seconds

    def forget(self, connection: ClientConnection) -> None:
        """Forget a connection."""
        for kind in (self._waiting, self._resting, self._leaving, self._busy):
            kind.pop(connection, None)

    # --- the sweep ---------------------------------------------------------------------------------------------------

    def sweep(self) -> None:
        """End whatever takes too long or is one too many. To be called about once a second."""
        now = self.clock()
        elapsed, self._swept = now - self._swept, now
        for connection in _without_unread(_older(self._waiting, now - self.limits.head_timeout)):
            self.notice(NO_REQUEST, connection)
            connection.too_late()
        for connection in _without_unread(_older(self._resting, now - self.limits.idle_timeout)):
            self._close(connection)
        for connection in [c for c, until in self._leaving.items() if until <= now]:
            connection.transport.abort()
        for connection in list(self._busy):
            self._look_at(connection, now, elapsed)
        self._disperse(now)
        self._look_for_handles()
        self._tell_of_room()
        self.tell(quiet=QUIET)

    def _look_at(self, connection: ClientConnection, now: float, elapsed: float) -> None:
        """End a connection that stalls. A mistake of ours about one of them must not end the server for all."""
        try:
            reason = connection.find_stall(now, elapsed)
        except Exception:
            logger.exception("a connection cannot be looked after, and is closed")
            self.forget(connection)
            connection.transport.abort()
            return
        if reason is not None:
            self.notice(f"cut off %d clients {reason}", connection)

    def _disperse(self, now: float) -> None:
        """Close the oldest idle connections of addresses that have too many."""
        most = self.limits.max_idle_per_address
        if self.idle <= most:
            return
        idle = [*self._waiting.items(), *self._resting.items()]  # those that never sent anything go first
        for address, count in Counter(connection.address for connection, _ in idle).items():
            if count <= most:
                continue
            old = _without_unread(c for c, since in idle if c.address == address and since <= now - GRACE)
            for connection in old[: count - most]:
                self.notice(TOO_MANY_IDLE, connection)
                self._close(connection)

    def _make_room(self) -> bool:
        """Close the connection that is idle for the longest time; False if all are in use, or may be in a moment."""
        for idle in (_older(self._waiting, self.clock() - GRACE), self._resting):
            for connection in _without_unread(islice(idle, _LOOKED_AT))[:1]:
                self.notice(MADE_ROOM, connection)
                self._close(connection)
                return True
        return False

    def _close(self, connection: ClientConnection) -> None:
        """Close an idle connection, when its client has read the last answer."""
        self.let_go(connection, self.limits.write_timeout)
        connection.transport.close()

    def _look_for_handles(self) -> None:
        """Tell if there are no file handles left: whoever else needs one may not say so."""
        try:
            os.close(os.open(os.devnull, os.O_RDONLY))
        except OSError as error:
            self.note_no_handle(error)

    def tell(self, *, quiet: float = 0.0) -> None:
        """Write to the log what has happened, but not what was written there in the last `quiet` seconds."""
        now = self.clock()
        for text, notice in self._notices.items():
            notice.tell(text, now, quiet)

    def notice(self, text: str, connection: ClientConnection) -> None:
        """Write to the log soon, and once for many: text is about a number of connections."""
        notice = self._notices.setdefault(text, _Notice())
        notice.count += 1
        notice.address = connection.address


class _Notice:
    """Something that happened some times since the log was told."""

    __slots__ = ("address", "count", "told")

    def __init__(self) -> None:
        self.count = 0
        self.address = ""
        self.told = float("-inf")

    def tell(self, text: str, now: float, quiet: float) -> None:
        if self.count and now - self.told >= quiet:
            message = text % self.count if "%d" in text else text
            logger.warning("%s%s", message, f"; the last from {self.address}" if self.address else "")
            self.count, self.told = 0, now


def _without_unread(connections: Iterable[ClientConnection]) -> list[ClientConnection]:
    """Return those connections from which nothing has come that is not read yet.

    While the server is busy a request may wait longer than an idle connection is kept: it came in time.
    """
    found = {}
    poll = select.poll()
    for connection in connections:
        handle = connection.transport.get_extra_info("socket").fileno()
        if handle >= 0:
            found[handle] = connection
            poll.register(handle, select.POLLIN)
    for handle, _ in poll.poll(0) if found else ():
        del found[handle]
    return list(found.values())


def _older(kind: dict[ClientConnection, float], than: float) -> list[ClientConnection]:
    """Return the connections that are where they are since a time before; those dictionaries are ordered by it."""
    found: list[ClientConnection] = []
    for connection, since in kind.items():
        if since > than:
            break
        found.append(connection)
    return found


# --- what all connections of a server share --------------------------------------------------------------------------


if TYPE_CHECKING:
    import uvicorn
else:  # for the first client that wants a WebSocket
    uvicorn = imported_on_use("uvicorn")


class OpenConnection(Protocol):
    """A connection, as a server sees it that stops."""

    def shutdown(self) -> None:
        """End it, or let the request that is under way be the last."""


class CommonState:
    """The app, who is connected, what is being answered, and the headers of every answer."""

    def __init__(self, app: ASGIApp, settings: ServerConfig, *, most: int) -> None:
        self.app = app
        self.settings = settings
        # uvicorn's protocol for WebSockets knows these three by their names.
        self.connections: set[OpenConnection] = set()
        self.tasks: set[asyncio.Task[None]] = set()
        self.default_headers: list[tuple[bytes, bytes]] = []
        self.default_lines: list[bytes] = []
        """The same headers, as they are written."""
        self.watch = Connections(settings.connections, self.connections, most=most)
        """Keeps time for the connections without a WebSocket."""

    def note_time(self) -> None:
        """Give the answers from now on the time of now."""
        self.default_headers = [(b"date", formatdate(usegmt=True).encode())]
        self.default_lines = [b"%s: %s" % header for header in self.default_headers]

    @cached_property
    def websocket_config(self) -> "uvicorn.Config":
        """What uvicorn's protocol for WebSockets is to do."""
        config = uvicorn.Config(
            self.app,
            interface="asgi3",
            loop="none",
            http=asyncio.Protocol,  # it is another's business
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            ws_max_size=self.settings.max_body_bytes,
            ws_ping_interval=self.settings.websocket.ping,
            ws_ping_timeout=2 * self.settings.websocket.ping,
            ws_per_message_deflate=False,  # events are small: it costs more than it spares, for every client
        )
        config.load()
        return config
