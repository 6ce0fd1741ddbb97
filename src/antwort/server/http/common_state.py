"""What all connections of a server share."""

import asyncio
from email.utils import formatdate
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from starlette.types import ASGIApp

from antwort.config import ServerConfig
from antwort.lazy_imports import imported_on_use
from antwort.server.http.client_connections import Connections

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
