"""A way from one server to the database that can be cut, as a network is: nothing comes through, and nobody is told."""

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import parse_qs, quote, urlsplit

from typing_extensions import override

_SOCKET = ".s.PGSQL.5432"


class Cable:
    """Carries what a server and PostgreSQL say to each other."""

    def __init__(self, url: str) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="antwort-cable-", ignore_cleanup_errors=True)
        self.there = f"{parse_qs(urlsplit(url).query)['host'][0]}/{_SOCKET}"
        self.is_whole = True
        self.ends: set[_End] = set()
        """Those of all connections, two of each."""
        self._all_gone = asyncio.Event()
        self._all_gone.set()
        self._listening: asyncio.Server | None = None
        self.url = f"{url.partition('?')[0]}?host={quote(self._folder.name, safe='')}"
        """The database, over this cable."""

    async def start(self) -> None:
        """Let servers connect, if they may not yet."""
        if self._listening is None:
            loop, path = asyncio.get_running_loop(), Path(self._folder.name, _SOCKET)
            self._listening = await loop.create_unix_server(lambda: _NearEnd(self), path)

    def note(self, end: "_End", *, there: bool) -> None:
        """Take note of an end that is there, or gone."""
        (self.ends.add if there else self.ends.discard)(end)
        (self._all_gone.clear if self.ends else self._all_gone.set)()

    @contextlib.asynccontextmanager
    async def cut(self) -> AsyncIterator[None]:
        """Let nothing through for a while; what was sent meanwhile comes afterwards."""
        self.is_whole = False
        try:
            yield
        finally:
            self.is_whole = True
            for end in [*self.ends]:
                end.pass_on()

    async def close(self) -> None:
        """End all connections."""
        if self._listening is not None:
            self._listening.close()
        for end in [*self.ends]:
            end.leave()
        await self._all_gone.wait()
        self._folder.cleanup()


class _End(asyncio.Protocol):
    """One end of a connection: it hands what comes to the other end, or holds it until it can."""

    transport: asyncio.Transport | None = None
    other: "_End | None" = None

    def __init__(self, cable: Cable) -> None:
        self._cable = cable
        self._held: list[bytes] = []

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._cable.note(self, there=True)

    @override
    def data_received(self, data: bytes) -> None:
        self._held.append(data)
        self.pass_on()

    def pass_on(self) -> None:
        """Hand over what is held, if the cable is whole and there is somebody."""
        other = self.other
        if self._cable.is_whole and other is not None and other.transport is not None:
            held, self._held = self._held, []
            other.transport.writelines(held)

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._cable.note(self, there=False)
        if self.other is not None:
            self.other.leave()

    def leave(self) -> None:
        """End the connection."""
        if self.transport is not None:
            self.transport.close()


class _NearEnd(_End):
    """The end at a server, which has another one connected."""

    def __init__(self, cable: Cable) -> None:
        super().__init__(cable)
        self._connecting: asyncio.Task[None] | None = None

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._connecting = asyncio.ensure_future(self._connect())

    async def _connect(self) -> None:
        far = _End(self._cable)
        far.other = self
        try:
            await asyncio.get_running_loop().create_unix_connection(lambda: far, self._cable.there)
        except OSError:  # the database is away
            self.leave()
            return
        self.other = far
        if self not in self._cable.ends:  # it has left meanwhile
            far.leave()
        self.pass_on()
        far.pass_on()
