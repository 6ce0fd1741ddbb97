"""What is too old is deleted, and nothing else."""

import time
from typing import Any

import msgspec
import pytest
from msgspec import Raw
from tests.storage.samples import TENANT, entry, event, history, record

from antwort.config import KeepConfig, StorageConfig
from antwort.errors import NotFoundError
from antwort.observability import Metrics
from antwort.storage import ConversationRecord, Store, retention
from antwort.storage.base import OWN_RECORDS, FileRecord
from antwort.storage.batches import Batch, Batches, BatchOfMessages, BatchOwner, new_batch, new_batch_of_messages
from antwort.storage.chat_completions import ChatCompletions, NewChat
from antwort.storage.retention import Pruner, Sweeper, UnstoredSweeper, cutoffs
from antwort.storage.sql import conversations
from antwort.wire.client_traces import SentSpan, SentTrace

NOW = int(time.time())
DAY = 86_400


async def keep(store: Store, name: str, days: float, *, events: int = 0, **changes: Any) -> None:
    """Store a response of some days ago."""
    fields: dict[str, Any] = {"status": "completed", "background": events > 0, "created_at": int(NOW - days * DAY)}
    made = record(name, **{**fields, **changes})
    await store.create(made, [entry(f"msg_{name}")])
    await store.add_events(made.tenant, name, 0, [event(number) for number in range(events)])


