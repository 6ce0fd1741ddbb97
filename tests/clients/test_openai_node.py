"""`openai` for Node against the shipped server."""

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


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    """Run a function of the script against a server."""
    with NodeFunctions.started() as functions:

        async def run(name: str, served: Served, **options: Any) -> Any:
            return await functions.run("openai_node.mjs", name, served, **options)

        yield run


async def test_a_plain_answer(run: Run, stage: Stage) -> None:
    with stage("Hi!") as served:
        assert await run("plain", served) == "Hi!"
    assert said(served.bodies[0]) == [("system", "Be brief."), ("user", "Hello!")]


async def test_a_stream(run: Run, stage: Stage) -> None:
    with stage(turn(["He", "llo", "."])) as served:
        assert (await run("streaming", served))[1:] == ["Hello.", "Hello."]


async def test_thoughts_and_a_call_are_streamed(run: Run, stage: Stage) -> None:
    with stage(turn("Let me see.", reasoning="Look it up.", calls=[BONN])) as served:
        kinds = await run("streamedCall", served)
    assert kinds == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.reasoning_text.delta",
        "response.reasoning_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.output_text.delta",
        "response.output_text.done",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.completed",
    ]


async def test_the_stream_helper_takes_thoughts_and_calls(run: Run, stage: Stage) -> None:
    with stage(turn("Let me see.", reasoning="Look it up.", calls=[BONN])) as served:
        assert await run("streamedCallWithTheHelper", served) == ["reasoning", "message", "function_call"]


async def test_a_tool_loop_with_the_history_of_the_client(run: Run, stage: Stage) -> None:
    with stage(turn(calls=[BONN, ROME]), turn("Sunny in both.")) as served:
        assert await run("toolLoop", served) == "Sunny in both."
    assert said(served.bodies[1]) == [
        ("user", "How is the weather in Bonn and Rome?"),
        ("assistant", ["get_weather", "get_weather"]),
        ("tool", "Sunny in Bonn."),
        ("tool", "Sunny in Rome."),
    ]


async def test_a_tool_loop_with_the_history_of_the_server(run: Run, stage: Stage) -> None:
    with stage(turn(calls=[BONN]), turn(calls=[ROME]), turn("Sunny.")) as served:
        assert await run("toolLoopOnTheServer", served) == "Sunny."
    assert [role for role, _ in said(served.bodies[2])] == ["user", "assistant", "tool", "assistant", "tool"]


async def test_a_function_of_the_server(run: Run, stage: Stage) -> None:
    steps = [turn(calls=[call("calculate", expression="6*7")]), turn("42.", expect=matching(last="42"))]
    with stage(*steps) as served:
        assert await run("hosted", served) == "42."


async def test_structured_output(run: Run, stage: Stage) -> None:
    with stage(turn('{"city": "Bonn", "country": "Germany"}')) as served:
        assert await run("structured", served) == {"city": "Bonn", "country": "Germany"}
    assert served.bodies[0]["response_format"]["json_schema"]["name"] == "place"


async def test_a_history_of_responses(run: Run, stage: Stage) -> None:
    with stage("Hello, Ada.", "You are Ada.") as served:
        assert await run("history", served) == ["You are Ada.", "Who am I?"]
    assert [text for _, text in said(served.bodies[1])] == ["My name is Ada.", "Hello, Ada.", "Who am I?"]


async def test_a_background_response_is_left_and_taken_up_again(run: Run, stage: Stage) -> None:
    with stage(turn(["All ", "done."])) as served:
        kinds = await run("background", served)
    assert kinds[:2] == ["response.created", "response.queued"]
    assert kinds[-2:] == ["response.completed", "All done."]


async def test_a_conversation(run: Run, stage: Stage) -> None:
    with stage("Ada.") as served:
        assert await run("conversation", served) == ["Ada.", True, ["user", "user", "assistant"], True]
    assert said(served.bodies[0]) == [("user", "My name is Ada."), ("user", "Who am I?")]


async def test_input_tokens_are_counted(run: Run, stage: Stage) -> None:
    with stage() as served:
        short, long = await run("inputTokens", served)
    assert 0 < short < 20
    assert long >= 100


async def test_a_history_is_made_compact(run: Run, stage: Stage) -> None:
    with stage("The user is Ada from Bonn.", "Ada from Bonn.") as served:
        assert await run("compact", served) == ["response.compaction", "compaction", "Ada from Bonn."]
    assert "The user is Ada from Bonn." in str(served.bodies[1]["messages"])


async def test_turns_over_a_websocket(run: Run, stage: Stage) -> None:
    with stage(turn(calls=[BONN]), turn("Sunny.")) as served:
        assert await run("websocket", served) == [[], ["Sunny."]]
    assert [role for role, _ in said(served.bodies[1])] == ["user", "assistant", "tool"]


async def test_a_wrong_key_is_an_authentication_error(run: Run, stage: Stage) -> None:
    with stage() as served:
        error = await run("plain", served, key="sk-wrong")
    assert (error["error"], error["status"]) == ("AuthenticationError", 401)


async def test_an_unknown_model_is_not_found(run: Run, stage: Stage) -> None:
    with stage() as served:
        error = await run("unknownModel", served)
    assert (error["error"], error["status"], "nobody" in error["message"]) == ("NotFoundError", 404, True)
