"""The double of a server of Messages: Anthropic's own SDK reads it, and what Anthropic refuses it refuses."""

from collections.abc import Iterator
from typing import Any

import anthropic
import pytest

from antwort.errors import BadRequestError
from antwort.testing import ScriptServer, call, fail, matching, turn
from antwort.testing.messages import read_messages
from antwort.types import JSON

HI: JSON = {"role": "user", "content": "Hi"}
ADD: JSON = {"name": "add", "input_schema": {"type": "object"}}
THOUGHT: JSON = {"type": "thinking", "thinking": "Hm.", "signature": "s"}
USE: JSON = {"type": "tool_use", "id": "t1", "name": "add", "input": {}}
RESULT: JSON = {"type": "tool_result", "tool_use_id": "t1", "content": "2"}
MARKED: JSON = {"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}
THINK: JSON = {"type": "enabled", "budget_tokens": 1024}


def says(*blocks: JSON) -> JSON:
    return {"role": "assistant", "content": list(blocks)}


def asks(*blocks: JSON) -> JSON:
    return {"role": "user", "content": list(blocks)}


def body(*messages: JSON, **fields: Any) -> JSON:
    asked: JSON = {"model": "m", "max_tokens": 2000, "messages": list(messages) or [HI], **fields}
    return {name: value for name, value in asked.items() if value is not None}


def test_what_anthropic_takes_is_read() -> None:
    messages = [HI, says(THOUGHT, USE), asks(RESULT, MARKED)]
    asked = read_messages(body(*messages, tools=[ADD], thinking=THINK, system="Be brief."), {("Hm.", "s")})
    kinds = [item["type"] for item in asked.items]
    assert kinds == ["message", "reasoning", "function_call", "function_call_output", "message"]
    assert (asked.instructions, asked.max_output_tokens) == ("Be brief.", 2000)


REFUSED: list[tuple[JSON, str]] = [
    (body(max_tokens=None), "max_tokens: Field required"),
    (body(stop="x"), "stop: Extra inputs"),
    (body(temperature=1.5), "temperature"),
    (body({"role": "assistant", "content": "a"}), "first message"),
    (body(HI, HI), "alternate"),
    (body(HI, {"role": "critic", "content": "a"}), "alternate"),
    (body({"role": "user", "content": []}), "non-empty"),
    (body(asks({"type": "text", "text": " "})), "non-whitespace"),
    (body(asks({"type": "text", "text": "a", "color": "red"})), "color: Extra inputs"),
    (body(asks({"type": "input_text", "text": "a"})), "input_text"),
    (body(HI, says({"type": "text", "text": "a "})), "trailing whitespace"),
    (body(asks(USE), tools=[ADD]), "not for the role user"),
    (body(HI, says(USE), HI, tools=[ADD]), "without `tool_result`"),
    (body(HI, says(USE), tools=[ADD]), "without `tool_result`"),
    (body(asks(RESULT), tools=[ADD]), "unexpected `tool_use_id`"),
    (body(HI, says(USE), asks(RESULT, RESULT), tools=[ADD]), "single result"),
    (body(HI, says(USE), asks(MARKED, RESULT), tools=[ADD]), "must come first"),
    (body(HI, says(USE, USE), asks(RESULT), tools=[ADD]), "unique"),
    (body(HI, says({**USE, "id": "t:1"}), asks({**RESULT, "tool_use_id": "t:1"}), tools=[ADD]), "pattern"),
    (body(HI, says(USE), asks(RESULT)), "must define tools"),
    (body(HI, says(THOUGHT)), "final block"),
    (body(HI, says({**THOUGHT, "thinking": "Ah."}, USE), asks(RESULT), tools=[ADD]), "Invalid `signature`"),
    (body(HI, says(USE), asks(RESULT), tools=[ADD], thinking=THINK), "must start with a thinking block"),
    (body(thinking={"type": "enabled", "budget_tokens": 10}), "1024"),
    (body(thinking={"type": "enabled", "budget_tokens": 2000}), "greater than"),
    (body(thinking=THINK, temperature=0.5), "temperature"),
    (body(thinking=THINK, top_k=3), "top_k"),
    (body(thinking=THINK, tools=[ADD], tool_choice={"type": "any"}), "forces tool use"),
    (body(tools=[{**ADD, "name": "a.b"}]), "pattern"),
    (body(tools=[{"name": "add", "input_schema": {}}]), "input_schema.type"),
    (body(tools=[ADD, ADD]), "unique"),
    (body(tools=[ADD], tool_choice={"type": "tool", "name": "sub"}), "not found"),
    (body(tool_choice={"type": "auto"}), "while providing tools"),
    (body(asks(*[MARKED] * 5)), "maximum of 4"),
    (body(asks({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "/9j/"}})), "media"),
    (body(asks({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "*"}})), "base64"),
    (body(asks({"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": ""}})), "non-empty"),
    (body(output_config={"effort": "huge"}), "effort"),
]


