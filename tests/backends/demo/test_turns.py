"""How a turn of the demo model is fed: pieces, limits, usage, sameness."""

import json
import os
from dataclasses import asdict
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.backends.demo.conftest import ABACUS, EVERYTHING, Recorder, ask, call, output, request, tool

from antwort.backends.base import ModelBackend, ModelInfo
from antwort.backends.demo import DEMO_MODEL, DemoBackend
from antwort.functions import FunctionRegistry
from antwort.providers.basics import Basics

FULL = bool(os.environ.get("ANTWORT_TEST_FULL"))


async def test_it_is_a_backend_with_one_model() -> None:
    backend: ModelBackend = DemoBackend()
    assert await backend.models() == (ModelInfo("antwort-demo", "antwort"),)
    await backend.close()


async def test_a_stream_comes_word_by_word_and_is_passed_on_every_few_words() -> None:
    whole = await ask("Hello  there,\nfriend", tools=EVERYTHING, effort="low")
    stream = await ask("Hello  there,\nfriend", tools=EVERYTHING, effort="low", stream=True)
    assert len(whole.texts) == 1
    assert stream.answer == whole.answer
    assert "".join(stream.thoughts) == "".join(whole.thoughts)
    assert all(len(piece.split()) == 1 for piece in stream.texts)
    assert max(stream.flushes) == 4
    assert stream.pending == 0
    assert stream.used == whole.used


async def test_a_streamed_call_is_the_same_call() -> None:
    question = "12*7 and the time in Tokyo"
    whole, stream = [await ask(question, tools=EVERYTHING, stream=streamed) for streamed in (False, True)]
    assert stream.calls == whole.calls
    assert stream.ids == whole.ids
    assert len(set(whole.ids.values())) == 2


async def test_the_same_request_gives_the_same_turn_and_another_gives_other_call_ids() -> None:
    question = "What is 12*7?"
    one, two = [await ask(question, tools=EVERYTHING, stream=True) for _ in range(2)]
    assert asdict(one) == asdict(two)
    history = [question, call(one.ids[0], "abacus", sum="12*7"), output(one.ids[0], "84"), question]
    again = await ask(*history, tools=EVERYTHING)
    assert again.calls == one.calls
    assert again.ids != one.ids


