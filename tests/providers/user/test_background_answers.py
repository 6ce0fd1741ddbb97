"""Questions of background responses, answered as those of others are: by a request that names the response before."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import openai
import pytest
from openai.types.responses import Response
from tests.http.sdk import Served, done
from tests.providers.user.stage import answer, asked, begun, outputs, questions, served_user

from antwort.testing import Gate, Turn, call, lint_stream, turn
from antwort.types import JSON

QUESTION = call("ask_user", question="Which one?", call_id="call_1")
SURE = call("ask_user", question="Sure?", call_id="call_2")
KEYS = [{"id": name, "key": f"key-{name}", "tenant": name} for name in ("one", "two")]


def said(call_id: str, output: str) -> Any:
    return {"type": "function_call_output", "call_id": call_id, "output": output}


def answered(stage: Served, response_id: str, *items: Any, key: str = "none", **fields: Any) -> Response:
    """Answer as a loop of the SDK does, which repeats what it has asked for."""
    response: Response = stage.client(key).responses.create(
        model="scripted", input=list(items), previous_response_id=response_id, instructions="Be kind.", **fields
    )
    return response


# --- the same response goes on ---------------------------------------------------------------------------------------


def test_an_answer_goes_on_with_the_response_that_waits_and_returns_it_when_it_is_over(tmp_path: Path) -> None:
    with served_user(tmp_path, [turn(calls=[QUESTION]), "Blue it is."]) as stage:
        response_id = begun(stage)
        asked(stage)
        response = answered(stage, response_id, said("call_1", "The blue one."))
        assert (response.id, response.status, response.output_text) == (response_id, "completed", "Blue it is.")
        assert [item.type for item in response.output] == ["function_call", "message"]
        assert outputs(stage) == ["The blue one."]
        [question] = questions(stage)
        assert (question["status"], question["answer"]) == ("answered", "The blue one.")
        assert [found["id"] for found in stage.request("GET", "/responses").json()["data"]] == [response_id]


def test_an_answer_in_the_background_returns_at_once(tmp_path: Path) -> None:
    gate = Gate()
    with served_user(tmp_path, [turn(calls=[QUESTION]), turn("Blue.", wait_for=gate)]) as stage:
        response_id = begun(stage)
        asked(stage)
        response = answered(stage, response_id, said("call_1", "blue"), background=True)
        assert (response.id, response.status) == (response_id, "in_progress")
        gate.open()
        assert done(stage, response_id)["status"] == "completed"


@pytest.mark.parametrize("background", [False, True])
def test_an_answer_can_be_streamed_with_all_that_the_response_has_said(tmp_path: Path, *, background: bool) -> None:
    with served_user(tmp_path, [turn(calls=[QUESTION]), "Blue it is."]) as stage:
        response_id = begun(stage)
        asked(stage)
        with stage.client().responses.stream(
            model="scripted",
            input=[said("call_1", "blue")],
            previous_response_id=response_id,
            background=background,
        ) as stream:
            final = stream.get_final_response()
        assert (final.id, final.output_text) == (response_id, "Blue it is.")
        assert [item.type for item in final.output] == ["function_call", "message"]


def test_a_response_that_asks_again_is_returned_as_it_waits(tmp_path: Path) -> None:
    with served_user(tmp_path, [turn(calls=[QUESTION]), turn(calls=[SURE]), "Blue it is."]) as stage:
        response_id = begun(stage)
        asked(stage)
        response = answered(stage, response_id, said("call_1", "blue"))
        assert response.status == "in_progress"
        assert [item.to_dict()["call_id"] for item in response.output] == ["call_1", "call_2"]
        response = answered(stage, response_id, said("call_2", "yes"))
        assert response.output_text == "Blue it is."
        assert outputs(stage) == ["blue", "yes"]


def test_a_stream_of_a_response_that_asks_again_ends_while_it_waits(tmp_path: Path) -> None:
    with served_user(tmp_path, [turn(calls=[QUESTION]), turn(calls=[SURE]), "Blue it is."]) as stage:
        response_id = begun(stage)
        asked(stage)
        body = {"input": [said("call_1", "blue")], "previous_response_id": response_id, "stream": True}
        stream = lint_stream(stage.request("POST", "/responses", json=body).content, cancelled=True)
        added = [event["item"]["call_id"] for event in stream.events if event["type"] == "response.output_item.added"]
        assert added == ["call_1", "call_2"]
        assert answered(stage, response_id, said("call_2", "yes")).status == "completed"


def test_several_questions_are_answered_together_or_one_by_one(tmp_path: Path) -> None:
    both = turn(calls=[QUESTION, SURE])
    with served_user(tmp_path, [both, "Thanks.", both, "Thanks."]) as stage:
        first = begun(stage)
        asked(stage, 2)
        response = answered(stage, first, said("call_2", "yes"))
        assert (response.status, len(stage.requests)) == ("in_progress", 1)
        assert answered(stage, first, said("call_1", "blue")).output_text == "Thanks."
        assert outputs(stage) == ["blue", "yes"]
        second = begun(stage)
        asked(stage, 2)
        assert answered(stage, second, said("call_1", "red"), said("call_2", "no")).output_text == "Thanks."
        assert outputs(stage) == ["red", "no"]


def test_an_answer_counts_for_a_response_that_is_not_to_be_stored(tmp_path: Path) -> None:
    with served_user(tmp_path, [turn(calls=[QUESTION]), "Blue it is."]) as stage:
        response_id = begun(stage, store=False)
        asked(stage)
        assert answered(stage, response_id, said("call_1", "blue"), store=False).output_text == "Blue it is."


@pytest.mark.parametrize("approve", [True, False])
def test_a_call_is_approved_the_same_way(tmp_path: Path, *, approve: bool) -> None:
    count = turn(calls=[call("calculate", expression="6 * 7", call_id="call_1")])
    section = {"basics": {"enabled": True, "approval": {"calculate": "always"}}}
    with served_user(tmp_path, [count, "Well."], section=section) as stage:
        response_id = begun(stage)
        [question] = asked(stage)
        with pytest.raises(openai.BadRequestError, match="needs an `mcp_approval_response`"):
            answered(stage, response_id, said("call_1", "42"))
        verdict = {"type": "mcp_approval_response", "approval_request_id": question["id"], "approve": approve}
        assert answered(stage, response_id, {**verdict, "reason": "Too hard."}).output_text == "Well."
        [output] = outputs(stage)
        assert output == "42" if approve else "Too hard." in output


def test_what_a_sub_agent_waits_for_is_answered_by_the_response_of_its_root(tmp_path: Path) -> None:
    steps: list[Turn | str] = [
        turn(calls=[call("spawn_agent", prompt="Count!")]),
        turn(calls=[call("calculate", expression="6 * 7")]),
        "It is 42.",
        "They say 42.",
    ]
    section = {"basics": {"enabled": True, "approval": {"calculate": "always"}}, "sub_agents": {"enabled": True}}
    tools = [{"type": "function", "name": name} for name in ("spawn_agent", "calculate")]
    with served_user(tmp_path, steps, section=section) as stage:
        response_id = begun(stage, tools=tools)
        [question] = asked(stage)
        assert question["response_id"] != question["run_id"] == response_id
        verdict = {"type": "mcp_approval_response", "approval_request_id": question["id"], "approve": True}
        assert answered(stage, response_id, verdict).output_text == "They say 42."


def test_approving_needs_the_scope_to_call_functions_and_answering_does_not(tmp_path: Path) -> None:
    scopes = ["responses:read", "responses:write"]
    keys = [{"id": "all", "key": "key-all"}, {"id": "few", "key": "key-few", "scopes": scopes}]
    both = turn(calls=[QUESTION, call("calculate", expression="6 * 7", call_id="call_2")])
    section = {"basics": {"enabled": True, "approval": {"calculate": "always"}}}
    with served_user(tmp_path, [both], section=section, auth={"api_keys": keys}) as stage:
        every = {"Authorization": "Bearer key-all"}
        body = {"model": "scripted", "input": "Go!", "background": True}
        response_id = stage.request("POST", "/responses", json=body, headers=every).json()["id"]
        while len(found := stage.request("GET", "/questions", headers=every).json()["data"]) < 2:
            time.sleep(0.005)
        request_id = next(question["id"] for question in found if question["kind"] == "approval")
        verdict = {"type": "mcp_approval_response", "approval_request_id": request_id, "approve": True}
        with pytest.raises(openai.PermissionDeniedError, match="functions:call"):
            answered(stage, response_id, verdict, key="key-few")
        assert answered(stage, response_id, said("call_1", "blue"), key="key-few").status == "in_progress"


# --- once ------------------------------------------------------------------------------------------------------------


def test_an_answer_that_comes_late_is_a_conflict_whether_the_response_goes_on_or_is_over(tmp_path: Path) -> None:
    gate = Gate()
    with served_user(tmp_path, [turn(calls=[QUESTION]), turn("Blue.", wait_for=gate)]) as stage:
        response_id = begun(stage)
        [question] = asked(stage)
        answer(stage, question, answer="blue")
        for _ in range(2):
            with pytest.raises(openai.ConflictError, match="is answered already") as caught:
                answered(stage, response_id, said("call_1", "red"))
            assert caught.value.code == "question_not_open"
            gate.open()
            done(stage, response_id)
        assert len(stage.requests) == 2
        assert outputs(stage) == ["blue"]


@pytest.mark.parametrize("background", [False, True])
def test_of_two_answers_to_a_waiting_response_at_once_one_counts(tmp_path: Path, *, background: bool) -> None:
    rounds = 4
    steps: list[Turn | str] = [turn(calls=[QUESTION]), "Done."] * rounds
    with served_user(tmp_path, steps) as stage, ThreadPoolExecutor(2) as threads:
        for _ in range(rounds):
            response_id = begun(stage)
            asked(stage)
            together = threading.Barrier(2)

            def one(text: str, response_id: str = response_id, together: threading.Barrier = together) -> int:
                body = {"input": [said("call_1", text)], "previous_response_id": response_id, "background": background}
                together.wait(60)
                return stage.request("POST", "/responses", json=body).status_code

            assert sorted(threads.map(one, ["blue", "red"])) == [200, 409]
            done(stage, response_id)
            [output] = outputs(stage)
            assert output in {"blue", "red"}
        assert len(stage.requests) == 2 * rounds


def test_the_answers_of_one_request_count_all_or_none(tmp_path: Path) -> None:
    with served_user(tmp_path, [turn(calls=[QUESTION, SURE])]) as stage:
        response_id = begun(stage)
        asked(stage, 2)
        answered(stage, response_id, said("call_2", "yes"))
        with pytest.raises(openai.ConflictError):
            answered(stage, response_id, said("call_1", "blue"), said("call_2", "no"))
        assert [(question["call_id"], question["status"]) for question in questions(stage)] == [
            ("call_1", "open"),
            ("call_2", "answered"),
        ]


# --- what is refused -------------------------------------------------------------------------------------------------


REFUSED: list[tuple[list[JSON], str, str]] = [
    ([said("call_9", "blue")], "input[0].call_id", "No tool call found for function call output with call_id call_9"),
    ([said("call_1", "blue"), said("call_9", "?")], "input[1].call_id", "No tool call found"),
    ([said("call_1", "green")], "input[0].output", "The answer is to be one of 'blue', 'red'"),
    ([said("call_1", "")], "input[0].output", "`input[0].output`"),
    ([said("call_1", "blue"), said("call_1", "red")], "input[1]", "two answers"),
    ([said("call_1", "blue"), {"role": "user", "content": "And?"}], "input[1]", "takes nothing else"),
    (
        [{"type": "mcp_approval_response", "approval_request_id": "mcpr_9", "approve": True}],
        "input[0].approval_request_id",
        "No approval request found",
    ),
    ([{"role": "user", "content": "And?"}], "previous_response_id", "is not over yet"),
]


def test_what_is_no_answer_is_refused_and_the_response_waits_on(tmp_path: Path) -> None:
    choosing = call("ask_user", question="Which one?", choices=["blue", "red"], call_id="call_1")
    with served_user(tmp_path, [turn(calls=[choosing]), "Blue it is."]) as stage:
        response_id = begun(stage)
        asked(stage)
        for items, param, message in REFUSED:
            with pytest.raises(openai.BadRequestError) as caught:
                answered(stage, response_id, *items)
            assert (caught.value.param, message in caught.value.message) == (param, True), caught.value.message
            assert [question["status"] for question in questions(stage)] == ["open"]
        assert answered(stage, response_id, said("call_1", "blue")).output_text == "Blue it is."


def test_a_response_that_is_under_way_and_has_asked_nothing_takes_no_answer(tmp_path: Path) -> None:
    gate = Gate()
    with served_user(tmp_path, [turn("Hello.", wait_for=gate)]) as stage:
        response_id = begun(stage)
        with pytest.raises(openai.BadRequestError) as caught:
            answered(stage, response_id, said("call_1", "blue"))
        assert caught.value.code == "previous_response_not_over"
        gate.open()
        done(stage, response_id)


def test_a_response_that_was_cancelled_takes_no_answer_any_more(tmp_path: Path) -> None:
    with served_user(tmp_path, [turn(calls=[QUESTION])]) as stage:
        response_id = begun(stage)
        asked(stage)
        stage.client().responses.cancel(response_id)
        with pytest.raises(openai.ConflictError, match="is cancelled already"):
            answered(stage, response_id, said("call_1", "blue"))
        assert len(stage.requests) == 1


def test_a_response_of_another_tenant_is_one_that_there_is_not(tmp_path: Path) -> None:
    with served_user(tmp_path, [turn(calls=[QUESTION]), "Blue it is."], auth={"api_keys": KEYS}) as stage:
        mine = {"Authorization": "Bearer key-one"}
        body = {"model": "scripted", "input": "Go!", "background": True}
        response_id = stage.request("POST", "/responses", json=body, headers=mine).json()["id"]
        while not stage.request("GET", "/questions", headers=mine).json()["data"]:
            time.sleep(0.005)
        errors = []
        for name in (response_id, "resp_0123"):
            with pytest.raises(openai.BadRequestError) as caught:
                answered(stage, name, said("call_1", "blue"), key="key-two")
            errors.append((caught.value.code, caught.value.message.replace(name, "")))
        assert errors[0] == errors[1]
        assert errors[0][0] == "previous_response_not_found"
        assert answered(stage, response_id, said("call_1", "blue"), key="key-one").output_text == "Blue it is."
