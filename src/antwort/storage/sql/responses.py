"""Responses, their journals and the events of background runs.

Every statement names the tenant. The drivers compile a text once and keep it, as long as the text is the same.
"""

import time
from collections.abc import Sequence

from msgspec import Struct

from antwort.concurrency.undisturbed import undisturbed
from antwort.storage.base import (
    ACTIVE,
    FAILED_CALLS,
    CrowdedError,
    FencedError,
    JournalEntry,
    ListedResponse,
    ListedRun,
    Page,
    Question,
    ResponseChain,
    ResponseRecord,
    RunFilter,
    StoredEvent,
)
from antwort.storage.sql.conversations import add_items, find_item
from antwort.storage.sql.database import (
    LOCK,
    Change,
    Database,
    Insert,
    Row,
    Transactions,
    change_all,
    deletes,
    insert_all,
    reads,
    snapshot,
    writes,
)
from antwort.storage.sql.pages import Listed, list_window
from antwort.storage.sql.questions import ask, asked_rows
from antwort.storage.sql.rows import (
    ENTRY,
    RECORD,
    body_text,
    decoded,
    encoded,
    entry_of,
    entry_rows,
    event_rows,
    item_rows,
    object_text,
    record_of,
    record_row,
)
from antwort.types import JSON

_INSERT_RESPONSE = f"INSERT INTO responses ({RECORD}) VALUES ({', '.join('?' * 19)})"  # noqa: S608
_UPDATE_RESPONSE = """
    UPDATE responses SET status = ?, body = ?, extra = ?, parked = ?, unstored_at = ?
    WHERE id = ? AND tenant = ? AND epoch = ?"""
_PUT_ENTRY = f"""
    INSERT INTO entries (response_id, position, tenant, item_id, {ENTRY}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (response_id, position) DO UPDATE SET item_id = excluded.item_id, direction = excluded.direction,
        item = excluded.item, visible = excluded.visible, call = excluded.call"""  # noqa: S608
_INSERT_EVENT = "INSERT INTO events (response_id, sequence, tenant, type, data) VALUES (?, ?, ?, ?, ?)"
_EPOCH = f"SELECT epoch FROM responses WHERE id = ? AND tenant = ? {LOCK}"  # noqa: S608
_EXTRA = f"SELECT extra FROM responses WHERE id = ? AND tenant = ? AND epoch = ? {LOCK}"  # noqa: S608
_NOTE = "UPDATE responses SET extra = ? WHERE id = ? AND tenant = ? AND epoch = ?"
_STATUS = f"SELECT status FROM responses WHERE id = ? AND tenant = ? {LOCK}"  # noqa: S608
_GET = f"SELECT {RECORD} FROM responses WHERE id = ? AND tenant = ?"  # noqa: S608
_JOURNAL = f"SELECT {ENTRY} FROM entries WHERE response_id = ? AND tenant = ? ORDER BY position"  # noqa: S608
# What calls have made themselves is for whoever goes on with them, not for those who come after.
_SAID = f"""
    SELECT {ENTRY} FROM entries WHERE response_id = ? AND tenant = ? AND direction <> 'nested'
    ORDER BY position"""  # noqa: S608
# A response comes after the one it continues, so that following ever smaller numbers comes to an end. All of them are
# in one row: for each row the driver has to wait for its turn among all threads.
_CHAIN = """
    WITH RECURSIVE chain (number, id, previous) AS (
        SELECT number, id, previous_response_id FROM responses WHERE id = :id AND tenant = :tenant
        UNION ALL
        SELECT earlier.number, earlier.id, earlier.previous_response_id
        FROM chain JOIN responses AS earlier
            ON earlier.id = chain.previous AND earlier.tenant = :tenant AND earlier.number < chain.number
    )
    SELECT group_concat(link), (SELECT status FROM responses WHERE id = :id AND tenant = :tenant),
        (SELECT unstored_at FROM responses WHERE id = :id AND tenant = :tenant),
        (SELECT body LIKE '%"prompt":{"id":%' FROM responses WHERE id = :id AND tenant = :tenant)
    FROM (SELECT number || ' ' || id AS link FROM chain) AS links"""
