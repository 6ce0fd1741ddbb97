"""What every store does, whatever database it is on."""

import asyncio
import threading
from copy import deepcopy
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from tests.storage.samples import TENANT, body_of, entry, event, history, record

from antwort.errors import ConflictError, NotFoundError
from antwort.storage import (
    ConversationRecord,
    CrowdedError,
    FencedError,
    JournalEntry,
    ListedResponse,
    ResponseRecord,
    ResponseStore,
    Store,
)
from antwort.storage.call_record import CallRecord
from antwort.storage.sql import rows
from antwort.types import JSON
from antwort.wire.items import Message, OutputText
from antwort.wire.responses import ResponseObject

OTHER = "other"


async def stored(store: ResponseStore, response_id: str, **changes: Any) -> ResponseRecord:
    made = record(response_id, **changes)
    await store.create(made, [entry(f"msg_{response_id}")])
    return made


async def ids(store: ResponseStore, **options: Any) -> list[str]:
    page = await store.list_responses(TENANT, **{"limit": 100, **options})
    return [found.record.id for found in page.data]


# --- create, get, journal --------------------------------------------------------------------------------------------


async def test_a_response_comes_back_as_it_was_stored(store: ResponseStore) -> None:
    made = record(
        previous_response_id="resp_0",
        background=True,
        epoch=3,
        subject="ada",
        extra={"turns": 2, "large": 2**70, "nested": {"null": None, "text": "ü\u0000😀\u2028"}},
    )
    entries = [
        entry("msg_1", 'naïve 日本語 😀 \u0000 \\ "', direction="input"),
        entry("call_1", visible=False, call=CallRecord("call_1", "add", "{}")),
    ]
    await store.create(made, entries)
    assert await store.get(TENANT, "resp_1") == made
    assert await store.journal(TENANT, "resp_1") == entries


def long_entry(number: int) -> JournalEntry:
    """Return an entry with a call whose output is long."""
    call = CallRecord(
        f"call_{number}", "add", "{}", output=f"{number}" + "ü" * 90_000, images=[{"type": "input_image"}]
    )
    return entry(f"fc_{number}", call=call)


