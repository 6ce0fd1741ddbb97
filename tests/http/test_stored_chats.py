"""Chat completions that are kept on their way through: with OpenAI's SDK, on each database."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import APIStatusError, BadRequestError, NotFoundError, RateLimitError
from openai.types.chat import ChatCompletion
from tests.http.sdk import CLIENT_TOOL, Served, served

from antwort.testing import Gate, call, fail, turn
from antwort.types import JSON

ASKED: Any = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi!"}]
CHAT_TOOL: Any = {
    "type": "function",
    "function": {name: value for name, value in CLIENT_TOOL.items() if name != "type"},
}


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Served]:
    with served(tmp_path, ["Hello!"], over_http=True) as found:
        yield found


def streamed(stage: Served, **fields: Any) -> tuple[str, list[Any]]:
    """Ask for a stream; return the id that all chunks have, and the chunks."""
    chunks = list(stage.client().chat.completions.create(model="scripted", stream=True, store=True, **fields))
    (name,) = {chunk.id for chunk in chunks}
    return name, chunks


def create(stage: Served, **fields: Any) -> ChatCompletion:
    found: ChatCompletion = stage.client().chat.completions.create(
        **{"model": "scripted", "messages": ASKED, "store": True, **fields}
    )
    return found


def test_what_was_created_is_what_is_fetched(stage: Served) -> None:
    created = create(stage, metadata={"topic": "tea"})
    assert (created.choices[0].message.content, created.metadata) == ("Hello!", {"topic": "tea"})
    assert created.id.startswith("chatcmpl-")
    assert stage.client().chat.completions.retrieve(created.id) == created
    assert stage.bodies == [{"model": "scripted", "messages": ASKED}]


def test_a_stream_is_put_together(tmp_path: Path) -> None:
    with served(tmp_path, [turn(["Hel", "lo, ", "you!"])], over_http=True) as stage:
        name, chunks = streamed(stage, messages=ASKED, metadata={"a": "b"}, stream_options={"include_usage": True})
        kept = stage.client().chat.completions.retrieve(name)
        (choice,) = kept.choices
        assert (choice.message.role, choice.message.content, choice.finish_reason) == (
            "assistant",
            "Hello, you!",
            "stop",
        )
        assert (kept.usage, kept.model, kept.created) == (chunks[-1].usage, chunks[0].model, chunks[0].created)
        assert kept.metadata == {"a": "b"}
        assert stage.bodies == [
            {"model": "scripted", "messages": ASKED, "stream": True, "stream_options": {"include_usage": True}}
        ]


def test_calls_of_a_stream_are_put_together(tmp_path: Path) -> None:
    calls = [call("get_weather", city="Uji"), call("get_weather", city="Kyoto")]
    with served(tmp_path, [turn(calls=calls)], over_http=True) as stage:
        name, _ = streamed(stage, messages=ASKED, tools=[CHAT_TOOL])
        (choice,) = stage.client().chat.completions.retrieve(name).choices
        made: Any = choice.message.tool_calls
        assert (choice.finish_reason, choice.message.content) == ("tool_calls", None)
        assert [json.loads(one.function.arguments) for one in made] == [{"city": "Uji"}, {"city": "Kyoto"}]
        assert [one.function.name for one in made] == ["get_weather"] * 2
        assert len({one.id for one in made}) == 2


def test_the_messages_are_listed_with_ids_of_their_own(tmp_path: Path) -> None:
    parts = [{"type": "text", "text": "What is this?"}, {"type": "image_url", "image_url": {"url": "data:image/png,x"}}]
    asked: Any = [*ASKED, {"role": "assistant", "content": "Yes?"}, {"role": "user", "content": parts}]
    with served(tmp_path, ["A dot."], over_http=True) as stage:
        created = create(stage, messages=asked)
        messages = stage.client(strict=False).chat.completions.messages
        found = list(messages.list(created.id, limit=2))
        assert [one.id for one in found] == [f"{created.id}-{number}" for number in range(4)]
        assert [one.role for one in found] == ["system", "user", "assistant", "user"]
        assert [one.content for one in found] == ["Be brief.", "Hi!", "Yes?", None]
        assert [part.to_dict() for part in found[-1].content_parts or ()] == parts
        assert [one.id[-1] for one in messages.list(created.id, order="desc", limit=3)] == ["3", "2", "1", "0"]
        strict = stage.client().chat.completions.messages.list(created.id, after=f"{created.id}-1", limit=1)
        assert (strict.data[0].content, strict.data[0].content_parts, strict.has_more) == ("Yes?", None, True)
        for after in ("nothing", f"{created.id}-9", f"{created.id}-{'9' * 30}", f"{created.id}--1"):
            with pytest.raises(BadRequestError, match="no message"):
                messages.list(created.id, after=after)


def test_lists_go_by_model_and_metadata_from_page_to_page(tmp_path: Path) -> None:
    with served(tmp_path, ["1", "2", "3", "4"], over_http=True) as stage:
        topics = ["tea", "tea", "coffee", "tea"]
        made = [create(stage, metadata={"topic": topic, "n": str(n)}).id for n, topic in enumerate(topics)]
        completions = stage.client().chat.completions
        assert [one.id for one in completions.list()] == made
        assert [one.id for one in completions.list(order="desc", limit=3)] == made[::-1]
        tea = completions.list(metadata={"topic": "tea"}, limit=2)
        assert ([one.id for one in tea.data], tea.has_more) == ([made[0], made[1]], True)
        assert [one.id for one in tea] == [made[0], made[1], made[3]]
        assert [one.id for one in completions.list(metadata={"topic": "tea", "n": "1"})] == [made[1]]
        assert [one.id for one in completions.list(model="scripted", after=made[2])] == [made[3]]
        assert list(completions.list(model="another")) == []
        assert list(completions.list(metadata={"topic": ""})) == []
        completions.delete(made[2])
        assert [one.id for one in completions.list(after=made[2])] == [made[3]]
        with pytest.raises(BadRequestError) as refused:
            completions.list(after="chatcmpl-none")
        assert refused.value.param == "after"


def test_metadata_is_replaced_and_the_rest_stays(stage: Served) -> None:
    completions = stage.client().chat.completions
    created = create(stage, metadata={"topic": "tea"})
    updated = completions.update(created.id, metadata={"kind": "green"})
    assert updated.metadata == {"kind": "green"}
    assert completions.retrieve(created.id) == updated
    assert updated.choices == created.choices
    assert [one.id for one in completions.list(metadata={"kind": "green"})] == [created.id]
    assert completions.update(created.id, metadata=None).metadata == {}


def test_what_is_deleted_is_gone(stage: Served) -> None:
    completions = stage.client().chat.completions
    name = create(stage).id
    deleted = completions.delete(name)
    assert (deleted.id, deleted.object, deleted.deleted) == (name, "chat.completion.deleted", True)
    ways: list[Any] = [completions.retrieve, completions.delete, completions.messages.list]
    for way in (*ways, lambda one: completions.update(one, metadata={})):
        with pytest.raises(NotFoundError, match=f"'{name}' not found"):
            way(name)
    assert list(completions.list()) == []


async def test_the_asynchronous_sdk_does_the_same(tmp_path: Path) -> None:
    with served(tmp_path, ["Hello!", "Bye!"], over_http=True) as stage:
        async with stage.async_client() as client:
            completions = client.chat.completions
            messages: Any = [{"role": "assistant", "content": "Hi!"}]
            created = await completions.create(model="scripted", messages=messages, store=True)
            assert await completions.retrieve(created.id) == created
            stream = await completions.create(model="scripted", messages=messages, store=True, stream=True)
            names = {chunk.id async for chunk in stream}
            assert [one.id async for one in completions.list()] == [created.id, *names]
            assert [one.content async for one in completions.messages.list(created.id)] == ["Hi!"]
            assert (await completions.update(created.id, metadata={"a": "b"})).metadata == {"a": "b"}
            assert (await completions.delete(created.id)).deleted


@pytest.mark.parametrize("fields", [{}, {"store": False}, {"store": None}, {"store": False, "metadata": {"a": "b"}}])
def test_without_store_nothing_is_kept_and_all_is_passed_on(stage: Served, fields: JSON) -> None:
    body = {"model": "scripted", "messages": ASKED, **fields}
    found = stage.request("POST", "/chat/completions", json=body)
    assert found.status_code == 200
    assert stage.bodies == [body]
    assert stage.request("GET", "/chat/completions").json()["data"] == []
    assert stage.request("GET", f"/chat/completions/{found.json()['id']}").status_code == 404


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_that_breaks_off_is_not_kept(tmp_path: Path, stream: bool) -> None:
    with served(tmp_path, [turn(["Hello", " there", "!"], close_after=2)], over_http=True) as stage:
        with pytest.raises(Exception):  # noqa: B017, PT011 - the SDK has several for it
            list(stage.client().chat.completions.create(model="scripted", messages=ASKED, store=True, stream=stream))
        assert stage.request("GET", "/chat/completions").json()["data"] == []


def test_what_its_client_has_left_is_not_kept(tmp_path: Path) -> None:
    gate = Gate()
    with served(tmp_path, [turn(["Hello", gate, " there!"])], over_http=True) as stage:
        body = {"model": "scripted", "messages": ASKED, "store": True, "stream": True}
        with httpx.stream("POST", f"{stage.server.url}/v1/chat/completions", json=body) as answer:
            next(answer.iter_raw())
        gate.open()
        assert stage.request("GET", "/chat/completions").json()["data"] == []


@pytest.mark.parametrize(
    ("metadata", "code"),
    [
        ({"k" * 65: "v"}, "property_name_above_max_length"),
        ({"k": "v" * 513}, "string_above_max_length"),
        ({str(n): "v" for n in range(17)}, "object_above_max_properties"),
        ({"k": 1}, "invalid_type"),
        ("text", "invalid_type"),
    ],
)
def test_metadata_that_does_not_fit_is_refused_before_the_model_is_asked(
    tmp_path: Path, metadata: Any, code: str
) -> None:
    with served(tmp_path, [], over_http=True) as stage:
        found = stage.request(
            "POST", "/chat/completions", json={"messages": ASKED, "store": True, "metadata": metadata}
        )
        error = found.json()["error"]
        assert (found.status_code, error["code"], error["param"].partition(".")[0]) == (400, code, "metadata")
        assert stage.bodies == []


def test_messages_that_could_not_be_shown_again_are_refused(tmp_path: Path) -> None:
    with served(tmp_path, [], over_http=True) as stage:
        odd: list[tuple[JSON, str, str]] = [
            ({"messages": ["Hi"]}, "messages[0]", "invalid_type"),
            ({"messages": "Hi"}, "messages", "invalid_type"),
            ({"messages": None}, "messages", "invalid_type"),
            ({}, "messages", "missing_required_parameter"),
        ]
        for fields, param, code in odd:
            found = stage.request("POST", "/chat/completions", json={"store": True, **fields})
            error = found.json()["error"]
            assert (found.status_code, error["param"], error["code"]) == (400, param, code), found.text


def test_tenants_see_their_own_only(tmp_path: Path) -> None:
    auth = {"api_keys": [{"id": name, "key": f"sk-{name}", "tenant": name} for name in ("ann", "bob")]}
    with served(tmp_path, ["Hello!"], over_http=True, auth=auth) as stage:
        ann, bob = stage.client("sk-ann").chat.completions, stage.client("sk-bob").chat.completions
        name = ann.create(model="scripted", messages=ASKED, store=True).id
        assert [one.id for one in ann.list()] == [name]
        assert list(bob.list()) == []
        ways: list[Any] = [bob.retrieve, bob.delete, bob.messages.list, lambda one: bob.update(one, metadata={})]
        for way in ways:
            with pytest.raises(NotFoundError):
                way(name)
        assert ann.retrieve(name).id == name


def test_a_tenant_without_room_is_refused_before_the_model_is_asked(tmp_path: Path) -> None:
    with served(tmp_path, ["Hello!"], over_http=True) as stage:
        create(stage)
    with served(tmp_path, ["Hello!"], over_http=True, limits={"per_tenant": {"max_stored_bytes": 1}}) as stage:
        with pytest.raises(RateLimitError, match="things of it, or send it with 'store': false"):
            create(stage)
        assert create(stage, store=False).choices[0].message.content == "Hello!"


def test_an_unknown_parameter_of_the_list_is_refused(stage: Served) -> None:
    for query in ("metdata[a]=b", "metadata=a", "metadata[a", "model[]=b"):
        found = stage.request("GET", f"/chat/completions?{query}")
        assert (found.status_code, found.json()["error"]["code"]) == (400, "unknown_parameter"), query
    create(stage)


def test_an_error_of_the_model_server_is_told_and_nothing_is_kept(tmp_path: Path) -> None:
    with served(tmp_path, [turn(error=fail(429, "Slow down."))], over_http=True) as stage:
        with pytest.raises(APIStatusError):
            create(stage)
        assert stage.request("GET", "/chat/completions").json()["data"] == []
