"""Versions of variables, and their values in chunks. Every statement names the tenant, but for housekeeping.

Equal values of a tenant are one blob, found by its hash. What a blob holds is known at its end: until then its hash is
its own id, so that one whose writer died is told from the others, and goes when nothing refers to it.

A version is the beginning of its blob, as many bytes as it has: what is appended to a value is written behind it, and
the versions before stay what they were. Of an array the last byte, `]`, gives way to a comma; whoever reads a version
from before reads the bracket all the same. The hash of a blob that has grown is its own id again, so that nothing is
taken for its equal.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import astuple, replace

from antwort.context.values import Place
from antwort.context.variables import ValueKind, Variable, VariableScope
from antwort.errors import BadRequestError, ConflictError, NotFoundError, PayloadTooLargeError
from antwort.storage.sql.database import LOCK, Database, Transactions, deletes, reads, writes
from antwort.storage.sql.responses import check_epoch

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
_HOLD_BLOB = f"SELECT size FROM blobs WHERE id = ? AND tenant = ? {LOCK}"  # noqa: S608
_SIZE = "SELECT size FROM blobs WHERE id = ? AND tenant = ?"
_OTHER_KIND = "SELECT 1 FROM variable_versions WHERE blob_id = ? AND tenant = ? AND kind <> 'json' LIMIT 1"
_CHUNK = "SELECT data FROM blob_chunks WHERE blob_id = ? AND position = ? AND tenant = ?"
_CUT = "DELETE FROM blob_chunks WHERE blob_id = ? AND position >= ? AND tenant = ?"
_GROW_BLOB = "UPDATE blobs SET hash = id, size = ? WHERE id = ? AND tenant = ?"
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
    follows: str | None = None
    """The id of the version that must be the newest of its key; empty if there must be none."""

    @property
    def name(self) -> str:
        """What is written under one of these is written in the order of the calls."""
        return f"{self.place.scope_id}/{self.key}"


class NewBlob(Struct, frozen=True):
    """A value that is about to be stored, or was."""

    id: str
    hash: str
    size: int


class Addition(Struct, frozen=True):
    """What is appended to a value."""

    kind: ValueKind
    """What a key is that begins with it; an array if this is JSON."""
    text: bytes | None
    """What it is at the end of a text; None if it is none."""
    element: bytes
    """What it is as an element of a JSON array."""


class OutdatedError(Exception):
    """The newest version of a key is not the one that was expected."""


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
        prefix: str = "",
        all_versions: bool = False,
        after: str | None = None,
        limit: int,
        newest_first: bool = False,
        now: int,
    ) -> Sequence[Variable]:
        """Return versions in the order of their making: of some scopes, or those where columns have some values."""
        conditions: list[str] = [f"tenant = ? AND {_LIVES}"]
        values: list[str | int] = [tenant, now]
        for column in sorted(_FILTERS & where.keys()):
            conditions.append(f"{column} = ?")
            values.append(where[column])
        if scopes is not None:
            conditions.append(f"({' OR '.join(['(scope = ? AND scope_id = ?)'] * len(scopes))})")
            values += [part for scope in scopes for part in scope]
        if prefix:
            conditions.append("substr(key, 1, ?) = ?")  # LIKE would have signs of its own, and know no case
            values += [len(prefix), prefix]
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
        chunks = [bytes(data) for (data,) in rows]
        end = variable.size - 1 - last * CHUNK
        if variable.kind == "json" and chunks and chunks[-1][end : end + 1] == b",":  # an array goes on from here
            row = database.execute(_SIZE, (variable.blob_id, variable.tenant)).fetchone()
            if row is not None and int(row[0]) > variable.size:
                chunks[-1] = chunks[-1][:end] + b"]"
        return chunks

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

    @writes
    def append(
        self,
        database: Database,
        tenant: str,
        _name: str,
        new: NewVersion,
        addition: Addition,
        *,
        most: int,
        quota: int | None,
    ) -> Variable | None:
        """Store a version that is the newest one of its key and something more, which is all that is written.

        None if the value must be written anew: there is none yet, its blob goes on differently, or what is appended
        cannot simply stand behind it.
        """
        if known := _known(database, new):
            return known
        _check_fence(database, new.place)
        held = _held(database, new)
        if held is None or held[0].size != held[1]:
            return None
        newest, end = held
        if newest.kind == "json":
            if not _ends_like_a_list(database, newest):
                return None
            start, data = end - 1, b"," + addition.element + b"]"
        else:
            start, data = end, appended_text(newest, addition)
        size = start + len(data)
        if size > most:
            raise too_large(most)
        _write_on(database, newest, start, data)
        database.execute(_GROW_BLOB, (size, newest.blob_id, tenant))
        _check_quota(database, tenant, quota)
        version = replace(new, kind=newest.kind, expires_at=newest.expires_at, follows=newest.id)
        return _insert(database, version, newest.blob_id, size)

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
    if new.follows is not None:  # looked at after the number: of two that follow one version, the second is a conflict
        newest = _newest(database, new)
        if new.follows != ("" if newest is None else newest.id):
            raise OutdatedError
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


def _newest(database: Database, new: NewVersion) -> Variable | None:
    """Return the version that another one of its key is about to follow."""
    place = new.place
    row = database.execute(_NEWEST, (place.tenant, place.scope, place.scope_id, new.key, new.created_at)).fetchone()
    return None if row is None else Variable(*row)


def _held(database: Database, new: NewVersion) -> tuple[Variable, int] | None:
    """Return the newest version of a key, and how long its blob is: nobody else writes on it until this is over."""
    held: tuple[Variable, int] | None = None
    while (newest := _newest(database, new)) is not None and (held is None or newest != held[0]):
        row = database.execute(_HOLD_BLOB, (newest.blob_id, newest.tenant)).fetchone()
        held = (newest, -1 if row is None else int(row[0]))  # somebody else may have been first
    return None if newest is None else held


def _ends_like_a_list(database: Database, variable: Variable) -> bool:
    """Tell whether an element can be written over the last byte of a JSON value, which nobody reads as anything else.

    An empty list has no comma to write, and a text that happens to be equal would change.
    """
    position, kept = divmod(variable.size - 1, CHUNK)
    row = database.execute(_CHUNK, (variable.blob_id, position, variable.tenant)).fetchone()
    tail = b"" if row is None else bytes(row[0])[: kept + 1]
    if tail[-1:] != b"]" or tail[:-1].rstrip()[-1:] in {b"", b"["}:
        return False
    return database.execute(_OTHER_KIND, (variable.blob_id, variable.tenant)).fetchone() is None


def _write_on(database: Database, variable: Variable, start: int, data: bytes) -> None:
    """Write what a blob holds from `start` on, which is where it ends or the byte before."""
    position, kept = divmod(start, CHUNK)
    if kept:
        row = database.execute(_CHUNK, (variable.blob_id, position, variable.tenant)).fetchone()
        if row is None:
            raise NotFoundError(f"The value of '{variable.key}' is gone.")
        data = bytes(row[0])[:kept] + data
    database.execute(_CUT, (variable.blob_id, position, variable.tenant))
    for offset in range(0, len(data), CHUNK):
        row = (variable.blob_id, position + offset // CHUNK, variable.tenant, data[offset : offset + CHUNK])
        database.execute(_ADD_CHUNK, row)


def appended_text(variable: Variable, addition: Addition) -> bytes:
    """Return what is appended to a text; a BadRequestError if it is none."""
    if addition.text is None:
        raise BadRequestError(
            f"'{variable.key}' is a text: append a text to it, such as a line, or keep a list under another key."
        )
    return addition.text


def too_large(most: int) -> PayloadTooLargeError:
    """Return what is told of a value with more bytes than one may have."""
    return PayloadTooLargeError(f"The value is larger than {most:,} bytes (limits.per_tenant.max_value_bytes).")


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