async def test_of_many_long_entries_most_are_written_on_the_thread_that_stores_them(
    store: ResponseStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries, written, here = [long_entry(number) for number in range(40)], rows.encoded, list[bool]()

    def watched(value: Any) -> str:
        here.append(threading.current_thread() is threading.main_thread())
        return written(value)

    await store.create(record(), [])
    monkeypatch.setattr(rows, "encoded", watched)
    await store.append(TENANT, "resp_1", 0, entries, start=0)
    assert sum(here) < 20
    assert len(here) == 80
    assert await store.journal(TENANT, "resp_1") == entries


async def test_many_long_entries_are_stored_as_they_were_and_in_order_though_they_change_meanwhile(
    store: Store,
) -> None:
    await store.conversations.create(ConversationRecord("conv_1", TENANT, 1))
    made, entries = record(conversation_id="conv_1"), [long_entry(number) for number in range(40)]
    before = deepcopy(entries)
    await store.create(made, [])
    large = asyncio.ensure_future(
        store.update(made, entries=entries[:20], again=[*enumerate(entries)][20:], said=entries)
    )
    await asyncio.sleep(0)
    for changed in entries:
        changed.item["content"][0]["text"] = "other"
        assert changed.call is not None
        assert changed.call.images is not None
        changed.call.images.clear()
    later = asyncio.ensure_future(store.append(TENANT, "resp_1", 0, entries[:1], start=0))
    await asyncio.gather(large, later)
    assert await store.journal(TENANT, "resp_1") == [entries[0], *before[1:]]
    said = await store.conversations.history(TENANT, "conv_1")
    assert said == before


@pytest.mark.parametrize("count", [0, 1, 2, 7, 8, 9, 31, 32, 33, 75])
async def test_however_many_entries_and_events_there_are_they_come_back_in_order(
    store: ResponseStore, count: int
) -> None:
    """Statements insert several rows each."""
    made = record(conversation_id="conv_1", background=True)
    entries = [entry(f"msg_{n}", f"{n}") for n in range(count)]
    events = [event(n) for n in range(count)]
    assert isinstance(store, Store)
    await store.conversations.create(ConversationRecord("conv_1", TENANT, 1))
    await store.create(made, entries, said=entries)
    await store.update(made, entries=entries, start=count, events=events)
    assert await store.journal(TENANT, made.id) == [*entries, *entries]
    assert await store.events(TENANT, made.id) == events
    assert await store.conversations.history(TENANT, "conv_1") == entries


async def test_a_response_that_is_being_made_is_stored_as_it_is_but_for_its_output(store: ResponseStore) -> None:
    response = ResponseObject(id="resp_1", created_at=1_700_000_000, model="small", metadata={"topic": "tea"})
    response.output.append(Message(id="msg_1", content=[OutputText("Hello")]))
    made = record(body=response)
    await store.create(made, [entry("msg_1")])
    as_json: JSON = msgspec.to_builtins(response)
    assert await store.get(TENANT, "resp_1") == record(body={**as_json, "output": []})
    response.status = "completed"
    await store.update(made)
    assert await store.get(TENANT, "resp_1") == record(body={**as_json, "output": [], "status": "completed"})
    assert len(response.output) == 1


async def test_what_is_changed_after_the_call_began_is_not_stored(store: ResponseStore) -> None:
    made, message = record(), entry("msg_1")
    kept = record(), entry("msg_1")
    creation = asyncio.ensure_future(store.create(made, [message]))
    await asyncio.sleep(0)
    body_of(made)["status"] = "failed"
    message.item["content"] = []
    await creation
    assert (await store.get(TENANT, "resp_1"), await store.journal(TENANT, "resp_1")) == (kept[0], [kept[1]])


async def test_an_id_that_is_taken_is_a_conflict_and_changes_nothing(store: ResponseStore) -> None:
    made = await stored(store, "resp_1")
    with pytest.raises(ConflictError):
        await store.create(record(model="large", tenant=OTHER), [entry("msg_2")])
    assert await store.get(TENANT, "resp_1") == made
    assert await store.journal(TENANT, "resp_1") == [entry("msg_resp_1")]
    assert await store.journal(OTHER, "resp_1") == []


async def test_large_items_are_kept_whole(store: ResponseStore) -> None:
    large = [entry(f"msg_{n}", chr(0x1F600 + n) * 250_000) for n in range(3)]  # a megabyte of UTF-8 each
    await store.create(record(request={"input": "x" * 1_000_000}), large)
    assert await store.journal(TENANT, "resp_1") == large
    found = await store.get(TENANT, "resp_1")
    assert found is not None
    assert len(found.request["input"]) == 1_000_000


# --- append, update, events ------------------------------------------------------------------------------------------


async def test_entries_are_appended_and_replaced_by_position(store: ResponseStore) -> None:
    await stored(store, "resp_1")
    started = entry("call_1", visible=False, call=CallRecord("call_1", "add", "{}"))
    done = replace(started, call=CallRecord("call_1", "add", "{}", output="3"))
    await store.append(TENANT, "resp_1", 0, [started], start=1)
    await store.append(TENANT, "resp_1", 0, [done, entry("msg_2")], start=1)
    assert await store.journal(TENANT, "resp_1") == [entry("msg_resp_1"), done, entry("msg_2")]


async def test_an_item_that_was_replaced_is_found_no_more(store: ResponseStore) -> None:
    await stored(store, "resp_1")
    await store.append(TENANT, "resp_1", 0, [entry("msg_new")], start=0)
    assert await store.find_item(TENANT, "msg_resp_1") is None
    assert await store.find_item(TENANT, "msg_new") == entry("msg_new")


async def test_an_update_stores_status_body_extra_entries_and_events_together(store: ResponseStore) -> None:
    made = await stored(store, "resp_1", background=True)
    made.status = "completed"
    made.body = {**body_of(made), "status": "completed", "usage": {"total_tokens": 7}}
    made.extra = {"turns": 1}
    await store.update(made, entries=[entry("msg_2")], start=1, events=[event(0), event(1)])
    assert await store.get(TENANT, "resp_1") == made
    assert await store.journal(TENANT, "resp_1") == [entry("msg_resp_1"), entry("msg_2")]
    assert await store.events(TENANT, "resp_1") == [event(0), event(1)]


async def test_an_update_leaves_what_a_response_is_from_birth(store: ResponseStore) -> None:
    made = await stored(store, "resp_1")
    await store.update(replace(made, model="large", request={}, created_at=1, subject="eve", background=True))
    assert await store.get(TENANT, "resp_1") == made


async def test_events_are_read_in_order_from_any_place(store: ResponseStore) -> None:
    await stored(store, "resp_1")
    await store.add_events(TENANT, "resp_1", 0, [event(n) for n in range(5, 10)])
    await store.add_events(TENANT, "resp_1", 0, [event(n) for n in range(5)])
    assert await store.events(TENANT, "resp_1") == [event(n) for n in range(10)]
    assert await store.events(TENANT, "resp_1", after=6) == [event(n) for n in range(7, 10)]
    assert await store.events(TENANT, "resp_1", after=1, limit=2) == [event(2), event(3)]
    assert await store.events(TENANT, "resp_1", after=9) == []


async def test_the_bytes_of_an_event_come_back_as_they_were(store: ResponseStore) -> None:
    await stored(store, "resp_1")
    odd = replace(event(0), data=bytes(range(256)))
    await store.add_events(TENANT, "resp_1", 0, [odd])
    assert await store.events(TENANT, "resp_1") == [odd]


async def test_a_sequence_number_that_is_taken_is_a_conflict_and_the_whole_write_is_undone(
    store: ResponseStore,
) -> None:
    made = await stored(store, "resp_1")
    await store.add_events(TENANT, "resp_1", 0, [event(1)])
    with pytest.raises(ConflictError):
        await store.update(
            replace(made, status="completed"), entries=[entry("msg_2")], start=1, events=[event(0), event(1)]
        )
    assert await store.get(TENANT, "resp_1") == made
    assert await store.journal(TENANT, "resp_1") == [entry("msg_resp_1")]
    assert await store.events(TENANT, "resp_1") == [event(1)]


# --- fencing ---------------------------------------------------------------------------------------------------------


async def test_whoever_lost_the_epoch_writes_nothing_more(store: ResponseStore) -> None:
    made = await stored(store, "resp_1")
    claimed = await store.claim(TENANT, "resp_1")
    assert claimed == replace(made, epoch=1)
    with pytest.raises(FencedError):
        await store.append(TENANT, "resp_1", 0, [entry("msg_2")], start=0)
    with pytest.raises(FencedError):
        await store.add_events(TENANT, "resp_1", 0, [event(0)])
    with pytest.raises(FencedError):
        await store.update(replace(made, status="completed"), entries=[entry("msg_2")], start=0, events=[event(0)])
    assert await store.get(TENANT, "resp_1") == claimed
    assert await store.journal(TENANT, "resp_1") == [entry("msg_resp_1")]
    assert await store.events(TENANT, "resp_1") == []


@pytest.mark.parametrize("count", [0, 1, 8, 40])
async def test_an_update_is_stored_with_its_events_or_not_at_all(store: ResponseStore, count: int) -> None:
    made = await stored(store, "resp_1")
    events = [event(number) for number in range(count)]
    await store.update(replace(made, status="in_progress"), events=events)
    claimed = await store.claim(TENANT, "resp_1")
    assert claimed == replace(made, status="in_progress", epoch=1)
    late = [event(number + count) for number in range(count)]
    with pytest.raises(FencedError):
        await store.update(replace(made, status="completed"), entries=[entry("msg_2")], start=0, events=late)
    if count:
        with pytest.raises(ConflictError):
            await store.update(replace(claimed, status="completed"), events=events)
    assert await store.get(TENANT, "resp_1") == claimed
    assert await store.journal(TENANT, "resp_1") == [entry("msg_resp_1")]
    assert await store.events(TENANT, "resp_1") == events


async def test_an_epoch_that_is_yet_to_come_is_refused_too(store: ResponseStore) -> None:
    await stored(store, "resp_1")
    with pytest.raises(FencedError):
        await store.append(TENANT, "resp_1", 1, [entry("msg_2")], start=1)


async def test_a_write_to_a_response_that_was_deleted_is_fenced(store: ResponseStore) -> None:
    made = await stored(store, "resp_1")
    await store.delete(TENANT, "resp_1")
    with pytest.raises(FencedError):
        await store.update(made)
    with pytest.raises(FencedError):
        await store.append(TENANT, "resp_1", 0, [entry("msg_2")], start=1)
    assert await store.get(TENANT, "resp_1") is None


async def test_of_many_that_claim_at_once_each_has_an_epoch_of_its_own(store: ResponseStore) -> None:
    await stored(store, "resp_1")
    claims = await asyncio.gather(*(store.claim(TENANT, "resp_1") for _ in range(20)))
    assert [claim.epoch for claim in claims if claim is not None] == list(range(1, 21))


async def test_no_more_are_claimed_in_their_turn_than_may_be_worked_on(store: ResponseStore) -> None:
    for number in range(8):
        await stored(store, f"resp_{number}", background=True, extra={"worker": ""} if number % 2 else {})

    async def claimed(name: str, most: int) -> bool:
        try:
            return await store.claim(TENANT, name, worker="me-0", most=most) is not None
        except CrowdedError:
            return False

    found = await asyncio.gather(*(claimed(f"resp_{number}", 3) for number in range(8)))
    assert sum(found) == 3
    mine = f"resp_{found.index(True)}"
    assert await claimed(mine, 3), "it is one of them"
    assert not await claimed(mine, 2)
    await store.claim(TENANT, mine)  # it is nobody's now
    assert sum([await claimed(f"resp_{number}", 3) for number in range(8) if not found[number]]) == 1


async def test_of_two_that_write_and_claim_in_a_race_only_the_last_claimer_goes_on(store: ResponseStore) -> None:
    """Each writes until it is fenced; whatever the interleaving, no write of a fenced epoch is there."""
    await stored(store, "resp_1")

    async def run() -> tuple[int, int]:
        claimed = await store.claim(TENANT, "resp_1")
        assert claimed is not None
        for count in range(20):
            try:
                await store.append(TENANT, "resp_1", claimed.epoch, [entry(f"msg_{claimed.epoch}")], start=count)
            except FencedError:
                return claimed.epoch, count
        return claimed.epoch, 20

    ends = dict(await asyncio.gather(*(run() for _ in range(8))))
    assert ends[8] == 20
    assert all(count < 20 for epoch, count in ends.items() if epoch < 8)
    assert {found.id for found in await store.journal(TENANT, "resp_1")} == {"msg_8"}


@pytest.mark.parametrize("status", ["completed", "failed", "incomplete", "cancelled"])
async def test_what_is_over_cannot_be_claimed(store: ResponseStore, status: str) -> None:
    made = await stored(store, "resp_1", status=status)
    assert await store.claim(TENANT, "resp_1") is None
    assert await store.get(TENANT, "resp_1") == made


async def test_what_is_queued_can_be_claimed(store: ResponseStore) -> None:
    await stored(store, "resp_1", status="queued")
    claimed = await store.claim(TENANT, "resp_1")
    assert claimed is not None
    assert (claimed.status, claimed.epoch) == ("queued", 1)


# --- cancel, unfinished ----------------------------------------------------------------------------------------------


async def test_a_run_that_ends_and_a_cancel_in_a_race_agree_on_one_end(store: ResponseStore) -> None:
    """Whoever cancels claims the run first, so one of the two finds it over, or itself fenced."""

    async def finish(made: ResponseRecord, status: str) -> bool:
        try:
            await store.update(replace(made, status=status, body={**body_of(made), "status": status}))
        except FencedError:
            return False
        return True

    async def cancel(made: ResponseRecord) -> bool:
        claimed = await store.claim(TENANT, made.id)
        return claimed is not None and await finish(claimed, "cancelled")

    for number in range(20):
        made = await stored(store, f"resp_{number}")
        first = [finish(made, "completed"), cancel(made)]
        finished, cancelled = await asyncio.gather(*first) if number % 2 else (await asyncio.gather(*first[::-1]))[::-1]
        end = await store.get(TENANT, made.id)
        assert end is not None
        assert finished != cancelled
        assert end.status == body_of(end)["status"] == ("completed" if finished else "cancelled")


async def test_the_unfinished_are_the_background_responses_of_all_tenants_that_are_not_over(
    store: ResponseStore,
) -> None:
    await stored(store, "resp_1", background=True, status="in_progress", created_at=30)
    await stored(store, "resp_2", background=True, status="queued", tenant=OTHER, created_at=10)
    await stored(store, "resp_3", background=False)
    await stored(store, "resp_4", background=True, status="completed")
    assert [(run.tenant, run.id) for run in await store.unfinished()] == [(OTHER, "resp_2"), (TENANT, "resp_1")]


# --- history ---------------------------------------------------------------------------------------------------------


async def test_the_history_is_every_entry_of_the_chain_oldest_first(store: ResponseStore) -> None:
    await store.create(record("resp_b", created_at=20), [entry("b0"), entry("b1")])
    await store.create(record("resp_a", created_at=10, previous_response_id="resp_b"), [])
    await store.create(record("resp_c", created_at=15, previous_response_id="resp_a"), [entry("c0")])
    await store.create(record("resp_fork", previous_response_id="resp_b"), [entry("fork")])
    await store.append(TENANT, "resp_c", 0, [entry("c2"), entry("c1")], start=1)
    found = await history(store, TENANT, "resp_c")
    assert found is not None
    assert [one.id for one in found] == ["b0", "b1", "c0", "c2", "c1"]


async def test_a_response_without_entries_has_an_empty_history_and_an_unknown_one_has_none(
    store: ResponseStore,
) -> None:
    await store.create(record())
    assert await history(store, TENANT, "resp_1") == []
    assert await history(store, TENANT, "resp_2") is None


async def test_a_chain_of_a_thousand_responses_is_one_history(store: ResponseStore) -> None:
    for n in range(1000):  # one after the other, as a response can only be continued once it is stored
        made = record(f"resp_{n}", previous_response_id=f"resp_{n - 1}" if n else None)
        await store.create(made, [entry(f"in_{n}", direction="input"), entry(f"out_{n}")])
    found = await history(store, TENANT, "resp_999")
    assert found is not None
    assert [one.id for one in found] == [f"{part}_{n}" for n in range(1000) for part in ("in", "out")]


@pytest.mark.parametrize(("gone", "left"), [(0, "123"), (1, "023"), (2, "013")])
async def test_the_history_is_what_is_left_when_a_response_in_the_chain_is_deleted(
    store: ResponseStore, gone: int, left: str
) -> None:
    for n in range(4):
        await stored(store, f"resp_{n}", previous_response_id=f"resp_{n - 1}" if n else None)
    await store.delete(TENANT, f"resp_{gone}")
    found = await history(store, TENANT, "resp_3")
    assert found is not None
    assert [one.id for one in found] == [f"msg_resp_{n}" for n in left]


async def test_what_a_stored_response_continues_is_always_there(store: ResponseStore) -> None:
    await stored(store, "resp_1")
    await stored(store, "resp_2", previous_response_id="resp_1")
    await stored(store, "resp_3", previous_response_id="resp_2")
    for gone, left in (("resp_2", "resp_1"), ("resp_1", None)):
        await store.delete(TENANT, gone)
        last = await store.get(TENANT, "resp_3")
        assert last is not None
        assert last.previous_response_id == left


async def test_a_response_that_names_itself_does_not_go_round_for_ever(store: ResponseStore) -> None:
    await stored(store, "resp_1", previous_response_id="resp_1")
    assert await history(store, TENANT, "resp_1") == [entry("msg_resp_1")]


# --- delete, find_item -----------------------------------------------------------------------------------------------


async def test_with_a_response_go_its_journal_and_its_events(store: ResponseStore) -> None:
    await stored(store, "resp_1")
    await store.add_events(TENANT, "resp_1", 0, [event(0)])
    assert await store.delete(TENANT, "resp_1") is True
    assert await store.get(TENANT, "resp_1") is None
    assert await store.journal(TENANT, "resp_1") == []
    assert await store.events(TENANT, "resp_1") == []
    assert await store.find_item(TENANT, "msg_resp_1") is None
    assert await store.delete(TENANT, "resp_1") is False


async def test_an_item_is_found_by_its_id(store: ResponseStore) -> None:
    call = entry("call_1", visible=False, call=CallRecord("call_1", "add", "{}"))
    await store.create(record(), [entry("msg_1"), call])
    assert await store.find_item(TENANT, "call_1") == call
    assert await store.find_item(TENANT, "call_2") is None


async def test_what_the_server_wrote_wins_over_what_a_client_sent_back(store: ResponseStore) -> None:
    await store.create(record("resp_1"), [entry("msg_1", "written")])
    await store.create(record("resp_2"), [entry("msg_1", "altered", direction="input")])
    assert await store.find_item(TENANT, "msg_1") == entry("msg_1", "written")


async def test_of_items_that_clients_sent_the_newest_is_found(store: ResponseStore) -> None:
    for n in range(3):
        await store.create(record(f"resp_{n}"), [entry("msg_1", f"version {n}", direction="input")])
    assert await store.find_item(TENANT, "msg_1") == entry("msg_1", "version 2", direction="input")


# --- list ------------------------------------------------------------------------------------------------------------


async def test_the_list_is_ordered_by_creation_then_insertion(store: ResponseStore) -> None:
    for response_id, created_at in (("resp_z", 20), ("resp_a", 20), ("resp_m", 10), ("resp_b", 20)):
        await stored(store, response_id, created_at=created_at)
    assert await ids(store) == ["resp_b", "resp_a", "resp_z", "resp_m"]
    assert await ids(store, order="asc") == ["resp_m", "resp_z", "resp_a", "resp_b"]


async def test_a_list_is_of_whole_records(store: ResponseStore) -> None:
    made = await stored(store, "resp_1", extra={"turns": 1}, background=True)
    page = await store.list_responses(TENANT, limit=1)
    assert (list(page.data), page.has_more) == ([ListedResponse(made, [entry("msg_resp_1").item])], False)


@pytest.mark.parametrize("order", ["asc", "desc"])
async def test_a_list_has_of_each_response_the_output_that_clients_see(store: ResponseStore, order: str) -> None:
    for n in range(4):
        asked = entry(f"in_{n}", direction="input")
        hidden = entry(f"call_{n}", visible=False, call=CallRecord("call_1", "add", "{}"))
        said = [entry(f"z_{n}"), hidden, entry(f"a_{n}")] if n != 2 else []
        await store.create(record(f"resp_{n}"), [asked, *said])
    await store.create(record("resp_other", tenant=OTHER), [entry("msg_other")])
    after, before = ("resp_0", "resp_3") if order == "asc" else ("resp_3", "resp_0")
    whole: list[tuple[str, list[str]]] = [(f"resp_{n}", [f"z_{n}", f"a_{n}"] if n != 2 else []) for n in range(4)]
    if order == "desc":
        whole.reverse()
    pages: list[tuple[dict[str, Any], list[tuple[str, list[str]]]]] = [
        ({"limit": 100}, whole),
        ({"limit": 2}, whole[:2]),
        ({"limit": 1, "after": after}, whole[1:2]),
        ({"limit": 2, "before": before}, whole[1:3]),
    ]
    for options, expected in pages:
        page = await store.list_responses(TENANT, order=order, **options)
        assert [(each.record.id, [item["id"] for item in each.output]) for each in page.data] == expected


async def test_a_page_before_a_response_is_the_one_that_ends_there(store: ResponseStore) -> None:
    for n in range(6):
        await stored(store, f"resp_{n}")
    assert await ids(store, order="asc", before="resp_4", limit=2) == ["resp_2", "resp_3"]
    assert await ids(store, order="desc", before="resp_1", limit=2) == ["resp_3", "resp_2"]
    assert await ids(store, order="asc", after="resp_0", before="resp_4", limit=2) == ["resp_1", "resp_2"]


@pytest.mark.parametrize("cursor", ["after", "before"])
async def test_an_unknown_cursor_is_not_found(store: ResponseStore, cursor: str) -> None:
    await stored(store, "resp_1")
    await stored(store, "resp_2", tenant=OTHER)
    for unknown in ("resp_2", "resp_9"):
        with pytest.raises(NotFoundError, match=unknown) as caught:
            await ids(store, **{cursor: unknown})
        assert caught.value.param == cursor
    assert await ids(store) == ["resp_1"]


# --- tenants ---------------------------------------------------------------------------------------------------------


async def outcomes(store: ResponseStore, tenant: str, made: ResponseRecord) -> list[Any]:
    """Try everything one can do with the id of a response, and return what came of it."""
    tried = [
        store.get(tenant, made.id),
        store.journal(tenant, made.id),
        history(store, tenant, made.id),
        store.chain(tenant, made.id),
        store.events(tenant, made.id),
        store.find_item(tenant, f"msg_{made.id}"),
        store.append(tenant, made.id, made.epoch, [entry("msg_evil")], start=0),
        store.update(replace(made, tenant=tenant, status="failed"), entries=[entry("msg_evil")], events=[event(1)]),
        store.add_events(tenant, made.id, made.epoch, [event(1)]),
        store.claim(tenant, made.id),
        store.delete(tenant, made.id),
    ]
    ended = [await asyncio.gather(attempt, return_exceptions=True) for attempt in tried]
    return [type(end) if isinstance(end, Exception) else end for (end,) in ended]


async def test_the_id_of_another_tenant_is_like_an_unknown_one(store: ResponseStore) -> None:
    made = await stored(store, "resp_1", background=True)
    await store.add_events(TENANT, "resp_1", 0, [event(0)])
    await stored(store, "resp_2", tenant=OTHER)
    assert await outcomes(store, OTHER, made) == await outcomes(store, OTHER, replace(made, id="resp_9"))
    assert await store.get(TENANT, "resp_1") == made
    assert await store.journal(TENANT, "resp_1") == [entry("msg_resp_1")]
    assert await store.events(TENANT, "resp_1") == [event(0)]


async def test_the_history_ends_where_another_tenant_begins(store: ResponseStore) -> None:
    await stored(store, "resp_1", tenant=OTHER)
    await stored(store, "resp_2", previous_response_id="resp_1")
    assert await history(store, TENANT, "resp_2") == [entry("msg_resp_2")]


async def test_deleting_does_not_touch_those_of_another_tenant_that_name_the_id(store: ResponseStore) -> None:
    await stored(store, "resp_1")
    made = await stored(store, "resp_2", tenant=OTHER, previous_response_id="resp_1")
    await store.delete(TENANT, "resp_1")
    assert await store.get(OTHER, "resp_2") == made


async def test_every_tenant_lists_its_own(store: ResponseStore) -> None:
    await stored(store, "resp_1")
    await stored(store, "resp_2", tenant=OTHER)
    await stored(store, "resp_3")
    assert await ids(store, order="asc") == ["resp_1", "resp_3"]
    assert await ids(store, order="asc", after="resp_1") == ["resp_3"]
