"""Versions of variables, and their values in chunks. Every statement names the tenant, but for housekeeping.

Equal values of a tenant are one blob, found by its hash. What a blob holds is known at its end: until then its hash is
its own id, so that one whose writer died is told from the others, and goes when nothing refers to it.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import astuple

from antwort.errors import ConflictError, NotFoundError
from antwort.run_services import Place, ValueKind, Variable, VariableScope
from antwort.storage.sql.database import LOCK, Database
from antwort.storage.sql.responses import check_epoch
from antwort.storage.sql.transactions import Transactions, deletes, reads, writes

CHUNK = 256 * 1024
"""Bytes of a row. All chunks of a blob but its last have as many."""

_VERSION = ", ".join(Variable.__struct_fields__)
_LIVES = "(expires_at IS NULL OR expires_at > ?)"
_KNOWN = f"SELECT {_VERSION} FROM variable_versions WHERE id = ? AND tenant = ?"  # noqa: S608
_GET = f"{_KNOWN} AND {_LIVES}"
_OF_KEY = "tenant = ? AND scope = ? AND scope_id = ? AND key = ?"
_NEWEST = f"SELECT {_VERSION} FROM variable_versions WHERE {_OF_KEY} AND {_LIVES} ORDER BY version DESC LIMIT 1"  # noqa: S608
_LAST = f"SELECT coalesce(max(version), 0) FROM variable_versions WHERE {_OF_KEY}"  # noqa: S608
_INSERT = f"""
    INSERT INTO variable_versions ({_VERSION}) VALUES ({", ".join("?" * len(Variable.__struct_fields__))})"""  # noqa: S608
_IS_NEWEST = """
    NOT EXISTS (SELECT 1 FROM variable_versions AS newer WHERE newer.tenant = variable_versions.tenant
    AND newer.scope = variable_versions.scope AND newer.scope_id = variable_versions.scope_id
    AND newer.key = variable_versions.key AND newer.version > variable_versions.version
    AND (newer.expires_at IS NULL OR newer.expires_at > ?))"""
_FILTERS = frozenset({"scope", "scope_id", "key", "run_id"})
_DELETE = "DELETE FROM variable_versions WHERE id = ? AND tenant = ?"
_BLOBS_OF_KEY = f"SELECT id, blob_id FROM variable_versions WHERE {_OF_KEY}"  # noqa: S608
# A conversation that began with the run, and was not stored, ends with it.
_OF_RUN = """
    SELECT id, blob_id FROM variable_versions WHERE tenant = ? AND run_id = ?
    AND (scope IN ('agent', 'run') OR (scope = 'conversation' AND scope_id = run_id)) LIMIT ?"""

_ADD_BLOB = """
    INSERT INTO blobs (id, tenant, hash, size, created_at) VALUES (?, ?, ?, ?, ?)
    ON CONFLICT (tenant, hash) DO NOTHING"""
_ADD_CHUNK = "INSERT INTO blob_chunks (blob_id, position, tenant, data) VALUES (?, ?, ?, ?)"
_HAS_CHUNK = "SELECT 1 FROM blob_chunks WHERE blob_id = ? AND position = ? AND tenant = ?"
_END_BLOB = """
    UPDATE blobs SET hash = ?, size = ? WHERE id = ? AND tenant = ?
    AND NOT EXISTS (SELECT 1 FROM blobs AS other WHERE other.tenant = ? AND other.hash = ?)"""
# Whoever would delete it waits until something refers to it.
_BLOB = f"SELECT id FROM blobs WHERE tenant = ? AND hash = ? {LOCK}"  # noqa: S608
_USAGE = "SELECT coalesce(sum(size), 0) FROM blobs WHERE tenant = ?"
_IS_STORED = "SELECT 1 FROM responses WHERE id = ? AND tenant = ?"
_IS_CONVERSATION = "SELECT 1 FROM conversations WHERE id = ? AND tenant = ?"
_UNUSED = "NOT EXISTS (SELECT 1 FROM variable_versions WHERE variable_versions.blob_id = blobs.id)"
_DROP_BLOB = f"DELETE FROM blobs WHERE id = ? AND tenant = ? AND {_UNUSED}"  # noqa: S608
_READ = """
    SELECT data FROM blob_chunks WHERE blob_id = ? AND tenant = ? AND position >= ? AND position <= ?
    ORDER BY position"""

# Responses have a run of their own, so that columns are named with their tables.
_GONE = """
    (scope IN ('agent', 'run') AND NOT EXISTS (SELECT 1 FROM responses WHERE responses.id = variable_versions.run_id))
    OR (scope = 'conversation'
    AND NOT EXISTS (SELECT 1 FROM conversations WHERE conversations.id = variable_versions.scope_id)
    AND NOT EXISTS (SELECT 1 FROM responses WHERE responses.id = variable_versions.scope_id))"""
_LEFT_OVER = f"""
    SELECT id, tenant, blob_id FROM variable_versions
    WHERE id > ? AND (expires_at <= ? OR (created_at < ? AND ({_GONE}))) ORDER BY id LIMIT ?"""  # noqa: S608
_LEFT_OVER_BLOBS = f"""
    SELECT id, tenant FROM blobs WHERE id > ? AND created_at < ? AND {_UNUSED} ORDER BY id LIMIT ?"""  # noqa: S608


class NewVersion(Struct, frozen=True):
    """A version that is about to be stored."""

    id: str
    place: Place
    key: str
    kind: ValueKind
    created_at: int
    expires_at: int | None

    @property
    def name(self) -> str:
        """What is written under one of these is written in the order of the calls."""
        return f"{self.place.scope_id}/{self.key}"


class NewBlob(Struct, frozen=True):
    """A value that is about to be stored, or was."""

    id: str
    hash: str
    size: int


class QuotaExceededError(Exception):
    """A tenant would have more bytes than it may; they are the argument."""


class SqlValues(Transactions):
    """Keeps versions and blobs. Each method is one transaction, which may be repeated."""

    @reads
    def get(self, database: Database, tenant: str, variable_id: str, now: int) -> Variable | None:
        """Return a version that lives."""
        row = database.execute(_GET, (variable_id, tenant, now)).fetchone()
        return None if row is None else Variable(*row)

    @reads
    def find(
        self, database: Database, tenant: str, scopes: Sequence[tuple[VariableScope, str]], key: str, now: int
    ) -> Variable | None:
        """Return the newest version of a key in the first scope that has one."""
        for scope, scope_id in scopes:
            row = database.execute(_NEWEST, (tenant, scope, scope_id, key, now)).fetchone()
            if row is not None:
                return Variable(*row)
        return None

    @reads
    def list(
        self,
        database: Database,
        tenant: str,
        *,
        scopes: Sequence[tuple[VariableScope, str]] | None = None,
        where: Mapping[str, str] = {},
        all_versions: bool = False,
        after: str | None = None,
        limit: int,
        newest_first: bool = False,
        now: int,
    ) -> Sequence[Variable]:
        """Return versions in the order of their making: of some scopes, or those where columns have some values."""
        conditions, values = [f"tenant = ? AND {_LIVES}"], [tenant, now]
        for column in sorted(_FILTERS & where.keys()):
            conditions.append(f"{column} = ?")
            values.append(where[column])
        if scopes is not None:
            conditions.append(f"({' OR '.join(['(scope = ? AND scope_id = ?)'] * len(scopes))})")
            values += [part for scope in scopes for part in scope]
        if not all_versions:
            conditions.append(_IS_NEWEST)
            values.append(now)
        if after is not None:
            conditions.append("id < ?" if newest_first else "id > ?")
            values.append(after)
        order = "DESC" if newest_first else "ASC"
        rows = database.execute(
            f"SELECT {_VERSION} FROM variable_versions WHERE {' AND '.join(conditions)} ORDER BY id {order} LIMIT ?",  # noqa: S608
            (*values, limit),
        ).fetchall()
        return [Variable(*row) for row in rows]

    @reads
    def read(self, database: Database, variable: Variable, first: int, last: int) -> Sequence[bytes]:
        """Return some chunks of a value; a NotFoundError if they are gone."""
        rows = database.execute(_READ, (variable.blob_id, variable.tenant, first, last)).fetchall()
        if len(rows) <= last - first:
            raise NotFoundError(f"'{variable.key}' was deleted while it was read.")
        return [bytes(data) for (data,) in rows]

    @reads
    def usage(self, database: Database, tenant: str) -> int:
        """Return how many bytes the values of a tenant have, each counted once."""
        return int(database.execute(_USAGE, (tenant,)).fetchone()[0])

    @writes
    def put(
        self,
        database: Database,
        tenant: str,
        _name: str,
        new: NewVersion,
        blob: NewBlob,
        *,
        data: bytes,
        quota: int | None,
    ) -> Variable:
        """Store a version with a value of one chunk."""
        if known := _known(database, new):
            return known
        _check_fence(database, new.place)
        row = (blob.id, tenant, blob.hash, blob.size, new.created_at)
        if database.execute(_ADD_BLOB, row).rowcount == 0:
            return _insert(database, new, _equal(database, tenant, blob), blob.size)
        if data:
            database.execute(_ADD_CHUNK, (blob.id, 0, tenant, data))
        _check_quota(database, tenant, quota)
        return _insert(database, new, blob.id, blob.size)

    @writes
    def begin(self, database: Database, tenant: str, blob_id: str, now: int) -> None:
        """Begin a blob of which nobody knows yet what it will hold."""
        database.execute(_ADD_BLOB, (blob_id, tenant, blob_id, 0, now))

    @writes
    def add_chunk(self, database: Database, tenant: str, blob_id: str, position: int, data: bytes) -> None:
        """Add the next chunk."""
        if database.execute(_HAS_CHUNK, (blob_id, position, tenant)).fetchone() is None:
            database.execute(_ADD_CHUNK, (blob_id, position, tenant, data))

    @writes
    def finish(
        self, database: Database, tenant: str, _name: str, new: NewVersion, blob: NewBlob, *, quota: int | None
    ) -> Variable:
        """Store a version with a blob that was written; if there is an equal one already, with that."""
        if known := _known(database, new):
            return known
        _check_fence(database, new.place)
        if database.execute(_END_BLOB, (blob.hash, blob.size, blob.id, tenant, tenant, blob.hash)).rowcount > 0:
            _check_quota(database, tenant, quota)
            return _insert(database, new, blob.id, blob.size)
        version = _insert(database, new, _equal(database, tenant, blob), blob.size)
        database.execute(_DROP_BLOB, (blob.id, tenant))
        return version

    @writes
    def link(self, database: Database, tenant: str, _name: str, new: NewVersion, source: Variable) -> Variable | None:
        """Store a version with the value of another one; None if that is gone."""
        if known := _known(database, new):
            return known
        _check_fence(database, new.place)
        if database.execute(_GET, (source.id, tenant, new.created_at)).fetchone() is None:
            return None
        return _insert(database, new, source.blob_id, source.size)

    @deletes
    def discard(self, database: Database, tenant: str, blob_id: str) -> None:
        """Delete a blob that nothing refers to."""
        database.execute(_DROP_BLOB, (blob_id, tenant))

    @deletes
    def delete(self, database: Database, tenant: str, variable_id: str, *, all_versions: bool, now: int) -> bool:
        """Delete a version, or all of its key in its scope, and values that nothing refers to any more."""
        row = database.execute(_GET, (variable_id, tenant, now)).fetchone()
        if row is None:
            return False
        one = Variable(*row)
        found = [(one.id, one.blob_id)]
        if all_versions:
            found = database.execute(_BLOBS_OF_KEY, (tenant, one.scope, one.scope_id, one.key)).fetchall()
        _delete(database, tenant, found)
        return True

    @deletes
    def delete_key(self, database: Database, tenant: str, scope_id: str, place: Place, key: str) -> int:
        """Delete all versions of a key in a scope; return how many."""
        _check_fence(database, place)
        found = database.execute(_BLOBS_OF_KEY, (tenant, place.scope, scope_id, key)).fetchall()
        _delete(database, tenant, found)
        return len(found)

    @reads
    def is_stored(self, database: Database, tenant: str, run_id: str) -> bool:
        """Tell whether the response that a run began with is stored."""
        return database.execute(_IS_STORED, (run_id, tenant)).fetchone() is not None

    @reads
    def is_conversation(self, database: Database, tenant: str, conversation_id: str) -> bool:
        """Tell whether there is a conversation."""
        return database.execute(_IS_CONVERSATION, (conversation_id, tenant)).fetchone() is not None

    @deletes
    def drop_run(self, database: Database, tenant: str, run_id: str, most: int) -> int:
        """Delete some of what was made in a run for itself; return how many."""
        found = database.execute(_OF_RUN, (tenant, run_id, most)).fetchall()
        _delete(database, tenant, found)
        return len(found)

    # --- housekeeping ------------------------------------------------------------------------------------------------

    @reads
    def left_over(
        self, database: Database, after: str, now: int, before: int, limit: int
    ) -> Sequence[tuple[str, str, str]]:
        """Return id, tenant and blob of versions that have expired, or whose run or conversation is gone.

        The latter if they were made before a moment: a run is stored a little later than it begins.
        """
        return database.execute(_LEFT_OVER, (after, now, before, limit)).fetchall()

    @reads
    def left_over_blobs(self, database: Database, after: str, before: int, limit: int) -> Sequence[tuple[str, str]]:
        """Return id and tenant of blobs, begun before a moment, that nothing refers to."""
        return database.execute(_LEFT_OVER_BLOBS, (after, before, limit)).fetchall()

    @deletes
    def forget(self, database: Database, tenant: str, _name: str, versions: Sequence[tuple[str, str]]) -> int:
        """Delete versions, given by their ids and blobs."""
        return _delete(database, tenant, versions)


def _known(database: Database, new: NewVersion) -> Variable | None:
    """Return a version that is stored already: nobody knew whether it was, and it is done again."""
    row = database.execute(_KNOWN, (new.id, new.place.tenant)).fetchone()
    return None if row is None else Variable(*row)


def _check_fence(database: Database, place: Place) -> None:
    """Raise FencedError if the response that writes was taken over by somebody else, or is gone."""
    if place.fence is not None:
        check_epoch(database, place.tenant, place.fence.response_id, place.fence.epoch)


def _equal(database: Database, tenant: str, blob: NewBlob) -> str:
    """Return the id of the blob that holds the same."""
    row = database.execute(_BLOB, (tenant, blob.hash)).fetchone()
    if row is None:
        raise ConflictError("An equal value was deleted just now.")
    return str(row[0])


def _insert(database: Database, new: NewVersion, blob_id: str, size: int) -> Variable:
    place = new.place
    row = database.execute(_LAST, (place.tenant, place.scope, place.scope_id, new.key)).fetchone()
    version = Variable(
        new.id,
        place.tenant,
        place.scope,
        place.scope_id,
        new.key,
        int(row[0]) + 1,
        new.kind,
        size,
        blob_id,
        place.run_id,
        place.conversation_id,
        new.created_at,
        new.expires_at,
    )
    database.execute(_INSERT, astuple(version))
    return version


def _check_quota(database: Database, tenant: str, quota: int | None) -> None:
    """Undo what was done if the tenant has too much now."""
    if quota is not None:
        used = int(database.execute(_USAGE, (tenant,)).fetchone()[0])
        if used > quota:
            raise QuotaExceededError(used)


def _delete(database: Database, tenant: str, versions: Sequence[tuple[str, str]]) -> int:
    deleted = sum(database.execute(_DELETE, (name, tenant)).rowcount for name, _ in versions)
    for blob_id in sorted({blob_id for _, blob_id in versions}):
        database.execute(_DROP_BLOB, (blob_id, tenant))
    return deleted