async def converse(store: Store, name: str, days: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Store a conversation that was used some days ago."""
    monkeypatch.setattr(conversations, "_now", lambda: int(NOW - days * DAY))
    await store.conversations.create(ConversationRecord(name, TENANT, NOW - 400 * DAY), [entry(f"item_{name}")])


async def names(store: Store, tenant: str = TENANT) -> list[str]:
    page = await store.list_responses(tenant, limit=100, order="asc")
    return [found.record.id for found in page.data]


async def test_old_responses_of_every_tenant_go_with_all_that_belongs_to_them(store: Store) -> None:
    await keep(store, "old", 31, events=3)
    await keep(store, "theirs", 40, tenant="other")
    await keep(store, "new", 29, events=2)
    counts = await Pruner(store).prune({"responses": NOW - 30 * DAY})
    assert counts == {"responses": 2}
    assert (await names(store), await names(store, "other")) == (["new"], [])
    assert await store.journal(TENANT, "old") == []
    assert await store.events(TENANT, "old") == []
    assert len(await store.events(TENANT, "new")) == 2
    assert await store.find_item(TENANT, "msg_old") is None


@pytest.mark.parametrize("status", ["queued", "in_progress"])
async def test_a_run_that_is_not_over_is_never_touched(store: Store, status: str) -> None:
    await keep(store, "run", 400, events=2, status=status)
    await keep(store, "made now", 0.01, status="in_progress")
    await keep(store, "left by a crash", 400, status="in_progress")
    before = dict.fromkeys(("responses", "events"), NOW)
    assert await Pruner(store).prune(before) == {"responses": 1, "events": 0}
    assert await names(store) == ["run", "made now"]
    assert len(await store.events(TENANT, "run")) == 2


async def test_events_may_go_before_their_response(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "EVENTS", 2)
    monkeypatch.setattr(retention, "SLICE", 2)
    for number in range(5):
        await keep(store, f"resp_{number}", 20 - number, events=5)
    await keep(store, "running", 20, events=1, status="in_progress")
    pruner = Pruner(store)
    assert await pruner.prune({"events": int(NOW - 16.5 * DAY)}) == {"events": 20}
    assert [len(await store.events(TENANT, f"resp_{number}")) for number in range(5)] == [0, 0, 0, 0, 5]
    assert len(await names(store)) == 6
    assert await pruner.prune({"events": int(NOW - 16.5 * DAY)}) == {"events": 0}
    assert await pruner.prune({"events": NOW}) == {"events": 5}  # time has passed
    await store.update(record("running", status="completed", background=True))
    assert await pruner.prune({"events": NOW}) == {"events": 1}  # it is over now


async def test_what_continues_a_deleted_response_goes_on_from_the_one_before(store: Store) -> None:
    await keep(store, "first", 10)
    await keep(store, "second", 40, previous_response_id="first")
    await keep(store, "third", 1, previous_response_id="second")
    await Pruner(store).prune({"responses": NOW - 30 * DAY})
    found = await history(store, TENANT, "third")
    assert found is not None
    assert [each.id for each in found] == ["msg_first", "msg_third"]


async def test_a_conversation_is_as_old_as_its_last_use(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "SLICE", 2)
    for number in range(5):
        await converse(store, f"unused_{number}", 50, monkeypatch)
    for name in ("said", "renamed", "answered"):
        await converse(store, name, 50, monkeypatch)
    monkeypatch.setattr(conversations, "_now", lambda: NOW)
    await store.conversations.add(TENANT, "said", [entry("new")])
    await store.conversations.update(TENANT, "renamed", {"name": "new"})
    await keep(store, "resp", 90, conversation_id="answered", status="in_progress")
    done = record("resp", conversation_id="answered", status="completed")
    await store.update(done, said=[entry("answer")])
    before = {"conversations": NOW - 30 * DAY}
    assert await Pruner(store).prune(before, dry_run=True) == {"conversations": 5}
    assert await Pruner(store).prune(before) == {"conversations": 5}
    assert await store.conversations.get(TENANT, "unused_1") is None
    assert await store.conversations.item(TENANT, "unused_1", "item_unused_1") is None
    for name in ("said", "renamed", "answered"):
        assert await store.conversations.get(TENANT, name) is not None
    assert await names(store) == ["resp"]  # it has an age of its own


@pytest.mark.parametrize("status", ["queued", "in_progress"])
async def test_a_conversation_that_a_background_response_is_going_on_in_stays(
    store: Store, monkeypatch: pytest.MonkeyPatch, status: str
) -> None:
    await converse(store, "busy", 50, monkeypatch)
    await converse(store, "idle", 50, monkeypatch)
    fields: dict[str, Any] = {"background": True, "created_at": NOW}
    await store.create(record("elsewhere", status=status, **fields))
    await store.create(record("over", status="completed", conversation_id="idle", **fields))
    await store.create(record("run", status=status, conversation_id="busy", **fields))
    before = {"conversations": NOW - 30 * DAY}
    assert not await store.retention.delete_unused(TENANT, "busy", before["conversations"])
    assert await Pruner(store).prune(before, dry_run=True) == {"conversations": 1}
    assert await Pruner(store).prune(before) == {"conversations": 1}
    assert await store.conversations.get(TENANT, "busy") is not None
    await store.update(record("run", status="failed", conversation_id="busy", **fields))
    assert await Pruner(store).prune(before) == {"conversations": 1}  # nothing was said, and it is over


async def test_a_conversation_that_a_response_goes_on_with_is_used_from_its_beginning(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    await converse(store, "old", 50, monkeypatch)
    monkeypatch.setattr(conversations, "_now", lambda: NOW)
    found = await store.conversations.history(TENANT, "old")
    assert found is not None
    assert [each.id for each in found] == ["item_old"]
    assert await Pruner(store).prune({"conversations": NOW}) == {"conversations": 0}
    assert await Pruner(store).prune({"conversations": NOW + 1}) == {"conversations": 1}


async def test_what_is_not_to_be_stored_goes_some_time_after_its_end(store: Store) -> None:
    long_ago = NOW - DAY
    await keep(store, "over", 1, events=3, unstored_at=long_ago)
    await keep(store, "of an agent", 1, parent_id="over", parent_call_id="call", child_index=0, unstored_at=long_ago)
    await keep(store, "over now", 1, events=1, status="in_progress", unstored_at=long_ago)
    await keep(store, "running", 1, events=1, status="in_progress", unstored_at=long_ago)
    await keep(store, "stored", 1, events=1)
    await store.update(record("over now", status="completed", background=True, unstored_at=long_ago))
    sweeper = UnstoredSweeper(store, KeepConfig())
    assert await sweeper.sweep() == 1
    assert await store.events(TENANT, "over") == []
    assert await store.get(TENANT, "of an agent") is None
    for name in ("over now", "running", "stored"):
        assert await store.get(TENANT, name) is not None
    assert await names(store) == ["stored"]
    assert await sweeper.sweep() == 0


async def test_counting_deletes_nothing(store: Store) -> None:
    for number in range(3):
        await keep(store, f"resp_{number}", 40, events=4)
    before = {"responses": NOW, "events": NOW, "conversations": NOW}
    counts = await Pruner(store).prune(before, dry_run=True)
    assert counts == {"responses": 3, "events": 12, "conversations": 0}
    assert len(await names(store)) == 3


async def test_a_sweep_deletes_what_the_settings_say_and_forgets_what_providers_deleted(store: Store) -> None:
    await keep(store, "old", 31)
    await keep(store, "new", 29)
    records = store.records("shelf")
    await records.create(TENANT, "book", "b1", {}, created_at=1)
    await records.delete(TENANT, "book", "b1")
    metrics = Metrics("test")
    settings = StorageConfig.model_validate({"keep": {"responses": "30d"}})
    assert settings.keep.responses == 30 * DAY
    assert await Sweeper(store, settings.keep, settings.sweep, metrics).sweep() == {"responses": 1}
    assert await names(store) == ["new"]
    assert b'antwort_pruned_total{kind="responses"} 1.0' in metrics.render(None)[0]
    assert b'antwort_pruned_total{kind="events"} 0.0' in metrics.render(None)[0]
    assert (await records.list(TENANT, "book", after="b1")).data == []  # its place is known for a day
    assert await store.retention.forget_deleted(NOW + 2 * DAY) == 1


async def test_nothing_is_deleted_unless_it_is_said(store: Store) -> None:
    await keep(store, "old", 4000, events=1)
    assert cutoffs(KeepConfig(), NOW) == {}
    assert await Sweeper(store, KeepConfig(), 1, Metrics("test")).sweep() == {}
    assert await names(store) == ["old"]


async def test_what_a_tenant_has_stored_is_counted_in_bytes(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    assert await store.retention.usage(TENANT) == 0
    await keep(store, "resp_1", 1, events=10)
    small = await store.retention.usage(TENANT)
    assert 300 < small < 2000
    await store.append(TENANT, "resp_1", 0, [entry("msg_2", "ä" * 10_000)], start=1)
    await converse(store, "conv_1", 1, monkeypatch)
    await store.conversations.add(TENANT, "conv_1", [entry("msg_3", "\\" * 1000)])
    await store.records("shelf").create(TENANT, "book", "b1", {"text": "x" * 5000})
    await keep(store, "theirs", 1, tenant="other")
    assert 27_000 + small < await store.retention.usage(TENANT) < 28_500 + small
    await store.delete(TENANT, "resp_1")
    await store.conversations.delete(TENANT, "conv_1")
    assert 5000 < await store.retention.usage(TENANT) < 5100


async def test_traces_of_clients_are_deleted_with_all_their_spans(store: Store) -> None:
    traces = store.client_traces
    for tenant in ("a", "b"):
        spans = [SentSpan(id=f"s{number}", trace_id="t1") for number in range(600)]
        await traces.put(tenant, [SentTrace(id="t1"), *spans])
    await traces.put("a", [SentTrace(id="t2")])
    pruner, later = Pruner(store), int(time.time()) + 10
    assert await pruner.prune({"traces": later - 1000}) == {"traces": 0}
    assert await pruner.prune({"traces": later}, dry_run=True) == {"traces": 3}
    assert await pruner.prune({"traces": later}) == {"traces": 3}
    assert [await traces.get(tenant, "t1") for tenant in ("a", "b")] == [None, None]
    assert await traces.spans("a", "t1", limit=1) == []
    assert await store.retention.usage("a") == 0


async def test_batches_that_are_over_are_deleted_with_what_they_have_kept_for_themselves(store: Store) -> None:
    batches, owner = Batches(store.records(OWN_RECORDS), Batch), BatchOwner("ada", ["*"])
    messages = batches.of(BatchOfMessages)
    old, going = [new_batch("/v1/responses", "file-1", "24h", DAY, None) for _ in range(2)]
    asked = new_batch_of_messages(DAY)
    asked.input_file_id, asked.output_file_id = "file-2", "file-3"
    for name, holder in (("file-1", ""), ("file-2", asked.id), ("file-3", asked.id)):
        file = FileRecord(id=name, tenant="a", filename="f", purpose="batch", bytes=1, sha256="", created_at=NOW)
        await store.files.begin(held(file, holder))
        await store.files.finish(held(file, holder))
    for batch in (old, asked):
        batch.enter("completed")
    for batch, key in ((old, "tonight"), (going, "tomorrow")):
        batch.created_at = NOW - 40 * DAY
        await batches.create("a", batch, owner, key)
    asked.created_at = NOW - 31 * DAY
    await messages.create("a", asked, owner)
    pruner = Pruner(store)
    assert await pruner.prune({"batches": NOW - 50 * DAY}) == {"batches": 0}
    assert await pruner.prune({"batches": NOW - 30 * DAY}, dry_run=True) == {"batches": 2}
    assert await pruner.prune({"batches": NOW - 30 * DAY}) == {"batches": 2}
    assert await pruner.prune({"batches": NOW + DAY}) == {"batches": 0}
    assert [await batches.find("a", old.id), await messages.find("a", asked.id)] == [None, None]
    assert await batches.get("a", going.id) == going
    assert [file.id for file in await store.files.left_over("", 10)] == ["file-2", "file-3"]
    again = new_batch("/v1/responses", "file-4", "24h", DAY, None)
    assert await batches.create("a", again, owner, "tonight") == again  # the key is free again


def held(file: FileRecord, holder: str) -> FileRecord:
    return msgspec.structs.replace(file, part_of=holder)


async def test_chat_completions_are_deleted_with_their_messages(store: Store) -> None:
    chats = ChatCompletions(store.records(OWN_RECORDS))
    for tenant in ("a", "b"):
        await chats.keep(tenant, NewChat(f"chatcmpl-{tenant}", ["m"], {}, Raw(b'{"id":1}'), Raw(b"[]")))
    pruner, later = Pruner(store), int(time.time()) + 10
    assert await pruner.prune({"chat_completions": later - 1000}) == {"chat_completions": 0}
    assert await pruner.prune({"chat_completions": later}, dry_run=True) == {"chat_completions": 2}
    assert await pruner.prune({"chat_completions": later}) == {"chat_completions": 2}
    assert (await chats.page("a", limit=1, after=None, order="asc", model=None, metadata={})).data == []
    assert await store.records(OWN_RECORDS).count("a", "chat_messages") == 0


async def test_what_a_crash_has_left_of_a_chat_completion_is_not_there_and_is_deleted(store: Store) -> None:
    records = store.records(OWN_RECORDS)
    chats = ChatCompletions(records)
    await chats.keep("a", NewChat("chatcmpl-a", ["m"], {}, Raw(b'{"id":1}'), Raw(b"[]")))
    await records.delete("a", "chat_answer", "chatcmpl-a")
    with pytest.raises(NotFoundError):
        await chats.get("a", "chatcmpl-a")
    with pytest.raises(NotFoundError):
        await chats.update("a", "chatcmpl-a", {})
    assert (await chats.page("a", limit=1, after=None, order="asc", model=None, metadata={})).data == []
    assert await Pruner(store).prune({"chat_completions": int(time.time()) + 10}) == {"chat_completions": 0}
    assert await records.count("a", "chat_completion") == 0


async def test_a_page_of_large_chat_completions_is_shorter(store: Store) -> None:
    chats = ChatCompletions(store.records(OWN_RECORDS))
    text = b"x" * 3_000_000
    for number in range(4):
        await chats.keep("a", NewChat(f"c{number}", ["m"], {}, Raw(b'{"id":"%s"}' % text), Raw(b"[]")))
    first = await chats.page("a", limit=100, after=None, order="asc", model=None, metadata={})
    assert (len(first.data), first.has_more) == (2, True)
    rest = await chats.page("a", limit=100, after="c1", order="asc", model="m", metadata={})
    assert (len(rest.data), rest.has_more) == (2, False)
