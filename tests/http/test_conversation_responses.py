"""Responses that belong to a conversation: they read what was said before, and add to it."""

from pathlib import Path
from typing import Any

import pytest
from openai import BadRequestError, NotFoundError
from tests.http.sdk import CLIENT_TOOL, Served, create, done, served

from antwort.storage.base import JournalEntry
from antwort.storage.sql.rows import entry_of
from antwort.testing import call, fail, turn

BOTH_WAYS = pytest.mark.parametrize("stream", [False, True], ids=["json", "stream"])


def said(stage: Served, conversation_id: str) -> list[tuple[str, str]]:
    """Return the items of a conversation, oldest first: type and text."""
    items = stage.client().conversations.items.list(conversation_id, order="asc", limit=100)
    found: list[tuple[str, str]] = []
    for item in items:
        content: Any = getattr(item, "content", None) or []
        found.append((item.type, "".join(getattr(part, "text", "") for part in content)))
    return found


@BOTH_WAYS
@pytest.mark.parametrize("store", [True, False])
def test_a_conversation_is_read_and_added_to(tmp_path: Path, stream: bool, store: bool) -> None:
    with served(tmp_path, ["Blue.", "You said a bicycle."]) as stage:
        conversation = stage.client().conversations.create(
            items=[{"type": "message", "role": "user", "content": "I want a bicycle."}]
        )
        first = create(stage, stream, input="Which colour?", conversation=conversation.id, store=store)
        assert first.conversation is not None
        assert first.conversation.id == conversation.id
        create(stage, stream, input="What do I want?", conversation={"id": conversation.id}, store=store)
        assert said(stage, conversation.id) == [
            ("message", "I want a bicycle."),
            ("message", "Which colour?"),
            ("message", "Blue."),
            ("message", "What do I want?"),
            ("message", "You said a bicycle."),
        ]
    assert len(stage.requests[1].items) == 4


