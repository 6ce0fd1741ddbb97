"""Writes that share a commit: all of them are stored, a failing one alone is not, and errors of the disk are told."""

import asyncio
import gc
import sqlite3
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.storage.samples import TENANT, entry, event, on_writer, record

from antwort.concurrency.undisturbed import failure_of
from antwort.errors import ConflictError
from antwort.storage import FencedError, ResponseRecord, SqliteStore
from antwort.storage.base import StoreUnavailableError
from antwort.storage.sqlite.store import LARGEST_GROUP


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore.open(path)
    yield store
    await store.close()


@asynccontextmanager
async def writer_held(store: SqliteStore) -> AsyncIterator[None]:
    """Keep the thread that writes from going on, so that everything written meanwhile shares the next commit."""
    reached, released = threading.Event(), threading.Event()

    def hold(_database: sqlite3.Connection) -> None:
        reached.set()
        released.wait(60)

    held = on_writer(store, hold)
    assert await asyncio.to_thread(reached.wait, 60)
    yield
    released.set()
    await held


async def queued() -> None:
    """Let the event loop come round until what tasks are to write is queued."""
    for _ in range(4):
        await asyncio.sleep(0)


async def together(store: SqliteStore, *writes: Any) -> list[Any]:
    """Make writes in one group and return what became of each."""
    async with writer_held(store):
        tasks = [asyncio.ensure_future(write) for write in writes]
        await queued()
    return await asyncio.gather(*tasks, return_exceptions=True)


async def traced(store: SqliteStore) -> list[str]:
    """Return a list that grows by the first word of every statement of the thread that writes, from now on."""
    words: list[str] = []
    await on_writer(store, lambda database: database.set_trace_callback(lambda sql: words.append(sql.split()[0])))
    words.clear()  # the commit of this
    return words


async def test_of_two_hundred_writes_at_once_only_those_that_fail_are_missing(store: SqliteStore) -> None:
    await store.create(record("taken"))
    await store.create(record("run"))
    await store.claim(TENANT, "run")
    writes = []
    for n in range(200):
        if n % 10 == 3:
            writes.append(store.create(record("taken", model="other"), [entry(f"msg_{n}")]))
        elif n % 10 == 6:
            writes.append(store.append(TENANT, "run", 0, [entry(f"msg_{n}")], start=n))
        elif n % 10 == 9:
            # The response goes in, then one of its events is refused: all of it has to go again.
            writes.append(store.update(record("run", epoch=1, status="failed"), events=[event(n), event(n)]))
        else:
            writes.append(store.create(record(f"resp_{n}"), [entry(f"msg_{n}")]))
    ends = await together(store, *writes)
    expected: list[Any] = [{3: ConflictError, 6: FencedError, 9: ConflictError}.get(n % 10) for n in range(200)]
    assert [None if end is None else type(end) for end in ends] == expected
    for n in range(200):
        kept = [entry(f"msg_{n}")] if expected[n] is None else []
        assert await store.journal(TENANT, f"resp_{n}") == kept
        assert await store.find_item(TENANT, f"msg_{n}") == (kept[0] if kept else None)
    assert await store.get(TENANT, "run") == record("run", epoch=1)
    assert await store.events(TENANT, "run") == []
    assert await store.get(TENANT, "taken") == record("taken")


async def test_what_is_queued_while_a_commit_runs_shares_the_next_one(store: SqliteStore) -> None:
    transactions = await traced(store)
    await together(store, *(store.create(record(f"resp_{n}")) for n in range(50)))
    assert transactions.count("COMMIT") == 2  # the one that was held, and the group


async def test_a_group_that_is_too_large_for_a_commit_is_stored_in_several(store: SqliteStore) -> None:
    transactions = await traced(store)
    await asyncio.gather(*(store.create(record(f"resp_{n}")) for n in range(2 * LARGEST_GROUP + 1)))
    assert transactions.count("COMMIT") == 3


