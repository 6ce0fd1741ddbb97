"""The embedded backend."""

import asyncio
import os
import shutil
import signal
import struct
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
import qdrant_edge as edge
from tests.providers.file_search.vectors.conformance import (
    OTHER,
    SHARED,
    STORE,
    TENANT,
    VectorBackendContract,
    chunk,
    ids,
    near,
)
from typing_extensions import override

from antwort.extensions import Comparison, Count, Query, Scalar, VectorDatabase, VectorStoreUnavailable, collection_name
from antwort.providers.file_search.vectors.embedded import backend as embedded
from antwort.providers.file_search.vectors.embedded.backend import Embedded, EmbeddedInUse
from antwort.providers.file_search.vectors.embedded.keywords import KeywordScope, KeywordSearch
from antwort.providers.file_search.vectors.embedded.open_collections import OpenCollections, config
from antwort.storage.in_place import standing_still


def process_of(backend: VectorDatabase) -> int:
    """Return the process that owns the database."""
    assert isinstance(backend, Embedded)
    assert backend.pid is not None
    return backend.pid


def threads_of(process: int) -> int:
    return len(list(Path(f"/proc/{process}/task").iterdir()))


def maps_of(process: int) -> list[str]:
    return Path(f"/proc/{process}/maps").read_text().splitlines()


class TestEmbedded(VectorBackendContract):
    stays_down = False  # the next call starts it again

    @pytest.fixture
    async def backend(self, tmp_path: Path) -> AsyncIterator[VectorDatabase]:
        backend = Embedded(tmp_path / "vectors")
        yield backend
        await backend.close()

    @override
    def crash(self, backend: VectorDatabase) -> None:
        os.kill(process_of(backend), signal.SIGKILL)


class TestEmbeddedThatHasGrown(TestEmbedded):
    """The same with so many chunks of others that there are indexes."""

    @pytest.fixture
    @override
    async def store(self, backend: VectorDatabase) -> VectorDatabase:
        await backend.create_collection(STORE, 4)
        others = [chunk(10_000 + number, tenant="others", attributes={"other": number}) for number in range(501)]
        await backend.upsert(STORE, others)
        return backend


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


async def test_it_is_all_there_in_a_copy_that_is_made_while_it_stands_still(backend: Embedded, tmp_path: Path) -> None:
    folder = tmp_path / "vectors"
    written, news = 0, asyncio.Condition()

    async def write() -> None:
        nonlocal written
        while True:
            await backend.upsert(STORE, [chunk(written, f"word{written}"), chunk(written + 1, f"word{written + 1}")])
            written += 2
            async with news:
                news.notify_all()

    def copy(target: Path) -> int:
        with standing_still([folder]):
            shutil.copytree(folder, target)
            return written

    writing = asyncio.create_task(write())
    copies = {}
    for number in range(5):
        async with news:
            await news.wait_for(lambda most=20 * (number + 1): written >= most)  # type: ignore[misc]
        copies[number] = await asyncio.to_thread(copy, tmp_path / f"copy-{number}")
        assert not writing.done()
    writing.cancel()
    for number, least in copies.items():
        copied = Embedded(tmp_path / f"copy-{number}")
        found = (await copied.count(STORE, tenant=TENANT)).chunks
        assert found % 2 == 0
        assert found >= least
        for one in range(0, found, 7):
            assert ids(await copied.search(STORE, Query(TENANT, text=f"word{one}"))) == [one]
        await copied.close()


async def test_a_second_process_is_told_who_owns_it(backend: Embedded, tmp_path: Path) -> None:
    second = Embedded(tmp_path / "vectors")
    with pytest.raises(EmbeddedInUse, match=r"in use by another process, .* or ask it \(antwort run --url"):
        await second.health()
    await second.close()
    await backend.health()


class Starts:
    """Counts the processes that are started."""

    def __init__(self) -> None:
        self.count = 0
        self.begun = asyncio.Event()
        self._start = embedded.WorkerProcess.start

    async def __call__(self, folder: Path) -> embedded.WorkerProcess:
        self.count += 1
        self.begun.set()
        return await self._start(folder)


