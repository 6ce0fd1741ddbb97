"""The vector databases under measurement, each with what it needs: a folder, a Qdrant server, a PostgreSQL server."""

import contextlib
import os
import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from pydantic import SecretStr
from tests.support.postgres import PostgresServer
from tests.support.qdrant import OwnQdrant, QdrantServer

from antwort.extensions import VectorDatabase
from antwort.providers.file_search.settings import PgvectorSettings, QdrantSettings
from antwort.providers.file_search.vectors.embedded.backend import Embedded
from antwort.providers.file_search.vectors.pgvector.backend import Pgvector
from benchmarks.processes import cpu_seconds

PATIENCE = 300
"""Seconds for one statement: some of those that fill a database are long."""


@dataclass(frozen=True, slots=True)
class MeasuredDatabase:
    """A database, and the processes that are it."""

    backend: VectorDatabase
    processes: Callable[[], Sequence[int]]

    def memory(self) -> float:
        """Return the megabytes that its processes cannot do without; what they share counts once."""
        return sum(_megabytes(pid, "Pss_Anon") + _megabytes(pid, "Pss_Shmem") for pid in self.processes())

    def mapped(self) -> float:
        """Return the megabytes of files that they have in memory, which the system can take back."""
        return sum(_megabytes(pid, "Pss_File") for pid in self.processes())

    def cpu_seconds(self) -> float:
        """Return the CPU time that its processes have used."""
        return sum(map(cpu_seconds, self.processes()))


@contextlib.asynccontextmanager
async def embedded() -> AsyncIterator[MeasuredDatabase]:
    """Give the embedded database, in a folder of its own; it runs in a child of this process."""
    with TemporaryDirectory(prefix="antwort-bench-") as folder:
        async with _open(Embedded(Path(folder)), _new_children()) as database:
            yield database


@contextlib.asynccontextmanager
async def qdrant() -> AsyncIterator[MeasuredDatabase]:
    """Give a Qdrant server that was started for this."""
    processes = _new_children()
    server = QdrantServer()
    try:
        server.start()
        async with _open(OwnQdrant(QdrantSettings(url=server.url, timeout=PATIENCE)), processes) as database:
            yield database
    finally:
        server.remove()


@contextlib.asynccontextmanager
async def pgvector() -> AsyncIterator[MeasuredDatabase]:
    """Give a PostgreSQL server that was started for this."""
    server = PostgresServer()
    try:
        server.start()
        settings = PgvectorSettings(url=SecretStr(server.create()), timeout=PATIENCE)
        async with _open(Pgvector(settings), server.pids) as database:
            yield database
    finally:
        server.remove()


DATABASES: dict[str, Callable[[], AbstractAsyncContextManager[MeasuredDatabase]]] = {
    "embedded": embedded,
    "qdrant": qdrant,
    "pgvector": pgvector,
}


@contextlib.asynccontextmanager
async def _open(backend: VectorDatabase, processes: Callable[[], Sequence[int]]) -> AsyncIterator[MeasuredDatabase]:
    try:
        await backend.health()
        yield MeasuredDatabase(backend, processes)
    finally:
        await backend.close()


def _new_children() -> Callable[[], Sequence[int]]:
    """Return what finds the children of this process that it has not yet."""
    before = set(_children())
    return lambda: [pid for pid in _children() if pid not in before]


def _children() -> list[int]:
    files = Path(f"/proc/{os.getpid()}/task").glob("*/children")
    return [int(pid) for file in files for pid in file.read_text().split()]


def _megabytes(pid: int, kind: str) -> float:
    try:
        found = re.search(rf"^{kind}:\s+(\d+) kB$", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE)
    except OSError:  # it has just ended
        return 0.0
    return int(found[1]) * 1024 / 1e6 if found else 0.0
