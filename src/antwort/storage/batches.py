"""Batches: many requests in a file, their answers one by one, and who is at work on them."""

import hashlib
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Generic, Literal, TypeVar

import msgspec
from msgspec import Struct, field
from typing_extensions import override

from antwort.errors import ConflictError, NotFoundError
from antwort.storage.base import Kept, Page, Records
from antwort.storage.sql.files import SqlFiles
from antwort.types import JSON
from antwort.wire.ids import new_id

_OPEN, _LINE, _KEY = "open_batch", "batch_line", "batch_key"
_PAGE = 100
_ANSWERS = 20
"""Answers that are read at a time: each may have some megabytes."""
BatchStatus = Literal[
    "validating", "in_progress", "finalizing", "completed", "failed", "expired", "cancelling", "cancelled"
]
OVER = frozenset({"completed", "failed", "expired", "cancelled"})
Outcome = Literal["succeeded", "errored", "canceled", "expired"]
"""What became of a request: it was made, with or without success, or it was not."""


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

    @property
    def holder(self) -> str:
        """What its files are a part of; nothing, if they are the client's."""
        return ""

    @property
    def ended_at(self) -> int | None:
        """When it was over."""
        return self.completed_at or self.failed_at or self.expired_at or self.cancelled_at

    def enter(self, status: BatchStatus) -> None:
        """Take note that it has come to a status, and when."""
        self.status = status
        setattr(self, f"{status}_at", int(time.time()))

    def count(self, outcomes: Mapping[Outcome, int]) -> None:
        """Take note of what became of requests so far."""
        fine = outcomes.get("succeeded", 0)
        self.request_counts.completed, self.request_counts.failed = fine, sum(outcomes.values()) - fine


class BatchOfMessages(Batch, kw_only=True):
    """Many requests for messages, which come all at once; they and what came of them are kept for the batch alone."""

    canceled: int = 0
    expired: int = 0

    @property
    @override
    def holder(self) -> str:
        return self.id

    @override
    def count(self, outcomes: Mapping[Outcome, int]) -> None:
        super().count(outcomes)
        self.canceled, self.expired = outcomes.get("canceled", 0), outcomes.get("expired", 0)


_KINDS: Mapping[type[Batch], str] = MappingProxyType({Batch: "batch", BatchOfMessages: "message_batch"})
_TYPES: Mapping[str, type[Batch]] = MappingProxyType({kind: made for made, kind in _KINDS.items()})


class BatchOwner(Struct, frozen=True):
    """On whose behalf the requests of a batch are made."""

    subject: str
    scopes: Sequence[str]
    key_id: str | None = None
    """The API key that it was made with: its requests have the scopes that this key has when they are made."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Headers that its requests have, beside those that all have."""


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
    def type(self) -> type[Batch]:
        """What kind of batch it is."""
        return _TYPES[self.kept.value.get("kind", _KINDS[Batch])]

    @property
    def owner(self) -> BatchOwner:
        """On whose behalf its requests are made."""
        return msgspec.convert(self.kept.value["owner"], BatchOwner)


B = TypeVar("B", bound=Batch)
C = TypeVar("C", bound=Batch)


