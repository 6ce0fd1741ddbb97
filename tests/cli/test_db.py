import json
import sqlite3
import stat
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from click.testing import Result
from tests.support.postgres import PostgresServer

from antwort.storage.upgrade import head

Cli = Callable[..., Result]
Refused = Callable[..., str]
Write = Callable[[str], Path]

DATABASE = Path(".antwort/antwort.db")


def stamp(revision: str) -> None:
    """Give the database another revision."""
    with closing(sqlite3.connect(DATABASE)) as database, database:
        database.execute("UPDATE alembic_version SET version_num = ?", (revision,))


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
    cli: Cli, config: Write, postgres_server: PostgresServer, postgres_url: str
) -> None:
    config(f"storage:\n  url: {postgres_url}\n")
    cli("db", "upgrade")
    postgres_server.execute("UPDATE alembic_version SET version_num = '0001'", postgres_url)
    assert cli("db", "current").stdout.endswith(f" has the revision 0001; this version of antwort needs {head()}.\n")
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
