"""Which functions the demo model calls, and with which arguments."""

from typing import Any

import pytest
from tests.backends.demo.conftest import (
    ABACUS,
    ADD,
    CLOCK,
    EVERYTHING,
    FILES,
    MAIL,
    WEATHER,
    ask,
    call,
    output,
    text,
    tool,
)

Calls = list[tuple[str, dict[str, Any]]]


def sums(*expressions: str) -> Calls:
    return [("abacus", {"sum": expression}) for expression in expressions]


def times(*zones: str) -> Calls:
    return [("wall_clock", {"tz": zone}) for zone in zones]


def lookup(query: str) -> Calls:
    return [("lookup", {"query": query})]


MESSAGES: list[tuple[str, Calls]] = [
    # arithmetic
    ("What is 12*7?", sums("12*7")),
    ("compute (3+4)^2", sums("(3+4)**2")),
    ("what is 1,234.5 times 2", sums("1234.5 * 2")),
    ("What is 15% of 80?", sums("15 / 100 * 80")),
    ("What is the square root of 16 plus 2 squared?", sums("sqrt(16) + 2**2")),
    ("max(1,2) + 1", sums("max(1,2) + 1")),
    ("3 x 4?", sums("3 * 4")),
    ("what is 7 - 3", sums("7 - 3")),
    ("What is 5 + 6 and what is 7 * 8?", sums("5 + 6", "7 * 8")),
    ("Is 2*3 the same as 2*3?", sums("2*3")),
    # what only looks like it
    ("Pages 3-5 are missing.", []),
    ("My phone is 555-1234", []),
    ("2024-01-15 was a Monday.", []),
    ("We are open 24/7", []),
    ("It runs on 10.0.0.1/24", []),
    ("C++ is fun", []),
    ("See https://example.com/3*4", []),
    # the time
    ("What time is it?", [("wall_clock", {})]),
    ("what time is it in Tokyo?", times("Asia/Tokyo")),
    ("What time is it in Europe/Berlin?", times("Europe/Berlin")),
    ("What time is it in Tokyo and New York?", times("Asia/Tokyo", "America/New_York")),
    ("What's the date today?", [("wall_clock", {})]),
    ("Can you tell me the time in Springfield?", []),  # nobody knows which zone that is
    ("Once upon a time there was a king.", []),
    # searching
    ("search the web for cats and dogs", lookup("cats and dogs")),
    ('Please find "quantum error correction" for me', lookup("quantum error correction")),
    ("Search my documents for the vacation policy.", [("archive", {"queries": ["vacation policy"]})]),
    ("Who is Ada Lovelace?", lookup("Who is Ada Lovelace")),
    ("tell me about the Eiffel tower", lookup("tell me about the Eiffel tower")),
    ("How tall is Mount Everest?", lookup("How tall is Mount Everest")),
    ("Who are you?", []),
    ("What is my name?", []),
    # by words and shapes
    ("What is the weather in Paris?", [("forecast", {"city": "Paris"})]),
    ("Weather in Rome for 30 days", [("forecast", {"city": "Rome"})]),
    ("What is the weather in Paris and Oslo?", [("forecast", {"city": "Paris"}), ("forecast", {"city": "Oslo"})]),
    ("Add 2 and 3.5", [("add", {"a": 2, "b": 3.5})]),
    ("Add 2", []),
    ("Compute 12*7. Then add 3.", []),
    (
        'Send a mail to ada@example.com: "Hello there"',
        [("send_mail", {"to": "ada@example.com", "body": "Hello there"})],
    ),
    ("Please ping the server", [("ping_server", {})]),
    ("The server is down", []),
    # named outright
    ("use shout hello world", [("shout", {"words": "hello world"})]),
    ("use forecast with city: Paris", [("forecast", {"city": "Paris"})]),
    ("use the wall clock", [("wall_clock", {})]),
    ("use lookup to search for Python 3.14", lookup("Python 3.14")),
    # several wishes
    ("12*7 and the time in Tokyo", [*sums("12*7"), *times("Asia/Tokyo")]),
    (
        "Compute 2+2, search for cats, and tell me the time in New York.",
        [*sums("2+2"), *lookup("cats"), *times("America/New_York")],
    ),
    ("what time is it in new york?", times("America/New_York")),
    ("What time is it in India?", times("Asia/Kolkata")),
    ("What day is it?", [("wall_clock", {})]),
    ("How is the weather in rome?", [("forecast", {"city": "rome"})]),
    # nothing to do
    ("Hello, how are you?", []),
    ("", []),
    ("calculate the meaning of life", []),
]


@pytest.mark.parametrize(("message", "expected"), MESSAGES, ids=[message or "nothing" for message, _ in MESSAGES])
async def test_functions_are_chosen_by_the_words_of_the_message(message: str, expected: Calls) -> None:
    turn = await ask(message, tools=EVERYTHING)
    assert turn.calls == expected
    assert turn.reason == ("tool_calls" if expected else "stop")
    assert bool(turn.answer) is not bool(expected)


@pytest.mark.parametrize("message", [message for message, calls in MESSAGES if calls])
async def test_nothing_is_called_when_nothing_is_offered(message: str) -> None:
    turn = await ask(message)
    assert turn.calls == []
    assert "no functions" in turn.answer


async def test_a_question_is_searched_for_only_with_a_function_that_takes_a_query() -> None:
    assert (await ask("Who is Ada Lovelace?", tools=[ABACUS, CLOCK, WEATHER, MAIL])).calls == []
    assert (await ask("Who is Ada Lovelace?", tools=[ABACUS, FILES])).calls == [
        ("archive", {"queries": ["Who is Ada Lovelace"]})
    ]


