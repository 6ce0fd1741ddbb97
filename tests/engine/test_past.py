"""What is kept of past responses: a model reads the very same as if all was read and encoded anew."""

import os
import random
import threading
from collections.abc import AsyncIterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.backends.conftest import a_request
from tests.storage.samples import history

from antwort.backends.base import ModelRequest
from antwort.backends.chat.request import ChatDialect, chat_body
from antwort.backends.http.remote import encode_body, in_pieces
from antwort.backends.passages import Window, unmade
from antwort.backends.responses.backend import responses_body
from antwort.concurrency.large_work import LargeWork
from antwort.engine.planning.past import History, Past, past_window
from antwort.engine.planning.resent_calls import with_resent_calls
from antwort.engine.sealing import Sealer
from antwort.engine.window import Seals, model_items, read_window
from antwort.errors import BadRequestError
from antwort.storage.base import ConversationRecord, JournalEntry, ResponseRecord
from antwort.storage.call_record import CallRecord
from antwort.storage.sql.rows import entry_of
from antwort.storage.sqlite import SqliteStore
from antwort.types import JSON

SEEDS = range(12 if os.environ.get("ANTWORT_TEST_FULL") else 3)
TENANTS = ("acme", "umbrella")
SEALER = Sealer(lambda: ["a key of thirty-two characters, or more"])
DIALECTS = (ChatDialect(), ChatDialect(False, "developer", "max_completion_tokens", reasoning=False))


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    opened = SqliteStore.open(tmp_path / "past.db")
    yield opened
    await opened.close()


