"""The event log of a run: numbers without a gap, whatever the store does."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.runs.embedded import embedded
from typing_extensions import override

from antwort.engine.journal import Journal
from antwort.runs.recovery import RunLog, RunSink
from antwort.storage.base import JournalEntry, ResponseRecord, StoredEvent, StoreUnavailableError
from antwort.storage.sqlite import SqliteStore
from antwort.testing import call, turn

TENANT = "acme"
ITEM = JournalEntry("output", {"id": "msg_1", "type": "message"})


class HeldStore(SqliteStore):
    """A real store whose first write of events waits, and then fails or not."""

    fails = True

    def hold(self) -> None:
        self.reached, self.let_go = asyncio.Event(), asyncio.Event()

    @override
    async def add_events(self, tenant: str, response_id: str, epoch: int, events: Sequence[StoredEvent]) -> None:
        if not self.reached.is_set():
            self.reached.set()
            await self.let_go.wait()
            if self.fails:
                raise StoreUnavailableError("The database cannot be used now: another process holds it.")
        await super().add_events(tenant, response_id, epoch, events)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[HeldStore]:
    opened = HeldStore.open(tmp_path / "runs.db")
    opened.hold()
    await opened.create(record())
    yield opened
    await opened.close()


def record() -> ResponseRecord:
    return ResponseRecord("resp_1", TENANT, 0, "in_progress", "m", {}, {}, background=True)


def stored_in(store: HeldStore) -> tuple[RunSink, Journal]:
    log = RunLog("resp_1", lambda _: None)
    journal = Journal.stored(store, record(), [], log)
    return RunSink(journal, log), journal


async def numbers(store: HeldStore) -> list[int]:
    return [event.sequence for event in await store.events(TENANT, "resp_1")]


async def as_far_as_it_gets() -> None:
    """Let other tasks run until they wait for something else than each other."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_a_write_does_not_overtake_one_that_waits_and_fails(store: HeldStore) -> None:
    log, _ = stored_in(store)
    log.put("a", b"{}")
    first = asyncio.create_task(log.flush())
    await store.reached.wait()
    log.put("b", b"{}")
    second = asyncio.create_task(log.flush())
    await as_far_as_it_gets()
    assert await numbers(store) == []
    store.let_go.set()
    with pytest.raises(StoreUnavailableError):
        await first
    await second
    assert await numbers(store) == [0, 1]


async def test_items_with_their_events_do_not_overtake_events_that_wait_and_fail(store: HeldStore) -> None:
    log, journal = stored_in(store)
    log.put("a", b"{}")
    first = asyncio.create_task(log.flush())
    await store.reached.wait()
    journal.note(ITEM)
    log.put("b", b"{}")
    second = asyncio.create_task(journal.save())
    await as_far_as_it_gets()
    assert await numbers(store) == []
    store.let_go.set()
    with pytest.raises(StoreUnavailableError):
        await first
    await second
    assert await numbers(store) == [0, 1]
    assert await store.journal(TENANT, "resp_1") == [ITEM]


@pytest.mark.parametrize("fails", [True, False])
async def test_what_a_cancelled_write_has_stored_is_known_before_the_next(store: HeldStore, fails: bool) -> None:
    """As at the deadline of a run: it ends what it does, and then stores its end."""
    store.fails = fails
    log, _ = stored_in(store)
    log.put("a", b"{}")
    first: asyncio.Task[Any] = asyncio.create_task(log.flush())
    await store.reached.wait()
    first.cancel()
    log.put("b", b"{}")
    second = asyncio.create_task(log.flush())
    await as_far_as_it_gets()
    store.let_go.set()
    with pytest.raises(asyncio.CancelledError):
        await first
    await second
    assert await numbers(store) == [0, 1]


async def test_a_write_is_awaited_however_often_its_caller_is_cancelled(store: HeldStore) -> None:
    log, _ = stored_in(store)
    store.fails = False
    log.put("a", b"{}")
    first = asyncio.create_task(log.flush())
    await store.reached.wait()
    for _ in range(3):
        first.cancel()
        await as_far_as_it_gets()
    log.put("b", b"{}")
    second = asyncio.create_task(log.flush())
    await as_far_as_it_gets()
    assert not first.done()
    store.let_go.set()
    with pytest.raises(asyncio.CancelledError):
        await first
    await second
    assert await numbers(store) == [0, 1]


async def test_readers_are_told_that_a_call_is_over_together_with_what_came_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever goes on after a crash would otherwise end it another time, and in another way."""
    storing, found = asyncio.Event(), list[tuple[set[str], set[str]]]()

    async def pay(order: str) -> str:
        """Pay for an order."""
        if order != "0":
            await storing.wait()
        return f"paid {order}"

    calls = [call("pay", order=str(number), call_id=f"call_{number}") for number in range(4)]
    async with embedded(tmp_path, [turn(calls=calls), "Done."], [pay]) as app:
        write = app.store.update

        async def slow(written: ResponseRecord, **what: Any) -> None:
            if "paid 0" in str(what):  # the others end while the end of the first is being stored
                storing.set()
                await as_far_as_it_gets()
            await write(written, **what)
            entries = await app.store.journal(written.tenant, written.id)
            events = [msgspec.json.decode(event.data) for event in await app.store.events(written.tenant, written.id)]
            told = {event["item"]["id"] for event in events if event["type"] == "response.output_item.done"}
            called = {entry.id: entry.call.is_over for entry in entries if entry.call is not None}
            found.append((told & called.keys(), {name for name, is_over in called.items() if is_over}))

        monkeypatch.setattr(app.store, "update", slow)
        await app.result(await app.accept(show_calls=True))
    assert len(found[-1][0]) == 4
    assert [told for told, _ in found] == [over for _, over in found]
