"""The embedded backend."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.providers.file_search.vectors.conformance import (
    OTHER,
    STORE,
    TENANT,
    VectorBackendContract,
    chunk,
    ids,
    near,
)
from typing_extensions import override

from antwort.providers.file_search.vectors import embedded
from antwort.providers.file_search.vectors.base import Query, VectorStoreBackend, collection_name
from antwort.providers.file_search.vectors.embedded import Embedded, EmbeddedInUse


def process_of(backend: VectorStoreBackend) -> int:
    """Return the process that owns the database."""
    assert isinstance(backend, Embedded)
    assert backend.pid is not None
    return backend.pid


def threads_of(process: int) -> int:
    return len(list(Path(f"/proc/{process}/task").iterdir()))


class TestEmbedded(VectorBackendContract):
    stays_down = False  # the next call starts it again

    @pytest.fixture
    async def backend(self, tmp_path: Path) -> AsyncIterator[VectorStoreBackend]:
        backend = Embedded(tmp_path / "vectors")
        yield backend
        await backend.close()

    @override
    def crash(self, backend: VectorStoreBackend) -> None:
        os.kill(process_of(backend), signal.SIGKILL)


@pytest.fixture
async def backend(tmp_path: Path) -> AsyncIterator[Embedded]:
    backend = Embedded(tmp_path / "vectors")
    await backend.create_collection(STORE, 4)
    yield backend
    await backend.close()


async def test_it_is_all_there_after_a_restart(backend: Embedded, tmp_path: Path) -> None:
    await backend.upsert(STORE, [chunk(1, "kept"), chunk(2)])
    await backend.close()
    again = Embedded(tmp_path / "vectors")
    assert await again.dimensions(STORE) == 4
    assert ids(await again.search(STORE, Query(TENANT, text="kept"))) == [1]
    await again.close()


async def test_a_second_process_is_told_who_owns_it(backend: Embedded, tmp_path: Path) -> None:
    second = Embedded(tmp_path / "vectors")
    with pytest.raises(EmbeddedInUse, match="in use by another process: the gateway owns it"):
        await second.health()
    await second.close()
    await backend.health()


SERVER = """
import asyncio, os, signal, sys
from pathlib import Path
from antwort.providers.file_search.vectors.embedded import Embedded
from tests.providers.file_search.vectors.conformance import STORE, chunk

async def main():
    backend = Embedded(Path(sys.argv[1]))
    await backend.create_collection(STORE, 4)
    for number in range(100):
        await backend.upsert(STORE, [chunk(number)])
        print(number, flush=True)
    await asyncio.sleep(3600)

asyncio.run(main())
"""


async def test_what_was_written_outlives_the_server(tmp_path: Path) -> None:
    root = str(Path(__file__).parents[4])
    server = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        SERVER,
        str(tmp_path / "vectors"),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": root},
    )
    assert server.stdout is not None
    last = -1
    while last < 40:
        last = int(await server.stdout.readline())
    server.kill()
    rest = (await server.stdout.read()).split()
    await server.wait()
    last = max([last, *map(int, rest)])
    backend = Embedded(tmp_path / "vectors")  # waits for the end of the other's process, which ends with its server
    found = (await backend.count(STORE, tenant=TENANT)).chunks
    assert found in {last + 1, last + 2}, "the last one may have been written and not yet said"
    assert ids(await backend.search(STORE, Query(TENANT, near(last), limit=1))) == [last]
    await backend.close()


async def test_a_process_that_does_not_end_is_killed(backend: Embedded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "_PATIENCE", 0.05)
    await backend.upsert(STORE, [chunk(1)])
    os.kill(process_of(backend), signal.SIGSTOP)
    await backend.close()
    assert ids(await backend.search(STORE, Query(TENANT, near(1)))) == [1]


async def test_the_process_ends_with_its_server(backend: Embedded) -> None:
    pid = process_of(backend)
    await backend.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    await backend.health()
    assert process_of(backend) != pid


async def test_what_a_crash_left_half_done_is_no_collection(backend: Embedded, tmp_path: Path) -> None:
    await backend.close()
    folder = tmp_path / "vectors"
    (folder / f"{OTHER}.new" / "segments").mkdir(parents=True)
    (folder / f"{OTHER}.old" / "wal").mkdir(parents=True)
    assert await backend.collections() == [STORE]
    assert sorted(path.name for path in folder.iterdir()) == [STORE, "lock"]
    await backend.create_collection(OTHER, 4)
    assert await backend.collections() == [OTHER, STORE]


async def test_more_collections_than_can_be_open_are_all_searched(backend: Embedded) -> None:
    names = [collection_name(f"vs_{number}") for number in range(34)]
    for number, name in enumerate(names):
        await backend.create_collection(name, 4)
        await backend.upsert(name, [chunk(number)])
    assert threads_of(process_of(backend)) <= 2 * 33 + 4
    for number in (0, 1, 33):
        assert ids(await backend.search(names[number], Query(TENANT, near(0)))) == [number]


async def test_space_of_deleted_chunks_is_given_back_and_the_rest_stays(backend: Embedded) -> None:
    await backend.upsert(STORE, [chunk(number, file=f"file-{number % 6}") for number in range(3000)])
    for number in range(5):
        await backend.delete(STORE, tenant=TENANT, file_id=f"file-{number}")
    assert (await backend.count(STORE, tenant=TENANT)).chunks == 500
    hits = await backend.search(STORE, Query(TENANT, near(5), text="text", limit=50))
    assert len(hits) == 50
    assert {hit.file_id for hit in hits} == {"file-5"}
