"""What the demo model writes."""

import json
from typing import Any

import jsonschema_rs
import pytest
from tests.backends.demo.conftest import ABACUS, CLOCK, EVERYTHING, ask, call, output

SOURCES = """\
[1] Ada Lovelace — https://example.org/ada
Ada Lovelace was an English mathematician. She wrote about engines.

[2] Charles Babbage
https://example.org/babbage
He built engines! Ada Lovelace knew him.

[3] Cooking (https://example.org/rice)
How to cook rice.
"""


CONNECT = (
    "Connect a real model with: antwort serve --backend http://localhost:11434/v1 (Ollama), http://localhost:8000/v1 "
    "(vLLM), http://localhost:8080/v1 --port 8090 (llama.cpp) or openai (with OPENAI_API_KEY)"
)


@pytest.mark.parametrize(("message", "hello"), [("Hello, nice to meet you", "Hello! "), ("Who are you?", ""), ("", "")])
async def test_it_says_what_it_is_what_it_can_do_and_how_to_get_a_real_model(message: str, hello: str) -> None:
    answer = (await ask(message, tools=[ABACUS, CLOCK])).answer
    assert answer == (
        f"{hello}I am antwort-demo, the built-in demo model: a set of rules, no language model. "
        f"I can call abacus, wall_clock; try “What is 12*7?” or “What time is it in Tokyo?”. {CONNECT}"
    )


async def test_what_it_cannot_do_it_says_in_one_line_with_how_to_connect_a_real_model() -> None:
    questions = ["What is the capital of France?", "Write a poem about the sea.", "My name is Ada."]
    answers = [(await ask(question, tools=[ABACUS, CLOCK])).answer for question in questions]
    assert answers == [
        f"The built-in demo model, a set of rules, cannot answer “{question.rstrip('.?')}”. It can call abacus, "
        f"wall_clock; try “What is 12*7?” or “What time is it in Tokyo?”. {CONNECT}"
        for question in questions
    ]
    assert (await ask("Thanks!")).answer == "You are welcome."


async def test_a_long_message_is_repeated_only_in_part() -> None:
    answer = (await ask("word " * 1000)).answer
    assert "word …”" in answer
    assert len(answer) < 500


@pytest.mark.parametrize(
    ("arguments", "result", "expected"),
    [
        ({"sum": "12*7"}, "84", "The result for 12*7 is 84."),
        ({}, "84", "The result of f is 84."),
        ({"a": 2, "b": 3, "c": None}, "5", "The result for 2, 3 is 5."),
        ({}, '{"time": "12:30", "day": 1}', "f answered: time 12:30, day 1."),
        ({}, "[1, 2]", "f answered: [1, 2]."),
        ({}, "It rains. Take care!", "f answered: It rains. Take care!"),
        ({}, [{"type": "input_text", "text": "in a part"}], "The result of f is in a part."),
        ({}, "", "f gave no output."),
        ({"sum": "1/0"}, "the sum cannot be computed: division by zero", "f could not do it: the sum cannot be"),
        ({}, "Error: no such file", "f could not do it: no such file."),
        ({}, '{"error": {"message": "no access"}}', "f could not do it: no access."),
        ({}, "Invalid arguments: city: missing", "f could not do it: Invalid arguments: city: missing."),
    ],
)
async def test_a_result_is_told_in_a_sentence(arguments: dict[str, Any], result: Any, expected: str) -> None:
    turn = await ask("Question", call("c1", "f", **arguments), output("c1", result))
    assert turn.answer.startswith(expected)
    assert turn.reason == "stop"


async def test_an_output_marked_as_failed_is_told_as_a_failure() -> None:
    failed = {**output("c1", "the stove is cold"), "status": "incomplete"}
    assert (await ask("Cook", call("c1", "stove"), failed)).answer == "stove could not do it: the stove is cold."


async def test_what_is_taken_from_a_source_is_cited_by_its_number() -> None:
    turn = await ask("Who is Ada Lovelace?", call("c1", "lookup", query="Ada Lovelace"), output("c1", SOURCES))
    assert turn.answer == "Ada Lovelace was an English mathematician [1]. Ada Lovelace knew him [2]."


async def test_sources_without_text_are_cited_by_their_title() -> None:
    sources = "[4] A page about cats — https://example.org/cats\n[7] Dogs — https://example.org/dogs"
    turn = await ask("cats", call("c1", "lookup", query="cats"), output("c1", sources))
    assert turn.answer == "A page about cats [4]."


async def test_the_results_of_one_turn_are_told_in_order() -> None:
    items = [call("c1", "f"), call("c2", "g"), output("c1", "one"), output("c2", "Error: two")]
    assert (await ask("Do", *items)).answer == "The result of f is one.\n\ng could not do it: two."


async def test_it_can_tell_what_was_said_before() -> None:
    assistant = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Fine."}]}
    turn = await ask("I like tea", assistant, "My cat is Tom", assistant, "What did I say?", tools=EVERYTHING)
    assert turn.answer == "You said: “I like tea” and “My cat is Tom”."
    assert (await ask("What did I say?")).answer == "This is your first message in this conversation."


