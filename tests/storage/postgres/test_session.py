"""Connections that are lost, and a server that is away for a while: what was acknowledged is there."""

import asyncio
import os
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import psycopg
import pytest
from msgspec.structs import replace
from tests.storage.samples import TENANT, entry, event, record
from tests.support.postgres import PostgresServer

from antwort.storage import ConversationRecord, ResponseRecord
from antwort.storage.base import StoreUnavailableError
from antwort.storage.postgres import PostgresStore
from antwort.storage.postgres.connection import PostgresConnection, TimeLimits, connect

COUNT = 2000 if os.environ.get("ANTWORT_TEST_FULL") else 200


@pytest.fixture
async def store(ready_url: str) -> AsyncIterator[PostgresStore]:
    store = await asyncio.to_thread(PostgresStore.open, ready_url, reconnect=60)
    yield store
    await store.close()


@pytest.fixture
def own_server() -> Iterator[PostgresServer]:
    """A server that the test may stop and freeze."""
    server = PostgresServer()
    server.start()
    yield server
    server.remove()


async def filled(store: PostgresStore, disturb: Callable[[], None]) -> None:
    """Write with many hands, disturb the server in the middle, and see that nothing acknowledged is missing."""
    reached = asyncio.Event()

    async def write(hand: int) -> None:
        made = record(f"resp_{hand}", background=True)
        await store.create(made, [entry(f"msg_{hand}_0")])
        for n in range(1, COUNT // 10):
            if n == COUNT // 20:
                reached.set()
            last = replace(made, extra={"n": n})
            await store.update(last, entries=[entry(f"msg_{hand}_{n}")], start=n, events=[event(n)])

    hands = asyncio.gather(*(write(hand) for hand in range(10)))
    await reached.wait()
    await asyncio.to_thread(disturb)
    await hands
    for hand in range(10):
        found = await store.journal(TENANT, f"resp_{hand}")
        assert [each.id for each in found] == [f"msg_{hand}_{n}" for n in range(COUNT // 10)]
        assert [each.sequence for each in await store.events(TENANT, f"resp_{hand}")] == list(range(1, COUNT // 10))


async def test_connections_that_are_ended_are_made_again(
    store: PostgresStore, postgres_server: PostgresServer, ready_url: str
) -> None:
    await filled(store, lambda: postgres_server.leave(ready_url))


@pytest.mark.parametrize("mode", ["immediate", "fast"])
async def test_a_server_that_crashes_or_restarts_loses_nothing_acknowledged(
    own_server: PostgresServer, mode: str
) -> None:
    store = await asyncio.to_thread(PostgresStore.open, own_server.create(), reconnect=60)

    def restart() -> None:
        own_server.stop(mode)
        own_server.start()

    await filled(store, restart)
    await store.close()


async def test_while_the_server_is_away_requests_fail_and_afterwards_all_is_well(
    own_server: PostgresServer, caplog: pytest.LogCaptureFixture
) -> None:
    url = own_server.create().replace("antwort@", "antwort:secret@")
    store = await asyncio.to_thread(PostgresStore.open, url, reconnect=0.2)
    await store.create(record("resp_1"))
    await asyncio.to_thread(own_server.stop)
    attempts = [store.create(record(f"lost_{n}")) for n in range(20)] + [store.get(TENANT, "resp_1")]
    ends = await asyncio.gather(*attempts, return_exceptions=True)
    assert {type(end) for end in ends} == {StoreUnavailableError}
    assert str(ends[0]) == "The database cannot be used now: it cannot be reached."
    assert "it cannot be reached (" in caplog.text
    assert "secret" not in caplog.text
    await asyncio.to_thread(own_server.start)
    await store.create(record("resp_2"))
    assert await store.get(TENANT, "resp_1") == record("resp_1")
    assert await store.get(TENANT, "lost_1") is None
    await store.close()


async def test_a_server_that_stands_still_is_given_up_and_used_again_when_it_goes_on(
    own_server: PostgresServer,
) -> None:
    limits = TimeLimits(answer=0.5, connect=2)
    store = await asyncio.to_thread(PostgresStore.open, own_server.create(), reconnect=0.1, limits=limits)
    await store.create(record("resp_1"))
    own_server.freeze()
    try:
        with pytest.raises(StoreUnavailableError, match="it cannot be reached"):
            await store.get(TENANT, "resp_1")
    finally:
        own_server.thaw()
    assert await store.get(TENANT, "resp_1") == record("resp_1")
    await store.close()


async def test_a_server_that_stands_still_is_found_out_though_statements_may_take_an_hour(
    own_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many wait: what one has found out the others know, so that few ask."""
    limits = TimeLimits(statement=3600, answer=3600, quiet=0.3, connect=2)
    url = own_server.create()
    store = await asyncio.to_thread(PostgresStore.open, url, pool_size=2, reconnect=4, limits=limits)
    await store.create(record("resp_1"))
    await asyncio.gather(*(store.get(TENANT, "resp_1") for _ in range(8)))
    asked: list[float] = []

    def counted(*arguments: Any) -> PostgresConnection:
        asked.append(time.monotonic())
        return connect(*arguments)

    monkeypatch.setattr("antwort.storage.postgres.session.connect", counted)
    own_server.freeze()
    try:
        attempts = [store.create(record(f"lost_{n}")) for n in range(40)]
        attempts += [store.append(TENANT, "resp_1", 0, [entry("msg_1")], start=0)]
        async with asyncio.timeout(60):
            ends = await asyncio.gather(
                *attempts, *(store.get(TENANT, "resp_1") for _ in range(40)), return_exceptions=True
            )
    finally:
        own_server.thaw()
    assert {(type(end), str(end)) for end in ends} == {
        (StoreUnavailableError, "The database cannot be used now: it cannot be reached.")
    }
    assert 0 < len(asked) <= 12
    assert await store.get(TENANT, "resp_1") == record("resp_1")
    await store.close()


async def test_a_statement_that_takes_long_is_not_taken_for_a_server_that_stands_still(
    store: PostgresStore, ready_url: str
) -> None:
    patient = await asyncio.to_thread(
        PostgresStore.open, ready_url, reconnect=4, limits=TimeLimits(quiet=0.2, connect=2)
    )
    sleeping = patient._reader.run(lambda database: database.execute("SELECT pg_sleep(1.5), 7").fetchone())
    assert (await sleeping)[1] == 7
    await patient.close()


# --- in doubt --------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["stored", "not stored"])
def cut(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Lose the connection at the next COMMIT, right before or right after the server has done it, if this is set.

    A statement that does all of a transaction is its own COMMIT.
    """
    armed = threading.Event()
    execute = PostgresConnection.execute

    def cutting(self: PostgresConnection, query: Any, *arguments: Any, **options: Any) -> Any:
        if not armed.is_set() or not (query == "COMMIT" or query.startswith("WITH part_")):
            return execute(self, query, *arguments, **options)
        armed.clear()
        if request.param == "stored":
            execute(self, query, *arguments, **options)
        self.close()
        raise psycopg.OperationalError("the connection is lost")

    monkeypatch.setattr(PostgresConnection, "execute", cutting)
    return armed


async def state(store: PostgresStore) -> tuple[Any, ...]:
    return (
        await store.get(TENANT, "resp_1"),
        await store.journal(TENANT, "resp_1"),
        await store.events(TENANT, "resp_1"),
        await store.conversations.get(TENANT, "conv_1"),
        await store.conversations.history(TENANT, "conv_1"),
    )


WRITES: list[Callable[[PostgresStore, ResponseRecord], Any]] = [
    lambda store, _: store.create(record("resp_1", conversation_id="conv_1"), [entry("a")], said=[entry("msg_0")]),
    lambda store, made: store.append(TENANT, made.id, 0, [entry("b")], start=1),
    lambda store, made: store.add_events(TENANT, made.id, 0, [event(0), event(1)]),
    lambda store, made: store.update(replace(made, extra={"n": 1}), entries=[entry("c")], start=2, events=[event(2)]),
    lambda store, made: store.update(replace(made, status="completed"), said=[entry("msg_1"), entry("msg_0")]),
    lambda store, _: store.conversations.update(TENANT, "conv_1", {"topic": "tea"}),
    lambda store, _: store.conversations.remove(TENANT, "conv_1", "msg_1"),
    lambda store, made: store.delete(TENANT, made.id),
    lambda store, _: store.conversations.delete(TENANT, "conv_1"),
]


async def test_a_write_whose_end_is_not_known_is_made_once(
    store: PostgresStore, cut: threading.Event, postgres_server: PostgresServer, postgres_template: str
) -> None:
    """Every write, once undisturbed and once cut off at its COMMIT, leads to the same."""
    made = record("resp_1", conversation_id="conv_1")
    seen: list[list[Any]] = []
    for disturbed in (False, True):
        await store.conversations.create(ConversationRecord("conv_1", TENANT, 1))
        seen.append([])
        for write in WRITES:
            if disturbed:
                cut.set()
            seen[-1].append((await write(store, made), unnamed(await state(store))))
            assert not cut.is_set()
    assert seen[0] == seen[1]


async def test_a_response_that_is_stored_with_one_statement_whose_end_is_not_known_is_stored_once(
    store: PostgresStore, cut: threading.Event
) -> None:
    entries = [entry("msg_1"), entry("msg_2")]
    cut.set()
    await store.create(record(), entries)
    assert not cut.is_set()
    assert await store.get(TENANT, "resp_1") == record()
    assert await store.journal(TENANT, "resp_1") == entries


async def test_a_response_that_is_stored_with_one_statement_is_stored_by_a_user_who_only_reads_by_default(
    postgres_server: PostgresServer, ready_url: str
) -> None:
    """As with BEGIN, what the user or the database has set for transactions does not matter."""
    name = postgres_server.name(ready_url)
    postgres_server.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    try:
        store = await asyncio.to_thread(PostgresStore.open, ready_url)
        await store.create(record(), [entry("msg_1")])
        assert await store.journal(TENANT, "resp_1") == [entry("msg_1")]
        await store.close()
    finally:
        postgres_server.execute(f"ALTER DATABASE {name} RESET default_transaction_read_only")


def unnamed(found: tuple[Any, ...]) -> tuple[Any, ...]:
    """Leave out the ids that were given by chance."""
    *rest, said = found
    return (*rest, said and [each.item["content"] for each in said])


async def test_of_two_epochs_a_claim_in_doubt_returns_the_one_that_counts(
    store: PostgresStore, cut: threading.Event
) -> None:
    await store.create(record())
    cut.set()
    claimed = await store.claim(TENANT, "resp_1")
    assert claimed is not None
    await store.update(replace(claimed, status="completed"))


async def test_an_addition_in_doubt_is_told_and_not_repeated(store: PostgresStore, cut: threading.Event) -> None:
    await store.conversations.create(ConversationRecord("conv_1", TENANT, 1))
    cut.set()
    with pytest.raises(StoreUnavailableError, match="whether this was stored is not known"):
        await store.conversations.add(TENANT, "conv_1", [entry("msg_1")])
    history = await store.conversations.history(TENANT, "conv_1")
    assert history in ([], [entry("msg_1")])
