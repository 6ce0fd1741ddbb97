"""The store on any SQL database: what is asked becomes a call with a connection, handed to whoever owns one."""

import time
from collections.abc import Sequence

from typing_extensions import override

from antwort.storage.base import (
    ConversationRecord,
    ConversationStore,
    JournalEntry,
    Page,
    Records,
    ResponseRecord,
    Store,
    StoredEvent,
)
from antwort.storage.retention import SqlRetention
from antwort.storage.sql import conversations, keeping, responses
from antwort.storage.sql.database import Reader, Writer
from antwort.storage.sql.records import SqlRecords
from antwort.storage.sql.rows import conversation_row, encoded, entry_rows, event_rows, item_rows, record_row
from antwort.types import JSON

__all__ = ["SqlStore"]


class SqlStore(Store):
    """Keeps everything in a SQL database.

    It may be used from several event loops, one after the other. Values are encoded before a call waits, so that a
    caller may change them meanwhile.
    """

    def __init__(self, writer: Writer, reader: Reader) -> None:
        self._writer = writer
        self._reader = reader
        self.conversations = SqlConversations(writer, reader)
        self.retention = SqlRetention(writer, reader)

    @override
    def records(self, owner: str) -> Records:
        return SqlRecords(owner, self._writer, self._reader)

    @override
    async def create(
        self, record: ResponseRecord, entries: Sequence[JournalEntry] = (), *, said: Sequence[JournalEntry] = ()
    ) -> None:
        row = record_row(record)
        rows = entry_rows(record.tenant, record.id, entries)
        items = _items(record, said)
        await self._writer.run(lambda database: responses.create(database, row, rows, items), record.id)

    @override
    async def append(
        self, tenant: str, response_id: str, epoch: int, entries: Sequence[JournalEntry], *, start: int
    ) -> None:
        rows = entry_rows(tenant, response_id, entries, start)
        await self._writer.run(
            lambda database: responses.append(database, tenant, response_id, epoch, entries=rows), response_id
        )

    @override
    async def update(
        self,
        record: ResponseRecord,
        *,
        entries: Sequence[JournalEntry] = (),
        start: int = 0,
        events: Sequence[StoredEvent] = (),
        said: Sequence[JournalEntry] = (),
    ) -> None:
        change = (record.status, encoded(record.body), encoded(record.extra), record.id, record.tenant, record.epoch)
        rows = entry_rows(record.tenant, record.id, entries, start)
        sent = event_rows(record.tenant, record.id, events)
        items = _items(record, said)
        await self._writer.run(lambda database: responses.update(database, change, rows, sent, items), record.id)

    @override
    async def add_events(self, tenant: str, response_id: str, epoch: int, events: Sequence[StoredEvent]) -> None:
        rows = event_rows(tenant, response_id, events)
        await self._writer.run(
            lambda database: responses.append(database, tenant, response_id, epoch, events=rows), response_id
        )

    @override
    async def note(self, tenant: str, response_id: str, epoch: int, extra: JSON) -> None:
        noted = dict(extra)
        await self._writer.run(
            lambda database: responses.note(database, tenant, response_id, epoch, noted), response_id
        )

    @override
    async def get(self, tenant: str, response_id: str) -> ResponseRecord | None:
        return await self._reader.run(lambda database: responses.get(database, tenant, response_id))

    @override
    async def journal(self, tenant: str, response_id: str) -> list[JournalEntry]:
        return await self._reader.run(lambda database: responses.journal(database, tenant, response_id))

    @override
    async def history(self, tenant: str, response_id: str) -> list[JournalEntry] | None:
        """Return the entries of a response and of all before it, oldest first; None if the response is not there.

        Where a response in between was deleted, the others remain.
        """
        return await self._reader.run(lambda database: responses.history(database, tenant, response_id))

    @override
    async def events(self, tenant: str, response_id: str, *, after: int = -1, limit: int = 1000) -> list[StoredEvent]:
        return await self._reader.run(lambda database: responses.events(database, tenant, response_id, after, limit))

    @override
    async def list_responses(
        self, tenant: str, *, limit: int, after: str | None = None, before: str | None = None, order: str = "desc"
    ) -> Page:
        """Return `ListedResponse`s by creation time; `after` and `before` are response ids.

        Raise NotFoundError for an unknown one. With `before` alone the page is the one right before it.
        """
        ascending = order == "asc"
        return await self._reader.run(
            lambda database: responses.page(
                database, tenant, limit=limit, after=after, before=before, ascending=ascending
            )
        )

    @override
    async def delete(self, tenant: str, response_id: str) -> bool:
        return await self._writer.run(lambda database: responses.delete(database, tenant, response_id), response_id)

    @override
    async def find_item(self, tenant: str, item_id: str) -> JournalEntry | None:
        return await self._reader.run(lambda database: responses.find_item(database, tenant, item_id))

    @override
    async def claim(self, tenant: str, response_id: str) -> ResponseRecord | None:
        return await self._writer.run(lambda database: responses.claim(database, tenant, response_id), response_id)

    @override
    async def unfinished(self) -> list[tuple[str, str]]:
        return await self._reader.run(responses.unfinished)

    @override
    async def ping(self) -> None:
        await self._reader.run(responses.ping)

    @override
    async def try_write(self) -> None:
        now = int(time.time())
        await self._writer.run(lambda database: keeping.try_write(database, now=now), "")

    @override
    async def close(self) -> None:
        await self._reader.close()
        await self._writer.close()


