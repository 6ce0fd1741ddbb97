"""One connection, its transactions, and what is done when it is lost.

A transaction that was cut off before its COMMIT was sent has changed nothing and is done again. If the connection is
lost while the COMMIT is under way, or the statement of a transaction that has but one, nobody knows whether it was
stored. Then it is done again as well: all writes but one kind have the same effect the second time, or are refused
because they are stored already, which tells just that.
"""

import logging
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import psycopg
from typing_extensions import override

from antwort.concurrency.backoff import Backoff
from antwort.errors import BadRequestError, ConflictError
from antwort.storage.base import StoreFullError, StoreUnavailableError
from antwort.storage.postgres.connection import SHORTEST, PostgresAddress, PostgresConnection, TimeLimits, connect
from antwort.storage.sql.database import LOCK, SNAPSHOT, Cursor, Database, Row, Transaction, for_rows, insert_together

# --- from the statements as they are written, for SQLite, to those PostgreSQL understands ----------------------------


_OCTETS = re.compile(r"length\(CAST\((\w+) AS BLOB\)\)")
_LIST = re.compile(r"group_concat\((\w+)\)")
_PLACEHOLDER = re.compile(r"\?|:([a-z_]+)")
_HOLD = "SELECT pg_advisory_xact_lock(1, hashtext($1))"
"""Locks with two numbers are others than those with one, which belong to changes of the tables."""


@lru_cache
def translated(sql: str) -> tuple[str, tuple[str, ...]]:
    """Return a statement for PostgreSQL, and the names of its parameters in order if they have names."""
    names: list[str] = []
    count = 0

    def number(match: re.Match[str]) -> str:
        nonlocal count
        name = match[1]
        if name is None:
            count += 1
            return f"${count}"
        if name not in names:
            names.append(name)
        return f"${names.index(name) + 1}"

    text = _PLACEHOLDER.sub(number, sql)
    text = _OCTETS.sub(r"octet_length(\1)", text)
    text = _LIST.sub(r"string_agg(\1, ',')", text)
    text = text.replace("instr(", "strpos(")
    text = text.replace(LOCK, "FOR NO KEY UPDATE").replace(SNAPSHOT, "ISOLATION LEVEL REPEATABLE READ READ ONLY")
    return text, tuple(names)


@lru_cache
def joined(inserts: tuple[tuple[str, int], ...]) -> str:
    """Return one statement that does several inserts, each of a number of rows."""
    *first, last = (for_rows(statement, count) for statement, count in inserts)
    return f"WITH {_parts(first)} {last}" if first else last


@lru_cache
def changing(update: str, inserts: tuple[tuple[str, int], ...]) -> str:
    """Return one statement that updates a row and does inserts; if there is no such row, it divides by zero.

    It fails then, so that nothing is done: to refuse a statement there is no other way in SQL.
    """
    parts = _parts([f"{update} RETURNING 1", *(for_rows(statement, count) for statement, count in inserts)])
    return f"WITH {parts} SELECT 1 / count(*) FROM part_0"  # noqa: S608


def _parts(statements: Sequence[str]) -> str:
    return ", ".join(f"part_{number} AS ({statement})" for number, statement in enumerate(statements))


class PostgresDatabase(Database):
    """A connection to PostgreSQL that is used like one to SQLite."""

    __slots__ = ("_connection",)

    def __init__(self, connection: PostgresConnection) -> None:
        self._connection = connection

    @override
    def execute(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = (), /) -> Cursor:
        """Execute a statement."""
        text, names = translated(sql)
        if isinstance(parameters, Mapping):
            parameters = [parameters[name] for name in names]
        return self._connection.execute(text, parameters or None)

    @override
    def insert(self, sql: str, rows: Sequence[Row], /) -> None:
        """Insert rows, several with one statement: it costs the driver more than a row in it."""
        insert_together(self, sql, rows)

    @override
    def hold(self, name: str, /) -> None:
        """Keep others out who hold the same name, until the transaction ends."""
        self._connection.execute(_HOLD, (name,))


# --- a connection ----------------------------------------------------------------------------------------------------


logger = logging.getLogger(__name__)