_EVENTS = """
    SELECT sequence, type, data FROM events WHERE response_id = ? AND tenant = ? AND sequence > ?
    ORDER BY sequence LIMIT ?"""
_DELETE = "DELETE FROM responses WHERE id = ? AND tenant = ?"
_RELINK = """
    UPDATE responses SET previous_response_id = (
        SELECT previous_response_id FROM responses WHERE id = :id AND tenant = :tenant
    ) WHERE tenant = :tenant AND previous_response_id = :id"""
# What the server wrote wins over what a client sent back under the same id, and the newest over older ones.
_FIND_ITEM = f"""
    SELECT {ENTRY} FROM entries JOIN responses ON responses.id = entries.response_id
    WHERE entries.tenant = ? AND entries.item_id = ? AND unstored_at IS NULL
    ORDER BY entries.direction DESC, responses.number DESC, entries.position DESC LIMIT 1"""  # noqa: S608
_CLAIM = """
    UPDATE responses SET epoch = epoch + 1, parked = FALSE
    WHERE id = ? AND tenant = ? AND status IN ('queued', 'in_progress')"""
_CLAIM_OF = f"{_CLAIM} AND epoch = ?"
_UNFINISHED = """
    SELECT tenant, id, epoch, extra FROM responses WHERE background AND status IN ('queued', 'in_progress')
    AND NOT parked AND parent_id IS NULL ORDER BY created_at, number"""
# What belongs to nobody says so, or nothing; quotes within a text are written otherwise. The empty text has SQLite look
# at what is unfinished, and not at all that the tenant has ever done.
_WORKED_ON = """
    SELECT count(*) FROM responses WHERE background AND status IN ('queued', 'in_progress')
    AND NOT parked AND parent_id IS NULL AND tenant || '' = ? AND id <> ?
    AND extra LIKE '%"worker":"%' AND extra NOT LIKE '%"worker":""%'"""
_CHILDREN = f"""
    SELECT {RECORD} FROM responses WHERE parent_id = ? AND parent_call_id = ? AND tenant = ? AND parent_id IS NOT NULL
    ORDER BY child_index"""  # noqa: S608
_BELOW = f"""
    WITH RECURSIVE tree (member, level) AS (
        SELECT id, 0 FROM responses WHERE id = :id AND tenant = :tenant
        UNION ALL
        SELECT responses.id, tree.level + 1 FROM tree JOIN responses ON responses.parent_id = tree.member
    )
    SELECT {RECORD} FROM tree JOIN responses ON responses.id = tree.member
    WHERE tenant = :tenant AND level > 0"""  # noqa: S608
_DESCENDANTS = f"{_BELOW} ORDER BY level, number"
_UNFINISHED_BELOW = f"{_BELOW} AND status IN ('queued', 'in_progress') ORDER BY level, number"
_OF_RUN = f"SELECT {RECORD} FROM responses WHERE (id = ? OR run_id = ?) AND tenant = ? ORDER BY number"  # noqa: S608
_LISTED = Listed(
    "response",
    "SELECT created_at, number FROM responses WHERE id = ? AND tenant = ?",
    (-(2**63), 0),
    (2**63 - 1, 2**63 - 1),
)
_BETWEEN = """
    FROM responses
    WHERE tenant = ? AND parent_id IS NULL AND unstored_at IS NULL
    AND (created_at, number) > (?, ?) AND (created_at, number) < (?, ?)"""
_UPWARDS = f"{_BETWEEN} ORDER BY created_at, number LIMIT ?"
_DOWNWARDS = f"{_BETWEEN} ORDER BY created_at DESC, number DESC LIMIT ?"
_ASCENDING = f"SELECT {RECORD} {_UPWARDS}"
_DESCENDING = f"SELECT {RECORD} {_DOWNWARDS}"
_IN_ORDER = {True: " ORDER BY created_at, number LIMIT ?", False: " ORDER BY created_at DESC, number DESC LIMIT ?"}
_FAILED = f"""(%sstatus IN ('failed', 'incomplete') OR instr(%sextra, '"{FAILED_CALLS}":') > 0)"""
_FAILED_ALONE, _FAILED_MEMBER = _FAILED % ("", ""), _FAILED % ("member.", "member.")
_BELOW_RUN = f"FROM responses AS member WHERE member.run_id = responses.id AND {_FAILED_MEMBER}"
_FAILED_ANYWHERE = f"({_FAILED_ALONE} OR EXISTS (SELECT 1 {_BELOW_RUN}))"
_RUNS = f"SELECT {RECORD}, (SELECT count(*) {_BELOW_RUN}) {_BETWEEN}"
# A call of the run, also of one of its agents.
_CALLS = """
    EXISTS (SELECT 1 FROM responses AS member JOIN entries ON entries.response_id = member.id
    WHERE (member.id = responses.id OR member.run_id = responses.id) AND instr(entries.call, ?) > 0)"""
