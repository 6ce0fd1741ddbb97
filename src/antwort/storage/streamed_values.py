"""Values on their way into the database and out of it: in a stream, within quotas, without ever holding a whole one."""

import asyncio
import contextlib
import hashlib
import time
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Sequence
from typing import TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from antwort.concurrency.large_work import LargeWork
from antwort.config.defaults import TENANTS
from antwort.context.values import Place
from antwort.context.variables import ValueKind, Variable
from antwort.errors import BadRequestError, ConflictError, NotFoundError, RateLimitError
from antwort.lazy_imports import compiled_on_use
from antwort.storage.sql.values import (
    CHUNK,
    Addition,
    NewBlob,
    NewVersion,
    OutdatedError,
    QuotaExceededError,
    SqlValues,
    appended_text,
    too_large,
)
from antwort.wire.ids import new_id

LONGEST_KEY = 256
_SURROGATE = compiled_on_use("[\ud800-\udfff]")
_AT_ONCE = 4
"""Chunks that one transaction reads."""
_TRIES = 4
"""How often something is tried that others were in the way of."""
_ROUNDS = 10
"""How often something is appended anew because others have changed the value meanwhile; each time one of them has."""
_TAIL = 64 * 1024
"""Bytes at the end of a list that are looked at for its last bracket."""
_NEAR = 0.9
"""How full a quota is when what a tenant has is counted anew with each value."""
_REMEMBERED = 5.0
"""Seconds after which it is counted anew in any case: other processes write too."""
T = TypeVar("T")


class ValueLimits(Struct, frozen=True):
    """How much may be kept."""

    value: int = TENANTS.max_value_bytes
    """Bytes of one value."""
    tenant: int | None = None
    """Bytes of all values of a tenant."""


class _Used(Struct):
    """How many bytes a tenant has."""

    bytes: int = 0
    until: float = 0.0
    """When to count again."""
    under_way: int = 0
    """Bytes that are about to be stored."""
    alone: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def most(self) -> int:
        """Bytes that it has at most, as far as this process knows."""
        return self.bytes + self.under_way


def is_key(text: str) -> bool:
    """Tell whether a text can be the key of a variable."""
    return 0 < len(text) <= LONGEST_KEY and "\0" not in text and not _SURROGATE.search(text)


