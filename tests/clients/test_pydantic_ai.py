"""`pydantic-ai` against the shipped server; the client below it is strict."""

from typing import TYPE_CHECKING

import pytest
from tests.clients.stage import KEY, Stage, said
from tests.support.postgres import on_one_store

from antwort.lazy_imports import imported_on_use
from antwort.testing import call, matching, turn

if TYPE_CHECKING:
    from pydantic_ai import exceptions
    from tests.clients import pydantic_agents as script
else:
    exceptions = imported_on_use("pydantic_ai.exceptions")
    script = imported_on_use("tests.clients.pydantic_agents")

pytestmark = on_one_store()


BONN = call("get_weather", city="Bonn", call_id="call_1")
PLACE = {"city": "Bonn", "country": "Germany"}
WEATHER_TURNS = [
    ("system", "Be brief."),
    ("user", "How is the weather in Bonn?"),
    ("assistant", ["get_weather"]),
    ("tool", "Sunny in Bonn."),
]


async def test_a_plain_answer(stage: Stage) -> None:
    with stage("Hi!") as served:
        async with served.async_client(KEY) as client:
            assert await script.plain(client) == "Hi!"
    assert said(served.bodies[0]) == [("system", "Be brief."), ("user", "Hello!")]


async def test_a_tool_loop(stage: Stage) -> None:
    with stage(turn(calls=[BONN], usage=(10, 5)), turn("Sunny.", usage=(20, 5))) as served:
        async with served.async_client(KEY) as client:
            assert await script.tool_loop(client) == ("Sunny.", 40)
    assert said(served.bodies[1]) == WEATHER_TURNS


async def test_a_stream_with_a_tool_call(stage: Stage) -> None:
    with stage(turn(calls=[BONN]), turn(["Sun", "ny."])) as served:
        async with served.async_client(KEY) as client:
            texts = await script.streaming(client)
    assert texts[-1] == "Sunny."
    assert said(served.bodies[1]) == WEATHER_TURNS


async def test_structured_output_by_a_function(stage: Stage) -> None:
    with stage(turn(calls=[call("final_result", PLACE)])) as served:
        async with served.async_client(KEY) as client:
            assert await script.structured(client) == script.Place(**PLACE)
    assert served.bodies[0]["tool_choice"] == "required"


async def test_structured_output_by_a_schema(stage: Stage) -> None:
    with stage(turn('{"city": "Bonn", "country": "Germany"}')) as served:
        async with served.async_client(KEY) as client:
            assert await script.structured_natively(client) == script.Place(**PLACE)
    assert served.bodies[0]["response_format"]["json_schema"]["name"] == "Place"


async def test_a_function_of_the_server_beside_one_of_the_client(stage: Stage) -> None:
    steps = [
        turn(calls=[call("calculate", expression="6*7")], expect=matching(tools=["calculate", "get_weather"])),
        turn("42.", expect=matching(last="42")),
    ]
    with stage(*steps) as served:
        async with served.async_client(KEY) as client:
            assert await script.hosted(client) == "42."


async def test_a_function_of_the_server_named_in_the_request(stage: Stage) -> None:
    steps = [turn(calls=[call("calculate", expression="6*7")]), turn("42.", expect=matching(last="42"))]
    with stage(*steps) as served:
        async with served.async_client(KEY) as client:
            assert await script.hosted_by_name(client) == "42."


async def test_a_history_with_thoughts_and_calls(stage: Stage) -> None:
    with stage(turn(reasoning="Look it up.", calls=[BONN]), turn("Sunny."), turn("Bonn.")) as served:
        async with served.async_client(KEY) as client:
            output, messages = await script.history(client)
    assert (output, len(messages)) == ("Bonn.", 6)
    assert said(served.bodies[2]) == [*WEATHER_TURNS, ("assistant", "Sunny."), ("user", "Which city was that?")]


async def test_a_history_of_responses(stage: Stage) -> None:
    with stage("Hello, Ada.", "You are Ada.") as served:
        async with served.async_client(KEY) as client:
            assert await script.previous_response(client) == "You are Ada."
    assert [text for _, text in said(served.bodies[1])] == ["My name is Ada.", "Hello, Ada.", "Who am I?"]


async def test_a_history_in_a_conversation(stage: Stage) -> None:
    with stage("Hello, Ada.", "You are Ada.") as served:
        async with served.async_client(KEY) as client:
            assert await script.conversation(client) == "You are Ada."
    assert [text for _, text in said(served.bodies[1])] == ["My name is Ada.", "Hello, Ada.", "Who am I?"]


async def test_a_history_is_made_compact(stage: Stage) -> None:
    with stage("Hello, Ada.", "The user is Ada.", "You are Ada.") as served:
        async with served.async_client(KEY) as client:
            assert await script.compaction(client) == "You are Ada."
    assert "The user is Ada." in str(served.bodies[2]["messages"])


async def test_a_history_is_made_compact_by_the_server(stage: Stage) -> None:
    with stage("Hello, Ada. " * 1000, "The user is Ada.", "You are Ada.") as served:
        async with served.async_client(KEY) as client:
            assert await script.compaction_on_the_server(client) == "You are Ada."
    assert "The user is Ada." in str(served.bodies[2]["messages"])
    assert "Hello, Ada." not in str(served.bodies[2]["messages"])


async def test_a_background_response(stage: Stage) -> None:
    with stage("All done.") as served:
        async with served.async_client(KEY) as client:
            assert await script.background(client) == "All done."


async def test_a_tool_loop_over_a_websocket(stage: Stage) -> None:
    with stage(turn(calls=[BONN]), turn("Sunny.")) as served:
        async with served.async_client(KEY) as client:
            assert await script.websocket(client) == "Sunny."
        assert served.tapes == []
    assert said(served.bodies[1]) == WEATHER_TURNS


async def test_a_wrong_key_is_a_401(stage: Stage) -> None:
    with stage() as served:
        async with served.async_client("sk-wrong") as client:
            with pytest.raises(exceptions.ModelHTTPError) as error:
                await script.plain(client)
    assert error.value.status_code == 401


async def test_an_unknown_model_is_a_404(stage: Stage) -> None:
    with stage() as served:
        async with served.async_client(KEY) as client:
            with pytest.raises(exceptions.ModelHTTPError, match="nobody") as error:
                await script.unknown_model(client)
    assert error.value.status_code == 404
