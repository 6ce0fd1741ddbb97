"""The store on PostgreSQL: how it starts, what it refuses, and several that write at once."""

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from textwrap import dedent

import psycopg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from msgspec.structs import replace
from sqlalchemy import NullPool, create_engine
from tests.storage.samples import TENANT, entry, event, record
from tests.support.postgres import PostgresServer

from antwort.errors import BadRequestError, ConfigError, ServiceUnavailableError
from antwort.storage import ConversationRecord, FencedError
from antwort.storage.maintenance import current, location, upgrade
from antwort.storage.postgres import PostgresStore
from antwort.storage.postgres.connection import TimeLimits
from antwort.storage.postgres.session import translated
from antwort.storage.schema.revisions import MIGRATIONS, Migrations, head
from antwort.storage.schema.tables import metadata
from antwort.storage.sql import responses
from antwort.storage.sql.database import Database, snapshot

ROUNDS = 40 if os.environ.get("ANTWORT_TEST_FULL") else 4


@pytest.fixture
async def store(ready_url: str) -> AsyncIterator[PostgresStore]:
    store = await asyncio.to_thread(PostgresStore.open, ready_url)
    yield store
    await store.close()


# --- start -----------------------------------------------------------------------------------------------------------


def test_several_may_open_an_empty_database_at_once(postgres_server: PostgresServer, postgres_url: str) -> None:
    program = """
        import asyncio, sys
        import antwort.storage.schema.migrate
        from antwort.config import Config, StorageConfig
        from antwort.storage import ResponseRecord, open_store

        sys.stdin.read()
        store = open_store(Config(storage=StorageConfig(url=sys.argv[1], pool_size=2)))
        asyncio.run(store.create(ResponseRecord(sys.argv[2], "acme", 1, "completed", "small", {}, {})))
        asyncio.run(store.close())
        """
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", dedent(program), postgres_url, f"resp_{n}"],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for n in range(3)
    ]
    for process in processes:
        assert process.stdin is not None
        process.stdin.close()
        process.stdin = None
    assert [(process.communicate(timeout=120)[1], process.returncode) for process in processes] == [("", 0)] * 3
    assert current(postgres_url) == head()
    assert postgres_server.execute("SELECT count(*) FROM responses", postgres_url) == [(3,)]


def test_the_declared_tables_are_those_that_alembic_sees(postgres_url: str) -> None:
    upgrade(postgres_url)
    engine = create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(postgres_url), poolclass=NullPool)
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []


def test_an_older_database_is_refused_at_start_with_the_cure(postgres_url: str, later: Migrations) -> None:
    upgrade(postgres_url)
    with pytest.raises(ConfigError, match=r"not up to date: .* Run 'antwort db upgrade'") as caught:
        PostgresStore.open(postgres_url, migrations=later)
    assert caught.value.where == location(postgres_url)
    upgrade(postgres_url, migrations=later)
    assert current(postgres_url) == "9999"
    asyncio.run(PostgresStore.open(postgres_url, migrations=later).close())
    with pytest.raises(ConfigError, match=r"revision '9999', .* Install the newer version"):
        PostgresStore.open(postgres_url, migrations=MIGRATIONS)


def test_a_migration_that_fails_leaves_the_database_as_it_was(postgres_url: str, later: Migrations) -> None:
    upgrade(postgres_url)
    script = later.folder / "versions" / "r9999_notes.py"
    script.write_text(script.read_text() + '    op.execute("INSERT INTO nowhere VALUES (1)")\n')
    with pytest.raises(psycopg.errors.UndefinedTable):
        upgrade(postgres_url, migrations=later)
    assert current(postgres_url) == head()
    with psycopg.connect(postgres_url) as connection:
        assert connection.execute("SELECT to_regclass('notes')").fetchone() == (None,)


def test_the_tables_of_another_program_are_refused(postgres_server: PostgresServer, postgres_url: str) -> None:
    postgres_server.execute("CREATE TABLE others (id TEXT)", postgres_url)
    assert current(postgres_url) is None  # a database may be shared
    postgres_server.execute("CREATE TABLE responses (id TEXT)", postgres_url)
    with pytest.raises(ConfigError, match="belongs to another program"):
        upgrade(postgres_url)


def test_a_user_who_may_not_create_tables_is_told(postgres_server: PostgresServer, postgres_url: str) -> None:
    postgres_server.execute("DROP ROLE IF EXISTS visitor")
    postgres_server.execute("CREATE ROLE visitor LOGIN")
    url = postgres_url.replace("antwort@", "visitor@")
    with pytest.raises(ConfigError, match="run 'antwort db upgrade' as one who may") as caught:
        PostgresStore.open(url)
    assert caught.value.where == location(url)