@pytest.mark.parametrize(("asked", "told"), REFUSED)
def test_what_anthropic_refuses_is_refused(asked: JSON, told: str) -> None:
    with pytest.raises(BadRequestError, match=told):
        read_messages(asked, {("Hm.", "s")})


@pytest.fixture
def server() -> Iterator[ScriptServer]:
    sum_asked = turn(["Let me ", "see."], reasoning="Hm.", opaque="s1", calls=[call("add", a=1, b=2)], usage=(7, 3))
    steps = [sum_asked, turn("It is 3.", expect=matching(tools=["add"], last="3")), turn(error=fail(529, "Busy"))]
    with ScriptServer(steps, models=[f"m{number}" for number in range(3)]) as found:
        yield found


@pytest.mark.parametrize("streamed", [True, False])
def test_the_sdk_talks_to_it(server: ScriptServer, streamed: bool) -> None:
    """A call with its result, an error, a list in pages, and a count."""
    tool = {**ADD, "input_schema": {"type": "object", "properties": {}}}
    said: list[Any] = [HI]
    url = server.url.removesuffix("/v1")
    with anthropic.Anthropic(base_url=url, api_key="k", max_retries=0) as client:

        def ask() -> Any:
            asked: Any = {"model": "m0", "max_tokens": 2000, "messages": said, "tools": [tool]}
            if not streamed:
                return client.messages.create(**asked)
            with client.messages.stream(**asked) as stream:
                return stream.get_final_message()

        first = ask()
        assert [block.type for block in first.content] == ["thinking", "text", "tool_use"]
        assert (first.stop_reason, first.usage.input_tokens, first.usage.output_tokens) == ("tool_use", 7, 3)
        assert (first.content[0].signature, first.content[2].input) == ("s1", {"a": 1, "b": 2})
        result = {"type": "tool_result", "tool_use_id": first.content[2].id, "content": "3"}
        said += [{"role": "assistant", "content": first.content}, {"role": "user", "content": [result]}]
        assert ask().content[0].text == "It is 3."
        with pytest.raises(anthropic.APIStatusError, match="overloaded_error") as caught:
            ask()
        assert caught.value.status_code == 529
        assert [model.id for model in client.models.list(limit=2)] == ["m0", "m1", "m2"]
        assert client.messages.count_tokens(model="m0", messages=[HI]).input_tokens == 1  # type: ignore[list-item]


def test_a_prompt_that_is_too_long_plays_no_step() -> None:
    with ScriptServer([], models=["m"], context_window=2) as server:
        client = anthropic.Anthropic(base_url=server.url.removesuffix("/v1"), api_key="k", max_retries=0)
        with client, pytest.raises(anthropic.BadRequestError, match="3 tokens > 2 maximum"):
            assert client.models.list().data[0].max_input_tokens == 2
            client.messages.create(model="m", max_tokens=9, messages=[{"role": "user", "content": "one two three"}])