@pytest.fixture
async def starts(monkeypatch: pytest.MonkeyPatch) -> Starts:
    starts = Starts()
    monkeypatch.setattr(embedded.WorkerProcess, "start", starts)
    return starts


async def test_that_another_process_owns_it_is_looked_up_once_for_all(
    backend: Embedded, tmp_path: Path, starts: Starts, monkeypatch: pytest.MonkeyPatch
) -> None:
    second = Embedded(tmp_path / "vectors")
    for one in await asyncio.gather(*(second.health() for _ in range(4)), return_exceptions=True):
        assert isinstance(one, EmbeddedInUse)
    for _ in range(4):
        with pytest.raises(EmbeddedInUse):
            await second.count(STORE, tenant=TENANT)
    assert starts.count == 1
    monkeypatch.setattr(second, "_in_use_until", 0.0)  # some seconds later
    await backend.close()
    await second.health()
    await second.close()
    assert starts.count == 2


async def test_who_leaves_does_not_end_the_start_for_others(tmp_path: Path, starts: Starts) -> None:
    backend = Embedded(tmp_path / "vectors")
    first, *others = [asyncio.create_task(backend.health()) for _ in range(3)]
    await starts.begun.wait()
    first.cancel()
    await asyncio.gather(*others)
    assert first.cancelled()
    assert starts.count == 1
    await backend.close()


async def test_closing_gives_up_a_start(tmp_path: Path, starts: Starts) -> None:
    backend = Embedded(tmp_path / "vectors")
    waiting = asyncio.create_task(backend.health())
    await starts.begun.wait()
    await backend.close()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    other = Embedded(tmp_path / "vectors")  # waits for the end of a process that has the folder
    await other.health()
    await other.close()


