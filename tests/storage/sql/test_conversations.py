"""Conversations, on every store."""

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace
from tests.storage.samples import TENANT, entry, record

from antwort.errors import BadRequestError, ConflictError, NotFoundError
from antwort.storage import ConversationRecord, FencedError, JournalEntry, Store
from antwort.storage.call_record import CallRecord

OTHER = "other"
CONVERSATION = ConversationRecord("conv_1", TENANT, 1_700_000_000, {"topic": "tea", "odd": "ü\u0000 \"'%?"})


async def begin(store: Store, *item_ids: str, **changes: Any) -> ConversationRecord:
    """Store a conversation with items."""
    made = replace(CONVERSATION, **changes)
    await store.conversations.create(made, [entry(item_id) for item_id in item_ids])
    return made


async def told(store: Store, conversation_id: str = "conv_1", tenant: str = TENANT) -> list[str]:
    history = await store.conversations.history(tenant, conversation_id)
    assert history is not None
    return [found.id for found in history]


async def listed(store: Store, **options: Any) -> tuple[list[str], bool]:
    page = await store.conversations.items(TENANT, "conv_1", **{"limit": 100, **options})
    assert page is not None
    return [found.id for found in page.data], page.has_more


async def test_a_conversation_comes_back_as_it_was_stored(store: Store) -> None:
    entries = [
        entry("msg_1", 'naïve 日本語 😀 \u0000 \\ "', direction="input"),
        entry("call_1", visible=False, call=CallRecord("call_1", "add", "{}")),
    ]
    await store.conversations.create(CONVERSATION, entries)
    assert await store.conversations.get(TENANT, "conv_1") == CONVERSATION
    assert await store.conversations.history(TENANT, "conv_1") == entries


async def test_a_conversation_may_have_no_items_and_an_unknown_one_has_no_history(store: Store) -> None:
    await begin(store)
    assert await store.conversations.history(TENANT, "conv_1") == []
    assert await store.conversations.history(TENANT, "conv_2") is None
    assert await store.conversations.get(TENANT, "conv_2") is None


async def test_an_id_that_is_taken_is_a_conflict(store: Store) -> None:
    await begin(store, "msg_1")
    with pytest.raises(ConflictError):
        await begin(store, "msg_2", tenant=OTHER)
    assert await told(store) == ["msg_1"]


async def test_metadata_are_replaced(store: Store) -> None:
    made = await begin(store)
    changed = await store.conversations.update(TENANT, "conv_1", {"topic": "coffee"})
    assert changed == replace(made, metadata={"topic": "coffee"})
    assert await store.conversations.get(TENANT, "conv_1") == changed
    assert await store.conversations.update(TENANT, "conv_2", {}) is None


async def test_items_are_appended_in_order(store: Store) -> None:
    await begin(store, "msg_1")
    added = [entry("msg_3"), entry("msg_2")]
    assert await store.conversations.add(TENANT, "conv_1", added) == added
    assert await store.conversations.add(TENANT, "conv_1", []) == []
    assert await told(store) == ["msg_1", "msg_3", "msg_2"]
    assert await store.conversations.add(TENANT, "conv_2", added) is None


async def test_an_item_whose_id_is_taken_gets_a_new_one_of_the_same_kind(store: Store) -> None:
    await begin(store, *(f"msg_{n}" for n in range(50)))
    again = [entry("new_1"), *(entry(f"msg_{n}", f"again {n}") for n in (0, 25, 49)), entry("new_1", "twice")]
    again += [entry(f"more_{n}") for n in range(30)]
    added = await store.conversations.add(TENANT, "conv_1", again)
    assert added is not None
    assert [found.item["content"] for found in added] == [given.item["content"] for given in again]
    assert added[0].id == "new_1"
    assert [found.id.partition("_")[0] for found in added[1:5]] == ["msg", "msg", "msg", "new"]
    ids = await told(store)
    assert ids[50:] == [found.id for found in added]
    assert len(set(ids)) == len(ids) == 85
    history = await store.conversations.history(TENANT, "conv_1")
    assert history is not None
    assert history[50:] == added


async def test_items_given_twice_at_birth_are_told_apart(store: Store) -> None:
    await begin(store, "msg_1", "msg_1", "msg_1")
    assert len(set(await told(store))) == 3


async def test_two_conversations_may_have_an_item_of_the_same_id(store: Store) -> None:
    await begin(store, "msg_1")
    await begin(store, "msg_1", id="conv_2")
    assert await told(store) == await told(store, "conv_2") == ["msg_1"]


