"""`langchain-openai`, with the Responses API, against the shipped server."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx2
import pytest
from langchain_openai import ChatOpenAI
from openai import AuthenticationError, NotFoundError
from pydantic import SecretStr
from tests.clients import langchain_chat as script
from tests.clients.stage import KEY, Stage, said
from tests.http.sdk import AsyncRecording, Recording, Served
from tests.support.postgres import on_one_store

from antwort.testing import call, matching, turn

pytestmark = on_one_store()

Chat = Callable[..., ChatOpenAI]
BONN = call("get_weather", city="Bonn", call_id="call_1")
ROME = call("get_weather", city="Rome", call_id="call_2")
PLACE = '{"city": "Bonn", "country": "Germany"}'
WEATHER_TURNS = [
    ("user", "How is the weather in Bonn and Rome?"),
    ("assistant", ["get_weather", "get_weather"]),
    ("tool", "Sunny in Bonn."),
    ("tool", "Sunny in Rome."),
]


@pytest.fixture
async def chat() -> AsyncIterator[Chat]:
    """Make models that ask a server; their connections are closed after the test."""
    tapes: list[Any] = []
    with httpx2.Client(transport=Recording(tapes)) as client:
        async with httpx2.AsyncClient(transport=AsyncRecording(tapes)) as async_client:

            def chat(served: Served, key: str = KEY) -> ChatOpenAI:
                served.tapes = tapes
                return ChatOpenAI(
                    model="scripted",
                    base_url=f"{served.server.url}/v1",
                    api_key=SecretStr(key),
                    use_responses_api=True,
                    max_retries=0,
                    http_client=client,
                    http_async_client=async_client,
                )

            yield chat


def test_a_plain_answer(stage: Stage, chat: Chat) -> None:
    with stage("Hi!") as served:
        assert script.plain(chat(served)) == "Hi!"
    assert said(served.bodies[0]) == [("system", "Be brief."), ("user", "Hello!")]


def test_a_stream(stage: Stage, chat: Chat) -> None:
    with stage(turn(["He", "llo", "."], usage=(3, 4))) as served:
        texts, usage = script.streaming(chat(served))
    assert "".join(texts) == "Hello."
    assert (usage["input_tokens"], usage["output_tokens"]) == (3, 4)


async def test_answers_without_blocking(stage: Stage, chat: Chat) -> None:
    with stage("Hi!", turn(["Hi ", "again."])) as served:
        assert await script.asynchronously(chat(served)) == ["Hi!", "Hi again."]


def test_a_tool_loop(stage: Stage, chat: Chat) -> None:
    with stage(turn(calls=[BONN, ROME]), turn("Sunny in both.")) as served:
        messages = script.tool_loop(chat(served))
    assert messages[-1].text == "Sunny in both."
    assert said(served.bodies[1]) == WEATHER_TURNS


def test_a_call_is_streamed(stage: Stage, chat: Chat) -> None:
    with stage(turn(calls=[call("get_weather", ['{"city"', ': "Bonn"}'], call_id="call_1")])) as served:
        (found,) = script.streamed_tool_call(chat(served))
    assert (found["name"], found["args"], found["id"]) == ("get_weather", {"city": "Bonn"}, "call_1")


def test_a_function_of_the_server(stage: Stage, chat: Chat) -> None:
    steps = [turn(calls=[call("calculate", expression="6*7")]), turn("42.", expect=matching(last="42"))]
    with stage(*steps) as served:
        assert script.hosted(chat(served)) == "42."


@pytest.mark.parametrize("method", ["json_schema", "json_mode"])
def test_structured_output(stage: Stage, chat: Chat, method: str) -> None:
    with stage(turn(PLACE)) as served:
        assert script.structured(chat(served), method) == script.Place(city="Bonn", country="Germany")


def test_structured_output_by_a_function(stage: Stage, chat: Chat) -> None:
    with stage(turn(calls=[call("Place", PLACE)])) as served:
        assert script.structured(chat(served), "function_calling") == script.Place(city="Bonn", country="Germany")
    assert served.bodies[0]["tool_choice"] == "required"
    assert [tool["function"]["name"] for tool in served.bodies[0]["tools"]] == ["Place"]


def test_a_history_with_thoughts_and_calls(stage: Stage, chat: Chat) -> None:
    steps = [turn(reasoning="Look it up.", calls=[BONN, ROME]), turn("Sunny in both."), turn("Bonn and Rome.")]
    with stage(*steps) as served:
        assert script.history(chat(served)) == "Bonn and Rome."
    assert said(served.bodies[2]) == [
        *WEATHER_TURNS,
        ("assistant", "Sunny in both."),
        ("user", "Which cities were these?"),
    ]


def test_a_history_that_never_was(stage: Stage, chat: Chat) -> None:
    with stage("Sunny.") as served:
        assert script.history_by_hand(chat(served)) == "Sunny."
    assert [role for role, _ in said(served.bodies[0])] == ["user", "assistant", "tool"]


def test_a_history_of_responses(stage: Stage, chat: Chat) -> None:
    with stage("Hello, Ada.", "You are Ada.") as served:
        assert script.previous_response(chat(served)) == "You are Ada."
    assert [text for _, text in said(served.bodies[1])] == ["My name is Ada.", "Hello, Ada.", "Who am I?"]


def test_a_history_in_a_conversation(stage: Stage, chat: Chat) -> None:
    with stage("Hello, Ada.", "You are Ada.") as served:
        assert script.conversation(chat(served)) == "You are Ada."
    assert [text for _, text in said(served.bodies[1])] == ["My name is Ada.", "Hello, Ada.", "Who am I?"]


def test_a_wrong_key_is_an_authentication_error(stage: Stage, chat: Chat) -> None:
    with stage() as served, pytest.raises(AuthenticationError):
        script.plain(chat(served, "sk-wrong"))


def test_an_unknown_model_is_not_found(stage: Stage, chat: Chat) -> None:
    with stage() as served, pytest.raises(NotFoundError, match="nobody"):
        script.unknown_model(chat(served))
