"""`/readyz` says whether requests can be answered; `/healthz` only that the process lives."""

import asyncio
import contextlib
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.support.postgres import PostgresServer
from tests.support.statements import Questions

from antwort import Antwort
from antwort.config import Config
from antwort.storage.sql.store import Store
from antwort.testing import RunningApp, running

PAUSE = 0.005
"""Seconds between two looks: who looks all the time keeps the server, which is in this process, from its work."""

PASSWORD = "hunter22"


@pytest.fixture
def url(postgres_server: PostgresServer, postgres_template: str) -> str:
    """A database whose URL has a secret in it."""
    name = PostgresServer.name(postgres_server.create(postgres_template))
    return postgres_server.url(name, f"antwort:{PASSWORD}")


def app(folder: Path, **storage: Any) -> Antwort:
    engine = {"takeover_after": 3600}  # nobody looks after other workers meanwhile
    return Antwort(Config.model_validate({"data_dir": folder, "providers": {}, "storage": storage, "engine": engine}))


def get(server: RunningApp, path: str) -> httpx.Response:
    return httpx.get(f"{server.url}{path}", timeout=60)


def until_ready(server: RunningApp) -> httpx.Response:
    """Ask as whoever probes does, again and again."""
    while (answer := get(server, "/readyz")).status_code != 200:
        time.sleep(PAUSE)
    return answer


def assert_names_the_store(answer: httpx.Response, why: str) -> None:
    assert answer.status_code == 503
    assert answer.headers["content-type"] == "application/json"
    error = answer.json()["error"]
    assert (error["type"], error["param"], error["code"]) == ("server_error", None, "store_unavailable")
    assert error["message"] == f"The server is not ready: its store cannot be used. {why}"
    assert PASSWORD not in answer.text


@pytest.mark.parametrize(
    ("reconnect", "why"),
    [
        (0.2, "The database cannot be used now: it cannot be reached."),
        (60.0, "The database has not answered within 2 seconds."),
    ],
)
def test_the_server_is_ready_again_when_its_database_is_back(
    tmp_path: Path, postgres_server: PostgresServer, url: str, reconnect: float, why: str
) -> None:
    with running(app(tmp_path, url=url, reconnect=reconnect)) as server:
        before = get(server, "/readyz")
        postgres_server.stop("immediate")
        try:
            away = [get(server, "/readyz") for _ in range(3)]
            health = get(server, "/healthz")
        finally:
            postgres_server.start()
        after = until_ready(server)
    assert (before.status_code, health.status_code) == (200, 200)
    told, again = before.json(), after.json()
    for answer in (told, again):
        assert answer.pop("backends")  # which are asked meanwhile
    assert told == again
    assert again["status"] == "ready"
    for refused in away:
        assert_names_the_store(refused, why)


def test_a_database_that_stands_still_is_asked_once_however_many_probes_there_are(
    tmp_path: Path, postgres_server: PostgresServer, url: str
) -> None:
    with running(app(tmp_path, url=url)) as server, ThreadPoolExecutor(10) as pool:
        questions = Questions.of(server.app.engine.store)
        postgres_server.freeze()
        try:
            answers = list(pool.map(lambda _: get(server, "/readyz"), range(10)))
            asked = questions.calls
        finally:
            postgres_server.thaw()
        until_ready(server)
    assert asked == 1
    for answer in answers:
        assert_names_the_store(answer, "The database has not answered within 2 seconds.")


def test_a_server_whose_file_is_gone_is_not_ready(tmp_path: Path) -> None:
    file, elsewhere = tmp_path / "antwort.db", tmp_path / "elsewhere.db"
    with running(app(tmp_path)) as server:
        before = get(server, "/readyz")
        file.rename(elsewhere)
        away, health = get(server, "/readyz"), get(server, "/healthz")
        elsewhere.rename(file)
        after = get(server, "/readyz")
    assert_names_the_store(away, "The database cannot be used now: its file is gone.")
    assert (before.status_code, health.status_code, after.status_code) == (200, 200, 200)


