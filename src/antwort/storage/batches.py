"""Batches: many requests in a file, their answers one by one, and who is at work on them."""

import hashlib
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Literal

import msgspec
from msgspec import Struct, field

from antwort.errors import ConflictError, NotFoundError
from antwort.storage.base import Kept, Page, Records
from antwort.types import JSON
from antwort.wire.ids import new_id

_BATCH, _OPEN, _LINE, _KEY = "batch", "open_batch", "batch_line", "batch_key"
_PAGE = 100
_ANSWERS = 20
"""Answers that are read at a time: each may have some megabytes."""
BatchStatus = Literal[
    "validating", "in_progress", "finalizing", "completed", "failed", "expired", "cancelling", "cancelled"
]
OVER = frozenset({"completed", "failed", "expired", "cancelled"})


class BatchError(Struct):
    """What is wrong with a file of requests."""

    code: str
    message: str
    line: int | None = None
    param: str | None = None


class BatchErrors(Struct):
    """All that is wrong with a file of requests, or the first of it."""

    object: Literal["list"] = "list"
    data: list[BatchError] = field(default_factory=list)


class RequestCounts(Struct):
    """How far a batch is."""

    total: int = 0
    completed: int = 0
    failed: int = 0


class Batch(Struct, kw_only=True):
    """Many requests to one endpoint, which come as a file and are answered as one."""

    id: str
    object: Literal["batch"] = "batch"
    endpoint: str
    errors: BatchErrors | None = None
    input_file_id: str
    completion_window: str
    status: BatchStatus = "validating"
    output_file_id: str | None = None
    error_file_id: str | None = None
    created_at: int
    in_progress_at: int | None = None
    expires_at: int | None = None
    finalizing_at: int | None = None
    completed_at: int | None = None
    failed_at: int | None = None
    expired_at: int | None = None
    cancelling_at: int | None = None
    cancelled_at: int | None = None
    request_counts: RequestCounts = field(default_factory=RequestCounts)
    metadata: dict[str, str] | None = None

    def enter(self, status: BatchStatus) -> None:
        """Take note that it has come to a status, and when."""
        self.status = status
        setattr(self, f"{status}_at", int(time.time()))


class BatchOwner(Struct, frozen=True):
    """On whose behalf the requests of a batch are made."""

    subject: str
    scopes: Sequence[str]


class OpenBatch(Struct):
    """A batch that is not over, and who is at work on it."""

    kept: Kept

    @property
    def tenant(self) -> str:
        """Whose it is."""
        return self.kept.tenant

    @property
    def id(self) -> str:
        """The id of the batch."""
        return self.kept.id

    @property
    def owner(self) -> BatchOwner:
        """On whose behalf its requests are made."""
        return msgspec.convert(self.kept.value["owner"], BatchOwner)


