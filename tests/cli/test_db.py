import asyncio
import json
import sqlite3
import stat
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from click.testing import Result
from tests.storage.samples import record

from antwort import Antwort
from antwort.config import Config, StorageConfig
from antwort.storage import open_store
from antwort.storage.maintenance import location
from antwort.storage.schema.revisions import MIGRATIONS, head
from antwort.testing import running

Cli = Callable[..., Result]
Refused = Callable[..., str]
Write = Callable[[str], Path]

DATABASE = Path(".antwort/antwort.db")


def stamp(revision: str) -> None:
    """Give the database another revision."""
    with closing(sqlite3.connect(DATABASE)) as database, database:
        database.execute("UPDATE alembic_version SET version_num = ?", (revision,))


def need_another_revision(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this version be one with a revision more."""
    monkeypatch.setitem(vars(MIGRATIONS), "revisions", (*MIGRATIONS.revisions, "9999"))


def test_a_database_that_is_not_there_is_told_and_not_made(cli: Cli) -> None:
    result = cli("db", "current")
    assert result.exit_code == 0
    assert result.stdout.startswith(f"{DATABASE} is empty or does not exist.")
    assert json.loads(cli("db", "current", "--json").stdout) == {
        "database": str(DATABASE),
        "revision": None,
        "needed": head(),
    }
    assert not DATABASE.parent.exists()


def test_an_upgrade_makes_the_database_for_its_owner_alone(cli: Cli) -> None:
    result = cli("db", "upgrade")
    assert (result.exit_code, result.stdout) == (0, f"{DATABASE} now has the revision {head()}.\n")
    assert stat.S_IMODE(DATABASE.stat().st_mode) == 0o600
    assert cli("db", "current").stdout == f"{DATABASE} has the revision {head()} and is up to date.\n"
    assert json.loads(cli("db", "current", "--json").stdout)["revision"] == head()


def test_a_second_upgrade_has_nothing_to_do(cli: Cli) -> None:
    assert json.loads(cli("db", "upgrade", "--json").stdout) == {
        "database": str(DATABASE),
        "before": None,
        "revision": head(),
    }
    assert json.loads(cli("db", "upgrade", "--json").stdout)["before"] == head()
    assert cli("db", "upgrade").stdout == f"{DATABASE} has the revision {head()} already.\n"


def test_a_newer_database_is_shown_but_not_upgraded(cli: Cli, refused: Refused) -> None:
    cli("db", "upgrade")
    stamp("9999")
    assert cli("db", "current").stdout == f"{DATABASE} has the revision 9999; this version of antwort needs {head()}.\n"
    assert "Install the newer version" in refused("db", "upgrade")


def test_the_configuration_says_where_the_database_is(cli: Cli, config: Write) -> None:
    config("storage:\n  url: sqlite:///elsewhere/kept.db\n")
    assert cli("db", "upgrade").exit_code == 0
    assert Path("elsewhere/kept.db").exists()
    assert cli("db", "upgrade", "--config", "antwort.yaml", "--data-dir", "other").exit_code == 0
    assert not Path("other").exists()


def test_a_database_that_cannot_be_used_is_one_line(refused: Refused, config: Write) -> None:
    DATABASE.parent.mkdir()
    DATABASE.write_text("These are notes.\n" * 100)
    assert "Restore it from a backup" in refused("db", "current")
    assert "Restore it from a backup" in refused("db", "upgrade")


def test_a_postgresql_database_is_upgraded_and_shown_without_its_password(
    cli: Cli, config: Write, postgres_url: str
) -> None:
    url = postgres_url.replace("antwort@", "antwort:secret@").replace("postgresql:", "postgresql+psycopg:")
    config(f"storage:\n  url: {url}\n")
    assert json.loads(cli("db", "current", "--json").stdout)["revision"] is None
    report = cli("check").stdout
    assert "to be created at the next start" in report
    upgraded = cli("db", "upgrade").stdout
    assert upgraded.endswith(f" now has the revision {head()}.\n")
    shown = cli("db", "current").stdout
    assert shown.startswith("postgresql://antwort@/")
    assert shown.endswith(f" has the revision {head()} and is up to date.\n")
    assert cli("db", "upgrade").stdout.endswith(f" has the revision {head()} already.\n")
    ready = cli("check").stdout
    assert ", up to date" in ready
    assert "secret" not in report + upgraded + shown + ready


def test_an_older_postgresql_database_is_found_by_the_check(
    cli: Cli, config: Write, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config(f"storage:\n  url: {postgres_url}\n")
    cli("db", "upgrade")
    before = head()
    need_another_revision(monkeypatch)
    assert cli("db", "current").stdout.endswith(f" has the revision {before}; this version of antwort needs 9999.\n")
    checked = cli("check")
    assert checked.exit_code == 2
    assert "Run 'antwort db upgrade'" in checked.stderr


def test_a_postgresql_server_that_is_away_is_one_line_without_the_password(
    cli: Cli, refused: Refused, config: Write, tmp_path: Path
) -> None:
    config(f"storage:\n  url: postgresql://ada:secret@/antwort?host={tmp_path}\n")
    for line in (refused("db", "current"), refused("db", "upgrade"), cli("check").stderr):
        assert "The database cannot be reached" in line
        assert "secret" not in line


def stored(config: Config, **days: float) -> None:
    """Store responses of some days ago."""

    async def store_all() -> None:
        store = await asyncio.to_thread(open_store, config)
        for name, age in days.items():
            await store.create(record(name, status="completed", created_at=int(time.time() - age * 86_400)))
        await store.close()

    asyncio.run(store_all())


def test_prune_deletes_what_is_older(cli: Cli, database_url: str, config: Write) -> None:
    config(f"storage:\n  url: {database_url}\n")
    settings = Config(storage=StorageConfig(url=database_url))
    stored(settings, old=40, older=400, new=1)
    where = location(database_url)
    counted = cli("db", "prune", "--older-than", "30d", "--dry-run", "--json")
    assert json.loads(counted.stdout) == {
        "database": where,
        "dry_run": True,
        "deleted": {
            "responses": 2,
            "events": 0,
            "conversations": 0,
            "traces": 0,
            "batches": 0,
            "chat_completions": 0,
        },
    }
    result = cli("db", "prune", "--older-than", "30d", "--kind", "responses")
    assert (result.exit_code, result.stdout) == (0, f"Deleted 2 responses older than 30 days from {where}.\n")
    assert "antwort db vacuum" in result.stderr
    config(f"storage:\n  url: {database_url}\n  keep:\n    responses: 12h\n")
    assert cli("db", "prune").stdout == f"Deleted 1 response older than 12 hours from {where}.\n"
    config(f"storage:\n  url: {database_url}\n  keep:\n    responses: 12h\n    events: 1d\n")
    told = "Would delete 0 responses older than 12 hours, 0 events older than 1 day from"
    assert cli("db", "prune", "--dry-run").stdout == f"{told} {where}.\n"


def test_prune_without_an_age_says_how_to_give_one(refused: Refused, cli: Cli) -> None:
    assert "Give --older-than, or set storage.keep." in cli("db", "prune").stderr
    for age in ("soon", "30", "1M", "0d", "2W", ""):  # what was meant differently is deleted for ever
        result = cli("db", "prune", "--older-than", age)
        assert result.exit_code == 2
        assert "write 30d, 12h, 15m, 90s or 2w" in " ".join(result.stderr.split())
    assert "There is no database yet" in refused("db", "prune", "--older-than", "1d")
    assert "There is no database yet" in refused("db", "vacuum")
    assert not DATABASE.exists()


def test_an_older_database_is_neither_pruned_nor_vacuumed(
    cli: Cli, refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli("db", "upgrade")
    need_another_revision(monkeypatch)
    for command in (("prune", "--older-than", "1d"), ("vacuum",)):
        assert "Run 'antwort db upgrade'." in refused("db", *command)


def test_vacuum_gives_space_back_while_a_server_has_the_database(cli: Cli, database_url: str, config: Write) -> None:
    config(f"storage:\n  url: {database_url}\n")
    settings = Config(storage=StorageConfig(url=database_url))
    many = {f"resp_{number}": 40.0 for number in range(300)}
    with running(Antwort(settings)) as server:
        stored(settings, **many)
        cli("db", "prune", "--older-than", "30d")
        done = json.loads(cli("db", "vacuum", "--json").stdout)
        answer = httpx.post(f"{server.url}/v1/responses", json={"input": "Hi"})
        kept = httpx.get(f"{server.url}/v1/responses/{answer.json()['id']}")
    assert (answer.status_code, kept.status_code) == (200, 200)
    assert done["database"] == location(database_url)
    if database_url.startswith("sqlite"):
        assert done["after"] < done["before"]
