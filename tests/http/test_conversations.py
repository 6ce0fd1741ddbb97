"""Conversations: their items, the responses in them, and who may see them."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from openai import BadRequestError, BaseModel, NotFoundError, OpenAI
from openai.types.conversations import Conversation
from tests.http.sdk import served

from antwort.storage.base import JournalEntry
from antwort.types import JSON

KEYS = {"api_keys": [{"id": name, "key": f"secret-{name}", "tenant": name} for name in ("a", "b")]}


class Listed(BaseModel):
    """A page of conversations; the SDK has no type for it."""

    data: list[Conversation]
    first_id: str | None
    last_id: str | None
    has_more: bool


def message(text: str, **fields: Any) -> Any:
    return {"type": "message", "role": "user", "content": text, **fields}


def texts(items: Any) -> list[str]:
    return [item.content[0].text for item in items]


def test_a_conversation_is_created_changed_and_deleted(tmp_path: Path) -> None:
    with served(tmp_path, []) as stage:
        conversations = stage.client().conversations
        made = conversations.create(metadata={"topic": "weather"})
        assert made.id.startswith("conv_")
        assert (made.object, made.metadata) == ("conversation", {"topic": "weather"})
        assert conversations.retrieve(made.id) == made
        changed = conversations.update(made.id, metadata={"topic": "music"})
        assert (changed.id, changed.created_at, changed.metadata) == (made.id, made.created_at, {"topic": "music"})
        assert conversations.update(made.id, metadata=None).metadata == {}
        gone = conversations.delete(made.id)
        assert (gone.id, gone.object, gone.deleted) == (made.id, "conversation.deleted", True)
        with pytest.raises(NotFoundError):
            conversations.retrieve(made.id)


def test_a_conversation_without_anything_is_empty(tmp_path: Path) -> None:
    with served(tmp_path, []) as stage:
        conversations = stage.client().conversations
        made = conversations.create()
        assert made.metadata == {}
        assert list(conversations.items.list(made.id)) == []
        body = stage.request("GET", f"/conversations/{made.id}").json()
        assert set(body) == {"id", "object", "created_at", "metadata"}


def test_items_are_added_listed_fetched_and_removed(tmp_path: Path) -> None:
    with served(tmp_path, []) as stage:
        conversations = stage.client().conversations
        made = conversations.create(items=[message("a"), message("b", id="msg_mine")])
        added = conversations.items.create(
            made.id,
            items=[
                {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "call_1", "output": "1"},
                {"role": "assistant", "content": "c"},
            ],
        )
        assert [item.type for item in added.data] == ["function_call", "function_call_output", "message"]
        assert (added.first_id, added.last_id, added.has_more) == (added.data[0].id, added.data[-1].id, False)
        listed = list(conversations.items.list(made.id, order="asc"))
        assert [item.type for item in listed] == ["message", "message", *(item.type for item in added.data)]
        assert texts([listed[0], listed[1], listed[4]]) == ["a", "b", "c"]
        assert listed[1].id == "msg_mine"
        assert list(conversations.items.list(made.id)) == listed[::-1]
        assert conversations.items.retrieve("msg_mine", conversation_id=made.id) == listed[1]
        assert conversations.items.delete("msg_mine", conversation_id=made.id) == made
        assert [item.id for item in conversations.items.list(made.id, order="asc")] == [
            item.id for item in listed if item.id != "msg_mine"
        ]
        with pytest.raises(NotFoundError):
            conversations.items.retrieve("msg_mine", conversation_id=made.id)


def test_pages_follow_each_other(tmp_path: Path) -> None:
    with served(tmp_path, []) as stage:
        conversations = stage.client().conversations
        made = conversations.create(items=[message(str(n)) for n in range(7)])
        assert texts(conversations.items.list(made.id, limit=3, order="asc")) == [str(n) for n in range(7)]
        page = conversations.items.list(made.id, limit=3)
        assert texts(page.data) == ["6", "5", "4"]
        assert page.has_more
        rest = conversations.items.list(made.id, after=page.data[-1].id or "", limit=100)
        assert texts(rest.data) == ["3", "2", "1", "0"]
        assert not rest.has_more


def test_an_item_is_in_a_conversation_once(tmp_path: Path) -> None:
    with served(tmp_path, []) as stage:
        conversations = stage.client().conversations
        made = conversations.create(items=[message("a", id="msg_1")])
        named: Any = {"type": "item_reference", "id": "msg_1"}
        for again in (message("b", id="msg_1"), named):
            with pytest.raises(BadRequestError) as error:
                conversations.items.create(made.id, items=[message("c"), again])
            assert (error.value.param, error.value.code) == ("items", "item_already_in_conversation")
        with pytest.raises(BadRequestError, match="Item already in conversation"):
            conversations.create(items=[message("a", id="msg_2"), message("b", id="msg_2")])
        assert texts(conversations.items.list(made.id)) == ["a"]


def test_the_id_of_an_item_elsewhere_means_that_item(tmp_path: Path) -> None:
    with served(tmp_path, []) as stage:
        conversations = stage.client().conversations
        conversations.create(items=[message("a", id="msg_1")])
        other = conversations.create(items=[message("b", id="msg_1")])
        third = conversations.create()
        added = conversations.items.create(third.id, items=[message("c", id="msg_1")])
        assert texts(conversations.items.list(other.id)) == ["a"]
        assert (texts(added.data), added.first_id) == (["a"], "msg_1")


def test_ids_are_those_of_what_they_name(tmp_path: Path) -> None:
    call: Any = {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": "{}", "id": "msg_1"}
    with served(tmp_path, []) as stage:
        conversations = stage.client().conversations
        made = conversations.create()
        for item in (message("a", id="item_1"), call):
            with pytest.raises(BadRequestError) as error:
                conversations.items.create(made.id, items=[item])
            assert (error.value.param, error.value.code) == ("items[0].id", "invalid_value")
        for ask in (conversations.retrieve, conversations.delete, conversations.items.list):
            with pytest.raises(BadRequestError) as error:
                ask("resp_1")
            assert (error.value.param, error.value.code) == ("conversation_id", "invalid_value")


def test_an_item_can_be_named_instead_of_repeated(tmp_path: Path) -> None:
    with served(tmp_path, ["Hello"]) as stage:
        client = stage.client()
        response = client.responses.create(model="scripted", input="Hi")
        reference: Any = {"type": "item_reference", "id": response.output[0].id}
        made = client.conversations.create(items=[reference])
        assert texts(client.conversations.items.list(made.id)) == ["Hello"]


def test_responses_continue_a_conversation_and_add_to_it(tmp_path: Path) -> None:
    with served(tmp_path, ["One", "Two"]) as stage:
        client = stage.client()
        made = client.conversations.create(items=[message("Before")])
        for text in ("a", "b"):
            response = client.responses.create(model="scripted", input=text, conversation=made.id)
            assert response.conversation is not None
            assert response.conversation.id == made.id
        found = client.conversations.items.list(made.id, order="asc")
        assert texts(found) == ["Before", "a", "One", "b", "Two"]
        assert [item["content"][0]["text"] for item in stage.requests[1].items] == ["Before", "a", "One", "b"]


def test_what_is_not_for_clients_is_not_shown(tmp_path: Path) -> None:
    from_server = JournalEntry("output", {"id": "fc_hidden", "type": "antwort:function_call"}, visible=False)
    with served(tmp_path, []) as stage:
        client = stage.client()
        made = client.conversations.create(items=[message("a")])
        store = stage.server.app.engine.store.conversations
        adding = store.add("default", made.id, [from_server])
        asyncio.run_coroutine_threadsafe(adding, stage.server.loop).result(20)
        assert texts(client.conversations.items.list(made.id)) == ["a"]
        for call in (client.conversations.items.retrieve, client.conversations.items.delete):
            with pytest.raises(NotFoundError):
                call("fc_hidden", conversation_id=made.id)


def test_conversations_are_listed_for_their_tenant(tmp_path: Path) -> None:
    with served(tmp_path, [], auth=KEYS) as stage:
        owner, other = stage.client("secret-a"), stage.client("secret-b")
        made = [owner.conversations.create(metadata={"number": str(number)}) for number in range(3)]
        found = owner.get("/conversations", cast_to=Listed, options={"params": {"limit": 2}})
        assert found.data == [made[2], made[1]]
        assert (found.first_id, found.last_id, found.has_more) == (made[2].id, made[1].id, True)
        rest = owner.get("/conversations", cast_to=Listed, options={"params": {"after": found.last_id}})
        assert (rest.data, rest.has_more) == ([made[0]], False)
        assert other.get("/conversations", cast_to=Listed).data == []
        with pytest.raises(BadRequestError, match="There is no conversation") as error:
            other.get("/conversations", cast_to=Listed, options={"params": {"before": made[0].id}})
        assert error.value.param == "before"


@pytest.mark.parametrize("key", ["secret-a", "secret-b"])
def test_what_is_not_there_is_not_told_from_what_is_anothers(tmp_path: Path, key: str) -> None:
    with served(tmp_path, [], auth=KEYS) as stage:
        owner = stage.client("secret-a")
        made = owner.conversations.create(items=[message("a", id="msg_1")])
        other = stage.client(key)
        conversation = made.id if key == "secret-b" else "conv_unknown"
        for ask in (
            lambda: other.conversations.retrieve(conversation),
            lambda: other.conversations.update(conversation, metadata={}),
            lambda: other.conversations.delete(conversation),
            lambda: other.conversations.items.list(conversation),
            lambda: other.conversations.items.create(conversation, items=[message("b")]),
            lambda: other.conversations.items.retrieve("msg_1", conversation_id=conversation),
            lambda: other.conversations.items.delete("msg_1", conversation_id=conversation),
            lambda: other.responses.create(model="scripted", input="Hi", conversation=conversation),
        ):
            with pytest.raises(NotFoundError) as error:
                ask()
            assert error.value.type == "invalid_request_error"
            assert conversation in error.value.message
        assert owner.conversations.retrieve(made.id) == made
        assert texts(owner.conversations.items.list(made.id)) == ["a"]


WRONG: list[tuple[JSON, str | None]] = [
    ({"items": [message("a")] * 21}, "items"),
    ({"items": "a"}, "items"),
    ({"items": [{"type": "message", "role": "nobody", "content": "a"}]}, "items[0].role"),
    ({"items": [message("a"), {"type": "function_call"}]}, "items[1].call_id"),
    ({"metadata": {str(n): "" for n in range(17)}}, "metadata"),
    ({"metadata": {"k" * 65: "v"}}, None),
    ({"metadata": {"k": "v" * 513}}, "metadata.k"),
    ({"metadata": {"k": 1}}, "metadata.k"),
    ({"title": "a"}, "title"),
]


def test_a_conversation_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    with served(tmp_path, []) as stage:
        for body, param in WRONG:
            answer = stage.request("POST", "/conversations", json=body)
            assert answer.status_code == 400, answer.text
            error = answer.json()["error"]
            assert param is None or error["param"] == param
            assert "input" not in error["message"]


def test_the_largest_conversation_that_fits_is_taken(tmp_path: Path) -> None:
    metadata = {f"{n:064d}": "v" * 512 for n in range(16)}
    with served(tmp_path, []) as stage:
        conversations = stage.client().conversations
        made = conversations.create(items=[message(str(n)) for n in range(20)], metadata=metadata)
        assert made.metadata == metadata
        assert len(list(conversations.items.list(made.id))) == 20
        with pytest.raises(BadRequestError):
            conversations.items.create(made.id, items=[message("a")] * 21)
        with pytest.raises(BadRequestError):
            conversations.items.create(made.id, items=[])


PAGES: list[tuple[JSON, str]] = [
    ({"limit": 0}, "limit"),
    ({"limit": 101}, "limit"),
    ({"limit": "many"}, "limit"),
    ({"order": "up"}, "order"),
]


def test_a_page_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    with served(tmp_path, ["One"]) as stage:
        client: OpenAI = stage.client()
        made = client.conversations.create(items=[message("a")])
        response = client.responses.create(model="scripted", input="Hi")
        items, read = f"/conversations/{made.id}/items", f"/responses/{response.id}/input_items"
        for path in (items, read, "/responses", "/conversations"):
            for query, param in PAGES:
                answer = stage.request("GET", path, params=query)
                assert (answer.status_code, answer.json()["error"]["param"]) == (400, param), (path, query)
        for path in (read, "/responses", "/conversations"):
            answer = stage.request("GET", path, params={"after": "msg_unknown"})
            assert (answer.status_code, answer.json()["error"]["param"]) == (400, "after")


def test_metadata_must_be_given_to_be_changed(tmp_path: Path) -> None:
    with served(tmp_path, []) as stage:
        made = stage.client().conversations.create()
        answer = stage.request("POST", f"/conversations/{made.id}", json={})
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "metadata")
