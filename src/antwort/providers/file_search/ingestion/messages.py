"""What a worker and the server say to each other: each message is MessagePack after its length in four bytes.

The server listens on loopback only, at a port that it writes into a file of its data folder, with a secret that a
worker has to say first: whoever can read the file may work for the server.
"""

import asyncio
import contextlib
import os
import struct
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

MOST_BYTES = 256 << 20
"""Of one message."""
PIECE = 4 << 20
"""Bytes of a file that are read at once."""
FIRST_SECONDS = 10.0
"""In which each side says its first message; whoever is behind the port may be somebody else."""


class ServerAddress(Struct, frozen=True):
    """Where the server listens for workers, and what they have to say."""

    port: int
    secret: str

    def write(self, file: Path) -> None:
        """Write it down, for nobody else of the machine; a reader sees all of it or the one before."""
        new = file.with_suffix(".new")
        try:
            with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as written:
                written.write(msgspec.json.encode(self))
            new.rename(file)
        except OSError:
            with contextlib.suppress(OSError):
                new.unlink()
            raise

    def remove(self, file: Path) -> None:
        """Remove what was written, unless somebody else has written there since."""
        with contextlib.suppress(OSError, ValueError):
            if ServerAddress.read(file) == self:
                file.unlink()

    @classmethod
    def read(cls, file: Path) -> "ServerAddress":
        """Read it; OSError or ValueError if there is none."""
        return msgspec.json.decode(file.read_bytes(), type=cls)


class Hello(Struct, tag="hello", frozen=True):
    """The first message of a worker."""

    secret: str
    pid: int


class Claim(Struct, tag="claim", frozen=True):
    """Ask for work; the answer is a Job, or None if there was none for a while."""

    wait: float = 10.0


class Read(Struct, tag="read", frozen=True):
    """Ask for a part of the file; the answer is bytes, none at its end."""

    offset: int


class NewChunk(Struct, frozen=True):
    """A chunk with its vectors, each as numbers of four bytes: the first is its own, others those of its windows."""

    index: int
    text: str
    vectors: list[bytes]


class Cut(Struct, tag="cut", frozen=True):
    """Say what was read; the answer is how many of the first chunks an earlier attempt has written already."""

    pages: int
    checks: list[int]
    """Of each chunk the CRC-32 of its text."""
    language: str = ""
    """What the file is written in, as ISO 639-1 writes it; empty if that is not known."""


class Write(Struct, tag="write", frozen=True):
    """Write chunks."""

    chunks: list[NewChunk]
    tokens: int = 0
    """Of all of them, as they are counted when a file is cut."""


class Renew(Struct, tag="renew", frozen=True):
    """Say that the work goes on, and ask whether it is still wanted."""


class Complete(Struct, tag="complete", frozen=True):
    """Say that all chunks were written, and where in the file each stands."""

    places: list[tuple[int, int, int, int, int]]
    """The first character, the one behind the last, the first page and the last (0: none), and which heading."""
    headings: list[str] = []
    """What chunks stand below: each path of headings once."""
    warnings: list[str] = []
    """What of the file was not read."""


class Fail(Struct, tag="fail", frozen=True):
    """Say that the file cannot be made searchable."""

    code: str
    message: str


class Release(Struct, tag="release", frozen=True):
    """Give the job back, to be tried again after some seconds."""

    message: str
    seconds: float


Request = Hello | Claim | Read | Cut | Write | Renew | Complete | Fail | Release


class Job(Struct, frozen=True):
    """A file to make searchable."""

    tenant: str
    store_id: str
    file_id: str
    filename: str
    size: int
    overlap: int
    dimensions: int
    several_tenants: bool = False
    """Whether tenants share the worker."""


class ServerAnswer(Struct, frozen=True):
    """What the server answers: a value, or what was wrong."""

    value: Any = None
    error: str | None = None
    lost: bool = False
    """The job is not the worker's any more: the file was detached, or somebody else has it."""


class LostJobError(Exception):
    """The job is somebody else's now, or nobody's."""


class ServerError(Exception):
    """The server could not do what it was asked."""


async def connect(address: ServerAddress) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to a server as a worker; OSError if it is not there, or another one is."""
    reader, writer = await asyncio.open_connection("127.0.0.1", address.port)
    try:
        async with asyncio.timeout(FIRST_SECONDS):
            await send(writer, Hello(address.secret, os.getpid()))
            answer = msgspec.msgpack.decode(await receive(reader), type=ServerAnswer)
    except BaseException:
        writer.close()
        raise
    if answer.error is not None:
        writer.close()
        raise ConnectionRefusedError(answer.error)
    return reader, writer


async def send(writer: asyncio.StreamWriter, message: Struct) -> None:
    """Send a message."""
    body = msgspec.msgpack.encode(message)
    writer.write(struct.pack(">I", len(body)) + body)
    await writer.drain()


async def receive(reader: asyncio.StreamReader, most: int = MOST_BYTES) -> bytes:
    """Receive a message, not decoded yet; IncompleteReadError at the end, ValueError if it is too long."""
    length = struct.unpack(">I", await reader.readexactly(4))[0]
    if length > most:
        raise ValueError("the message is too long")
    return await reader.readexactly(length)


class ServerConnection:
    """The server, as a worker sees it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._turn = asyncio.Lock()

    async def ask(self, request: Request) -> Any:
        """Return the answer to a request; LostJobError or ServerError if there is none."""
        # Whoever is cancelled leaves the answer to be read: the next one who asks must not take it for its own.
        exchange = asyncio.ensure_future(self._exchange(request))
        exchange.add_done_callback(lambda done: done.cancelled() or done.exception())
        answer = await asyncio.shield(exchange)
        if answer.lost:
            raise LostJobError
        if answer.error is not None:
            raise ServerError(answer.error)
        return answer.value

    async def _exchange(self, request: Request) -> ServerAnswer:
        async with self._turn:
            await send(self._writer, request)
            return msgspec.msgpack.decode(await receive(self._reader), type=ServerAnswer)

    async def claim(self, wait: float) -> Job | None:
        """Return a job, None if there was none for a while."""
        found = await self.ask(Claim(wait))
        return None if found is None else msgspec.convert(found, Job)
