"""Copies of a PostgreSQL database, made and brought back by its own programs, `pg_dump` and `pg_restore`."""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from psycopg import sql
from psycopg.conninfo import make_conninfo

from antwort.errors import ConfigError
from antwort.storage.postgres.connection import PostgresAddress, PostgresConnection, config_errors, connect
from antwort.storage.postgres.maintenance import revision_of
from antwort.storage.schema.tables import metadata

COPY = "tables.dump"
"""The name of a copy."""
_PAUSE = 0.1
_PACKAGE = (
    "is not installed; it is one of PostgreSQL's own programs for clients, such as those of the Debian package "
    "postgresql-client, and must be at least as new as the server"
)
_BESIDE = r"SELECT nspname FROM pg_namespace WHERE nspname LIKE 'antwort\_%' AND nspname <> current_schema()"
"""Schemas of extensions, such as the one with vectors."""
_TYPES = """
    SELECT DISTINCT e.extname, home.nspname
    FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace
    JOIN pg_depend d ON d.objid = a.atttypid AND d.classid = 'pg_type'::regclass AND d.deptype = 'e'
    JOIN pg_extension e ON e.oid = d.refobjid AND d.refclassid = 'pg_extension'::regclass
    JOIN pg_namespace home ON home.oid = e.extnamespace
    WHERE n.nspname = ANY(%s)
"""
"""What has to be installed for the columns in some schemas, and where it is."""
_TABLES_IN = "SELECT count(*) FROM pg_tables WHERE schemaname = ANY(%s)"


@contextmanager
def snapshot(url: str) -> Iterator["PostgresSnapshot"]:
    """Keep a database as it is at this moment, to be copied; others go on writing."""
    address = PostgresAddress.of(url)
    with config_errors(address):
        opened = connect(address)
    with closing(opened) as connection:
        with config_errors(address):
            revision = revision_of(connection, address)
            connection.execute("SET idle_in_transaction_session_timeout = 0")
            connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            kept = PostgresSnapshot(connection, address, revision)
        yield kept


class PostgresSnapshot:
    """The tables of antwort as they were at a moment, and those of extensions in schemas of their own."""

    kind = "postgresql"

    def __init__(self, connection: PostgresConnection, address: PostgresAddress, revision: str | None) -> None:
        self._address = address
        self.revision = revision
        self._name = str(_one(connection, "SELECT pg_export_snapshot()"))
        schema = str(_one(connection, "SELECT current_schema()"))
        beside = [str(name) for (name,) in connection.execute(_BESIDE)]
        needed = [[str(value) for value in row] for row in connection.execute(_TYPES, [beside])]
        self.details: dict[str, object] = {"schema": schema, "beside": sorted(beside), "extensions": sorted(needed)}
        tables = [_named(schema, table) for table in (*metadata.tables, "alembic_version")]
        self._tables = [*tables, *(f"{_quoted(name)}.*" for name in beside)]

    def write(self, folder: Path, tell: Callable[[int], None]) -> Path:
        """Write it into a folder. This may take long."""
        copy = folder / COPY
        chosen = [f"--table={table}" for table in self._tables]
        options = ["--format=custom", "--compress=0", "--no-owner", "--no-privileges", f"--snapshot={self._name}"]
        _run("pg_dump", self._address, [*options, *chosen, f"--file={copy}"], lambda: tell(_size(copy)))
        return copy


def check_empty(url: str, schema: str, beside: Sequence[str]) -> None:
    """Raise ConfigError unless what was in some schemas can be brought to a database: nothing of it is there."""
    address = PostgresAddress.of(url)
    _program("pg_restore")
    with config_errors(address), closing(connect(address)) as connection:
        found = _one(connection, "SELECT current_schema()")
        if found != schema:
            raise ConfigError(
                f"The tables in the archive are of the schema '{schema}', and the connection leads to '{found or ''}'. "
                "Create that schema, and set the search_path of the user to it.",
                where=str(address),
            )
        has_tables = revision_of(connection, address) is not None
        if has_tables or _one(connection, _TABLES_IN, [list(beside)]):
            raise ConfigError(
                "The database has tables of antwort already, and nothing is overwritten. Create an empty database, and "
                "set 'storage.url' to it.",
                where=str(address),
            )


def load(
    url: str, copy: Path, beside: Sequence[str], extensions: Sequence[Sequence[str]], tell: Callable[[], None]
) -> None:
    """Bring a copy to a database that has nothing of it: all or nothing."""
    address = PostgresAddress.of(url)
    with config_errors(address), closing(connect(address)) as connection:
        for name in beside:
            connection.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(name)))
        for extension, schema in extensions:
            connection.execute(
                sql.SQL("CREATE EXTENSION IF NOT EXISTS {} WITH SCHEMA {}").format(
                    sql.Identifier(extension), sql.Identifier(schema)
                )
            )
    options = ["--single-transaction", "--exit-on-error", "--no-owner", "--no-privileges"]
    _run("pg_restore", address, [*options, str(copy)], tell)


def _run(name: str, address: PostgresAddress, arguments: Sequence[str], tell: Callable[[], None]) -> None:
    """Run a program and wait for its end; ConfigError with its own words if it fails."""
    options = {key: value for key, value in address.options.items() if key != "password"}
    environment = {**os.environ, "LC_ALL": "C"}
    if (password := address.options.get("password")) is not None:
        environment["PGPASSWORD"] = str(password)  # everybody on this machine sees arguments
    # PostgreSQL's programs take no other way to say which database than theirs: --dbname is a whole address.
    command = [_program(name), f"--dbname={make_conninfo(**options)}", "--no-password", *arguments]
    with subprocess.Popen(  # noqa: S603 - a program of PostgreSQL, with what the operator has configured
        command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as process:
        try:
            said = _said(process, tell)
        except BaseException:
            process.kill()
            raise
    if process.returncode != 0:
        lines = [line.strip() for line in said.decode(errors="replace").splitlines()]
        told = "; ".join(line for line in lines if "error" in line or "detail" in line)
        raise ConfigError(f"{told or f'{name} failed'} ({command[0]}, {_version(command[0])})", where=str(address))


def _said(process: "subprocess.Popen[bytes]", tell: Callable[[], None]) -> bytes:
    """Wait for the end of a program and return what it has said."""
    while True:
        try:
            return process.communicate(timeout=_PAUSE)[1]
        except subprocess.TimeoutExpired:
            tell()


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise ConfigError(f"'{name}' {_PACKAGE}.")
    return found


def _version(program: str) -> str:
    asked = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)  # noqa: S603 - as above
    return asked.stdout.strip().partition(") ")[2]


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _named(schema: str, table: str) -> str:
    return f"{_quoted(schema)}.{_quoted(table)}"


def _quoted(name: str) -> str:
    escaped = name.replace('"', '""')
    return f'"{escaped}"'


def _one(connection: PostgresConnection, query: str, values: Sequence[object] = ()) -> object:
    row = connection.execute(query.encode(), values or None).fetchone()
    return None if row is None else row[0]