async def test_what_is_stored_of_a_large_group_is_told_before_the_rest_is(store: SqliteStore) -> None:
    """Each commit may have to wait for another process: who is done does not wait for the last of thousands."""
    told = asyncio.Event()
    loop = asyncio.get_running_loop()

    def wait_until_told(_database: sqlite3.Connection) -> bool:
        return asyncio.run_coroutine_threadsafe(asyncio.wait_for(told.wait(), 60), loop).result()

    async def create(number: int) -> None:
        await store.create(record(f"resp_{number}"))
        told.set()

    first = [asyncio.ensure_future(create(number)) for number in range(LARGEST_GROUP)]
    await asyncio.sleep(0)  # they are gathered
    assert await on_writer(store, wait_until_told)
    await asyncio.gather(*first)


async def test_a_write_sees_those_before_it_in_the_same_group(store: SqliteStore) -> None:
    made = record("resp_1", background=True)
    ends = await together(
        store,
        store.create(made),
        store.update(made, entries=[entry("msg_1")]),
        store.claim(TENANT, "resp_1"),
        store.update(replace(made, status="completed")),
        store.update(replace(made, status="incomplete", epoch=1)),
        store.claim(TENANT, "resp_1"),
    )
    assert isinstance(ends[3], FencedError)
    assert [*ends[:3], *ends[4:]] == [None, None, replace(made, epoch=1), None, None]
    assert await store.get(TENANT, "resp_1") == replace(made, status="incomplete", epoch=1)


async def test_writes_of_one_round_of_the_event_loop_and_the_next_share_a_commit(store: SqliteStore) -> None:
    transactions = await traced(store)

    async def create_later(n: int) -> None:
        if n % 2:
            await asyncio.sleep(0)
        await store.create(record(f"resp_{n}"))

    await asyncio.gather(*(create_later(n) for n in range(8)))
    assert transactions.count("COMMIT") == 1
    assert "SAVEPOINT" not in transactions


def test_what_a_loop_that_was_left_wanted_to_write_is_written_with_what_the_next_one_writes(path: Path) -> None:
    store = SqliteStore.open(path)

    async def begin() -> None:
        asyncio.get_running_loop().call_soon(asyncio.ensure_future, store.create(record("resp_1")))
        await asyncio.sleep(0)  # the loop ends before it comes round to queueing it

    async def go_on() -> ResponseRecord | None:
        await store.create(record("resp_2"))
        return await store.get(TENANT, "resp_1")

    loop = asyncio.new_event_loop()
    loop.run_until_complete(begin())
    loop.close()
    assert asyncio.run(go_on()) == record("resp_1")
    asyncio.run(store.close())
    del loop
    gc.collect()  # now asyncio complains that a task was left, and not in another test


async def test_closing_stores_what_was_not_queued_yet(path: Path) -> None:
    store = SqliteStore.open(path)
    writes = [asyncio.ensure_future(store.create(record(f"resp_{n}"))) for n in range(3)]
    await asyncio.sleep(0)
    await store.close()
    await asyncio.gather(*writes)
    store = SqliteStore.open(path)
    assert [await store.get(TENANT, f"resp_{n}") for n in range(3)] == [record(f"resp_{n}") for n in range(3)]
    await store.close()


async def test_a_write_whose_caller_gave_up_is_stored_and_hurts_nobody(store: SqliteStore) -> None:
    async with writer_held(store):
        given_up = asyncio.ensure_future(store.create(record("resp_1")))
        waiting = asyncio.ensure_future(store.create(record("resp_2")))
        await queued()
        given_up.cancel()
        await asyncio.sleep(0)
    await waiting
    assert given_up.cancelled()
    assert await store.get(TENANT, "resp_1") == record("resp_1")


async def test_a_full_disk_fails_the_write_that_does_not_fit_and_no_other(
    store: SqliteStore, caplog: pytest.LogCaptureFixture
) -> None:
    def nearly_full(database: sqlite3.Connection) -> None:
        (pages,) = database.execute("PRAGMA page_count").fetchone()
        database.execute(f"PRAGMA max_page_count = {pages + 20}")

    await on_writer(store, nearly_full)
    ends = await together(
        store,
        store.create(record("resp_1"), [entry("msg_1")]),
        store.create(record("large", request={"input": "x" * 1_000_000})),
        store.create(record("resp_2"), [entry("msg_2")]),
    )
    assert [ends[0], ends[2]] == [None, None]
    assert isinstance(ends[1], StoreUnavailableError)
    assert "the disk is full" in ends[1].message
    assert "the disk is full" in caplog.text
    assert await store.get(TENANT, "large") is None
    assert await store.journal(TENANT, "resp_1") == [entry("msg_1")]
    assert await store.journal(TENANT, "resp_2") == [entry("msg_2")]