_FULL = "53100"
_PASSING = {"40001", "40P01"}
"""Two transactions were in each other's way: a serialization failure, a deadlock."""
_UNAVAILABLE = {
    "25006": "it is read-only",
    "42501": "access is denied",
    "42P01": "its tables are missing",
    _FULL: "the disk is full",
    "53200": "there is no memory left",
    "55P03": "another process holds it",
    "57014": "it takes too long",
    "58030": "the disk does not answer",
    "XX001": "it is damaged",
    "XX002": "it is damaged",
}
_UNSTORABLE = {
    "22021": "Text that holds a NUL character cannot be stored.",
    "54000": "An id is too long to be stored.",
}


def is_passing(error: psycopg.Error) -> bool:
    """Tell whether a transaction may well succeed when it is done again."""
    return error.sqlstate in _PASSING


def report(error: Exception) -> Exception:
    """Log what concerns the operator of an error, and return what the caller shall see."""
    if not isinstance(error, psycopg.Error):
        return error
    if isinstance(error, psycopg.IntegrityError):
        return ConflictError("This is stored already.")
    state = error.sqlstate or ""
    if isinstance(error, psycopg.DataError) and not state:  # found by the driver
        state = "22021"
    if state in _UNSTORABLE:
        return BadRequestError(_UNSTORABLE[state])
    reason = _UNAVAILABLE.get(state)
    if reason is None and isinstance(error, psycopg.OperationalError):  # of the server or its machine, not of ours
        reason = "the server reports a failure"
    return error if reason is None else report_unavailable(reason, error)


def report_unavailable(reason: str, error: Exception | None) -> StoreUnavailableError:
    """Log that the database cannot be used now, and return the error for it."""
    cause = str(error).strip().splitlines()[:1] if error is not None else []
    logger.error("the database cannot be used: %s%s", reason, f" ({cause[0]})" if cause else "")
    kind = StoreFullError if isinstance(error, psycopg.Error) and error.sqlstate == _FULL else StoreUnavailableError
    return kind(f"The database cannot be used now: {reason}.")


_ATTEMPTS = Backoff(0.02, 1.0)
"""Seconds between two attempts."""
_LITTLE = 0.4
"""The part of the time for a connection with which nobody tries to make one, if that was in vain a moment ago."""
_READ_ONLY = "25006"
_IDLE = psycopg.pq.TransactionStatus.IDLE


@dataclass(slots=True)
class PostgresWork:
    """Something to be done in a transaction, or, if it does not write, as it is."""

    transaction: Transaction[Any]
    writes: bool
    deadline: float
    """When waiting for a server that is away comes to an end."""
    repeatable: bool = True
    """Whether it may be done again when nobody knows whether it was stored."""
    is_statement: bool = False
    """Whether it is one statement, which is a transaction without being told so."""


@dataclass(slots=True)
class Outage:
    """What the threads of a pool know of a server that is away, so that not each of them has to find out."""

    last: float = field(default=-1e9)
    """When somebody tried in vain to connect."""
    silent: float = field(default=-1e9)
    """When somebody did so without a word from it: it stands still."""

    cause: psycopg.OperationalError | None = None
    """What somebody was told then."""

    def known(self) -> bool:
        """Tell whether it was away a moment ago."""
        return time.monotonic() - self.last < _ATTEMPTS.longest

    def note(self, error: psycopg.OperationalError) -> None:
        """Take note that somebody tried in vain to connect."""
        self.last, self.cause = time.monotonic(), error
        if isinstance(error, psycopg.errors.ConnectionTimeout):
            self.silent = self.last


class _LostError(Exception):
    """The server is away, or was; `in_doubt` if it had been told to COMMIT."""

    def __init__(self, cause: psycopg.Error | None, *, in_doubt: bool = False, value: Any = None) -> None:
        super().__init__()
        self.cause = cause
        self.in_doubt = in_doubt
        self.value = value

    @property
    def reason(self) -> str:
        """What is the matter, in plain words."""
        is_read_only = self.cause is not None and self.cause.sqlstate == _READ_ONLY
        return "it is read-only" if is_read_only else "it cannot be reached"