class Batches:
    """The batches of all tenants."""

    def __init__(self, records: Records) -> None:
        self._records = records

    # --- for clients --------------------------------------------------------------------------------------------------

    async def create(self, tenant: str, batch: Batch, owner: BatchOwner, key: str | None) -> Batch:
        """Keep a new batch, or return the one that was made with the same key; a ConflictError if it is another one."""
        if key is not None:
            wanted = [batch.endpoint, batch.input_file_id, batch.completion_window, batch.metadata]
            digest, name = _digest(wanted), _digest(key)
            try:
                await self._records.create(tenant, _KEY, name, {"batch": batch.id, "digest": digest})
            except ConflictError:
                known = await self._records.get(tenant, _KEY, name)
                if known is None or known.value["digest"] != digest:
                    raise ConflictError(
                        "There is a batch with this idempotency key and other parameters.", param="idempotency_key"
                    ) from None
                batch.id = known.value["batch"]
                if (found := await self.find(tenant, batch.id)) is not None:
                    return found
        value = msgspec.to_builtins(batch)
        try:
            await self._records.create(tenant, _OPEN, batch.id, {"owner": msgspec.to_builtins(owner)})
            await self._records.create(tenant, _BATCH, batch.id, value, created_at=batch.created_at)
        except ConflictError:  # two at a time, with one key
            return await self.get(tenant, batch.id)
        return batch

    async def find(self, tenant: str, batch_id: str) -> Batch | None:
        """Return a batch; None if there is none."""
        kept = await self._records.get(tenant, _BATCH, batch_id)
        return None if kept is None else msgspec.convert(kept.value, Batch)

    async def get(self, tenant: str, batch_id: str) -> Batch:
        """Return a batch; a NotFoundError if there is none."""
        found = await self.find(tenant, batch_id)
        if found is None:
            raise NotFoundError(f"No batch found with id '{batch_id[:64]}'.", param="batch_id")
        return found

    async def page(self, tenant: str, *, limit: int, after: str | None, order: str) -> Page:
        """Return a page of batches, as `Records.list` does."""
        page = await self._records.list(tenant, _BATCH, limit=limit, after=after, order=order)
        return Page([msgspec.convert(kept.value, Batch) for kept in page.data], page.has_more)

    async def change(self, tenant: str, batch_id: str, change: Callable[[Batch], None]) -> Batch:
        """Change a batch as it is now, whoever else changes it meanwhile; return what it is then."""
        while True:
            kept = await self._records.get(tenant, _BATCH, batch_id)
            if kept is None:
                raise NotFoundError(f"No batch found with id '{batch_id[:64]}'.", param="batch_id")
            batch = msgspec.convert(kept.value, Batch)
            before = msgspec.to_builtins(batch)
            change(batch)
            kept.value = msgspec.to_builtins(batch)
            if kept.value == before or await self._records.update(kept):
                return batch

    # --- for those who work on them -----------------------------------------------------------------------------------

    async def unfinished(self) -> list[OpenBatch]:
        """Return those that are not over, of all tenants, oldest first."""
        found: list[OpenBatch] = []
        after = 0
        while page := await self._records.scan(_OPEN, after=after, limit=_PAGE):
            found += (OpenBatch(kept) for _, kept in page)
            after = page[-1][0]
        return found

    async def hold(self, batch: OpenBatch) -> bool:
        """Say that whoever took a batch is still at work on it, or take it; False if somebody else has it by now."""
        return await self._records.update(batch.kept)

    async def answered(self, tenant: str, batch_id: str) -> dict[int, bool]:
        """Return which lines have their answer, and whether it is one that the request was to have."""
        return {line["line"]: line["fine"] async for line in self._lines(tenant, batch_id)}

    async def answer(self, tenant: str, batch_id: str, line: int, answer: JSON, *, fine: bool) -> bool:
        """Keep the answer of a line; False if it has one."""
        value = {"line": line, "fine": fine, "answer": answer}
        try:
            await self._records.create(tenant, _LINE, f"{batch_id}:{line}", value, parent=batch_id)
        except ConflictError:
            return False
        return True

    async def answers(self, tenant: str, batch_id: str, *, fine: bool) -> AsyncIterator[JSON]:
        """Yield the answers of lines that are fine, or of the others, in the order in which they came."""
        async for line in self._lines(tenant, batch_id):
            if line["fine"] is fine:
                yield line["answer"]

    async def _lines(self, tenant: str, batch_id: str) -> AsyncIterator[JSON]:
        after, more = None, True
        while more:
            page = await self._records.list(tenant, _LINE, parent=batch_id, limit=_ANSWERS, after=after, order="asc")
            for kept in page.data:
                yield kept.value
            more = page.has_more
            after = page.data[-1].id if page.data else None

    async def close(self, batch: OpenBatch) -> None:
        """Forget what is only needed while a batch is not over."""
        while (page := await self._records.list(batch.tenant, _LINE, parent=batch.id, limit=_ANSWERS)).data:
            for kept in page.data:
                await self._records.delete(batch.tenant, _LINE, kept.id)
        await self._records.delete(batch.tenant, _OPEN, batch.id)


def new_batch(
    endpoint: str, input_file_id: str, completion_window: str, seconds: int, metadata: dict[str, str] | None
) -> Batch:
    """Return a batch that nobody has looked at yet."""
    now = int(time.time())
    return Batch(
        id=new_id("batch"),
        endpoint=endpoint,
        input_file_id=input_file_id,
        completion_window=completion_window,
        created_at=now,
        expires_at=now + seconds,
        metadata=metadata,
    )


def _digest(value: object) -> str:
    return hashlib.sha256(msgspec.json.encode(value)).hexdigest()