async def test_a_folder_that_is_removed_is_made_anew_with_its_name(
    backend: Embedded, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder, place = tmp_path / "vectors", backend.place
    await backend.upsert(STORE, [chunk(1)])
    before = process_of(backend)
    shutil.rmtree(folder)
    with pytest.raises(VectorStoreUnavailable, match="has stopped; it starts again with the next call"):
        await backend.upsert(STORE, [chunk(2)])
    assert "its folder was removed, or replaced" in caplog.text
    assert await backend.collections() == []
    assert process_of(backend) != before
    await backend.create_collection(OTHER, 4)
    await backend.upsert(OTHER, [chunk(3)])
    await backend.close()
    again = Embedded(folder)
    assert again.place == place
    assert ids(await again.search(OTHER, Query(TENANT, near(3)))) == [3]
    await again.close()


async def test_a_folder_that_is_removed_has_one_owner(backend: Embedded, tmp_path: Path) -> None:
    folder = tmp_path / "vectors"
    shutil.rmtree(folder)
    second = Embedded(folder)
    await second.create_collection(OTHER, 4)
    with pytest.raises(VectorStoreUnavailable, match="has stopped"):
        await backend.create_collection(STORE, 4)
    with pytest.raises(EmbeddedInUse):
        await backend.create_collection(STORE, 4)
    assert await second.collections() == [OTHER]
    await second.close()
    assert sorted(path.name for path in folder.iterdir()) == [OTHER, "in-place.lock", "lock", "place"]


async def test_a_folder_of_another_server_is_not_written_to(backend: Embedded, tmp_path: Path) -> None:
    folder = tmp_path / "vectors"
    await backend.close()
    shutil.rmtree(folder)
    other = Embedded(folder)
    await other.create_collection(OTHER, 4)
    await other.close()
    with pytest.raises(VectorStoreUnavailable, match="replaced by that of another server; start this server again"):
        await backend.create_collection(STORE, 4)
    assert backend.pid is None
    assert await other.collections() == [OTHER]
    await other.close()


async def test_a_folder_that_cannot_keep_its_name_is_not_used(
    backend: Embedded, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await backend.close()
    (tmp_path / "vectors" / "place").unlink()
    (tmp_path / "vectors" / "place").mkdir()
    with pytest.raises(VectorStoreUnavailable, match="the log says why"):
        await backend.health()
    assert "Is a directory" in caplog.text


SERVER = """
import asyncio, os, signal, sys
from pathlib import Path
from antwort.providers.file_search.vectors.embedded.backend import Embedded
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
    assert sorted(path.name for path in folder.iterdir()) == [STORE, "in-place.lock", "lock", "place"]
    await backend.create_collection(OTHER, 4)
    assert await backend.collections() == [OTHER, STORE]


async def many(backend: Embedded, count: int) -> list[str]:
    """Write a chunk into each of many collections; its number is that of the collection."""
    names = [collection_name(f"vs_{number}") for number in range(count)]
    for number, name in enumerate(names):
        await backend.create_collection(name, 4)
        await backend.upsert(name, [chunk(number, f"word{number}", attributes={"kind": "report"})])
    return names


async def test_many_small_collections_stay_open(backend: Embedded) -> None:
    names = await many(backend, 60)
    for _ in range(2):
        found = [await backend.search(name, Query(TENANT, near(0))) for name in names]
        assert [ids(hits) for hits in found] == [[number] for number in range(60)]
    process = process_of(backend)
    assert 60 <= threads_of(process) <= 70, "one each"
    assert sum(names[7] in line for line in maps_of(process)) < 20, "without indexes"


@pytest.mark.parametrize(("limits", "left"), [((3, 10**6, 10**12), 3), ((99, 70, 10**12), 3), ((99, 10**6, 1), 1)])
async def test_collections_are_closed_when_there_is_no_room(
    backend: Embedded, tmp_path: Path, limits: tuple[int, int, int], left: int
) -> None:
    names = await many(backend, 6)
    await backend.close()
    shelf = OpenCollections(tmp_path / "vectors", limits)
    for name in [*names, *names]:
        assert shelf.get(name).shard.info().points_count == 1
        assert shelf.names[-1] == name
    assert shelf.names == names[-left:]
    shelf.close_one(names[-1])
    assert names[-1] not in shelf.names
    shelf.close()


SEARCHER = """
import asyncio, sys
from pathlib import Path
from antwort.extensions import Query
from antwort.providers.file_search.vectors.embedded.backend import Embedded
from tests.providers.file_search.vectors.conformance import TENANT, near

async def main():
    backend = Embedded(Path(sys.argv[1]))
    names = await backend.collections()
    print(sum([len(await backend.search(name, Query(TENANT, near(0)))) for name in names]))
    await backend.close()

asyncio.run(main())
"""


async def test_more_collections_than_files_can_be_open_are_all_searched(backend: Embedded, tmp_path: Path) -> None:
    await many(backend, 50)
    await backend.close()
    command = ["sh", "-c", 'ulimit -n 32; exec "$@"', "sh", sys.executable, "-c", SEARCHER, str(tmp_path / "vectors")]
    found = await finished(*command)
    assert found == (0, b"50\n", b"")


async def finished(*command: str) -> tuple[int | None, bytes, bytes]:
    """Run a program that can import the tests; return its exit code and what it wrote."""
    process = await asyncio.create_subprocess_exec(
        *command,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[4])},
    )
    out, err = await process.communicate()
    return process.returncode, out, err


async def test_a_collection_that_grows_finds_the_same_as_before(backend: Embedded) -> None:
    early: list[Scalar] = ["red", 3, True, "blue"]
    await backend.upsert(STORE, [chunk(n, f"a fox of {n}", attributes={"early": one}) for n, one in enumerate(early)])

    async def found() -> list[list[int]]:
        wanted = [Query(TENANT, near(0), filter=Comparison("early", "eq", one), limit=5) for one in early]
        wanted += [Query(TENANT, vector, "foxes of 2", limit=1) for vector in (None, near(2))]
        return [ids(await backend.search(STORE, one)) for one in wanted]

    before = await found()
    assert before == [[0], [1], [2], [3], [2], [2]]
    assert await backend.count(STORE, tenant=TENANT) == Count(4, 1, 40)
    others = [chunk(n, "words", file=f"file-{n % 3}", vector=near(180), attributes={"late": n}) for n in range(10, 610)]
    await backend.upsert(STORE, others)
    assert any("payload_index" in line for line in maps_of(process_of(backend)))
    assert await found() == before
    late = Comparison("late", "gte", 600.0)
    assert sorted(ids(await backend.search(STORE, Query(TENANT, near(0), filter=late)))) == list(range(600, 610))
    assert await backend.count(STORE, tenant=TENANT) == Count(604, 3, 40 + 600 * 5)


async def test_chunks_that_are_replaced_take_no_space(backend: Embedded, tmp_path: Path) -> None:
    def size() -> int:
        segments = (tmp_path / "vectors" / STORE / "segments").rglob("*")
        return sum(path.stat().st_blocks for path in segments if path.is_file())

    chunks = [chunk(number, f"text {number}") for number in range(600)]
    for _ in range(2):
        await backend.upsert(STORE, chunks)
    before = size()
    for _ in range(8):
        await backend.upsert(STORE, chunks)
    assert size() < 1.5 * before
    assert (await backend.count(STORE, tenant=TENANT)).chunks == 600


async def test_a_process_that_stands_still_is_replaced(backend: Embedded, monkeypatch: pytest.MonkeyPatch) -> None:
    await backend.upsert(STORE, [chunk(1)])
    large = [chunk(number, "x" * 5000) for number in range(200)]  # more than fits into a pipe
    for seconds, call in (
        ("_SECONDS_TO_READ", lambda: backend.search(STORE, Query(TENANT, near(1)))),
        ("_SECONDS", lambda: backend.upsert(STORE, large)),
    ):
        before = process_of(backend)
        os.kill(before, signal.SIGSTOP)
        with monkeypatch.context() as patch:
            patch.setattr(embedded, seconds, 0.1 if seconds == "_SECONDS_TO_READ" else {"upsert": 0.1})
            others = [asyncio.create_task(backend.health()) for _ in range(3)]
            with pytest.raises(VectorStoreUnavailable, match="did not answer in time; it starts again"):
                await call()
            for one in await asyncio.gather(*others, return_exceptions=True):
                assert isinstance(one, VectorStoreUnavailable)
        assert 1 in ids(await backend.search(STORE, Query(TENANT, near(1), limit=50)))
        assert process_of(backend) != before


async def test_a_request_that_nobody_waits_for_does_not_hide_a_process_that_stands_still(
    backend: Embedded, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.kill(process_of(backend), signal.SIGSTOP)
    with monkeypatch.context() as patch:
        patch.setattr(embedded, "_SECONDS_TO_READ", 0.1)
        given_up = asyncio.create_task(backend.health())
        await asyncio.sleep(0)
        given_up.cancel()
        with pytest.raises(VectorStoreUnavailable, match="did not answer in time"):
            await backend.health()
    await backend.health()


def test_the_process_ends_quietly_when_nobody_reads_its_answers(tmp_path: Path) -> None:
    worker = subprocess.Popen(
        [sys.executable, "-P", "-m", embedded.PROGRAM, str(tmp_path / "vectors")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert worker.stdin is not None
    assert worker.stdout is not None
    assert worker.stderr is not None
    (length,) = struct.unpack(">I", worker.stdout.read(4))
    assert msgspec.msgpack.decode(worker.stdout.read(length)) == {"value": "ready"}
    worker.stdout.close()
    body = msgspec.msgpack.encode(["health"])
    worker.stdin.write(struct.pack(">I", len(body)) + body)
    worker.stdin.flush()
    assert worker.wait(60) == 0
    assert worker.stderr.read() == b""
    worker.stdin.close()
    worker.stderr.close()


async def test_space_of_deleted_chunks_is_given_back_and_the_rest_stays(backend: Embedded) -> None:
    await backend.upsert(STORE, [chunk(number, file=f"file-{number % 6}") for number in range(3000)])
    for number in range(5):
        await backend.delete(STORE, tenant=TENANT, file_id=f"file-{number}")
    assert (await backend.count(STORE, tenant=TENANT)).chunks == 500
    hits = await backend.search(STORE, Query(TENANT, near(5), text="text", limit=50))
    assert len(hits) == 50
    assert {hit.file_id for hit in hits} == {"file-5"}


def has_words(folder: Path) -> bool:
    """Tell whether there is an index of words."""
    return any(folder.rglob("*-text-text"))


async def test_a_few_long_texts_have_an_index_of_words(backend: Embedded, tmp_path: Path) -> None:
    """Else a search by words would read all of them, while everybody else waits."""
    await backend.create_collection(STORE, 4)
    await backend.upsert(STORE, [chunk(1, "a short one")])
    assert not has_words(tmp_path)
    await backend.upsert(STORE, [chunk(number, "long " * 20_000 + "fox") for number in range(2, 6)])
    assert has_words(tmp_path)
    assert set(ids(await backend.search(STORE, Query(TENANT, text="fox")))) == {2, 3, 4, 5}
    assert ids(await backend.search(STORE, Query(TENANT, text="short"))) == [1]


async def test_scores_do_not_tell_which_words_others_have(backend: Embedded) -> None:
    await backend.create_collection(SHARED, 4)
    mine = [chunk(1, "red fox", store="vs_1"), chunk(2, "bread", store="vs_1")]
    await backend.upsert(SHARED, mine)
    query = Query(TENANT, text="fox", vector_store_id="vs_1")
    [before] = await backend.search(SHARED, query)
    await backend.upsert(SHARED, [chunk(3, "another fox here", tenant="tenant-b", store="vs_2")])
    assert await backend.search(SHARED, query) == [before]


async def test_words_that_are_written_or_deleted_count_with_the_next_search(backend: Embedded) -> None:
    """Those of small collections are remembered between searches."""
    query = Query(TENANT, text="fox")

    async def found() -> list[tuple[int, float]]:
        return [(hit.index, hit.score) for hit in await backend.search(STORE, query)]

    await backend.upsert(STORE, [chunk(1, "red fox"), chunk(2, "bread", file="other")])
    before = await found()
    assert [index for index, _ in before] == [1]
    assert await found() == before
    await backend.upsert(STORE, [chunk(3, "fox and fox", file="other")])
    assert [index for index, _ in await found()] == [3, 1]
    await backend.upsert(STORE, [chunk(1, "red cat")])
    assert [index for index, _ in await found()] == [3]
    await backend.delete(STORE, tenant=TENANT, file_id="other")
    assert await found() == []
    await backend.delete_collection(STORE)
    await backend.create_collection(STORE, 4)
    await backend.upsert(STORE, [chunk(1, "red fox"), chunk(2, "bread", file="other")])
    assert await found() == before


async def test_a_filter_leaves_the_score_of_a_word_as_it_is(backend: Embedded) -> None:
    early = [chunk(1, "red fox", attributes={"year": 1}), chunk(2, "a red fox", attributes={"year": 2})]
    await backend.upsert(STORE, [*early, chunk(3, "bread")])
    both = {hit.index: hit for hit in await backend.search(STORE, Query(TENANT, text="fox"))}
    [late] = await backend.search(STORE, Query(TENANT, text="fox", filter=Comparison("year", "gt", 1)))
    assert late == both[2]
    assert await backend.search(STORE, Query(TENANT, text="fox", filter=Comparison("year", "gt", 2))) == []


def test_the_words_of_as_many_collections_are_kept_as_there_is_room_for(tmp_path: Path) -> None:
    own = edge.Filter()
    shards: dict[str, edge.EdgeShard] = {}
    for number, name in enumerate("abc"):
        (tmp_path / name).mkdir()
        shards[name] = edge.EdgeShard.create(str(tmp_path / name), config(4))
        point = edge.Point(str(uuid.UUID(int=number + 1)), near(0), {"text": "a red fox"})
        shards[name].update(edge.UpdateOperation.upsert_points([point]))
    words = KeywordSearch(kept=2 * len("a red fox"))
    for name in "abac":
        assert len(words.search(shards[name], KeywordScope(name, "all", own), None, "fox", 5)) == 1
    assert words.collections == ["a", "c"]
    words.forget("a")
    assert words.collections == ["c"]
    for shard in shards.values():
        shard.close()