async def test_those_who_add_at_once_each_find_their_items_together(store: Store) -> None:
    await begin(store)
    await asyncio.gather(
        *(store.conversations.add(TENANT, "conv_1", [entry(f"msg_{n}_{k}") for k in range(3)]) for n in range(20))
    )
    ids = await told(store)
    assert len(ids) == 60
    for start in range(0, 60, 3):
        owner = ids[start].rpartition("_")[0]
        assert ids[start : start + 3] == [f"{owner}_{k}" for k in range(3)]


async def test_with_a_conversation_go_its_items(store: Store) -> None:
    await begin(store, "msg_1")
    assert await store.conversations.delete(TENANT, "conv_1") is True
    assert await store.conversations.delete(TENANT, "conv_1") is False
    assert await store.conversations.history(TENANT, "conv_1") is None
    assert await store.conversations.item(TENANT, "conv_1", "msg_1") is None
    assert await store.find_item(TENANT, "msg_1") is None
    await begin(store)
    assert await told(store) == []


async def test_one_item_is_read_and_deleted(store: Store) -> None:
    await begin(store, "msg_1", "msg_2")
    assert await store.conversations.item(TENANT, "conv_1", "msg_1") == entry("msg_1")
    assert await store.conversations.remove(TENANT, "conv_1", "msg_1") is True
    assert await store.conversations.remove(TENANT, "conv_1", "msg_1") is False
    assert await store.conversations.item(TENANT, "conv_1", "msg_1") is None
    assert await told(store) == ["msg_2"]


# --- pages -----------------------------------------------------------------------------------------------------------


async def test_pages_go_through_the_visible_items_either_way(store: Store) -> None:
    await store.conversations.create(CONVERSATION, [entry(f"msg_{n}", visible=n % 3 != 0) for n in range(10)])
    visible = [f"msg_{n}" for n in range(10) if n % 3]
    assert await listed(store) == (visible[::-1], False)
    assert await listed(store, order="asc") == (visible, False)
    assert await listed(store, order="asc", limit=6) == (visible, False)
    assert await listed(store, order="asc", limit=5) == (visible[:5], True)
    assert await listed(store, order="asc", after="msg_4", limit=2) == (["msg_5", "msg_7"], True)
    assert await listed(store, order="desc", after="msg_4", limit=2) == (["msg_2", "msg_1"], False)
    assert await listed(store, order="asc", after="msg_6") == (["msg_7", "msg_8"], False)


async def test_an_unknown_item_to_list_from_is_not_found_and_an_unknown_conversation_has_no_page(store: Store) -> None:
    await begin(store, "msg_1")
    await begin(store, "msg_2", id="conv_2")
    with pytest.raises(NotFoundError, match="msg_2") as caught:
        await listed(store, after="msg_2")
    assert caught.value.param == "after"
    assert await store.conversations.items(TENANT, "conv_3", limit=1, after="msg_1") is None
    assert await listed(store) == (["msg_1"], False)


# --- responses -------------------------------------------------------------------------------------------------------


async def test_what_is_said_in_a_response_is_stored_with_its_end(store: Store) -> None:
    await begin(store, "msg_0")
    made = record(conversation_id="conv_1")
    await store.create(made, [entry("msg_1")])
    assert await store.get(TENANT, "resp_1") == made
    assert await told(store) == ["msg_0"]
    await store.update(replace(made, status="completed"), said=[entry("msg_1"), entry("msg_0", "again")])
    ids = await told(store)
    assert ids[:2] == ["msg_0", "msg_1"]
    assert len(set(ids)) == 3


async def test_a_response_that_is_over_at_once_says_it_all_in_one_write(store: Store) -> None:
    await begin(store)
    await store.create(record(conversation_id="conv_1"), [entry("msg_1")], said=[entry("msg_1")])
    assert await told(store) == ["msg_1"]


async def test_when_the_conversation_is_gone_the_response_is_stored_all_the_same(store: Store) -> None:
    await begin(store, tenant=OTHER)
    made = record(conversation_id="conv_1")
    await store.create(made, said=[entry("msg_1")])
    await store.update(made, said=[entry("msg_1")])
    assert await store.get(TENANT, "resp_1") == made
    assert await told(store, tenant=OTHER) == []


async def test_an_end_that_is_stored_again_is_said_once(store: Store) -> None:
    await begin(store)
    made = record(conversation_id="conv_1")
    await store.create(made)
    for _ in range(2):
        await store.update(replace(made, status="completed"), entries=[entry("msg_1")], said=[entry("msg_1")])
    assert await told(store) == ["msg_1"]


async def test_a_response_without_a_conversation_says_nothing(store: Store) -> None:
    await store.create(record(), said=[entry("msg_1")])
    assert await store.find_item(TENANT, "msg_1") is None