async def test_what_keeps_a_named_function_from_being_called_is_said() -> None:
    turn = await ask("use forecast", tools=EVERYTHING)
    assert turn.calls == []
    assert "“use forecast”: forecast needs city." in turn.answer


async def test_parameters_that_strict_mode_requires_become_null_when_nothing_is_said() -> None:
    strict = tool("wall_clock", "Tells the time.", "tz", tz={"type": ["string", "null"], "description": "A time zone"})
    either = tool("wall_clock", "Tells the time.", "tz", tz={"anyOf": [text("A time zone"), {"type": "null"}]})
    for definition in (strict, either):
        assert (await ask("What time is it?", tools=[definition])).calls == [("wall_clock", {"tz": None})]
        assert (await ask("What time is it in Oslo?", tools=[definition])).calls == times("Europe/Oslo")


async def test_a_function_that_speaks_of_cities_gets_the_name_of_the_place() -> None:
    clock = tool("clock", "Tells the time.", "city", city=text())
    assert (await ask("What time is it in Springfield?", tools=[clock])).calls == [("clock", {"city": "Springfield"})]


async def test_references_inside_a_schema_are_followed() -> None:
    trip = tool("book_trip", "Book a trip.", "leg", leg={"$ref": "#/$defs/leg"})
    trip["parameters"]["$defs"] = {
        "leg": {"type": "object", "properties": {"city": text()}, "required": ["city"], "additionalProperties": False}
    }
    assert (await ask("Book a trip to Lima", tools=[trip])).calls == [("book_trip", {"leg": {"city": "Lima"}})]


async def test_a_schema_that_is_not_valid_or_points_outside_is_never_called() -> None:
    broken = tool("forecast", "Forecast the weather for a city.", "city", city={"type": "nonsense"})
    outside = tool("forecast", "Forecast the weather.", "city", city={"$ref": "http://127.0.0.1:9/schema.json"})
    for definition in (broken, outside):
        assert (await ask("What is the weather in Paris?", tools=[definition])).calls == []


async def test_a_schema_of_something_else_than_an_object_is_never_called() -> None:
    odd = {"type": "function", "name": "list_up", "description": "List.", "parameters": {"type": "array"}}
    assert (await ask('use list_up with "a"', tools=[odd])).calls == []


# --- tool choice -----------------------------------------------------------------------------------------------------


async def test_tool_choice_none_forbids_calls() -> None:
    turn = await ask("What is 12*7?", tools=EVERYTHING, tool_choice="none")
    assert turn.calls == []
    assert turn.reason == "stop"


@pytest.mark.parametrize(
    ("message", "tools", "expected"),
    [
        ("What is 12*7?", EVERYTHING, sums("12*7")),
        ("Hello", EVERYTHING, [("wall_clock", {})]),  # the first that needs nothing
        ("Hello", [ABACUS, WEATHER], [("abacus", {"sum": "Hello"})]),  # none can be filled
        ("What about the weather?", [ABACUS, WEATHER], [("forecast", {"city": "What about the weather"})]),
        ("", [ADD], [("add", {"a": 0, "b": 0})]),
    ],
)
async def test_tool_choice_required_always_leads_to_a_call(message: str, tools: Any, expected: Calls) -> None:
    assert (await ask(message, tools=tools, tool_choice="required")).calls == expected


@pytest.mark.parametrize(
    ("message", "name", "expected"),
    [
        ("12*7 and the time in Tokyo", "wall_clock", times("Asia/Tokyo")),
        ("Hello", "lookup", lookup("Hello")),
        ("Paris", "forecast", [("forecast", {"city": "Paris"})]),
        ("What is 3 + 4?", "add", [("add", {"a": 3, "b": 4})]),
    ],
)
async def test_a_forced_function_is_the_only_one_called(message: str, name: str, expected: Calls) -> None:
    choice = {"type": "function", "name": name}
    assert (await ask(message, tools=EVERYTHING, tool_choice=choice)).calls == expected


async def test_without_parallel_calls_one_call_follows_the_other() -> None:
    question = "12*7 and the time in Tokyo"
    first = await ask(question, tools=EVERYTHING, parallel_tool_calls=False)
    assert first.calls == sums("12*7")
    done = [question, call("c1", "abacus", sum="12*7"), output("c1", "84")]
    second = await ask(*done, tools=EVERYTHING, parallel_tool_calls=False)
    assert second.calls == times("Asia/Tokyo")
    done += [call("c2", "wall_clock", tz="Asia/Tokyo"), output("c2", "12:30")]
    third = await ask(*done, tools=EVERYTHING, parallel_tool_calls=False)
    assert third.calls == []
    assert third.answer == "The result for 12*7 is 84.\n\nThe result for Asia/Tokyo is 12:30."


async def test_a_call_is_not_repeated_though_the_history_spells_it_in_another_way() -> None:
    history = ["What is 12*7?", call("c1", "math_abacus", sum="12 * 7"), output("c1", "84")]
    assert (await ask(*history, tools=EVERYTHING)).calls == []


async def test_the_next_question_is_asked_anew() -> None:
    history = ["What is 12*7?", call("c1", "abacus", sum="12*7"), output("c1", "84"), "And what is 12*7?"]
    assert (await ask(*history, tools=EVERYTHING)).calls == sums("12*7")


async def test_a_message_that_asks_for_very_much_gets_a_bounded_number_of_calls() -> None:
    turn = await ask(" and ".join(f"{number}*2" for number in range(100)), tools=EVERYTHING)
    assert len(turn.calls) == 8