class Batches(Generic[B]):
    """The batches of all tenants, of one kind for clients."""

    def __init__(self, records: Records, made: type[B]) -> None:
        self._records = records
        self._type = made
        self._kind = _KINDS[made]

    def of(self, made: type[C]) -> "Batches[C]":
        """Return those of another kind."""
        return Batches(self._records, made)

    # --- for clients --------------------------------------------------------------------------------------------------

    async def create(self, tenant: str, batch: B, owner: BatchOwner, key: str | None = None) -> B:
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
            opened = {"owner": msgspec.to_builtins(owner), "kind": self._kind}
            await self._records.create(tenant, _OPEN, batch.id, opened)
            await self._records.create(tenant, self._kind, batch.id, value, created_at=batch.created_at)
        except ConflictError:  # two at a time, with one key
            return await self.get(tenant, batch.id)
        return batch

    async def find(self, tenant: str, batch_id: str) -> B | None:
        """Return a batch; None if there is none."""
        kept = await self._records.get(tenant, self._kind, batch_id)
        return None if kept is None else msgspec.convert(kept.value, self._type)

    async def get(self, tenant: str, batch_id: str) -> B:
        """Return a batch; a NotFoundError if there is none."""
        found = await self.find(tenant, batch_id)
        if found is None:
            raise NotFoundError(f"No batch found with id '{batch_id[:64]}'.", param="batch_id")
        return found

    async def page(
        self, tenant: str, *, limit: int, after: str | None, before: str | None = None, order: str = "desc"
    ) -> Page:
        """Return a page of batches, as `Records.list` does."""
        page = await self._records.list(tenant, self._kind, limit=limit, after=after, before=before, order=order)
        return Page([msgspec.convert(kept.value, self._type) for kept in page.data], page.has_more)

    async def change(self, tenant: str, batch_id: str, change: Callable[[B], None]) -> B:
        """Change a batch as it is now, whoever else changes it meanwhile; return what it is then."""
        while True:
            kept = await self._records.get(tenant, self._kind, batch_id)
            if kept is None:
                raise NotFoundError(f"No batch found with id '{batch_id[:64]}'.", param="batch_id")
            batch = msgspec.convert(kept.value, self._type)
            before = msgspec.to_builtins(batch)
            change(batch)
            kept.value = msgspec.to_builtins(batch)
            if kept.value == before or await self._records.update(kept):
                return batch

    async def delete(self, tenant: str, batch_id: str) -> bool:
        """Forget a batch that is over; False if it was not there."""
        return await self._records.delete(tenant, self._kind, batch_id)

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

    async def answered(self, tenant: str, batch_id: str) -> dict[int, Outcome]:
        """Return which lines have their answer, and what that counts as."""
        return {line["line"]: line["outcome"] async for line in self._lines(tenant, batch_id)}

    async def answer(self, tenant: str, batch_id: str, line: int, answer: JSON, outcome: Outcome) -> bool:
        """Keep the answer of a line; False if it has one."""
        value = {"line": line, "outcome": outcome, "answer": answer}
        try:
            await self._records.create(tenant, _LINE, f"{batch_id}:{line}", value, parent=batch_id)
        except ConflictError:
            return False
        return True

    async def answers(self, tenant: str, batch_id: str, *, fine: bool) -> AsyncIterator[JSON]:
        """Yield the answers of lines that are fine, or of the others, in the order in which they came."""
        async for line in self._lines(tenant, batch_id):
            if (line["outcome"] == "succeeded") is fine:
                yield line["answer"]

    async def _lines(self, tenant: str, batch_id: str) -> AsyncIterator[JSON]:
        after, more = None, True
        while more:
            page = await self._records.list(tenant, _LINE, parent=batch_id, limit=_ANSWERS, after=after, order="asc")
            for kept in page.data:
                yield _line_of(kept.value)
            more = page.has_more
            after = page.data[-1].id if page.data else None

    async def close(self, batch: OpenBatch) -> None:
        """Forget what is only needed while a batch is not over."""
        while (page := await self._records.list(batch.tenant, _LINE, parent=batch.id, limit=_ANSWERS)).data:
            for kept in page.data:
                await self._records.delete(batch.tenant, _LINE, kept.id)
        await self._records.delete(batch.tenant, _OPEN, batch.id)


def _line_of(value: JSON) -> JSON:
    """Return what is kept of a line; at first it was only told whether it is fine."""
    return value if "outcome" in value else {**value, "outcome": "succeeded" if value["fine"] else "errored"}


# --- what is too old --------------------------------------------------------------------------------------------------


class OldBatches:
    """Batches of all tenants that were over long ago, and what is left of them."""

    def __init__(self, records: Records, files: SqlFiles) -> None:
        self._records = records
        self._files = files

    async def older(self, before: int) -> AsyncIterator[Sequence[Kept]]:
        """Yield batches that are over and were made before a moment."""
        for kind in _TYPES:
            async for page in self._pages(kind, before):
                yield [kept for kept in page if kept.value["status"] in OVER]

    async def delete(self, kept: Kept) -> bool:
        """Delete a batch, and what it has kept for itself, whose bytes go when files are swept next."""
        batch = msgspec.convert(kept.value, _TYPES[kept.kind])
        if batch.holder:
            for file_id in filter(None, (batch.input_file_id, batch.output_file_id, batch.error_file_id)):
                await self._files.mark(kept.tenant, file_id)
        return await self._records.delete(kept.tenant, kept.kind, kept.id)

    async def forget_keys(self, before: int) -> None:
        """Forget with which keys batches were made that are gone."""
        async for page in self._pages(_KEY, before):
            for kept in page:
                if await self._records.get(kept.tenant, _KINDS[Batch], kept.value["batch"]) is None:
                    await self._records.delete(kept.tenant, _KEY, kept.id)

    async def _pages(self, kind: str, before: int) -> AsyncIterator[Sequence[Kept]]:
        """Yield what was made before a moment, oldest first."""
        after = 0
        while page := await self._records.scan(kind, after=after, limit=_PAGE):
            after = page[-1][0]
            if old := [kept for _, kept in page if kept.created_at < before]:
                yield old
            else:
                return


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


def new_batch_of_messages(seconds: int) -> BatchOfMessages:
    """Return a batch of messages whose requests are not kept yet."""
    now = int(time.time())
    batch = BatchOfMessages(
        id=new_id("msgbatch"),
        endpoint="/v1/messages",
        input_file_id="",
        completion_window="24h",
        created_at=now,
        expires_at=now + seconds,
    )
    batch.enter("in_progress")
    return batch


def _digest(value: object) -> str:
    return hashlib.sha256(msgspec.json.encode(value)).hexdigest()