async def test_whoever_is_fenced_or_refused_says_nothing(store: Store) -> None:
    await begin(store)
    made = record(conversation_id="conv_1")
    await store.create(made)
    await store.claim(TENANT, "resp_1")
    with pytest.raises(FencedError):
        await store.update(made, said=[entry("msg_1")])
    with pytest.raises(ConflictError):
        await store.create(made, said=[entry("msg_1")])
    assert await told(store) == []


async def test_a_conversation_outlives_its_responses(store: Store) -> None:
    await begin(store)
    await store.create(record(conversation_id="conv_1"), [entry("msg_1")], said=[entry("msg_1")])
    await store.delete(TENANT, "resp_1")
    assert await told(store) == ["msg_1"]
    assert await store.find_item(TENANT, "msg_1") == entry("msg_1")


def at(text: str, direction: str) -> JournalEntry:
    return entry("msg_1", text, direction=direction)


async def test_an_item_of_a_conversation_is_found_if_no_response_has_a_better_one(store: Store) -> None:
    await store.conversations.create(CONVERSATION, [at("said", "output")])
    assert await store.find_item(TENANT, "msg_1") == at("said", "output")
    await store.create(record("resp_1"), [at("sent", "input")])
    assert await store.find_item(TENANT, "msg_1") == at("said", "output")
    await store.create(record("resp_2"), [at("written", "output")])
    assert await store.find_item(TENANT, "msg_1") == at("written", "output")


async def test_of_what_clients_sent_that_of_a_response_is_found(store: Store) -> None:
    await store.conversations.create(CONVERSATION, [at("in the conversation", "input")])
    await store.create(record(), [at("in the response", "input")])
    assert await store.find_item(TENANT, "msg_1") == at("in the response", "input")


# --- tenants ---------------------------------------------------------------------------------------------------------


async def outcomes(store: Store, tenant: str, conversation_id: str) -> list[Any]:
    """Try everything one can do with the id of a conversation, and return what came of it."""
    conversations = store.conversations
    return [
        await conversations.get(tenant, conversation_id),
        await conversations.update(tenant, conversation_id, {}),
        await conversations.add(tenant, conversation_id, [entry("msg_evil")]),
        await conversations.history(tenant, conversation_id),
        await conversations.items(tenant, conversation_id, limit=10),
        await conversations.items(tenant, conversation_id, limit=10, after="msg_1"),
        await conversations.item(tenant, conversation_id, "msg_1"),
        await conversations.remove(tenant, conversation_id, "msg_1"),
        await conversations.delete(tenant, conversation_id),
        await store.find_item(tenant, "msg_1"),
    ]


async def test_the_conversation_of_another_tenant_is_like_an_unknown_one(store: Store) -> None:
    made = await begin(store, "msg_1")
    assert await outcomes(store, OTHER, "conv_1") == await outcomes(store, OTHER, "conv_9")
    assert await store.conversations.get(TENANT, "conv_1") == made
    assert await told(store) == ["msg_1"]


async def test_an_item_can_be_refused_whose_id_is_taken(store: Store) -> None:
    await begin(store, "msg_1")
    with pytest.raises(BadRequestError, match="Item already in conversation: 'msg_1'"):
        await store.conversations.add(TENANT, "conv_1", [entry("msg_2"), entry("msg_1")], renaming=False)
    assert await told(store) == ["msg_1"]


async def listed_conversations(store: Store, **options: Any) -> tuple[list[str], bool]:
    page = await store.conversations.list_conversations(TENANT, **{"limit": 100, **options})
    return [found.id for found in page.data], page.has_more


async def test_conversations_are_listed_by_when_they_were_made(store: Store) -> None:
    for name, second in (("conv_c", 1), ("conv_a", 2), ("conv_b", 2), ("conv_d", 3)):
        await begin(store, id=name, created_at=second)
    await begin(store, id="conv_other", tenant=OTHER)
    assert await listed_conversations(store) == (["conv_d", "conv_b", "conv_a", "conv_c"], False)
    assert await listed_conversations(store, order="asc", limit=2) == (["conv_c", "conv_a"], True)
    assert await listed_conversations(store, order="asc", after="conv_a", limit=1) == (["conv_b"], True)
    assert await listed_conversations(store, after="conv_d", before="conv_c") == (["conv_b", "conv_a"], False)
    assert await listed_conversations(store, before="conv_c", limit=2) == (["conv_b", "conv_a"], True)


async def test_lists_of_conversations_go_on_from_none_that_is_anothers_or_gone(store: Store) -> None:
    await begin(store, id="conv_other", tenant=OTHER)
    assert await listed_conversations(store) == ([], False)
    for cursor in ("after", "before"):
        with pytest.raises(NotFoundError, match="conversation 'conv_other'") as caught:
            await listed_conversations(store, **{cursor: "conv_other"})
        assert caught.value.param == cursor