async def test_a_store_is_not_writable_when_only_a_trial_has_room(store: SqliteStore) -> None:
    def full(database: sqlite3.Connection) -> None:
        (pages,) = database.execute("PRAGMA page_count").fetchone()
        database.execute(f"PRAGMA max_page_count = {pages}")

    await store.try_write()
    await on_writer(store, full)
    await store.try_write()  # nobody has needed room
    with pytest.raises(StoreUnavailableError, match="the disk is full"):
        await store.create(record("large", request={"input": "x" * 100_000}))
    with pytest.raises(StoreUnavailableError, match="the disk is full"):
        await store.try_write()
    await on_writer(store, lambda database: database.execute("PRAGMA max_page_count = 1000000"))
    await store.try_write()


async def test_when_sqlite_undoes_the_whole_transaction_the_other_writes_are_made_again(store: SqliteStore) -> None:
    """As it does with some errors of the disk; here the transaction is ended by hand."""

    def undo(database: sqlite3.Connection) -> None:
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise sqlite3.OperationalError("the disk is gone")

    async def broken() -> None:
        await on_writer(store, undo)

    writes = [store.create(record(f"resp_{n}"), [entry(f"msg_{n}")]) for n in range(6)]
    ends = await together(store, *writes[:3], broken(), *writes[3:])
    assert isinstance(ends.pop(3), sqlite3.OperationalError)
    assert ends == [None] * 6
    for n in range(6):
        assert await store.journal(TENANT, f"resp_{n}") == [entry(f"msg_{n}")]


async def test_a_database_that_became_read_only_still_reads(
    store: SqliteStore, caplog: pytest.LogCaptureFixture
) -> None:
    await store.create(record("resp_1"))
    await on_writer(store, lambda database: database.execute("PRAGMA query_only = ON"))
    with pytest.raises(StoreUnavailableError, match="it is read-only"):
        await store.create(record("resp_2"))
    assert "read-only" in caplog.text
    assert await store.get(TENANT, "resp_1") == record("resp_1")


async def test_a_database_that_another_process_holds_is_told_and_used_again_when_it_is_free(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = SqliteStore.open(path, busy_timeout=0.1)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        creations = (store.create(record(f"resp_{n}")) for n in range(3))
        ends = await asyncio.gather(*creations, return_exceptions=True)
        assert [type(end) for end in ends] == [StoreUnavailableError] * 3
        assert len({id(end) for end in ends}) == 3
        assert "another process holds it" in caplog.text
        other.execute("ROLLBACK")
    await store.create(record("resp_1"))
    assert await store.get(TENANT, "resp_1") == record("resp_1")
    await store.close()


async def test_a_value_that_is_no_json_is_refused_before_anything_is_queued(store: SqliteStore) -> None:
    with pytest.raises(TypeError):
        await store.create(record("resp_1", extra={"what": object()}))
    assert await store.get(TENANT, "resp_1") is None


@pytest.mark.parametrize("exists", [True, False])
async def test_whoever_is_cancelled_while_a_write_fails_is_cancelled_and_can_tell_that_it_failed(
    path: Path, exists: bool
) -> None:
    store = SqliteStore.open(path, busy_timeout=0.1)
    if exists:
        await store.create(record(), [entry("a")])
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        write = (
            store.append(TENANT, "resp_1", 0, [entry("b")], start=1) if exists else store.create(record(), [entry("a")])
        )
        writing = asyncio.ensure_future(write)
        await queued()
        writing.cancel()
        with pytest.raises(asyncio.CancelledError) as raised:
            await writing
    assert isinstance(failure_of(raised.value), StoreUnavailableError)
    await store.close()


async def test_a_database_that_is_stuck_does_not_keep_its_store_from_being_closed(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("antwort.storage.sql.database._CLOSE_TIMEOUT", 0.01)
    async with writer_held(store):
        await store.close()
    # Those who read are waited for as shortly, and say so too if they are not gone by then.
    assert {record.getMessage() for record in caplog.records} == {
        "the database does not answer; its connections are left behind"
    }
