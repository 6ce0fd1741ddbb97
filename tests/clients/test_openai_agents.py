"""`openai-agents` against the shipped server; the client below it is strict."""

from typing import TYPE_CHECKING

import pytest
from openai import AuthenticationError, NotFoundError
from tests.clients.stage import KEY, Stage, said
from tests.support.postgres import on_one_store

from antwort.lazy_imports import imported_on_use
from antwort.testing import call, matching, turn

if TYPE_CHECKING:
    import agents
    from tests.clients import openai_agents as script
else:
    agents = imported_on_use("agents")
    script = imported_on_use("tests.clients.openai_agents")

pytestmark = on_one_store()

BONN = call("get_weather", city="Bonn", call_id="call_1")
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
            run = await script.tool_loop(client)
    assert run.final_output == "Sunny."
    assert run.context_wrapper.usage.total_tokens == 40
    assert said(served.bodies[1]) == WEATHER_TURNS


async def test_a_stream_with_a_tool_call(stage: Stage) -> None:
    with stage(turn(calls=[BONN]), turn(["Sun", "ny."])) as served:
        async with served.async_client(KEY) as client:
            text, items, final = await script.streaming(client)
    assert (text, final) == ("Sunny.", "Sunny.")
    assert items == ["tool_call_item", "tool_call_output_item", "message_output_item"]


async def test_a_handoff(stage: Stage) -> None:
    steps = [
        turn(calls=[call("transfer_to_german", call_id="call_1")]),
        turn("Guten Tag.", expect=matching(text="Speak German.")),
    ]
    with stage(*steps) as served:
        async with served.async_client(KEY) as client:
            assert await script.handoff(client) == ("German", "Guten Tag.")
    assert [role for role, _ in said(served.bodies[1])] == ["system", "user", "assistant", "tool"]


async def test_structured_output(stage: Stage) -> None:
    with stage(turn('{"city": "Bonn", "country": "Germany"}')) as served:
        async with served.async_client(KEY) as client:
            assert await script.structured(client) == script.Place(city="Bonn", country="Germany")
    assert served.bodies[0]["response_format"]["type"] == "json_schema"


async def test_a_function_of_the_server_beside_one_of_the_client(stage: Stage) -> None:
    steps = [
        turn(calls=[call("calculate", expression="6*7")], expect=matching(tools=["calculate", "get_weather"])),
        turn("42.", expect=matching(last="42")),
    ]
    with stage(*steps) as served:
        async with served.async_client(KEY) as client:
            assert await script.hosted(client) == "42."


async def test_the_items_of_a_run_are_the_input_of_the_next(stage: Stage) -> None:
    with stage(turn(reasoning="Look it up.", calls=[BONN]), turn("Sunny."), turn("Bonn.")) as served:
        async with served.async_client(KEY) as client:
            assert await script.replay(client) == "Bonn."
    assert said(served.bodies[2]) == [
        *WEATHER_TURNS,
        ("assistant", "Sunny."),
        ("user", "Which city was that?"),
    ]


async def test_a_run_goes_on_from_a_stored_response(stage: Stage) -> None:
    with stage("Hello, Ada.", "You are Ada.") as served:
        async with served.async_client(KEY) as client:
            assert await script.previous_response(client) == "You are Ada."
    assert [text for _, text in said(served.bodies[1])][1:] == ["My name is Ada.", "Hello, Ada.", "Who am I?"]


async def test_a_session_is_kept_in_a_conversation(stage: Stage) -> None:
    with stage(turn(calls=[BONN]), turn("Sunny."), turn("Bonn.")) as served:
        async with served.async_client(KEY) as client:
            final, items = await script.session(client)
    assert final == "Bonn."
    assert items == ["user", "function_call", "function_call_output", "assistant", "user", "assistant"]
    assert said(served.bodies[2]) == [*WEATHER_TURNS, ("assistant", "Sunny."), ("user", "Which city was that?")]


async def test_a_conversation_is_loaded_and_kept_by_the_server(stage: Stage) -> None:
    with stage("Hello, Ada.", "You are Ada.") as served:
        async with served.async_client(KEY) as client:
            assert await script.conversation(client) == "You are Ada."
    assert [text for _, text in said(served.bodies[1])][1:] == ["My name is Ada.", "Hello, Ada.", "Who am I?"]


async def test_a_session_is_made_compact(stage: Stage) -> None:
    with stage("Hello, Ada.", "The user is Ada.", "You are Ada.", "They asked again.") as served:
        async with served.async_client(KEY) as client:
            final, items = await script.compaction(client, agents.SQLiteSession("ada"))
    assert final == "You are Ada."
    assert items[-1] == "compaction"
    assert "The user is Ada." in str(served.bodies[2]["messages"])


async def test_a_tool_loop_over_a_websocket(stage: Stage) -> None:
    with stage(turn(calls=[BONN]), turn("Sunny.")) as served:
        async with served.async_client(KEY) as client:
            assert await script.websocket(client) == "Sunny."
    assert [role for role, _ in said(served.bodies[1])] == ["user", "assistant", "tool"]


async def test_a_wrong_key_is_an_authentication_error(stage: Stage) -> None:
    with stage() as served:
        async with served.async_client("sk-wrong") as client:
            with pytest.raises(AuthenticationError):
                await script.plain(client)


async def test_an_unknown_model_is_not_found(stage: Stage) -> None:
    with stage() as served:
        async with served.async_client(KEY) as client:
            with pytest.raises(NotFoundError, match="nobody"):
                await script.unknown_model(client)