async def test_tokens_are_four_characters_each_of_what_is_read_and_written() -> None:
    turn = await ask("12345", call("c1", "f"), output("c1", "12345678"), instructions="123456789")
    assert turn.used is not None
    # instructions 3; message 1 + 2; call 1 + 1 + 1; output 1 + 2
    assert turn.used.input_tokens == 12
    assert turn.used.output_tokens == -(-len(turn.answer) // 4)
    assert turn.used.total_tokens == turn.used.input_tokens + turn.used.output_tokens
    calling = await ask("What is 12*7?", tools=[ABACUS])
    assert calling.used is not None
    assert calling.used.output_tokens == -(-len("abacus" + calling.arguments[0]) // 4)
    assert calling.used.input_tokens > len(json.dumps(ABACUS)) // 4


@pytest.mark.parametrize("stream", [False, True])
async def test_the_answer_ends_at_the_limit(stream: bool) -> None:
    whole = await ask("Hello", effort="low")
    cut = await ask("Hello", effort="low", max_output_tokens=20, stream=stream)
    assert cut.reason == "length"
    assert cut.used is not None
    assert cut.used.output_tokens == 20
    assert "".join(cut.thoughts) == "".join(whole.thoughts)
    assert cut.answer
    assert whole.answer.startswith(cut.answer)
    assert whole.used is not None
    exact = await ask("Hello", effort="low", max_output_tokens=whole.used.output_tokens)
    assert (exact.reason, exact.answer) == ("stop", whole.answer)


async def test_a_call_is_never_cut() -> None:
    turn = await ask("12*7 and the time in Tokyo", tools=EVERYTHING, max_output_tokens=8)
    assert turn.calls == [("abacus", {"sum": "12*7"})]
    assert turn.reason == "length"


async def test_it_uses_the_functions_that_come_with_the_server() -> None:
    async with FunctionRegistry() as registry:
        registry.register(Basics())
        tools = registry.to_tool_definitions()
        for question, expected in [("What is 12*7?", "84"), ("What time is it in Tokyo?", "Asia/Tokyo")]:
            turn = await ask(question, tools=tools)
            [(name, arguments)] = turn.calls
            result = await registry.execute(name, arguments)
            assert not result.is_error
            history = [question, call("c1", name, **arguments), output("c1", result.output)]
            assert expected in (await ask(*history, tools=tools)).answer


@pytest.mark.parametrize(
    ("name", "arguments"),
    [("calculate", {"expression": "1/0"}), ("calculate", {}), ("current_time", {"timezone": "X/Y"}), ("nothing", {})],
)
async def test_the_errors_of_functions_are_told_as_errors(name: str, arguments: dict[str, Any]) -> None:
    async with FunctionRegistry() as registry:
        registry.register(Basics())
        result = await registry.execute(name, arguments)
        turn = await ask("Do it", call("c1", name, **arguments), output("c1", result.output))
        assert turn.answer.startswith(f"{name} could not do it: {result.output[:20]}")


# --- any text, any tools ---------------------------------------------------------------------------------------------

LEAVES = st.one_of(
    st.fixed_dictionaries(
        {"type": st.just("string")},
        optional={
            "minLength": st.integers(0, 5),
            "maxLength": st.integers(0, 50),
            "format": st.sampled_from(["date", "email", "uri"]),
            "description": st.sampled_from(["a city", "an expression", "a time zone", "a search query", ""]),
            "pattern": st.sampled_from(["^a", "[0-9]$", "^[A-Z]+$"]),
        },
    ),
    st.fixed_dictionaries(
        {"type": st.sampled_from(["integer", "number"])},
        optional={"minimum": st.integers(-5, 5), "maximum": st.integers(0, 20), "multipleOf": st.integers(1, 4)},
    ),
    st.just({"type": "boolean"}),
    st.just({"type": ["string", "null"]}),
    st.just({"$ref": "#"}),
    st.just({"allOf": [{"$ref": "#"}]}),
    st.just({"anyOf": [{"$ref": "#/properties/a"}, {"$ref": "#/properties/b"}]}),
    st.just({}),
    st.just(True),
    st.lists(st.sampled_from(["red", "green", 1, None]), min_size=1).map(lambda options: {"enum": options}),
)


def objects(parts: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    properties = st.dictionaries(st.sampled_from(["a", "b", "city", "query", "count", "timezone"]), parts, max_size=4)
    return st.builds(
        lambda properties, required: {
            "type": "object",
            "properties": properties,
            "required": [name for name in properties if name in required],
        },
        properties,
        st.sets(st.sampled_from(["a", "b", "city", "query", "count", "timezone"])),
    )


def arrays(parts: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.builds(
        lambda items, least: {"type": "array", "items": items, "minItems": least}, parts, st.integers(0, 3)
    )


SCHEMAS = objects(st.recursive(LEAVES, lambda parts: objects(parts) | arrays(parts), max_leaves=6))
WORDS = st.sampled_from(
    """what is 12*7 and the time in Tokyo search for use tool_0 red "quoted" 3 count query : ( (( 1+ ? . city=Rome
    2026-01-01 sqrt( % of with { call a: b=2 {"a": 1}""".split()  # noqa: SIM905 — words are read more easily so
)
MESSAGES = st.one_of(st.text(max_size=80), st.lists(WORDS, max_size=15).map(" ".join))
CHOICES = st.sampled_from([None, "auto", "none", "required", {"type": "function", "name": "tool_0"}])


def is_valid(schema: Any, value: Any) -> bool:
    return jsonschema_rs.validator_for(schema).is_valid(value)


@settings(max_examples=150 if FULL else 40, deadline=None)
@given(message=MESSAGES, schemas=st.lists(SCHEMAS, max_size=3), choice=CHOICES, stream=st.booleans())
async def test_any_message_and_any_tools_give_a_well_formed_turn(
    message: str, schemas: list[dict[str, Any]], choice: Any, stream: bool
) -> None:
    tools = [tool(f"tool_{number}", "Search the time of red things.") for number in range(len(schemas))]
    for definition, schema in zip(tools, schemas, strict=True):
        definition["parameters"] = schema
    turn = await ask(message, tools=tools, tool_choice=choice, stream=stream, effort="low")
    by_name = dict(zip((definition["name"] for definition in tools), schemas, strict=True))
    assert turn.used is not None
    assert turn.pending == 0
    turn.answer.encode()
    assert turn.reason == ("tool_calls" if turn.calls else "stop")
    assert bool(turn.calls) is not bool(turn.answer)
    if choice == "none" or not tools:
        assert turn.calls == []
    elif choice in ("required", {"type": "function", "name": "tool_0"}):
        assert turn.calls
    insisted = choice not in (None, "auto")  # then nothing may fit, and a call is made all the same
    for name, arguments in turn.calls:
        assert insisted or "{" in message or is_valid(by_name[name], arguments)
        assert isinstance(arguments, dict)


@settings(max_examples=150 if FULL else 40, deadline=None)
@given(message=MESSAGES, schema=SCHEMAS)
async def test_any_schema_gives_a_valid_object_or_a_refusal(message: str, schema: dict[str, Any]) -> None:
    turn = await ask(message, text_format={"type": "json_schema", "name": "thing", "schema": schema})
    assert bool(turn.answer) is not bool(turn.refusals)
    if turn.answer:
        assert is_valid(schema, json.loads(turn.answer))


@pytest.mark.parametrize(
    "message",
    [
        "(" * 20_000,
        "-" * 20_000,
        "1+(" * 5000,
        "sqrt(" * 5000,
        "a, " * 10_000,
        "'" * 20_000,
        "use " * 5000,
        "9" * 20_000,
    ],
    ids=lambda message: message[:5],
)
async def test_a_hostile_message_is_answered_all_the_same(message: str) -> None:
    turn = await ask(message, tools=EVERYTHING)
    assert turn.reason in {"stop", "tool_calls"}


async def test_of_a_very_long_message_only_the_beginning_is_read() -> None:
    turn = await ask(f"What is 12*7?{' and 1+1' * 1_000_000}", tools=EVERYTHING)
    assert turn.calls[0] == ("abacus", {"sum": "12*7"})
    assert len(turn.calls) <= 8
    assert turn.used is not None
    assert turn.used.input_tokens > 2_000_000


async def test_items_that_are_not_as_they_should_be_are_survived() -> None:
    items: list[Any] = [
        {"type": "message", "role": "user"},
        {"type": "message", "role": "user", "content": [None, 5, {"type": "input_text"}]},
        {"type": "function_call"},
        {"type": "function_call_output"},
        {},
    ]
    recorder = await ask(*items, tools=[{"type": "function"}, {"type": "other"}, {"type": "function", "name": "f"}])
    assert isinstance(recorder, Recorder)
    assert recorder.reason == "stop"


def test_the_model_has_a_name_of_its_own() -> None:
    assert DEMO_MODEL == "antwort-demo"


async def test_tokens_are_counted_as_a_turn_would_count_them() -> None:
    asked = request("What is 12*7?", instructions="Be brief.", tools=[ABACUS])
    recorder = Recorder()
    await DemoBackend().run(asked, recorder)
    assert recorder.used is not None
    assert await DemoBackend().count_tokens(asked) == recorder.used.input_tokens


async def test_rules_have_no_window() -> None:
    backend: ModelBackend = DemoBackend()
    assert await backend.context_window(DEMO_MODEL) is None


async def test_results_of_custom_tools_are_read_like_those_of_functions() -> None:
    recorder = await ask(
        "Run it.",
        {"type": "custom_tool_call", "call_id": "a", "name": "run", "input": "ls"},
        {"type": "custom_tool_call_output", "call_id": "a", "output": "README.md"},
    )
    assert "README.md" in recorder.answer