# The output of all responses of such a page, in one statement however many there are. The empty text
# keeps SQLite from searching all entries of the tenant by the index on items.
_SHOWN = "AND tenant || '' = ? AND direction = 'output' AND visible ORDER BY response_id, position"
_OUTPUT_ASCENDING = f"""
    SELECT response_id, {ENTRY} FROM entries WHERE response_id IN (SELECT id {_UPWARDS}) {_SHOWN}"""  # noqa: S608
_OUTPUT_DESCENDING = f"""
    SELECT response_id, {ENTRY} FROM entries WHERE response_id IN (SELECT id {_DOWNWARDS}) {_SHOWN}"""  # noqa: S608


WORKER = "worker"
"""Under this key the extra of a run has the worker that it belongs to, if several can share the database."""


class UnfinishedRun(Struct, frozen=True):
    """A background response that is not over, and that waits for nobody."""

    tenant: str
    id: str
    epoch: int
    worker: str
    """Who works on it, as far as the database knows."""


class ResponseStore(Transactions):
    """Keeps responses, their journals and the events of background runs.

    Writes to a run carry its epoch; a write with an epoch that is not the current one raises FencedError and changes
    nothing. Each method is one transaction.
    """

    # --- writing -----------------------------------------------------------------------------------------------------

    async def create(
        self,
        record: ResponseRecord,
        entries: Sequence[JournalEntry] = (),
        *,
        events: Sequence[StoredEvent] = (),
        said: Sequence[JournalEntry] = (),
    ) -> None:
        """Store a new response with its first entries and events; `said` as with `update`."""
        inserts = [
            (_INSERT_RESPONSE, [record_row(record)]),
            (_PUT_ENTRY, entry_rows(record.tenant, record.id, entries)),
            (_INSERT_EVENT, event_rows(record.tenant, record.id, events)),
        ]
        if said_rows := _said_rows(record, said):
            await self._create(record.tenant, record.id, inserts, said=said_rows)
        else:
            await undisturbed(self._writer.insert(inserts, record.id))

    @writes
    def _create(
        self, database: Database, tenant: str, _response_id: str, inserts: Sequence[Insert], *, said: Sequence[Row]
    ) -> None:
        insert_all(database, inserts)
        _say(database, tenant, said)

    async def append(
        self,
        tenant: str,
        response_id: str,
        epoch: int,
        entries: Sequence[JournalEntry],
        *,
        start: int,
        again: Sequence[tuple[int, JournalEntry]] = (),
    ) -> None:
        """Store entries at positions `start`, `start + 1`, …, and those of `again` at theirs.

        An entry that is at a position already is replaced.
        """
        rows = entry_rows(tenant, response_id, entries, start, again)
        await self._append(tenant, response_id, epoch, entries=rows)

    async def add_events(self, tenant: str, response_id: str, epoch: int, events: Sequence[StoredEvent]) -> None:
        """Append events."""
        await self._append(tenant, response_id, epoch, events=event_rows(tenant, response_id, events))

    @writes
    def _append(
        self,
        database: Database,
        tenant: str,
        response_id: str,
        epoch: int,
        *,
        entries: Sequence[Row] = (),
        events: Sequence[Row] = (),
    ) -> None:
        check_epoch(database, tenant, response_id, epoch)
        _put(database, entries, events)

    async def update(
        self,
        record: ResponseRecord,
        *,
        entries: Sequence[JournalEntry] = (),
        start: int = 0,
        again: Sequence[tuple[int, JournalEntry]] = (),
        events: Sequence[StoredEvent] = (),
        said: Sequence[JournalEntry] = (),
        questions: Sequence[Question] = (),
    ) -> None:
        """Store the record's status, body, extra and whether it is parked; with it entries, events and questions.

        `entries`, `start` and `again` are as with `append`. `said` is appended to the conversation of the record, as
        `ConversationStore.add` does; if the conversation is gone, nothing is. Nor is it if the response was over
        before: its end may be stored again, and is said once. One that is not to be stored was written now.
        """
        unstored_at = None if record.unstored_at is None else int(time.time())
        change = (record.status, body_text(record.body), object_text(record.extra), record.parked, unstored_at)
        update = Change(
            _UPDATE_RESPONSE,
            (*change, record.id, record.tenant, record.epoch),
            [
                (_PUT_ENTRY, entry_rows(record.tenant, record.id, entries, start, again)),
                (_INSERT_EVENT, event_rows(record.tenant, record.id, events)),
            ],
            _fenced(record.id, record.epoch),
        )
        said_rows = _said_rows(record, said)
        if said_rows or questions:
            await self._update(record.tenant, record.id, update, said=said_rows, questions=asked_rows(questions))
        else:
            await undisturbed(self._writer.change(update, record.id))

    @writes
    def _update(
        self,
        database: Database,
        tenant: str,
        response_id: str,
        change: Change,
        *,
        said: Sequence[Row],
        questions: Sequence[Row],
    ) -> None:
        if said:
            row = database.execute(_STATUS, (response_id, tenant)).fetchone()
            said = said if row is not None and row[0] in ACTIVE else ()
        change_all(database, change)
        _say(database, tenant, said)
        ask(database, questions)

    async def note(self, tenant: str, response_id: str, epoch: int, extra: JSON) -> None:
        """Add to the record's extra, or replace what is there under the same keys, and change nothing else."""
        await self._note(tenant, response_id, epoch, dict(extra))

    @writes
    def _note(self, database: Database, tenant: str, response_id: str, epoch: int, extra: JSON) -> None:
        row = database.execute(_EXTRA, (response_id, tenant, epoch)).fetchone()
        if row is None:
            raise _fenced(response_id, epoch)
        database.execute(_NOTE, (encoded({**decoded(row[0]), **extra}), response_id, tenant, epoch))

    @writes
    def claim(
        self,
        database: Database,
        tenant: str,
        response_id: str,
        *,
        worker: str = "",
        epoch: int | None = None,
        most: int | None = None,
    ) -> ResponseRecord | None:
        """Raise the epoch of an unfinished response and return it: now only the claimer works on it. None if over.

        From now on it belongs to that worker. With an epoch it is also None if somebody else was faster: whoever finds
        a response left behind may not be the only one. A CrowdedError if workers have as many others of the tenant as
        `most` says, in the background and not waiting for somebody.
        """
        if most is not None:
            database.hold(tenant)
            if database.execute(_WORKED_ON, (tenant, response_id)).fetchone()[0] >= most:
                raise CrowdedError
        statement, which = (_CLAIM, ()) if epoch is None else (_CLAIM_OF, (epoch,))
        if not database.execute(statement, (response_id, tenant, *which)).rowcount:
            return None
        record = _get(database, tenant, response_id)
        if record is not None and worker_of(record.extra) != worker:
            record.extra[WORKER] = worker
            database.execute(_NOTE, (encoded(record.extra), response_id, tenant, record.epoch))
        return record

    @deletes
    def delete(self, database: Database, tenant: str, response_id: str) -> bool:
        """Delete a response with its journal and events; False if there was none.

        Those that continue it continue the one before it.
        """
        if database.execute(_EPOCH, (response_id, tenant)).fetchone() is None:
            return False
        database.execute(_RELINK, {"id": response_id, "tenant": tenant})
        database.execute(_DELETE, (response_id, tenant))
        return True

    # --- reading -----------------------------------------------------------------------------------------------------

    @reads
    def get(self, database: Database, tenant: str, response_id: str) -> ResponseRecord | None:
        """Return a response of the tenant, None if there is none."""
        return _get(database, tenant, response_id)

    @reads
    def journal(self, database: Database, tenant: str, response_id: str) -> list[JournalEntry]:
        """Return the entries of a response in order."""
        return [entry_of(row) for row in database.execute(_JOURNAL, (response_id, tenant)).fetchall()]

    @reads
    def chain(self, database: Database, tenant: str, response_id: str) -> ResponseChain | None:
        """Return a response with those that come before it; None if it is not there.

        Where a response in between was deleted, the others remain.
        """
        of = {"id": response_id, "tenant": tenant}
        links, status, unstored_at, prompted = database.execute(_CHAIN, of).fetchone()
        if links is None:
            return None
        numbered = sorted((int(number), name) for number, _, name in (link.partition(" ") for link in links.split(",")))
        return ResponseChain(status, [name for _, name in numbered], unstored_at is not None, bool(prompted))

    @reads
    def journals(self, database: Database, tenant: str, response_ids: Sequence[str]) -> dict[str, list[JournalEntry]]:
        """Return what was read and said in several responses, in order."""
        return {
            name: [entry_of(row) for row in database.execute(_SAID, (name, tenant)).fetchall()] for name in response_ids
        }

    @reads
    def events(
        self, database: Database, tenant: str, response_id: str, *, after: int = -1, limit: int = 1000
    ) -> list[StoredEvent]:
        """Return events with a sequence number above `after`, in order."""
        rows = database.execute(_EVENTS, (response_id, tenant, after, limit)).fetchall()
        return [StoredEvent(*row) for row in rows]

    @reads
    def list_responses(
        self,
        database: Database,
        tenant: str,
        *,
        limit: int,
        after: str | None = None,
        before: str | None = None,
        order: str = "desc",
    ) -> Page:
        """Return `ListedResponse`s by creation time, of those that are stored; `after` and `before` are response ids.

        Raise NotFoundError for an unknown one. With `before` alone the page is the one right before it. However many
        they are, the number of statements is the same.
        """
        with snapshot(database):
            window = list_window(database, _LISTED, tenant, after=after, before=before, order=order)
            records, output = (_ASCENDING, _OUTPUT_ASCENDING) if window.upwards else (_DESCENDING, _OUTPUT_DESCENDING)
            rows = database.execute(records, (*window.bounds, limit + 1)).fetchall()
            items = database.execute(output, (*window.bounds, limit, tenant)).fetchall()
        found = {record.id: ListedResponse(record, []) for record in map(record_of, rows[:limit])}
        for response_id, *entry in items:
            found[response_id].output.append(entry_of(entry).item)
        return window.page(list(found.values()), has_more=len(rows) > limit)

    @reads
    def list_runs(
        self,
        database: Database,
        tenant: str,
        *,
        wanted: RunFilter,
        limit: int,
        after: str | None = None,
        before: str | None = None,
        order: str = "desc",
    ) -> Page:
        """Return `ListedRun`s, in the order of `list_responses`, that fit a filter; none of sub-agents."""
        conditions, values = _conditions(wanted)
        with snapshot(database):
            window = list_window(database, _LISTED, tenant, after=after, before=before, order=order)
            statement = "".join((_RUNS, *(f" AND {each}" for each in conditions), _IN_ORDER[window.upwards]))
            rows = database.execute(statement, (*window.bounds, *values, limit + 1)).fetchall()
        found = [ListedRun(record_of(row), failed_agents) for *row, failed_agents in rows[:limit]]
        return window.page(found, has_more=len(rows) > limit)

    @reads
    def children(self, database: Database, tenant: str, parent_id: str, call_id: str) -> list[ResponseRecord]:
        """Return the responses of the sub-agents that a call began, in their order."""
        return [record_of(row) for row in database.execute(_CHILDREN, (parent_id, call_id, tenant)).fetchall()]

    @reads
    def descendants(self, database: Database, tenant: str, response_id: str) -> list[ResponseRecord]:
        """Return the responses of all sub-agents below a response, parents before their children."""
        rows = database.execute(_DESCENDANTS, {"id": response_id, "tenant": tenant}).fetchall()
        return [record_of(row) for row in rows]

    @reads
    def unfinished_below(self, database: Database, tenant: str, response_id: str) -> list[ResponseRecord]:
        """Return those of the sub-agents below a response that are not over, parents before their children."""
        rows = database.execute(_UNFINISHED_BELOW, {"id": response_id, "tenant": tenant}).fetchall()
        return [record_of(row) for row in rows]

    @reads
    def of_run(self, database: Database, tenant: str, run_id: str) -> list[ResponseRecord]:
        """Return all responses of a run, in the order of storing."""
        return [record_of(row) for row in database.execute(_OF_RUN, (run_id, run_id, tenant)).fetchall()]

    @reads
    def find_item(self, database: Database, tenant: str, item_id: str) -> JournalEntry | None:
        """Return an item of any stored response or conversation by its id, for `item_reference`."""
        with snapshot(database):
            row = database.execute(_FIND_ITEM, (tenant, item_id)).fetchone()
            if row is not None and row[0] == "output":
                return entry_of(row)
            said = find_item(database, tenant, item_id)
        if row is None or (said is not None and said.direction == "output"):
            return said
        return entry_of(row)

    @reads
    def unfinished(self, database: Database) -> list[UnfinishedRun]:
        """Return every background response that somebody must work on, oldest first, over all tenants.

        That is no sub-agent, whose root agent sees to it, and none that waits for an answer.
        """
        found = database.execute(_UNFINISHED).fetchall()
        return [UnfinishedRun(tenant, name, epoch, worker_of(decoded(extra))) for tenant, name, epoch, extra in found]