class Talk:
    """Makes responses up, with all that journals hold, and some that they should not."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self._count = 0

    def new(self) -> int:
        self._count += 1
        return self._count

    def message(self, role: str) -> JSON:
        kind = "output_text" if role == "assistant" else "input_text"
        text = self.random.choice(["Hi.", "ü€😀", '"\\n', ""]) + str(self.new())
        parts: list[JSON] = [{"type": kind, "text": text}] * self.random.choice([1, 1, 1, 2])
        if role == "user" and self.random.random() < 0.1:
            parts = [*parts, {"type": "input_image", "image_url": f"https://example.com/{self.new()}.png"}]
        return {"id": f"msg_{self.new()}", "type": "message", "role": role, "content": parts}

    def input(self, unanswered: Sequence[str]) -> list[JournalEntry]:
        items = [{"type": "function_call_output", "call_id": name, "output": "Done."} for name in unanswered]
        role = self.random.choice(["user"] * 6 + ["developer", "assistant"])
        if not unanswered or self.random.random() < 0.3:
            items.insert(self.random.choice([0, len(items)]), self.message(role))
        if self.random.random() < 0.03:
            items.pop()
        return [JournalEntry("input", {"id": f"in_{self.new()}", **item}) for item in items]

    def said(self, seals: Seals) -> list[JournalEntry]:
        entries: list[JournalEntry] = []
        for turn in range(self.random.choice([0, 0, 0, 1, 2])):
            entries += [self.call(turn) for _ in range(self.random.choice([1, 2]))]
        if self.random.random() < 0.2:
            entries.append(JournalEntry("output", self.thought(seals)))
        if self.random.random() < 0.04:
            sealed = seals.seal_items([self.message("user")])
            entries.append(JournalEntry("output", {"id": f"cmp_{self.new()}", "type": "compaction"}))
            entries[-1].item["encrypted_content"] = sealed
        kind = self.random.choice(["text"] * 6 + ["call", "custom", "cut", "hosted", "partial"])
        if kind == "text":
            entries.append(JournalEntry("output", self.message("assistant")))
        elif kind in {"call", "cut", "custom"}:
            name = self.random.choice([f"call_{self.new()}", "call_again"])
            item = {
                "id": f"fc_{self.new()}",
                "type": "function_call",
                "call_id": name,
                "name": "ask",
                "arguments": "{}",
            }
            if kind == "custom":
                item |= {"type": "custom_tool_call", "input": "x"}
            entries.append(JournalEntry("output", {**item, "status": "incomplete" if kind == "cut" else "completed"}))
        elif kind == "hosted":
            entries.append(JournalEntry("output", {"id": f"ws_{self.new()}", "type": "web_search_call"}))
        else:
            entries.append(JournalEntry("output", self.message("assistant"), mark="partial"))
        return entries

    def call(self, turn: int) -> JournalEntry:
        call = CallRecord(f"call_{self.new()}", "add", "{}", turn)
        if self.random.random() < 0.9:
            call.output = "3"
        item = {"id": f"fc_{self.new()}", "type": "function_call", "name": "add"}
        return JournalEntry("output", item, visible=False, call=call)

    def thought(self, seals: Seals) -> JSON:
        item: JSON = {"id": f"rs_{self.new()}", "type": "reasoning", "summary": []}
        seal = self.random.choice([None, seals.seal_thoughts, seals.seal_opaque])
        if seal is None:
            return {**item, "content": [{"type": "reasoning_text", "text": f"Hm {self.new()}."}]}
        return {**item, "encrypted_content": seal(f"Hm {self.new()}.")}


def unanswered(entries: Sequence[JournalEntry]) -> list[str]:
    """Return the calls at the end of a response that its client is to answer."""
    kinds = {"function_call", "custom_tool_call"}
    return [e.item["call_id"] for e in entries if e.is_plain and e.item["type"] in kinds and e.direction == "output"]


def bodies(request: ModelRequest, dialect: ChatDialect) -> list[bytes | str]:
    """Return what is sent to servers of either kind, or why nothing is."""
    made: list[bytes | str] = []
    chat, responses = partial(chat_body, request, dialect, "local", {}), partial(responses_body, request, {})
    for body in (chat, responses):
        for encode in (msgspec.json.encode, in_pieces):
            try:
                made.append(encode_body(body(), encode))
            except BadRequestError as error:
                made.append(error.message)
    return made


def read(window: Any, *parts: Any) -> list[JSON] | str:
    try:
        items: list[JSON] = window(*parts)
    except BadRequestError as error:
        return error.message
    return items


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("most_bytes", [100_000_000, 5_000])
async def test_what_a_model_reads_is_the_same_as_if_it_was_made_anew(
    store: SqliteStore, seed: int, most_bytes: int
) -> None:
    talk, past = Talk(seed), Past(store, LargeWork(), most_bytes)
    heads: dict[str, dict[str, list[JournalEntry]]] = {tenant: {} for tenant in TENANTS}
    passed = 0
    for _ in range(150):
        tenant = talk.random.choice(TENANTS)
        mine = heads[tenant]
        seals = Seals(SEALER, tenant, talk.random.choice(["small", "large"]))
        previous = talk.random.choice([*mine][-3:]) if mine and talk.random.random() < 0.9 else None
        entries = talk.input(unanswered(mine[previous]) if previous else [])
        if previous is not None:
            anew = await history(store, tenant, previous) or []
            kept = await past.history(tenant, previous)
            assert kept == anew
            expected = read(read_window, anew, entries, seals, False)
            window = read(past_window, kept, entries, seals)
            assert window == expected
            passed += isinstance(window, Window)
            if isinstance(window, str) or isinstance(expected, str):
                continue
            dialect, instructions = talk.random.choice(DIALECTS), talk.random.choice([None, "Be kind."])
            request, plain = (a_request(items=items, instructions=instructions) for items in (window, expected))
            assert bodies(request, dialect) == bodies(plain, dialect)
            if isinstance(window, Window):
                assert unmade(window) == window.rest
                more = [talk.message("assistant"), talk.message("user")]
                longer = a_request(items=window.extended(more), instructions=instructions)
                assert bodies(longer, dialect) == bodies(
                    a_request(items=[*expected, *more], instructions=instructions), dialect
                )
        response_id = f"resp_{tenant}_{talk.new()}"
        entries += talk.said(seals)
        await store.create(
            ResponseRecord(response_id, tenant, 0, "completed", "m", {}, {}, previous_response_id=previous), entries
        )
        mine[response_id] = entries
        if talk.random.random() < 0.05:
            gone = talk.random.choice([*mine])
            assert await store.delete(tenant, gone)
            del mine[gone]
    assert passed > 5


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("most_bytes", [100_000_000, 5_000])
async def test_what_a_model_reads_of_a_conversation_is_the_same_as_if_it_was_made_anew(
    store: SqliteStore, tmp_path: Path, seed: int, most_bytes: int
) -> None:
    """Of two workers, each of which adds to conversations, and deletes items of them, that the other one has kept."""
    second = SqliteStore.open(tmp_path / "past.db")
    talk = Talk(seed)
    workers = [(each, Past(each, LargeWork(), most_bytes)) for each in (store, second)]
    names = [(tenant, f"conv_{tenant}_{number}") for tenant in TENANTS for number in range(2)]
    for tenant, name in names:
        await store.conversations.create(ConversationRecord(name, tenant, 0))
    passed = 0
    for _ in range(150):
        (worker, past), place = talk.random.choice(workers), talk.random.randrange(len(names))
        tenant, name = names[place]
        seals = Seals(SEALER, tenant, "small")
        anew = await worker.conversations.history(tenant, name) or []
        kept = await past.conversation(tenant, name)
        assert kept is not None
        assert kept == anew
        assert kept.is_read == (with_resent_calls(anew, lambda _: ()) is anew)
        entries = talk.input(unanswered(anew[-1:]))
        expected = read(read_window, anew, entries, seals, True)
        window = read(partial(past_window, prune=True), kept, entries, seals)
        assert window == expected
        passed += isinstance(window, Window)
        if not isinstance(window, str) and not isinstance(expected, str):
            request, plain = (a_request(items=items) for items in (window, expected))
            assert bodies(request, DIALECTS[0]) == bodies(plain, DIALECTS[0])
        await worker.conversations.add(tenant, name, [*entries, *talk.said(seals)])
        if anew and talk.random.random() < 0.05:
            assert await worker.conversations.remove(tenant, name, talk.random.choice(anew).item["id"])
        if isinstance(expected, str):  # nobody goes on with this one
            names[place] = tenant, f"conv_{tenant}_{talk.new()}"
            await worker.conversations.create(ConversationRecord(names[place][1], tenant, 0))
    assert passed > 2
    await second.close()


async def test_items_of_a_conversation_that_are_kept_are_not_read_again(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    past, made = Past(store, LargeWork()), []

    def noted(row: Any) -> JournalEntry:
        made.append(row)
        return entry_of(row)

    monkeypatch.setattr("antwort.storage.sql.conversations.entry_of", noted)
    entries = [JournalEntry("input", {"id": f"msg_{n}", "type": "message", "role": "user"}) for n in range(300)]
    await store.conversations.create(ConversationRecord("conv_1", "acme", 0), entries)
    for read_anew in (300, 0, 0):
        assert len(await past.conversation("acme", "conv_1") or ()) == 300
        assert len(made) == read_anew
        made.clear()
    more = JournalEntry("input", {"id": "msg_more", "type": "message", "role": "user"})
    await store.conversations.add("acme", "conv_1", [more])
    made.clear()
    assert len(await past.conversation("acme", "conv_1") or ()) == 301
    assert len(made) == 1
    assert await past.conversation("umbrella", "conv_1") is None
    await store.conversations.delete("acme", "conv_1")
    assert await past.conversation("acme", "conv_1") is None
    assert (len(past._kept), past._size) == (0, 0)


async def test_a_conversation_with_a_call_that_nobody_answers_is_not_gone_through_again_and_again(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    items: list[JSON] = [{"id": f"msg_{n}", "type": "message", "role": "user"} for n in range(1000)]
    items.insert(0, {"id": "fc_1", "type": "function_call", "call_id": "call_1", "name": "ask", "arguments": "{}"})
    await store.conversations.create(
        ConversationRecord("conv_1", "acme", 0), [JournalEntry("input", item) for item in items]
    )
    looked_at: list[int] = []

    def noted(entries: Sequence[JournalEntry]) -> list[JSON]:
        looked_at.append(len(entries))
        return model_items(entries)

    monkeypatch.setattr("antwort.engine.planning.past.model_items", noted)
    assert len(await Past(store, LargeWork()).conversation("acme", "conv_1") or ()) == 1001
    assert sum(looked_at) < 3 * 1001


async def test_nobody_is_given_what_another_tenant_has_said(store: SqliteStore) -> None:
    past = Past(store, LargeWork())
    entries = [JournalEntry("input", {"id": "msg_1", "type": "message", "role": "user", "content": "Hi."})]
    await store.create(ResponseRecord("resp_1", "acme", 0, "completed", "m", {}, {}), entries)
    assert await past.history("acme", "resp_1") == entries
    with pytest.raises(BadRequestError, match="not found"):
        await past.history("umbrella", "resp_1")


async def test_what_is_deleted_is_not_read_any_more(store: SqliteStore) -> None:
    past = Past(store, LargeWork())
    previous = None
    for number in range(4):
        item = {"id": f"msg_{number}", "type": "message", "role": "user", "content": str(number)}
        record = ResponseRecord(f"resp_{number}", "acme", 0, "completed", "m", {}, {}, previous_response_id=previous)
        await store.create(record, [JournalEntry("input", item)])
        previous = record.id
        await past.history("acme", record.id)
    await store.delete("acme", "resp_1")
    assert [entry.id for entry in await past.history("acme", "resp_3")] == ["msg_0", "msg_2", "msg_3"]
    await store.delete("acme", "resp_3")
    with pytest.raises(BadRequestError, match="not found"):
        await past.history("acme", "resp_3")


async def test_no_more_is_kept_than_there_is_room_for(store: SqliteStore) -> None:
    past = Past(store, LargeWork(), most_bytes=1000)
    for number in range(20):
        item = {"id": f"msg_{number}", "type": "message", "role": "user", "content": "x" * 300}
        await store.create(
            ResponseRecord(f"resp_{number}", "acme", 0, "completed", "m", {}, {}), [JournalEntry("input", item)]
        )
        assert len(await past.history("acme", f"resp_{number}")) == 1
    assert len(past._kept) == 2
    assert past._size == sum(history.size for history in past._kept.values())


async def test_a_long_chain_is_not_gone_through_on_the_event_loop(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    previous = None
    for number in range(200):
        item = {"id": f"msg_{number}", "type": "message", "role": "user", "content": "Hi."}
        record = ResponseRecord(f"resp_{number}", "acme", 0, "completed", "m", {}, {}, previous_response_id=previous)
        await store.create(record, [JournalEntry("input", item)])
        previous = record.id
    past, take = Past(store, LargeWork()), History._take
    threads: list[int] = []

    def noted(self: History, *parts: Any) -> None:
        threads.append(threading.get_ident())
        take(self, *parts)

    monkeypatch.setattr(History, "_take", noted)
    await past.history("acme", "resp_198")
    assert len(threads) == 199
    assert threading.get_ident() not in threads
    threads.clear()
    await past.history("acme", "resp_199")
    assert threads == [threading.get_ident()]  # what is new is little
