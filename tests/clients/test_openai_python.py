"""`openai` for Python, strict, against the shipped server."""

import pytest
from openai import AuthenticationError, NotFoundError
from tests.clients import openai_python as script
from tests.clients.stage import KEY, Stage, said
from tests.support.postgres import on_one_store

from antwort.testing import call, matching, turn

pytestmark = on_one_store()

BONN = call("get_weather", city="Bonn", call_id="call_1")
ROME = call("get_weather", city="Rome", call_id="call_2")


def test_a_plain_answer(stage: Stage) -> None:
    with stage(turn("Hi!")) as served:
        assert script.plain(served.client(KEY)) == "Hi!"
    assert said(served.bodies[0]) == [("system", "Be brief."), ("user", "Hello!")]


def test_a_stream(stage: Stage) -> None:
    with stage(turn(["He", "llo", "."])) as served:
        deltas, text = script.streaming(served.client(KEY))
    assert ("".join(deltas), text) == ("Hello.", "Hello.")


def test_a_tool_loop_with_the_history_of_the_client(stage: Stage) -> None:
    with stage(turn(calls=[BONN, ROME]), turn("Sunny in both.")) as served:
        assert script.tool_loop(served.client(KEY)) == "Sunny in both."
    assert said(served.bodies[1]) == [
        ("user", "How is the weather in Bonn and Rome?"),
        ("assistant", ["get_weather", "get_weather"]),
        ("tool", 'Sunny, as asked: {"city": "Bonn"}'),
        ("tool", 'Sunny, as asked: {"city": "Rome"}'),
    ]


def test_a_tool_loop_with_the_history_of_the_server(stage: Stage) -> None:
    with stage(turn(calls=[BONN]), turn(calls=[ROME]), turn("Sunny.")) as served:
        assert script.tool_loop_on_the_server(served.client(KEY)) == "Sunny."
    assert [role for role, _ in said(served.bodies[2])] == ["user", "assistant", "tool", "assistant", "tool"]


def test_a_function_of_the_server(stage: Stage) -> None:
    steps = [turn(calls=[call("calculate", expression="6*7")]), turn("42.", expect=matching(last="42"))]
    with stage(*steps) as served:
        assert script.hosted(served.client(KEY)) == "42."


def test_structured_output(stage: Stage) -> None:
    with stage(turn('{"city": "Bonn", "country": "Germany"}')) as served:
        assert script.structured(served.client(KEY)) == script.Place(city="Bonn", country="Germany")
    assert served.bodies[0]["response_format"]["json_schema"]["name"] == "Place"


def test_a_history_of_responses(stage: Stage) -> None:
    with stage("Hello, Ada.", "You are Ada.") as served:
        assert script.history(served.client(KEY)) == ["You are Ada.", "Who am I?"]
    assert said(served.bodies[1]) == [
        ("user", "My name is Ada."),
        ("assistant", "Hello, Ada."),
        ("user", "Who am I?"),
    ]


def test_a_background_response_is_left_and_taken_up_again(stage: Stage) -> None:
    with stage(turn(["All ", "done."])) as served:
        kinds = script.background(served.client(KEY))
    assert kinds[:2] == ["response.created", "response.queued"]
    assert kinds[-2:] == ["response.completed", "All done."]


def test_a_conversation(stage: Stage) -> None:
    with stage("Ada.", "Still Ada.") as served:
        found = script.conversation(served.client(KEY))
    assert found == {
        "answers": ["Ada.", "Still Ada."],
        "in": True,
        "items": [("message", "user"), ("message", "user"), ("message", "assistant")],
        "one": True,
        "metadata": [{"topic": "names"}, {"topic": "people"}],
        "deleted": True,
    }
    assert said(served.bodies[1]) == [
        ("user", "My name is Ada."),
        ("user", "Who am I?"),
        ("assistant", "Ada."),
        ("user", "And now?"),
    ]


def test_input_tokens_are_counted(stage: Stage) -> None:
    with stage() as served:
        short, long = script.input_tokens(served.client(KEY))
    assert 0 < short < 20
    assert long >= 100


def test_a_history_is_made_compact(stage: Stage) -> None:
    with stage("The user is Ada from Bonn.", turn("Ada from Bonn.")) as served:
        found = script.compact(served.client(KEY))
    assert found == {"object": "response.compaction", "last": "compaction", "answer": "Ada from Bonn."}
    assert "The user is Ada from Bonn." in str(served.bodies[1]["messages"])


def test_turns_over_a_websocket(stage: Stage) -> None:
    with stage(turn(calls=[BONN]), turn("Sunny.")) as served:
        assert script.websocket(served.client(KEY)) == ["", "Sunny."]
    assert [role for role, _ in said(served.bodies[1])] == ["user", "assistant", "tool"]


def test_a_wrong_key_is_an_authentication_error(stage: Stage) -> None:
    with stage() as served, pytest.raises(AuthenticationError) as error:
        script.plain(served.client("sk-wrong"))
    assert error.value.code == "invalid_api_key"


def test_an_unknown_model_is_not_found(stage: Stage) -> None:
    with stage() as served, pytest.raises(NotFoundError) as error:
        script.unknown_model(served.client(KEY))
    assert (error.value.code, "nobody" in error.value.message) == ("model_not_found", True)