def worker_of(extra: JSON) -> str:
    """Return the worker that a run belongs to, by the extra of its record."""
    return str(extra.get(WORKER, ""))


def check_epoch(database: Database, tenant: str, response_id: str, epoch: int) -> None:
    """Raise FencedError if the epoch of a response is another; if not, it stays until the transaction ends."""
    row = database.execute(_EPOCH, (response_id, tenant)).fetchone()
    if row is None or row[0] != epoch:
        raise _fenced(response_id, epoch)


def _fenced(response_id: str, epoch: int) -> FencedError:
    return FencedError(f"epoch {epoch} of {response_id} is over")


def _get(database: Database, tenant: str, response_id: str) -> ResponseRecord | None:
    row = database.execute(_GET, (response_id, tenant)).fetchone()
    return None if row is None else record_of(row)


def _put(database: Database, entries: Sequence[Row], events: Sequence[Row] = ()) -> None:
    database.insert(_PUT_ENTRY, entries)
    database.insert(_INSERT_EVENT, events)


def _say(database: Database, tenant: str, said: Sequence[Row]) -> None:
    """Add items to the conversation that they name, if it is there."""
    if said:
        add_items(database, tenant, said[0][0], said)


def _said_rows(record: ResponseRecord, said: Sequence[JournalEntry]) -> Sequence[Row]:
    if not said or record.conversation_id is None:
        return ()
    return item_rows(record.tenant, record.conversation_id, said)


def _conditions(wanted: RunFilter) -> tuple[list[str], list[object]]:
    """Return what a filter asks of a response, and the values for that."""
    conditions, values = [], list[object]()
    if wanted.background is not None:
        conditions.append("background" if wanted.background else "NOT background")
    if wanted.failed is not None:
        conditions.append(_FAILED_ANYWHERE if wanted.failed else f"NOT {_FAILED_ANYWHERE}")
    # The agent is the last value of all: what clients say of themselves, as in metadata, stands before it. The name of
    # a call stands between its id and its arguments. Neither LIKE of SQLite nor its wildcards tell names apart.
    agent = None if wanted.agent is None else f'"agent":{encoded(wanted.agent)}}}'
    function = None if wanted.function is None else f',"name":{encoded(wanted.function)},"arguments":'
    for condition, value in (
        ("status = ?", wanted.status),
        (f"substr(body, length(body) - {len(agent or '') - 1}) = ?", agent),
        ("created_at > ?", wanted.created_after),
        ("created_at < ?", wanted.created_before),
        (_CALLS, function),
    ):
        if value is not None:
            conditions.append(condition)
            values.append(value)
    return conditions, values