class PostgresSession:
    """A connection that is made when it is needed, and again when it was lost. It belongs to one thread."""

    def __init__(
        self, address: PostgresAddress, limits: TimeLimits, outage: Outage, connection: PostgresConnection | None = None
    ) -> None:
        self._address = address
        self._limits = limits
        self._outage = outage
        self._connection = connection
        if connection is not None:
            connection.is_alive = self._is_alive

    @property
    def patience(self) -> float | None:
        """Seconds to wait for something to do, after which the connection is to be closed; None if there is none."""
        return None if self._connection is None else self._limits.idle

    def close(self) -> None:
        """Let go of the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def do(self, work: PostgresWork) -> Any:
        """Do something and return what it returns, once that is safe; raise what the caller shall see."""
        doubt: _LostError | None = None
        pauses, attempts = _ATTEMPTS.pauses(), 0
        while True:
            attempts += 1
            try:
                value = self._attempt(work)
            except _LostError as lost:
                self._report_if_over(work, lost, attempts)
                if lost.in_doubt and doubt is None:
                    doubt = lost
            except psycopg.IntegrityError as error:
                if doubt is None:
                    raise report(error) from error
                return doubt.value  # it is there: the transaction in doubt was stored
            except psycopg.Error as error:
                if not is_passing(error) or (time.monotonic() > work.deadline and attempts > 2):
                    raise report(error) from error
            else:
                return doubt.value if doubt is not None and value is False else value
            time.sleep(next(pauses))

    def _report_if_over(self, work: PostgresWork, lost: _LostError, attempts: int) -> None:
        """Raise what the caller shall see if something that was lost is not to be tried again.

        A write whose end is not known fails at the deadline, too: nobody waits longer to know.
        """
        if lost.in_doubt and not work.repeatable:
            raise report_unavailable("whether this was stored is not known", lost.cause) from lost.cause
        if time.monotonic() > work.deadline and (attempts > 1 or self._outage.known()):
            raise report_unavailable(lost.reason, lost.cause) from lost.cause

    def _attempt(self, work: PostgresWork) -> Any:
        """Do it once, and leave a connection that can be used, or none."""
        connection = self._connect(work.deadline - time.monotonic())
        try:
            if work.writes:
                return self._commit(connection, work)
            return work.transaction(PostgresDatabase(connection))
        except BaseException as error:
            self._clean_up(connection)
            if isinstance(error, psycopg.Error) and (connection.closed or error.sqlstate == _READ_ONLY):
                self.close()  # a server that has become read-only was replaced by another
                raise _LostError(error) from error
            raise

    def _commit(self, connection: PostgresConnection, work: PostgresWork) -> Any:
        database = PostgresDatabase(connection)
        if work.is_statement:
            with self._in_doubt_if_lost(connection):
                return work.transaction(database)
        connection.execute("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE")
        value = work.transaction(database)
        with self._in_doubt_if_lost(connection, value):
            connection.execute("COMMIT")
        return value

    @contextmanager
    def _in_doubt_if_lost(self, connection: PostgresConnection, value: Any = None) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as error:
            if not connection.closed:  # the server has answered, so it is undone
                raise
            self.close()
            raise _LostError(error, in_doubt=True, value=value) from error

    def _connect(self, patience: float) -> PostgresConnection:
        if self._connection is None or self._connection.closed:
            # A connection in vain might take longer than the time there is.
            if patience < min(SHORTEST, _LITTLE * self._limits.connect) and self._outage.known():
                raise _LostError(self._outage.cause)
            try:
                self._connection = connect(
                    self._address, replace(self._limits, connect=min(self._limits.connect, patience))
                )
            except psycopg.OperationalError as error:
                self._outage.note(error)
                raise _LostError(error) from error
            self._connection.is_alive = self._is_alive
        return self._connection

    def _is_alive(self) -> bool:
        """Tell whether the server gives a sign of life, be it that it refuses us."""
        if time.monotonic() - self._outage.silent < _ATTEMPTS.longest:  # somebody else has just asked
            return False
        try:
            connect(self._address, self._limits).close()
        except psycopg.OperationalError as error:
            if isinstance(error, psycopg.errors.ConnectionTimeout):
                self._outage.note(error)
                return False
        return True

    def _clean_up(self, connection: PostgresConnection) -> None:
        """End a transaction that failed."""
        if connection.closed or connection.info.transaction_status == _IDLE:
            return
        try:
            connection.execute("ROLLBACK")
        except psycopg.Error:
            self.close()