async def test_items_of_other_types_are_passed_over() -> None:
    items = [
        {"type": "web_page_call", "id": "x"},
        {"type": "reasoning", "summary": []},
        {"role": "user", "content": "Hi"},
    ]
    assert (await ask(*items)).answer.startswith("Hello!")


# --- structured output -----------------------------------------------------------------------------------------------


def closed(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


TEXT = {"type": "string"}
NODE = {"$ref": "#/$defs/node"}
SCHEMAS: dict[str, dict[str, Any]] = {
    "event": closed(name=TEXT, date={"type": "string", "format": "date"}, people={"type": "array", "items": TEXT}),
    "enum": closed(kind={"enum": ["party", "fair"]}, level={"type": "integer", "enum": [1, 2]}),
    "limits": closed(
        score={"type": "number", "minimum": 0.5, "maximum": 0.75}, code={"type": "string", "minLength": 30}
    ),
    "nested": closed(outer=closed(inner=closed(deep=closed(deeper=closed(flag={"type": "boolean"}))))),
    "nullable": closed(maybe={"type": ["string", "null"]}, either={"anyOf": [{"type": "null"}, {"type": "integer"}]}),
    "tree": {**closed(root=NODE), "$defs": {"node": closed(value=TEXT, children={"type": "array", "items": NODE})}},
    "chain": {**closed(next={"anyOf": [{"$ref": "#"}, {"type": "null"}]}, value=TEXT)},
    "union": closed(shape={"anyOf": [closed(kind={"const": "circle"}, radius={"type": "number"}), closed(kind=TEXT)]}),
    "many": closed(rows={"type": "array", "items": closed(n={"type": "integer"}), "minItems": 3}),
    "formats": closed(**{f: {"type": "string", "format": f} for f in ("date-time", "date", "email", "uri")}),
    "optional": {"type": "object", "properties": {"note": TEXT}},
    "anything": {},
    "array": {"type": "array", "items": {"type": "integer"}},
}


@pytest.mark.parametrize("message", ["Alice and Bob go to a fair on 2026-11-20, 3 of 7 like it.", "", "x"])
@pytest.mark.parametrize("schema", SCHEMAS.values(), ids=SCHEMAS.keys())
async def test_structured_output_is_valid_for_its_schema(schema: dict[str, Any], message: str) -> None:
    turn = await ask(message, text_format={"type": "json_schema", "name": "answer", "schema": schema, "strict": True})
    jsonschema_rs.validate(schema, json.loads(turn.answer), validate_formats=True)
    assert turn.reason == "stop"


async def test_structured_output_is_filled_from_the_message() -> None:
    schema = closed(
        date={"type": "string", "format": "date"},
        kind={"enum": ["party", "fair"]},
        guests={"type": "integer"},
        place=TEXT,
    )
    message = "Alice and Bob go to a fair with 12 guests on 2026-11-20, place: Berlin."
    turn = await ask(message, text_format={"type": "json_schema", "name": "event", "schema": schema})
    assert json.loads(turn.answer) == {"date": "2026-11-20", "kind": "fair", "guests": 12, "place": "Berlin"}


async def test_structured_output_is_filled_from_results_first() -> None:
    schema = closed(answer={"type": "integer"}, explanation=TEXT)
    items = ["What is 12*7?", call("c1", "abacus", sum="12*7"), output("c1", "84")]
    turn = await ask(*items, text_format={"type": "json_schema", "name": "sum", "schema": schema})
    assert json.loads(turn.answer) == {"answer": 84, "explanation": "The result for 12*7 is 84."}
    items = ["What time is it?", call("c1", "wall_clock"), output("c1", '{"weekday": "Sunday", "time": "12:30"}')]
    turn = await ask(*items, text_format={"type": "json_schema", "name": "day", "schema": closed(weekday=TEXT)})
    assert json.loads(turn.answer) == {"weekday": "Sunday"}


async def test_functions_are_called_before_structured_output_is_written() -> None:
    wanted = {"type": "json_schema", "name": "sum", "schema": closed(answer={"type": "integer"})}
    assert (await ask("What is 12*7?", tools=[ABACUS], text_format=wanted)).calls == [("abacus", {"sum": "12*7"})]


async def test_a_schema_that_nothing_fits_is_refused() -> None:
    schema = closed(code={"type": "string", "pattern": "^[A-Z]{3}-[0-9]{9}$"})
    turn = await ask("Hello", text_format={"type": "json_schema", "name": "badge", "schema": schema})
    assert turn.answer == ""
    assert turn.refusals == [f"I am a demo model and found no value for the schema. {CONNECT}"]
    assert turn.reason == "stop"


async def test_any_json_object_is_an_answer() -> None:
    turn = await ask("Hello “you”", text_format={"type": "json_object"})
    assert json.loads(turn.answer)["answer"].startswith("Hello! I am antwort-demo")