def _items(record: ResponseRecord, said: Sequence[JournalEntry]) -> Sequence[tuple[object, ...]]:
    if not said or record.conversation_id is None:
        return ()
    return item_rows(record.tenant, record.conversation_id, said)


class SqlConversations(ConversationStore):
    """The conversations of a store."""

    def __init__(self, writer: Writer, reader: Reader) -> None:
        self._writer = writer
        self._reader = reader

    @override
    async def create(self, record: ConversationRecord, entries: Sequence[JournalEntry] = ()) -> None:
        row = conversation_row(record)
        rows = item_rows(record.tenant, record.id, entries)
        await self._writer.run(lambda database: conversations.create(database, row, rows), record.id)

    @override
    async def get(self, tenant: str, conversation_id: str) -> ConversationRecord | None:
        return await self._reader.run(lambda database: conversations.get(database, tenant, conversation_id))

    @override
    async def update(self, tenant: str, conversation_id: str, metadata: dict[str, str]) -> ConversationRecord | None:
        text = encoded(metadata)
        return await self._writer.run(
            lambda database: conversations.update(database, tenant, conversation_id, text), conversation_id
        )

    @override
    async def delete(self, tenant: str, conversation_id: str) -> bool:
        return await self._writer.run(
            lambda database: conversations.delete(database, tenant, conversation_id), conversation_id
        )

    @override
    async def add(
        self, tenant: str, conversation_id: str, entries: Sequence[JournalEntry]
    ) -> list[JournalEntry] | None:
        rows = item_rows(tenant, conversation_id, entries)
        return await self._writer.run(
            lambda database: conversations.add(database, tenant, conversation_id, rows),
            conversation_id,
            repeatable=False,
        )

    @override
    async def history(self, tenant: str, conversation_id: str) -> list[JournalEntry] | None:
        found = await self._reader.run(lambda database: conversations.history(database, tenant, conversation_id))
        if found is None:
            return None
        entries, used_just_now = found
        # Whoever goes on with it adds to it only at the end: until then it must not be too old.
        if used_just_now or await self._writer.run(
            lambda database: conversations.use(database, tenant, conversation_id), conversation_id
        ):
            return entries
        return None

    @override
    async def items(
        self, tenant: str, conversation_id: str, *, limit: int, after: str | None = None, order: str = "desc"
    ) -> Page | None:
        ascending = order == "asc"
        return await self._reader.run(
            lambda database: conversations.page(
                database, tenant, conversation_id, limit=limit, after=after, ascending=ascending
            )
        )

    @override
    async def item(self, tenant: str, conversation_id: str, item_id: str) -> JournalEntry | None:
        return await self._reader.run(lambda database: conversations.item(database, tenant, conversation_id, item_id))

    @override
    async def remove(self, tenant: str, conversation_id: str, item_id: str) -> bool:
        return await self._writer.run(
            lambda database: conversations.remove(database, tenant, conversation_id, item_id), conversation_id
        )
