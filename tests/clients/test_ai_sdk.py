"""The AI SDK, with its two providers, against the shipped server."""

from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeAlias

import pytest
from tests.clients.node_scripts import NodeFunctions
from tests.clients.stage import Stage, said
from tests.http.sdk import Served
from tests.support.postgres import on_one_store

from antwort.testing import call, matching, turn

pytestmark = on_one_store()

Run: TypeAlias = Callable[..., Awaitable[Any]]


BONN = call("get_weather", city="Bonn", call_id="call_1")
ROME = call("get_weather", city="Rome", call_id="call_2")
PLACE = ['{"city": "Bonn", ', '"country": "Germany"}']
WEATHER_TURNS = [
    ("user", "How is the weather in Bonn and Rome?"),
    ("assistant", ["get_weather", "get_weather"]),
    ("tool", "Sunny in Bonn."),
    ("tool", "Sunny in Rome."),
]


@pytest.fixture(params=["openai", "open-responses"])
def provider(request: pytest.FixtureRequest) -> str:
    """The provider of the AI SDK that is used."""
    found: str = request.param
    return found


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    """Run a function of the script against a server."""
    with NodeFunctions.started() as functions:

        async def run(name: str, provider: str, served: Served, **options: Any) -> Any:
            return await functions.run("ai_sdk.mjs", name, served, provider, **options)

        yield run


async def test_a_plain_answer(run: Run, stage: Stage, provider: str) -> None:
    with stage(turn("Hi!", usage=(7, 3))) as served:
        assert await run("plain", provider, served) == ["Hi!", 7, 3]
    assert said(served.bodies[0]) == [("system", "Be brief."), ("user", "Hello!")]


async def test_a_stream(run: Run, stage: Stage, provider: str) -> None:
    with stage(turn(["He", "llo", "."])) as served:
        assert await run("streaming", provider, served) == ["Hello.", "stop"]


async def test_a_tool_loop(run: Run, stage: Stage, provider: str) -> None:
    with stage(turn(calls=[BONN, ROME]), turn("Sunny in both.")) as served:
        assert await run("toolLoop", provider, served) == ["Sunny in both.", ["Bonn", "Rome"]]
    assert said(served.bodies[1]) == WEATHER_TURNS


async def test_a_streamed_tool_loop_with_thoughts(run: Run, stage: Stage, provider: str) -> None:
    with stage(turn(reasoning="Look it up.", calls=[BONN, ROME]), turn("Sunny in both.")) as served:
        text, kinds = await run("streamedToolLoop", provider, served)
    assert text == "Sunny in both."
    assert kinds[0] == "reasoning-start"
    assert sorted(kinds[1:]) == ["tool-call", "tool-call", "tool-result", "tool-result"]
    assert said(served.bodies[1]) == WEATHER_TURNS


async def test_thoughts_are_shown_as_a_summary(run: Run, stage: Stage) -> None:
    with stage(turn("Hi!", reasoning=["Be ", "polite."])) as served:
        assert await run("thoughts", "openai", served) == ["Be polite.", "Hi!"]


async def test_a_function_of_the_server_beside_one_of_the_client(run: Run, stage: Stage, provider: str) -> None:
    steps = [
        turn(calls=[call("calculate", expression="6*7")], expect=matching(tools=["calculate", "get_weather"])),
        turn("42.", expect=matching(last="42")),
    ]
    with stage(*steps) as served:
        assert await run("hosted", provider, served) == "42."


async def test_structured_output(run: Run, stage: Stage, provider: str) -> None:
    with stage(turn(PLACE)) as served:
        assert await run("structured", provider, served) == {"city": "Bonn", "country": "Germany"}
    assert served.bodies[0]["response_format"]["type"] == "json_schema"


async def test_structured_output_is_streamed(run: Run, stage: Stage, provider: str) -> None:
    with stage(turn(PLACE)) as served:
        assert await run("streamedStructure", provider, served) == [{"city": "Bonn", "country": "Germany"}] * 2


async def test_a_history_with_thoughts_and_calls(run: Run, stage: Stage, provider: str) -> None:
    steps = [turn(reasoning="Look it up.", calls=[BONN, ROME]), turn("Sunny in both."), turn("Bonn and Rome.")]
    with stage(*steps) as served:
        assert await run("history", provider, served) == "Bonn and Rome."
    assert said(served.bodies[2]) == [
        *WEATHER_TURNS,
        ("assistant", "Sunny in both."),
        ("user", "Which cities were these?"),
    ]


async def test_a_history_of_responses(run: Run, stage: Stage) -> None:
    with stage("Hello, Ada.", "You are Ada.") as served:
        assert await run("previousResponse", "openai", served) == "You are Ada."
    assert [text for _, text in said(served.bodies[1])] == ["My name is Ada.", "Hello, Ada.", "Who am I?"]


async def test_a_history_in_a_conversation(run: Run, stage: Stage) -> None:
    with stage("Hello, Ada.", "You are Ada.") as served:
        assert await run("conversation", "openai", served) == "You are Ada."
    assert [text for _, text in said(served.bodies[1])] == ["My name is Ada.", "Hello, Ada.", "Who am I?"]


async def test_a_wrong_key_is_a_401(run: Run, stage: Stage, provider: str) -> None:
    with stage() as served:
        error = await run("plain", provider, served, key="sk-wrong")
    assert error["status"] == 401
    assert "not accepted" in error["body"]  # `open-responses` makes no message of an error without a parameter


async def test_an_unknown_model_is_a_404(run: Run, stage: Stage, provider: str) -> None:
    with stage() as served:
        error = await run("unknownModel", provider, served)
    assert (error["status"], "nobody" in error["message"]) == (404, True)