class StreamedValues:
    """Writes and reads values. One that a tenant has already is not stored again."""

    def __init__(
        self,
        tables: SqlValues,
        limits: ValueLimits | None = None,
        *,
        check_room: Callable[[str], Awaitable[None]] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._tables = tables
        self._limits = limits or ValueLimits()
        self._check_room = check_room
        self._clock = clock
        self._used: dict[str, _Used] = {}
        self.work = LargeWork()

    def close(self) -> None:
        """Let the thread for large work end."""
        self.work.close()

    def now(self) -> int:
        """Return the time."""
        return int(self._clock())

    async def write(
        self,
        place: Place,
        key: str,
        chunks: AsyncIterable[bytes],
        *,
        kind: ValueKind = "bytes",
        expires_in: float | None = None,
    ) -> Variable:
        """Store a value that comes in pieces."""
        new = self._new(place, key, kind, expires_in)
        if self._check_room is not None:
            await self._check_room(place.tenant)
        return await self._store(new, chunks)

    async def _store(self, new: NewVersion, chunks: AsyncIterable[bytes]) -> Variable:
        upload = _Upload(self._tables, new, self.work, self._limits.value)
        try:
            async for chunk in _regrouped(chunks):
                await upload.add(chunk)
            return await self._within_quota(new.place.tenant, upload.size, upload.end)
        except BaseException:
            with contextlib.suppress(Exception):  # what is left of it goes with the next sweep
                await upload.discard()
            raise

    async def append(self, place: Place, key: str, addition: Addition, expires_in: float | None = None) -> Variable:
        """Append to the value that a key has in its scope, or begin one, which expires after so many seconds.

        What is there is not read, and not written again, unless another value shares it.
        """
        most, tenant = self._limits.value, place.tenant
        if self._check_room is not None:
            await self._check_room(tenant)
        for _ in range(_ROUNDS):
            new = self._new(place, key, addition.kind, expires_in)

            async def grow(quota: int | None, new: NewVersion = new) -> Variable | None:
                return await _tried(
                    lambda: self._tables.append(tenant, new.name, new, addition, most=most, quota=quota)
                )

            with contextlib.suppress(OutdatedError):
                if (grown := await self._within_quota(tenant, len(addition.element), grow)) is not None:
                    return grown
                return await self._append_anew(new, addition)
        raise ConflictError(f"Others are changing '{key}' all the time. Append to it again, or use a key of your own.")

    async def _append_anew(self, new: NewVersion, addition: Addition) -> Variable:
        """Write a value and what is appended to it as a new one."""
        place = new.place
        newest = await self._tables.find(place.tenant, [(place.scope, place.scope_id)], new.key, self.now())
        if newest is None:
            begun = b"[" + addition.element + b"]" if addition.text is None else addition.text
            return await self._store(replace(new, follows=""), _chained([], begun))
        new = replace(new, kind=newest.kind, expires_at=newest.expires_at, follows=newest.id)
        if newest.kind != "json":
            return await self._store(new, _chained([self.read(newest)], appended_text(newest, addition)))
        start = max(newest.size - _TAIL, 0)
        tail = b"".join([chunk async for chunk in self.read(newest, start)]).rstrip()
        if tail[-1:] != b"]":
            raise BadRequestError(f"'{new.key}' is JSON, but no array: nothing can be appended to it.")
        is_empty = tail[:-1].rstrip()[-1:] == b"["
        kept = self.read(newest, 0, start + len(tail) - 1)
        return await self._store(new, _chained([kept], b"," * (not is_empty) + addition.element + b"]"))

    async def link(self, place: Place, key: str, source: Variable, expires_in: float | None = None) -> Variable:
        """Give a value that is there another key, or another scope."""
        new = self._new(place, key, source.kind, expires_in)
        linked = await _tried(lambda: self._tables.link(place.tenant, new.name, new, source))
        if linked is None:
            raise NotFoundError(f"The value of '{source.key}' is gone.")
        return linked

    def _new(self, place: Place, key: str, kind: ValueKind, expires_in: float | None) -> NewVersion:
        if not is_key(key):
            raise BadRequestError(f"A key is a text of 1 to {LONGEST_KEY} characters, without NUL.", param="key")
        if expires_in is not None and not 0 < expires_in <= 2**31:
            raise BadRequestError("A time to live is a positive number of seconds.", param="expires_in")
        now = self._clock()
        expires_at = None if expires_in is None else max(int(now + expires_in), int(now) + 1)
        return NewVersion(new_id("var"), place, key, kind, int(now), expires_at)

    async def _within_quota(self, tenant: str, size: int, end: Callable[[int | None], Awaitable[T]]) -> T:
        """End an upload, and count exactly if the tenant might have too much then."""
        quota = self._limits.tenant
        if quota is None:
            return await end(None)
        used = self._used.setdefault(tenant, _Used())
        used.under_way += size
        try:
            now = self._clock()
            if now >= used.until or used.most > _NEAR * quota:
                used.bytes, used.until = await self._tables.usage(tenant), now + _REMEMBERED
            if used.most <= _NEAR * quota:
                made = await end(None)
            else:
                async with used.alone:  # one would not see what the other is about to store
                    made = await end(quota)
            used.bytes += size
        except QuotaExceededError:
            raise RateLimitError(
                f"The variables of this tenant would take more than {quota:,} bytes "
                "(limits.per_tenant.max_variable_bytes). Delete some of them.",
                retry_after=None,
                code="storage_quota_exceeded",
            ) from None
        finally:
            used.under_way -= size
        return made

    async def read(self, variable: Variable, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        """Yield the bytes of a value, in pieces."""
        end = variable.size if end is None else min(end, variable.size)
        start = max(start, 0)
        while start < end:
            first = start // CHUNK
            last = min(first + _AT_ONCE - 1, (end - 1) // CHUNK)
            data = b"".join(await self._tables.read(variable, first, last))
            yield data[start - first * CHUNK : end - first * CHUNK]
            start = (last + 1) * CHUNK


class _Upload:
    """A value on its way into the database. One of a single chunk is stored with its version, in one transaction."""

    def __init__(self, tables: SqlValues, new: NewVersion, work: LargeWork, limit: int) -> None:
        self._tables = tables
        self._new = new
        self._tenant = new.place.tenant
        self._work = work
        self._limit = limit
        self._blob_id = new_id("blob")
        self._hash = hashlib.sha256()
        self._last: bytes | None = None
        """The chunk that came last: it may be the only one."""
        self._begun = False
        self._stored = 0
        self.size = 0

    async def add(self, chunk: bytes) -> None:
        """Take the next chunk; all but the last one have the same size."""
        self.size += len(chunk)
        if self.size > self._limit:
            raise too_large(self._limit)
        if self._last is not None:
            await self._store(self._last)
        self._last = chunk
        await self._work.run_if(len(chunk) >= CHUNK, self._hash.update, chunk)

    async def _store(self, chunk: bytes) -> None:
        if not self._begun:
            self._begun = True  # whoever is cancelled now may find it stored
            await self._tables.begin(self._tenant, self._blob_id, self._new.created_at)
        await self._tables.add_chunk(self._tenant, self._blob_id, self._stored, chunk)
        self._stored += 1

    async def end(self, quota: int | None) -> Variable:
        """Store the version."""
        new, last = self._new, self._last or b""
        blob = NewBlob(self._blob_id, self._hash.hexdigest(), self.size)
        if not self._begun:
            return await _tried(lambda: self._tables.put(self._tenant, new.name, new, blob, data=last, quota=quota))
        await self._store(last)
        return await _tried(lambda: self._tables.finish(self._tenant, new.name, new, blob, quota=quota))

    async def discard(self) -> None:
        """Delete what was stored of it."""
        if self._begun:
            await self._tables.discard(self._tenant, self._blob_id)


async def _tried(write: Callable[[], Awaitable[T]]) -> T:
    """Do a write again if others have written the same key, or an equal value, at the same time."""
    for _ in range(_TRIES - 1):
        with contextlib.suppress(ConflictError):
            return await write()
    return await write()


async def _chained(values: Sequence[AsyncIterable[bytes]], end: bytes) -> AsyncIterator[bytes]:
    """Yield values, and then what stands at the end."""
    for chunks in values:
        async for chunk in chunks:
            yield chunk
    yield end


async def _regrouped(pieces: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    """Yield chunks of one size, and what is left at the end."""
    rest = bytearray()
    async for piece in pieces:
        view = memoryview(piece)
        while view:
            taken = view[: CHUNK - len(rest)]
            rest += taken
            view = view[len(taken) :]
            if len(rest) == CHUNK:
                yield bytes(rest)
                rest.clear()
    if rest:
        yield bytes(rest)
