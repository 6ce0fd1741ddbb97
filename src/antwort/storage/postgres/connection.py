"""Connecting to PostgreSQL: the address, its settings, and what can be wrong with it, told without the password."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import psycopg
from psycopg.abc import PQGen
from psycopg.conninfo import conninfo_to_dict
from typing_extensions import override

from antwort.errors import ConfigError
from antwort.storage.sql.database import Row

T = TypeVar("T")

OLDEST = 130000
"""The first version of the server that will do."""


SHORTEST = 2
"""Seconds that the driver waits for a connection, if it has to wait: it knows no less."""


@dataclass(frozen=True, slots=True)
class TimeLimits:
    """How long things may take, in seconds."""

    connect: float = 5.0
    lock: float = 10.0
    statement: float = 30.0
    answer: float = 40.0
    """A server that has not said a word for so long is taken for lost."""
    quiet: float = 5.0
    """After so long without a word it is asked for a sign of life, on another connection."""
    idle: float = 60.0
    """A connection that nobody has needed for so long is closed."""

    def within(self, patience: float) -> "TimeLimits":
        """Return limits with which one that stands still is found out while somebody waits so long for it."""
        return replace(self, connect=min(self.connect, patience / 2), quiet=min(self.quiet, patience / 2))


@dataclass(frozen=True, slots=True)
class PostgresAddress:
    """Where a database is."""

    options: dict[str, Any]

    @classmethod
    def of(cls, url: str) -> "PostgresAddress":
        """Read a URL; raise ConfigError if it cannot be understood."""
        scheme, _, rest = url.partition(":")
        try:
            options = conninfo_to_dict(f"{scheme.partition('+')[0]}:{rest}")
        except psycopg.Error:
            options = None
        # What is wrong is not repeated: it may be a part of the password, torn off by a sign in it.
        if options is None or not _sound(options):
            raise ConfigError(
                "'storage.url' must look like postgresql://user:password@host:5432/database, "
                "with '%40' for '@', '%2F' for '/' and so on in the user and the password"
            ) from None
        return cls(options)

    @override
    def __str__(self) -> str:
        """Return what may be shown: no password, and nothing but where it is."""
        user, host, port, name = (str(self.options.get(key, "")) for key in ("user", "host", "port", "dbname"))
        owner = f"{user}@" if user else ""
        if host.startswith("/"):
            return f"postgresql://{owner}/{name}?host={host}"
        return f"postgresql://{owner}{host}{':' if port else ''}{port}/{name}"


def _sound(options: dict[str, Any]) -> bool:
    ports = str(options.get("port", "")).split(",")
    named = f"{options.get('host', '')}{options.get('dbname', '')}"
    return all(not port or port.isdigit() for port in ports) and "@" not in named


class PostgresConnection(psycopg.Connection[Row]):
    """A connection on which nothing is waited for for ever, and not for long if the server stands still."""

    patience: float | None = None
    quiet: float = 0.0
    is_alive: Callable[[], bool] | None = None
    """Asks the server for a sign of life: a statement may take long, and says nothing meanwhile."""

    @override
    def wait(self, gen: PQGen[T], *args: Any, **options: Any) -> T:
        if self.patience is None:
            return super().wait(gen, *args, **options)
        try:
            return super().wait(self._limited(gen, time.monotonic() + self.patience), *args, **options)
        except TimeoutError as error:
            self.close()
            raise psycopg.OperationalError("the server does not answer") from error

    def _limited(self, gen: PQGen[T], deadline: float) -> PQGen[T]:
        """Pass everything on, until it is too late. The driver looks in several times a second if nothing happens."""
        doubtful = time.monotonic() + self.quiet
        try:
            state = next(gen)
            while True:
                ready = yield state
                if not ready and time.monotonic() > min(deadline, doubtful):
                    if time.monotonic() > deadline or (self.is_alive is not None and not self.is_alive()):
                        raise TimeoutError
                    doubtful = time.monotonic() + self.quiet
                state = gen.send(ready)
        except StopIteration as end:
            result: T = end.value
            return result


def connect(address: PostgresAddress, limits: TimeLimits | None = None) -> PostgresConnection:
    """Connect. Transactions begin and end where the caller says so; without limits statements take their time."""
    options: dict[str, Any] = {"application_name": "antwort", "connect_timeout": 10, **address.options}
    if limits is not None:
        options["connect_timeout"] = max(SHORTEST, round(limits.connect))
    connection = PostgresConnection.connect(**{**options, "client_encoding": "utf8"}, autocommit=True)
    if limits is not None:
        connection.patience, connection.quiet = limits.answer, limits.quiet
        connection.cursor_factory = psycopg.RawCursor
        with _closed_on_error(connection):
            connection.execute(
                f"SET statement_timeout = {limits.statement * 1000:.0f}; SET lock_timeout = {limits.lock * 1000:.0f}; "
                f"SET idle_in_transaction_session_timeout = {limits.answer * 1000:.0f}; "
                "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED READ WRITE",
                prepare=False,
            )
    return connection


@contextmanager
def _closed_on_error(connection: PostgresConnection) -> Iterator[None]:
    try:
        yield
    except BaseException:
        connection.close()
        raise


@contextmanager
def config_errors(address: PostgresAddress) -> Iterator[None]:
    """Turn whatever prevents a database from being used at start into a ConfigError with the cure."""
    try:
        yield
    except psycopg.errors.InsufficientPrivilege as error:
        raise ConfigError(
            f"The database does not let us ({_first_line(error)}). "
            "Let the user create tables, or run 'antwort db upgrade' as one who may.",
            where=str(address),
        ) from error
    except psycopg.OperationalError as error:
        raise ConfigError(
            f"The database cannot be reached ({_first_line(error)}). Start it, or correct 'storage.url'.",
            where=str(address),
        ) from error


def _first_line(error: psycopg.Error) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
