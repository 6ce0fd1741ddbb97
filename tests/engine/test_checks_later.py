"""Checks of runs that wait, break off and go on: nothing gets through that was not looked at."""

import math
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.engine.guards import REASON, SECRET, STARS, WORD
from tests.engine.test_checks import assert_nowhere, guarded, refusals
from tests.http.sdk import create, done
from tests.http.sockets import socket
from tests.providers.user.stage import answer, asked, begun, outputs
from tests.runs.embedded import embedded
from tests.server.mcp.stage import call as mcp_call

from antwort.context import Context
from antwort.functions import FunctionSpec
from antwort.testing import call, turn

KEY = "sk-proj-abcdefghij0123456789"
GUARDRAILS: Any = {"guardrails": {"enabled": True}}
ECHO: Any = {"type": "function", "name": "echo"}


async def test_what_was_held_back_when_a_server_ended_is_asked_anew_and_never_shown(tmp_path: Path) -> None:
    pieces = ["One two three four five six seven eight nine ten eleven twelve thirteen ", "the key is ", KEY[:12]]
    async with embedded(tmp_path, [turn([*pieces, ""], hang_after=3)], providers=GUARDRAILS) as app:
        response_id = await app.accept("Hello?")
        await app.read_until(response_id, lambda event: event["type"] == "response.output_text.delta")
    async with embedded(tmp_path, [turn(["It is ", KEY, "."])], providers=GUARDRAILS) as app:
        response, stream = await app.result(response_id)
        assert response["output"][0]["content"][0]["text"] == "It is [api_key]."
        assert KEY[:12] not in str(stream.events)
    assert_nowhere(tmp_path, KEY[:12])


async def test_a_background_response_whose_input_was_refused_is_refused_after_a_restart_too(tmp_path: Path) -> None:
    guards: Any = {"guardrails": {"enabled": True, "settings": {"patterns": {"api_key": "refuse"}}}}
    async with embedded(tmp_path, [], providers=guards) as app:
        response_id = await app.accept(f"I am {KEY}")
        # Nothing is awaited here, so its task had no turn yet.
    async with embedded(tmp_path, [], providers={}) as app:
        response, _ = await app.result(response_id)
        [part] = response["output"][0]["content"]
        assert part == {"type": "refusal", "refusal": "This is not passed on, since it holds: api key."}
    assert_nowhere(tmp_path, KEY)


def test_a_background_response_waits_for_the_approval_that_a_check_wants(tmp_path: Path) -> None:
    steps = [turn(calls=[call("echo", text=f"approve {SECRET}")]), "Done."]
    with guarded(tmp_path, steps, "call", section={"user": {"enabled": True}}, storage={}) as stage:
        response_id = begun(stage, tools=[ECHO])
        [question] = asked(stage)
        assert question["body"]["reason"] == "It is dear."
        answer(stage, question, approve=True)
        assert done(stage, response_id)["status"] == "completed"
        assert outputs(stage)[0].startswith("echo: approve")


async def echo(text: str) -> str:
    """Say something again."""
    return f"echo: {text}"


async def ask_user(ctx: Context) -> None:
    """Ask."""
    ctx.suspend({"question": "What is it?"})


@pytest.mark.parametrize("by_request", [False, True])
def test_what_people_answer_is_checked_before_the_model_reads_it(tmp_path: Path, by_request: bool) -> None:
    function = FunctionSpec.of(ask_user, {"effect": "suspend"})
    options: Any = {"functions": [function], "section": {"user": {"enabled": True}}, "storage": {}}
    tools: Any = [{"type": "function", "name": "ask_user"}]
    with guarded(
        tmp_path, [turn(calls=[call("ask_user", call_id="c1")]), "Done."], "input", "result", **options
    ) as stage:
        response_id = begun(stage, tools=tools)
        [question] = asked(stage)
        if by_request:
            given: Any = [{"type": "function_call_output", "call_id": "c1", "output": f"It is {SECRET}."}]
            create(stage, False, input=given, previous_response_id=response_id, background=True)
        else:
            answer(stage, question, answer=f"It is {SECRET}.")
        done(stage, response_id)
        assert outputs(stage) == [f"It is {STARS}."]
    if by_request:
        assert_nowhere(tmp_path)


def test_a_call_that_was_masked_goes_on_when_its_caller_does(tmp_path: Path) -> None:
    async def refund(order: str) -> str:
        """Give money back."""
        return f"refunded {order}"

    async def each(ctx: Context) -> str:
        """Make calls."""
        first = await ctx.call_function("echo", {"text": SECRET}, key="a")
        return f"{first.output}, {(await ctx.call_function('refund', {'order': SECRET}, key='b')).output}"

    functions = [
        echo,
        FunctionSpec.of(refund, {"approval": "always"}),
        FunctionSpec.of(each, {"attach": True, "timeout": math.inf, "calls_functions": True}),
    ]
    tools: Any = [{"type": "function", "name": name} for name in ("each", "echo", "refund")]
    options: Any = {"functions": functions, "section": {"user": {"enabled": True}}, "storage": {}}
    with guarded(tmp_path, [turn(calls=[call("each")]), "Done."], "call", **options) as stage:
        response_id = begun(stage, tools=tools)
        [question] = asked(stage)
        assert SECRET not in str(question)
        answer(stage, question, approve=True)
        done(stage, response_id)
        assert outputs(stage) == [f"echo: {STARS}, refunded {STARS}"]
    assert_nowhere(tmp_path)


def test_a_refused_turn_can_be_gone_on_from(tmp_path: Path) -> None:
    with guarded(tmp_path, [turn(["Well, ", WORD]), "Something else."], "output") as stage:
        first = create(stage, True, input="?")
        assert refusals(first) == [REASON]
        second = create(stage, True, input="And now?", previous_response_id=first.id)
        assert second.output_text == "Something else."
        assert REASON in str(list(stage.requests[-1].items))


def test_a_call_of_an_mcp_client_is_checked_as_that_of_a_model(tmp_path: Path) -> None:
    def pair() -> dict[str, str]:
        """Tell two things."""
        return {"name": "me", "secret": SECRET}

    with guarded(tmp_path, [], "call", "result", functions=[echo, pair]) as stage:

        def made(message: Any) -> tuple[str, bool, Any]:
            headers = {"accept": "application/json, text/event-stream"}
            result = httpx.post(f"{stage.server.url}/mcp", json=message, headers=headers).json()["result"]
            return result["content"][0]["text"], result.get("isError", False), result.get("structuredContent")

        assert made(mcp_call("echo", text=SECRET))[:2] == (f"echo: {STARS}", False)
        assert made(mcp_call("echo", text=WORD))[:2] == (REASON, True)
        assert made(mcp_call("echo", text="approve"))[1]
        assert SECRET not in str(made(mcp_call("pair")))


def test_requests_on_a_websocket_are_checked(tmp_path: Path) -> None:
    with guarded(tmp_path, [turn(["Well, ", SECRET])], "input", "output") as stage, socket(stage) as connection:
        assert REASON in str(connection.ask(WORD).events)
        assert connection.ask(f"It is {SECRET}").text == f"Well, {STARS}"
        assert STARS in str(list(stage.requests[-1].items))
