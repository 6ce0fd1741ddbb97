"""The server itself: listening sockets, uvicorn on them, and as many open files as its connections need."""

import asyncio
import contextlib
import functools
import logging
import resource
import socket
from collections.abc import Callable, Iterator
from typing import Any, cast

import uvicorn
from starlette.types import ASGIApp
from typing_extensions import override

from antwort.config import ServerConfig
from antwort.errors import ConfigError
from antwort.server.client_connections import Connections
from antwort.server.http_protocol import HttpProtocol, websocket_protocol

logger = logging.getLogger(__name__)
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


_PARTING = 5.0
"""Seconds that requests get to end after they were cancelled."""
_TICKS = 10
"""How many ticks of the server, ten in a second, are between two sweeps."""


def bind(host: str, port: int, *, shared: bool = False) -> socket.socket:
    """Open a listening socket; port 0 takes a free one. A port that is shared can be bound again by the same user."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        sock.bind((host.strip("[]"), port))
        sock.listen(2048)  # now, so that a second server on the same port fails here and not later
    except (OSError, OverflowError) as error:
        sock.close()
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ConfigError(f"cannot listen on {host}:{port}: {reason}; choose another with --host and --port") from error
    sock.set_inheritable(True)
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


class _Server(uvicorn.Server):
    """A server that tells when it is listening, and that can be told not to touch signal handlers."""

    def __init__(
        self,
        config: uvicorn.Config,
        settings: ServerConfig,
        *,
        on_ready: Callable[[], None],
        on_stop: Callable[[], None],
        signals: bool,
    ) -> None:
        super().__init__(config)
        limits = settings.connections
        most = limits.max_open or most_connections()
        self.connections = Connections(limits, self.server_state.connections, most=most)
        protocol: Any = functools.partial(
            HttpProtocol, connections=self.connections, max_body=int(settings.max_body_bytes)
        )
        config.http = protocol
        self._on_ready = on_ready
        self._on_stop = on_stop
        self._signals = signals

    @override
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        if self.started:
            self._on_ready()

    @override
    async def on_tick(self, counter: int) -> bool:
        if counter % _TICKS == 0:
            self.connections.sweep()
        return await super().on_tick(counter)

    @override
    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._on_stop()
        self.connections.tell()
        await super().shutdown(sockets=sockets)
        if cancelled := set(self.server_state.tasks):  # they store what they have before the app is closed
            await asyncio.wait(cancelled, timeout=_PARTING)

    @override
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        if not self._signals:
            yield
            return
        with super().capture_signals():
            yield


def running_server(
    app: ASGIApp,
    settings: ServerConfig,
    *,
    on_ready: Callable[[], None] = lambda: None,
    on_stop: Callable[[], None] = lambda: None,
    signals: bool = True,
) -> uvicorn.Server:
    """Return a server for an app whose start and stop are somebody else's business; set `should_exit` to end it.

    `on_stop` is called before it waits for the requests that are running.
    """
    config = uvicorn.Config(
        app,
        loop="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ws=cast("type[asyncio.Protocol]", websocket_protocol),
        ws_max_size=settings.max_body_bytes,
        ws_ping_interval=settings.websocket.ping,
        ws_ping_timeout=2 * settings.websocket.ping,
        ws_per_message_deflate=False,  # events are small: it costs more than it spares, for every client
        timeout_graceful_shutdown=max(1, round(settings.shutdown_timeout)),
    )
    return _Server(config, settings, on_ready=on_ready, on_stop=on_stop, signals=signals)
