"""The store on SQLite: its file, its threads, what it survives."""

import asyncio
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from textwrap import dedent

import pytest
from tests.storage.samples import TENANT, entry, on_writer, record

from antwort.errors import ServiceUnavailableError
from antwort.storage import SqliteStore
from antwort.storage.maintenance import upgrade
from antwort.storage.sql import conversations, questions, records, responses


def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", dedent(program), *arguments], capture_output=True, text=True, timeout=120, check=False
    )


async def test_only_the_owner_can_read_what_is_stored(path: Path) -> None:
    store = SqliteStore.open(path)
    await store.create(record())
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    files = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
    assert files == dict.fromkeys(("antwort.db", "antwort.db-shm", "antwort.db-wal"), 0o600)
    await store.close()


async def test_closing_finishes_what_is_queued_and_leaves_one_file(path: Path) -> None:
    store = SqliteStore.open(path)
    creations = [asyncio.ensure_future(store.create(record(f"resp_{n}"), [entry(f"msg_{n}")])) for n in range(500)]
    await asyncio.sleep(0)
    await store.close()
    await asyncio.gather(*creations)  # all is written: what is left is to be told, in the next turns of the event loop
    assert [file.name for file in path.parent.iterdir()] == ["antwort.db"]
    again = SqliteStore.open(path)
    assert len((await again.list_responses(TENANT, limit=1000)).data) == 500
    await again.close()


async def test_a_closed_store_says_so_and_may_be_closed_again(path: Path) -> None:
    before = set(threading.enumerate())
    store = SqliteStore.open(path)
    threads = set(threading.enumerate()) - before
    assert all(thread.daemon for thread in threads)
    await store.close()
    await store.close()
    assert not [thread.name for thread in threads if thread.is_alive()]
    with pytest.raises(ServiceUnavailableError, match="closed"):
        await store.create(record())
    with pytest.raises(ServiceUnavailableError, match="closed"):
        await store.get(TENANT, "resp_1")


def test_event_loops_may_use_a_store_one_after_the_other(path: Path) -> None:
    store = SqliteStore.open(path)

    async def leave() -> None:
        asyncio.ensure_future(store.create(record("left")))  # noqa: RUF006 - nobody waits, and the loop is gone soon
        await asyncio.sleep(0)

    asyncio.run(leave())
    for n in range(3):
        asyncio.run(store.create(record(f"resp_{n}")))
    assert asyncio.run(store.get(TENANT, "left")) == record("left")
    assert asyncio.run(store.get(TENANT, "resp_2")) == record("resp_2")
    asyncio.run(store.close())


def test_what_was_stored_when_the_call_returned_survives_a_kill(path: Path) -> None:
    killed = run(
        """
        import asyncio, os, signal, sys
        from pathlib import Path
        from antwort.storage import JournalEntry, ResponseRecord, SqliteStore

        async def main():
            store = SqliteStore.open(Path(sys.argv[1]))
            record = ResponseRecord("resp_1", "acme", 1, "in_progress", "small", {"output": []}, {})
            await store.create(record, [JournalEntry("input", {"id": "msg_1"})])
            record.status = "completed"
            await store.update(record, entries=[JournalEntry("output", {"id": "msg_2"})], start=1)
            os.kill(os.getpid(), signal.SIGKILL)

        asyncio.run(main())
        """,
        str(path),
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr

    async def look() -> None:
        store = SqliteStore.open(path)
        found = await store.get(TENANT, "resp_1")
        assert found is not None
        assert found.status == "completed"
        assert [each.id for each in await store.journal(TENANT, "resp_1")] == ["msg_1", "msg_2"]
        await store.close()

    asyncio.run(look())


def test_several_may_open_a_new_database_at_once(tmp_path: Path) -> None:
    def use(path: Path, response_id: str, start: threading.Barrier) -> None:
        start.wait(60)
        store = SqliteStore.open(path)
        asyncio.run(store.create(record(response_id)))
        asyncio.run(store.close())

    with ThreadPoolExecutor(6) as pool:
        for attempt in range(20):
            path, start = tmp_path / str(attempt) / "antwort.db", threading.Barrier(6)
            uses = [pool.submit(use, path, f"resp_{n}", start) for n in range(6)]
            assert [done.exception() for done in uses] == [None] * 6
            with closing(sqlite3.connect(path)) as database:
                assert database.execute("SELECT count(*) FROM responses").fetchone() == (6,)


def test_opening_a_database_needs_no_sql_toolkit(path: Path) -> None:
    program = """
        import sys
        from pathlib import Path
        from antwort.storage import SqliteStore

        SqliteStore.open(Path(sys.argv[1]))
        print(sorted({"alembic", "sqlalchemy"} & set(sys.modules)))
        """
    for _ in ("new", "known"):
        opened = run(program, str(path))
        assert (opened.stdout, opened.stderr) == ("[]\n", "")


@pytest.mark.parametrize(("synchronous", "level"), [("normal", 1), ("full", 2)])
async def test_the_setting_says_what_the_log_survives(path: Path, synchronous: str, level: int) -> None:
    store = SqliteStore.open(path, synchronous="full" if synchronous == "full" else "normal")
    found = await on_writer(
        store,
        lambda database: [
            database.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous", "foreign_keys")
        ],
    )
    assert found == ["wal", level, 1]
    await store.close()


# Asked once, at the start, over all tenants.
WHOLE = {"antwort.storage.sql.questions._READY"}
STATEMENTS = {
    f"{module.__name__}.{name}": text
    for module in (responses, conversations, questions, records)
    for name, text in vars(module).items()
    if isinstance(text, str)
    and text.lstrip().startswith(("SELECT", "UPDATE", "DELETE", "WITH"))
    and f"{module.__name__}.{name}" not in WHOLE
}


@pytest.mark.parametrize("name", STATEMENTS)
def test_no_statement_looks_at_more_than_it_needs(path: Path, name: str) -> None:
    """Every table is searched by an index that names the response or the item, not the tenant alone."""
    upgrade(f"sqlite:///{path}")
    statement = STATEMENTS[name]
    values = {"id": "", "tenant": ""} if ":id" in statement else ("",) * statement.count("?")
    with closing(sqlite3.connect(path)) as database:
        plan = [row[3] for row in database.execute(f"EXPLAIN QUERY PLAN {statement}", values)]
    steps = [step for step in plan if step.startswith(("SEARCH", "SCAN")) and step not in {"SCAN chain", "SCAN tree"}]
    assert steps, plan
    for step in steps:
        assert "(tenant=?)" not in step
        assert step.startswith("SEARCH") or "ix_responses_unfinished" in step, plan