def test_tables_that_are_gone_are_noticed(tmp_path: Path, postgres_server: PostgresServer, url: str) -> None:
    with running(app(tmp_path, url=url)) as server:
        postgres_server.execute("ALTER TABLE responses RENAME TO mislaid", url)
        away = get(server, "/readyz")
        postgres_server.execute("ALTER TABLE mislaid RENAME TO responses", url)
        after = get(server, "/readyz")
    assert_names_the_store(away, "The database cannot be used now: its tables are missing.")
    assert after.status_code == 200


# --- what can be read and not written ---------------------------------------------------------------------------------


def assert_not_ready(server: RunningApp, why: str, cure: str = "") -> None:
    """Ask again and again: whether the store can be written is asked once a second at most."""
    while (answer := get(server, "/readyz")).status_code == 200 or answer.text.count("within 2 seconds"):
        time.sleep(PAUSE)
    assert_names_the_store(answer, f"The database cannot be used now: {why}.{cure}")


def ask(server: RunningApp) -> httpx.Response:
    return httpx.post(f"{server.url}/v1/responses", json={"input": "Hi"}, timeout=60)


def assert_refused(answer: httpx.Response, why: str) -> None:
    message = f"The database cannot be used now: {why}."
    assert (answer.status_code, answer.json()["error"]["message"]) == (503, message)


def test_a_server_whose_file_another_process_holds_is_not_ready(tmp_path: Path) -> None:
    with running(app(tmp_path, busy_timeout=0.1)) as server:
        with contextlib.closing(sqlite3.connect(tmp_path / "antwort.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            assert_not_ready(server, "another process holds it")
            assert_refused(ask(server), "another process holds it")
            other.execute("ROLLBACK")
        until_ready(server)
        assert ask(server).status_code == 200


def test_a_file_that_can_only_be_read_is_not_ready(tmp_path: Path) -> None:
    with running(app(tmp_path)) as server:
        on_writer(server, "PRAGMA query_only = ON")
        assert_not_ready(server, "it is read-only")
        assert_refused(ask(server), "it is read-only")


def on_writer(server: RunningApp, statement: str) -> None:
    """Execute a statement on the connection that writes."""
    store = server.app.engine.store
    assert isinstance(store, Store)
    writer = store._writer

    async def execute() -> None:
        await writer.run(lambda database: database.execute(statement).fetchall(), "")

    asyncio.run_coroutine_threadsafe(execute(), server.loop).result(60)


@pytest.mark.parametrize(
    ("state", "why", "cure"),
    [
        (
            "disk_full",
            "the disk is full",
            (
                " Make room on it, or delete what is not needed, by the API or with 'antwort db prune'; "
                "the server goes on by itself then."
            ),
        ),
        ("system_error", "the server reports a failure", ""),
    ],
)
def test_a_server_of_databases_that_cannot_write_is_not_ready(
    tmp_path: Path, postgres_server: PostgresServer, url: str, state: str, why: str, cure: str
) -> None:
    failing = f"RAISE EXCEPTION 'could not extend file \"base/1\"' USING ERRCODE = '{state}'"
    make = f"CREATE FUNCTION failing() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {failing}; END $$"
    with running(app(tmp_path, url=url)) as server:
        postgres_server.execute(make, url)
        for table in ("records", "responses"):
            when = f"BEFORE INSERT OR UPDATE ON {table} FOR EACH STATEMENT EXECUTE FUNCTION failing()"
            postgres_server.execute(f"CREATE TRIGGER failing {when}", url)
        assert_not_ready(server, why, cure)
        assert_refused(ask(server), why)
        postgres_server.execute("DROP FUNCTION failing CASCADE", url)
        until_ready(server)
        assert ask(server).status_code == 200