def test_without_the_driver_the_cure_is_told() -> None:
    program = """
        import sys
        sys.modules["psycopg"] = None
        from antwort.config import Config, StorageConfig
        from antwort.errors import ConfigError
        from antwort.storage import open_store
        try:
            open_store(Config(storage=StorageConfig(url="postgresql://ada:secret@db/antwort")))
        except ConfigError as error:
            print(error)
        """
    done = subprocess.run(
        [sys.executable, "-c", dedent(program)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stderr == ""
    assert "pip install 'antwort[postgres]'" in done.stdout
    assert "secret" not in done.stdout


def test_sqlite_does_not_import_the_driver(tmp_path: Path) -> None:
    program = "import sys; from antwort.storage import *; from antwort.config import Config; open_store(Config()); "
    done = subprocess.run(
        [sys.executable, "-c", program + "print('psycopg' in sys.modules)"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=tmp_path,
    )
    assert (done.stdout, done.stderr) == ("False\n", "")


# --- statements ------------------------------------------------------------------------------------------------------


def test_statements_are_translated() -> None:
    assert translated("SELECT a FROM b WHERE c = ? AND d = ? /* lock */") == (
        "SELECT a FROM b WHERE c = $1 AND d = $2 FOR NO KEY UPDATE",
        (),
    )
    assert translated("x = :id AND y = :tenant OR z = :id") == ("x = $1 AND y = $2 OR z = $1", ("id", "tenant"))
    assert translated("BEGIN /* snapshot */")[0] == "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"


async def test_what_postgresql_cannot_store_is_a_bad_request(store: PostgresStore) -> None:
    for unstorable in (record("resp\0"), record(model="small\0"), record(tenant="a\0b"), record(subject="\0")):
        with pytest.raises(BadRequestError, match="NUL"):
            await store.create(unstorable)
    with pytest.raises(BadRequestError, match="NUL"):
        await store.get(TENANT, "resp_\0")
    await store.create(record(), [entry("msg_1", "\0")])
    long = "msg_" + "".join(map(chr, range(0x4E00, 0x4E00 + 4000)))
    with pytest.raises(BadRequestError, match="too long"):
        await store.append(TENANT, "resp_1", 0, [entry(long)], start=1)
    assert await store.journal(TENANT, "resp_1") == [entry("msg_1", "\0")]


async def test_a_list_is_read_from_one_state(store: PostgresStore) -> None:
    """What is written between two statements of a snapshot is not seen in it."""
    await store.create(record("resp_1"))

    unfinished = "SELECT id FROM responses WHERE background"

    def look(database: Database) -> tuple[object, object]:
        with snapshot(database):
            before = database.execute(unfinished).fetchall()
            asyncio.run_coroutine_threadsafe(store.create(record("resp_2", background=True)), loop).result(60)
            return before, database.execute(unfinished).fetchall()

    loop = asyncio.get_running_loop()
    before, after = await store._reader.run(look)
    assert before == after == []
    assert [(run.tenant, run.id) for run in await store.unfinished()] == [(TENANT, "resp_2")]


# --- several at once -------------------------------------------------------------------------------------------------


async def test_the_writes_of_a_run_keep_their_order(store: PostgresStore) -> None:
    made = record("resp_1")
    writes = [store.create(made)]
    writes += [store.append(TENANT, "resp_1", 0, [entry(f"msg_{n}")], start=0) for n in range(30)]
    writes += [store.add_events(TENANT, "resp_1", 0, [event(n)]) for n in range(30)]
    writes += [store.update(replace(made, extra={"n": n})) for n in range(30)]
    others = [store.create(record(f"other_{n}")) for n in range(30)]
    await asyncio.gather(*writes, *others)
    assert await store.journal(TENANT, "resp_1") == [entry("msg_29")]
    assert await store.get(TENANT, "resp_1") == replace(made, extra={"n": 29})


async def test_closing_finishes_what_is_queued(ready_url: str) -> None:
    store = await asyncio.to_thread(PostgresStore.open, ready_url, pool_size=2)
    writes = [asyncio.ensure_future(store.create(record(f"resp_{n}"))) for n in range(50)]
    writes += [asyncio.ensure_future(store.append(TENANT, "resp_1", 0, [entry("msg")], start=n)) for n in range(20)]
    await asyncio.sleep(0)
    await store.close()
    assert [write.exception() for write in writes if write.done()] == [None] * 70
    with pytest.raises(ServiceUnavailableError, match="closed"):
        await store.get(TENANT, "resp_1")


async def test_of_two_servers_that_fight_for_a_run_only_the_last_claimer_writes(ready_url: str) -> None:
    """Two stores, several runs: whatever the interleaving, no write of a fenced epoch comes after the claim."""
    stores = [await asyncio.to_thread(PostgresStore.open, ready_url, pool_size=4) for _ in range(2)]
    for round_ in range(ROUNDS):
        run_id = f"resp_{round_}"
        await stores[0].create(record(run_id))

        async def run(number: int, run_id: str = run_id) -> tuple[int, int]:
            store = stores[number % 2]
            claimed = await store.claim(TENANT, run_id)
            assert claimed is not None
            count = 0
            try:
                while count < 10:
                    written = entry(f"msg_{claimed.epoch}_{count}")
                    await store.update(claimed, entries=[written], start=count, events=[event(100 * number + count)])
                    count += 1
            except FencedError:
                pass
            return claimed.epoch, count

        ends = dict(await asyncio.gather(*(run(number) for number in range(8))))
        assert sorted(ends) == list(range(1, 9))
        assert ends[8] == 10
        found = [each.id for each in await stores[1].journal(TENANT, run_id)]
        assert found == [f"msg_8_{count}" for count in range(10)]
        assert len(await stores[0].events(TENANT, run_id)) == sum(ends.values())
    for store in stores:
        await store.close()


async def test_two_servers_add_to_one_conversation(ready_url: str) -> None:
    stores = [await asyncio.to_thread(PostgresStore.open, ready_url, pool_size=4) for _ in range(2)]
    await stores[0].conversations.create(ConversationRecord("conv_1", TENANT, 1))
    await asyncio.gather(
        *(stores[n % 2].conversations.add(TENANT, "conv_1", [entry("msg_same"), entry(f"msg_{n}")]) for n in range(20))
    )
    history = await stores[1].conversations.history(TENANT, "conv_1")
    assert history is not None
    assert len({each.id for each in history}) == 40
    assert {each.id for each in history[1::2]} == {f"msg_{n}" for n in range(20)}
    for store in stores:
        await store.close()


async def test_a_deadlock_is_resolved_and_both_are_done(store: PostgresStore) -> None:
    for n in range(2):
        await store.create(record(f"resp_{n}"))
    meeting = threading.Barrier(2)
    attempts: list[str] = []

    def add(database: Database, response_id: str, sequence: int) -> None:
        responses.check_epoch(database, TENANT, response_id, 0)
        database.execute("INSERT INTO events VALUES (?, ?, ?, 'x', '')", (response_id, sequence, TENANT))

    def crossing(first: str, second: str) -> Awaitable[None]:
        def call(database: Database) -> None:
            attempts.append(first)
            add(database, first, 0)
            if len(attempts) <= 2:
                meeting.wait(60)
            add(database, second, 1)

        return store._writer.run(call, first)

    await asyncio.gather(crossing("resp_0", "resp_1"), crossing("resp_1", "resp_0"))
    assert len(attempts) >= 3  # whoever comes again may have its row before the other wakes up, and they cross again
    for n in range(2):
        assert len(await store.events(TENANT, f"resp_{n}")) == 2


async def test_connections_that_nobody_needs_are_closed(postgres_server: PostgresServer, ready_url: str) -> None:
    store = await asyncio.to_thread(PostgresStore.open, ready_url, pool_size=4, limits=TimeLimits(idle=0.2))
    meeting = threading.Barrier(4)

    def meet(database: Database) -> object:
        meeting.wait(60)
        return database.execute("SELECT pg_backend_pid()").fetchone()

    assert len(set(await asyncio.gather(*(store._reader.run(meet) for _ in range(4))))) == 4
    count = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'antwort' AND datname = current_database()"
    end = time.monotonic() + 60
    while postgres_server.execute(count, ready_url) != [(0,)]:
        assert time.monotonic() < end
        await asyncio.to_thread(time.sleep, 0.02)
    assert await store.unfinished() == []
    await store.close()


# --- limits ----------------------------------------------------------------------------------------------------------


async def test_what_takes_too_long_is_ended_and_told(ready_url: str, caplog: pytest.LogCaptureFixture) -> None:
    store = await asyncio.to_thread(PostgresStore.open, ready_url, limits=TimeLimits(statement=0.2))
    with pytest.raises(ServiceUnavailableError, match="The database cannot be used now: it takes too long"):
        await store._reader.run(lambda database: database.execute("SELECT pg_sleep(60)"))
    assert "it takes too long" in caplog.text
    assert await store.unfinished() == []
    await store.close()


async def test_a_row_that_somebody_holds_is_not_waited_for_for_ever(ready_url: str) -> None:
    store = await asyncio.to_thread(PostgresStore.open, ready_url, limits=TimeLimits(lock=0.2))
    await store.create(record())
    with psycopg.connect(ready_url) as other:
        other.execute("SELECT * FROM responses FOR UPDATE")
        with pytest.raises(ServiceUnavailableError, match="another process holds it"):
            await store.append(TENANT, "resp_1", 0, [entry("msg_1")], start=0)
    await store.append(TENANT, "resp_1", 0, [entry("msg_1")], start=0)
    await store.close()