@BOTH_WAYS
def test_of_a_long_conversation_only_what_is_new_is_read_again(
    tmp_path: Path, stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[JournalEntry] = []

    def noted(row: Any) -> JournalEntry:
        made.append(entry_of(row))
        return made[-1]

    with served(tmp_path, ["One.", "Two.", "Three."]) as stage:
        client = stage.client()
        name = client.conversations.create().id
        for _ in range(5):
            client.conversations.items.create(
                name, items=[{"type": "message", "role": "user", "content": "Tea."} for _ in range(20)]
            )
        create(stage, stream, input="First?", conversation=name)
        monkeypatch.setattr("antwort.storage.sql.conversations.entry_of", noted)
        for question in ("Second?", "Third?"):
            create(stage, stream, input=question, conversation=name)
    assert [len(request.items) for request in stage.requests] == [101, 103, 105]
    assert len(made) <= 2 * 2 * 2, "of each of the two: a question and an answer, and those that it added itself"


@BOTH_WAYS
def test_calls_of_the_client_and_of_the_server_stay_in_the_conversation(tmp_path: Path, stream: bool) -> None:
    async def look_up(word: str) -> str:
        """Look a word up."""
        return f"{word}: a vehicle"

    steps = [
        turn(calls=[call("look_up", word="bike")]),
        turn("A vehicle.", calls=[call("get_weather", city="Bonn", call_id="c1")]),
        turn("It rains."),
        turn("Bye."),
    ]
    with served(tmp_path, steps, functions=[look_up]) as stage:
        name = stage.client().conversations.create().id
        create(stage, stream, input="Bike?", conversation=name, tools=[CLIENT_TOOL])
        answer: Any = {"type": "function_call_output", "call_id": "c1", "output": "wet"}
        create(stage, stream, input=[answer], conversation=name, tools=[CLIENT_TOOL])
        create(stage, stream, input="Bye", conversation=name)
        assert [kind for kind, _ in said(stage, name)] == [
            "message",
            "message",
            "function_call",
            "function_call_output",
            "message",
            "message",
            "message",
        ]
    # The model reads the call of the server too, although clients are not shown it.
    assert [item["type"] for item in stage.requests[3].items] == [
        "message",
        "function_call",
        "function_call_output",
        "message",
        "function_call",
        "function_call_output",
        "message",
        "message",
    ]


def test_a_background_response_adds_to_its_conversation(tmp_path: Path) -> None:
    with served(tmp_path, ["Hello."]) as stage:
        name = stage.client().conversations.create().id
        response = create(stage, False, input="Hi", conversation=name, background=True)
        done(stage, response.id)
        assert said(stage, name) == [("message", "Hi"), ("message", "Hello.")]


def test_a_failed_response_adds_nothing(tmp_path: Path) -> None:
    with served(tmp_path, [turn("Hel", error=fail(500, "Broken.", after=1)), turn("Hello.")]) as stage:
        name = stage.client().conversations.create().id
        stage.stream(input="Hi", conversation=name)
        assert said(stage, name) == []
        create(stage, False, input="Hi again", conversation=name)
        assert said(stage, name) == [("message", "Hi again"), ("message", "Hello.")]


def test_a_cut_answer_is_part_of_the_conversation(tmp_path: Path) -> None:
    with served(tmp_path, [turn("Hel", finish="length")]) as stage:
        name = stage.client().conversations.create().id
        assert create(stage, False, input="Hi", conversation=name).status == "incomplete"
        assert said(stage, name) == [("message", "Hi"), ("message", "Hel")]


def test_an_unanswered_call_in_a_conversation_is_a_bad_request(tmp_path: Path) -> None:
    with served(tmp_path, [turn(calls=[call("get_weather", city="Bonn", call_id="c1")])]) as stage:
        name = stage.client().conversations.create().id
        create(stage, False, input="Weather?", conversation=name, tools=[CLIENT_TOOL])
        with pytest.raises(BadRequestError, match="No tool output found for function call c1"):
            create(stage, False, input="Well?", conversation=name, tools=[CLIENT_TOOL])


def test_deleted_items_are_not_read_any_more(tmp_path: Path) -> None:
    with served(tmp_path, ["Blue.", "What?"]) as stage:
        items = stage.client().conversations.items
        name = stage.client().conversations.create().id
        first = create(stage, False, input="Colour?", conversation=name)
        items.delete(first.output[0].id or "", conversation_id=name)
        create(stage, False, input="Again?", conversation=name)
    assert [item["content"][0]["text"] for item in stage.requests[1].items] == ["Colour?", "Again?"]


def test_an_output_whose_call_was_deleted_is_left_out(tmp_path: Path) -> None:
    with served(tmp_path, ["Fine."]) as stage:
        client = stage.client()
        calls: Any = [
            {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": "x"},
        ]
        name = client.conversations.create(items=calls).id
        newest = client.conversations.items.list(name, order="asc").data[0]
        client.conversations.items.delete(newest.id or "", conversation_id=name)
        create(stage, False, input="Hi", conversation=name)
    assert [item["type"] for item in stage.requests[0].items] == ["message"]


def test_the_responses_of_a_deleted_conversation_stay(tmp_path: Path) -> None:
    with served(tmp_path, ["Hello."]) as stage:
        client = stage.client()
        name = client.conversations.create().id
        response = create(stage, False, input="Hi", conversation=name)
        client.conversations.delete(name)
        with pytest.raises(NotFoundError):
            client.conversations.retrieve(name)
        assert client.responses.retrieve(response.id).output_text == "Hello."


def test_another_tenants_conversation_is_not_found(tmp_path: Path) -> None:
    keys = [{"id": name, "key": f"key-{name}", "tenant": name} for name in ("ann", "bob")]
    with served(tmp_path, ["Hello."], auth={"api_keys": keys}) as stage:
        name = stage.client("key-ann").conversations.create().id
        with pytest.raises(NotFoundError) as theirs:
            stage.client("key-bob").responses.create(model="scripted", input="Hi", conversation=name)
        with pytest.raises(NotFoundError) as unknown:
            stage.client("key-bob").responses.create(model="scripted", input="Hi", conversation="conv_none")
        assert theirs.value.message.replace(name, "") == unknown.value.message.replace("conv_none", "")
        stage.client("key-ann").responses.create(model="scripted", input="Hi", conversation=name)


@BOTH_WAYS
def test_items_of_conversations_can_be_referred_to(tmp_path: Path, stream: bool) -> None:
    with served(tmp_path, ["Blue."]) as stage:
        client = stage.client()
        name = client.conversations.create(
            items=[{"type": "message", "role": "user", "content": "I want a bicycle."}]
        ).id
        (item,) = client.conversations.items.list(name).data
        reference: Any = {"type": "item_reference", "id": item.id}
        create(stage, stream, input=[reference])
    assert stage.requests[0].items[0]["content"][0]["text"] == "I want a bicycle."
