"""The human user as functions, through the shipped server, with the official SDK."""

import asyncio
import gc
import os
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import openai
import pytest
from openai.types.responses import Response
from tests.http.sdk import create, done
from tests.providers.user.stage import answer, asked, begun, outputs, questions, served_user
from tests.runs.embedded import TENANT, Embedded, embedded
from tests.support.postgres import on_one_store

from antwort.context import Agent, Context
from antwort.functions import FunctionRegistry
from antwort.providers.user import User
from antwort.testing import Gate, Turn, call, turn
from antwort.types import JSON

BOTH_WAYS = pytest.mark.parametrize("stream", [False, True], ids=["json", "stream"])
ASK: Any = {"type": "function", "name": "ask_user"}
QUESTION = call("ask_user", question="Which one?", call_id="call_1")


def said(call_id: str, output: str) -> Any:
    return {"type": "function_call_output", "call_id": call_id, "output": output}


def items(response: Response) -> list[JSON]:
    output: Any = response.to_dict()["output"]
    return list(output)


def text_of(item: JSON) -> str:
    return str(item["content"][0]["text"])


# --- ask_user: in the foreground -------------------------------------------------------------------------------------


@BOTH_WAYS
def test_a_question_is_a_call_that_any_sdk_answers_and_the_same_run_goes_on(tmp_path: Path, *, stream: bool) -> None:
    with served_user(tmp_path, [turn(calls=[QUESTION]), "Blue it is."]) as stage:
        first = create(stage, stream, input="Buy it!", tools=[ASK])
        [item] = items(first)
        assert (first.status, item["type"]) == ("completed", "function_call")
        assert (item["call_id"], item["name"]) == ("call_1", "ask_user")
        assert item["arguments"] == '{"question": "Which one?"}'
        [question] = questions(stage, response_id=first.id)
        assert (question["status"], question["body"]) == ("open", {"question": "Which one?"})
        second = create(stage, stream, input=[said("call_1", "The blue one.")], previous_response_id=first.id)
        assert second.output_text == "Blue it is."
        assert outputs(stage) == ["The blue one."]
        [question] = questions(stage)
        assert (question["status"], question["answer"]) == ("answered", "The blue one.")
        assert question["run_id"] == first.id


def test_a_loop_that_does_not_know_the_function_never_meets_it(tmp_path: Path) -> None:
    with served_user(tmp_path, ["Hello."]) as stage:
        create(stage, False, input="Hi")
        names = [str(tool["name"]) for tool in stage.requests[0].tools]
        assert "ask_user" not in names
        assert "final_answer" in names


def test_an_agent_profile_that_names_it_is_offered_it(tmp_path: Path) -> None:
    agents = {"helper": {"functions": ["ask_user"]}}
    with served_user(tmp_path, ["Hello."], agents=agents) as stage:
        stage.client().responses.create(model="helper", input="Hi")
        assert [tool["name"] for tool in stage.requests[0].tools] == ["ask_user"]


def test_a_response_that_is_not_stored_cannot_ask(tmp_path: Path) -> None:
    with served_user(tmp_path, [turn(calls=[QUESTION]), "I guess blue."]) as stage:
        response = create(stage, False, input="Buy it!", tools=[ASK], store=False)
        assert response.output_text == "I guess blue."
        [output] = outputs(stage)
        assert "stored" in output
        assert questions(stage) == []


def test_a_foreground_question_is_not_answered_by_the_route(tmp_path: Path) -> None:
    with served_user(tmp_path, [turn(calls=[QUESTION])]) as stage:
        create(stage, False, input="Buy it!", tools=[ASK])
        [question] = asked(stage)
        error = answer(stage, question, 409, answer="Blue.")["error"]
        assert error["code"] == "response_not_waiting"
        assert "previous_response_id" in error["message"]


def test_a_foreground_answer_is_one_of_the_choices_and_comes_once(tmp_path: Path) -> None:
    choosing = call("ask_user", question="Which one?", choices=["blue", "red"], call_id="call_1")
    with served_user(tmp_path, [turn(calls=[choosing]), "Blue it is."]) as stage:
        first = create(stage, False, input="Buy it!", tools=[ASK])
        with pytest.raises(openai.BadRequestError, match="one of 'blue', 'red'"):
            create(stage, False, input=[said("call_1", "green")], previous_response_id=first.id)
        create(stage, False, input=[said("call_1", "blue")], previous_response_id=first.id)
        with pytest.raises(openai.ConflictError):
            create(stage, False, input=[said("call_1", "red")], previous_response_id=first.id)


@pytest.mark.parametrize("seconds", ["1e19", "1e308", "1e999"])
@pytest.mark.parametrize("background", [False, True])
def test_a_question_that_waits_longer_than_anybody_lives_waits_for_ever(
    tmp_path: Path, seconds: str, *, background: bool
) -> None:
    asking = call("ask_user", f'{{"question": "Which one?", "expires_in": {seconds}}}')
    with served_user(tmp_path, [turn(calls=[asking])]) as stage:
        stage.client().responses.create(model="scripted", input="Buy it!", tools=[ASK], background=background)
        [question] = asked(stage)
        assert (question["status"], question["expires_at"]) == ("open", None)


@BOTH_WAYS
@pytest.mark.parametrize("calls", [False, True])
def test_of_two_answers_at_once_one_counts(tmp_path: Path, *, stream: bool, calls: bool) -> None:
    gate = Gate()
    slow = turn(calls=[call("calculate", expression="1")], wait_for=gate) if calls else turn("Blue.", wait_for=gate)
    with served_user(tmp_path, [turn(calls=[QUESTION]), slow, "Red."], section={"basics": {}}) as stage:
        first = create(stage, False, input="Buy it!", tools=[ASK])
        with ThreadPoolExecutor() as threads:
            early = threads.submit(create, stage, stream, input=[said("call_1", "blue")], previous_response_id=first.id)
            while len(stage.requests) < 2:
                early.exception(timeout=0.01) if early.done() else time.sleep(0.01)
            late = create(stage, False, input=[said("call_1", "red")], previous_response_id=first.id)
            gate.open()
            with pytest.raises(openai.APIError if stream else openai.ConflictError, match="is answered already by"):
                early.result()
        assert late.output_text == "Red."
        [question] = questions(stage)
        assert (question["status"], question["answer"]) == ("answered", "red")
        assert len(stage.requests) == 3


def test_an_answer_comes_with_a_response_that_is_stored(tmp_path: Path) -> None:
    with served_user(tmp_path, [turn(calls=[QUESTION])]) as stage:
        first = create(stage, False, input="Buy it!", tools=[ASK])
        with pytest.raises(openai.BadRequestError, match="stored"):
            create(stage, False, input=[said("call_1", "blue")], previous_response_id=first.id, store=False)
        [question] = questions(stage)
        assert question["status"] == "open"


@BOTH_WAYS
def test_an_answer_that_comes_with_a_question_is_not_lost(tmp_path: Path, *, stream: bool) -> None:
    final = call("final_answer", result="42")
    tools: Any = [ASK, {"type": "function", "name": "final_answer"}]
    with served_user(tmp_path, [turn(calls=[QUESTION, final]), turn(calls=[final])]) as stage:
        first = create(stage, stream, input="Well?", tools=tools)
        assert [item["type"] for item in items(first)] == ["function_call"]
        second = create(stage, stream, input=[said("call_1", "A")], tools=tools, previous_response_id=first.id)
        assert any("in the same turn" in output for output in outputs(stage))
        assert second.output_text == "42"


def test_what_a_run_keeps_is_there_after_each_pause(tmp_path: Path) -> None:
    keep = [call("store_set", key=scope, value=f"of the {scope}", scope=scope) for scope in ("run", "conversation")]
    look = [call("store_get", key=scope) for scope in ("run", "conversation")]
    steps: list[Turn | str] = [
        "Hello.",
        turn(calls=[*keep, QUESTION]),
        turn(calls=[call("ask_user", question="Sure?")]),
        turn(calls=look),
        "Done.",
    ]
    with served_user(tmp_path, steps, section={"variables": {"enabled": True}}) as stage:
        client = stage.client()
        start = create(stage, False, input="Hi!")
        first = create(stage, False, input="Buy it!", tools=[ASK], previous_response_id=start.id)
        answers = [said("call_1", "blue")]
        second = client.responses.create(
            model="scripted", input=answers, tools=[ASK], previous_response_id=first.id, background=True
        )
        [question] = asked(stage)
        answer(stage, question, answer="Yes.")
        assert done(stage, second.id)["status"] == "completed"
        assert outputs(stage)[-2:] == ["of the run", "of the conversation"]


def test_a_forged_answer_to_a_call_the_server_never_issued_is_refused(tmp_path: Path) -> None:
    with served_user(tmp_path, [turn(calls=[QUESTION])]) as stage:
        first = create(stage, False, input="Buy it!", tools=[ASK])
        with pytest.raises(openai.BadRequestError, match="No tool call found"):
            create(stage, False, input=[said("call_2", "Blue.")], previous_response_id=first.id)
        forged = {"id": "question_0123"}
        answer(stage, forged, 404, answer="Blue.")
        assert stage.request("POST", "/questions/question_0123/cancel").status_code == 404
        [question] = questions(stage)
        assert question["status"] == "open"


# --- ask_user: in the background -------------------------------------------------------------------------------------


def test_a_background_run_waits_and_goes_on_with_the_answer(tmp_path: Path) -> None:
    with served_user(tmp_path, [turn(calls=[QUESTION]), "Blue it is."]) as stage:
        response_id = begun(stage)
        [question] = asked(stage)
        assert stage.client().responses.retrieve(response_id).status == "in_progress"
        assert (question["response_id"], question["kind"]) == (response_id, "question")
        assert stage.request("GET", f"/questions/{question['id']}").json() == question
        answered = answer(stage, question, answer="The blue one.")
        assert (answered["status"], answered["answer"]) == ("answered", "The blue one.")
        assert done(stage, response_id)["status"] == "completed"
        assert outputs(stage) == ["The blue one."]
        stream = stage.resume(response_id)
        assert [item["type"] for item in stream.response["output"]] == ["function_call", "message"]


def test_several_questions_of_one_turn_are_one_pause(tmp_path: Path) -> None:
    both = turn(calls=[call("ask_user", question="A?"), call("ask_user", question="B?")])
    with served_user(tmp_path, [both, "Thanks."]) as stage:
        response_id = begun(stage)
        first, second = asked(stage, 2)
        answer(stage, second, answer="b")
        assert len(stage.requests) == 1
        answer(stage, first, answer="a")
        done(stage, response_id)
        assert outputs(stage) == ["a", "b"]


@pytest.mark.parametrize("default", ["blue", None])
def test_a_question_expires_and_the_model_goes_on(tmp_path: Path, default: str | None) -> None:
    fields: JSON = {"question": "Which one?", "expires_in": 0.01} | ({"default": default} if default else {})
    with served_user(tmp_path, [turn(calls=[call("ask_user", fields)]), "Well."]) as stage:
        response_id = begun(stage)
        done(stage, response_id)
        [question] = questions(stage)
        assert question["status"] == "expired"
        [output] = outputs(stage)
        assert ("blue" in output) is (default is not None)
        assert answer(stage, question, 409, answer="red")["error"]["code"] == "question_not_open"


def test_the_setting_says_how_long_a_question_waits(tmp_path: Path) -> None:
    with served_user(tmp_path, [turn(calls=[QUESTION])], user={"expires_in": "3d"}) as stage:
        begun(stage)
        [question] = asked(stage)
        assert question["expires_at"] - question["created_at"] == 259_200


def test_a_question_that_is_withdrawn_is_told_to_the_model(tmp_path: Path) -> None:
    with served_user(tmp_path, [turn(calls=[QUESTION]), "Well."]) as stage:
        response_id = begun(stage)
        [question] = asked(stage)
        found = stage.request("POST", f"/questions/{question['id']}/cancel")
        assert found.json()["status"] == "cancelled"
        assert stage.request("POST", f"/questions/{question['id']}/cancel").status_code == 409
        done(stage, response_id)
        assert "withdrawn" in outputs(stage)[0]


def test_a_response_that_is_cancelled_takes_its_questions_with_it(tmp_path: Path) -> None:
    with served_user(tmp_path, [turn(calls=[QUESTION])]) as stage:
        response_id = begun(stage)
        [question] = asked(stage)
        stage.client().responses.cancel(response_id)
        answer(stage, question, 409, answer="Too late.")
        [question] = questions(stage)
        assert question["status"] == "cancelled"


@on_one_store()
@pytest.mark.parametrize(
    ("body", "param"),
    [({}, "answer"), ({"answer": ""}, "answer"), ({"approve": True}, "answer"), ({"answer": "green"}, "answer")],
)
def test_answers_that_do_not_fit_are_refused(tmp_path: Path, body: JSON, param: str) -> None:
    choosing = call("ask_user", question="Which one?", choices=["blue", "red"])
    with served_user(tmp_path, [turn(calls=[choosing])]) as stage:
        begun(stage)
        [question] = asked(stage)
        assert question["body"]["choices"] == ["blue", "red"]
        assert answer(stage, question, 400, **body)["error"]["param"] == param


@on_one_store()
@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"question": ""},
        {"question": "Q?", "choices": []},
        {"question": "Q?", "choices": ["a"], "default": "b"},
        {"question": "Q?", "expires_in": 0},
    ],
)
def test_the_model_reads_what_is_wrong_with_its_question(tmp_path: Path, arguments: JSON) -> None:
    with served_user(tmp_path, [turn(calls=[call("ask_user", arguments)]), "Well."]) as stage:
        done(stage, begun(stage))
        assert len(outputs(stage)) == 1
        assert questions(stage) == []


def test_questions_are_listed_in_pages(tmp_path: Path) -> None:
    calls = [call("ask_user", question=f"{number}?") for number in range(5)]
    with served_user(tmp_path, [turn(calls=calls)]) as stage:
        response_id = begun(stage)
        every = [question["id"] for question in asked(stage, 5)]
        page = stage.request("GET", "/questions", params={"limit": 2, "order": "asc"}).json()
        assert [question["id"] for question in page["data"]] == every[:2]
        assert (page["first_id"], page["last_id"], page["has_more"]) == (every[0], every[1], True)
        page = stage.request("GET", "/questions", params={"limit": 3, "order": "asc", "after": every[1]}).json()
        assert ([question["id"] for question in page["data"]], page["has_more"]) == (every[2:], False)
        assert len(questions(stage, response_id=response_id)) == 5
        assert questions(stage, response_id="resp_other") == []
        assert questions(stage, status="answered") == []
        assert stage.request("GET", "/questions", params={"after": "question_0"}).status_code == 400
        assert stage.request("GET", "/questions", params={"status": "lost"}).status_code == 400


def test_nobody_sees_or_answers_the_questions_of_another_tenant(tmp_path: Path) -> None:
    keys = [{"id": name, "key": f"key-{name}", "tenant": name} for name in ("one", "two")]
    with served_user(tmp_path, [turn(calls=[QUESTION])], auth={"api_keys": keys}) as stage:
        mine, theirs = ({"Authorization": f"Bearer {entry['key']}"} for entry in keys)
        stage.request(
            "POST", "/responses", json={"model": "scripted", "input": "Go!", "background": True}, headers=mine
        )
        while not (found := stage.request("GET", "/questions", headers=mine).json()["data"]):
            pass
        path = f"/questions/{found[0]['id']}"
        assert stage.request("GET", "/questions", headers=theirs).json()["data"] == []
        assert stage.request("GET", path, headers=theirs).status_code == 404
        assert stage.request("POST", f"{path}/answer", json={"answer": "Hm."}, headers=theirs).status_code == 404
        assert stage.request("POST", f"{path}/cancel", headers=theirs).status_code == 404
        assert stage.request("GET", path, headers=mine).json()["status"] == "open"


# --- notify_user and final_answer ------------------------------------------------------------------------------------


@BOTH_WAYS
def test_a_notification_is_a_message_that_the_model_does_not_read(tmp_path: Path, *, stream: bool) -> None:
    steps: list[Any] = [turn(calls=[call("notify_user", message="Half way.")]), "Done.", "Again."]
    with served_user(tmp_path, steps) as stage:
        first = create(stage, stream, input="Work!")
        told, final = items(first)
        assert (told["type"], told["phase"], text_of(told)) == ("message", "commentary", "Half way.\n\n")
        assert text_of(final) == "Done."
        assert outputs(stage) == ["The user was told."]
        assert stage.request("GET", f"/responses/{first.id}").json()["output"] == items(first)
        create(stage, stream, input="More!", previous_response_id=first.id)
        texts = [item for item in stage.requests[-1].items if item["type"] == "message" and item["role"] == "assistant"]
        assert [text_of(item) for item in texts] == ["Done."]


@on_one_store()
@BOTH_WAYS
@pytest.mark.parametrize(("name", "missing"), [("notify_user", "message"), ("final_answer", "result")])
def test_a_call_without_its_text_is_told_and_the_agent_goes_on(
    tmp_path: Path, name: str, missing: str, *, stream: bool
) -> None:
    with served_user(tmp_path, [turn(calls=[call(name, {})]), "I see."]) as stage:
        response = create(stage, stream, input="Work!")
        assert [text_of(item) for item in items(response)] == ["I see."]
        assert missing in outputs(stage)[0]


def test_a_notification_of_a_background_run_is_told_at_once(tmp_path: Path) -> None:
    steps: list[Any] = [turn(calls=[call("notify_user", message="Half way."), QUESTION]), "Done."]
    with served_user(tmp_path, steps) as stage:
        response_id = begun(stage)
        [question] = asked(stage)
        output = stage.request("GET", f"/responses/{response_id}").json()["output"]
        assert {item.get("phase", item["type"]) for item in output} == {"commentary", "function_call"}
        answer(stage, question, answer="Blue.")
        response = done(stage, response_id)
        assert stage.resume(response_id).response["output"] == response["output"]


@BOTH_WAYS
def test_the_final_answer_is_the_text_and_ends_the_run(tmp_path: Path, *, stream: bool) -> None:
    long = "It is 42. " * 20_000
    ending = turn(calls=[call("final_answer", result=long), call("notify_user", message="Nearly.")])
    with served_user(tmp_path, [ending], section={"variables": {"enabled": True}}) as stage:
        response = create(stage, stream, input="What is it?")
        told, final = items(response)
        assert told["phase"] == "commentary"
        assert (response.status, text_of(final)) == ("completed", long)
        assert len(stage.requests) == 1


def test_a_final_answer_waits_for_the_questions_of_its_turn(tmp_path: Path) -> None:
    with served_user(tmp_path, [turn(calls=[call("final_answer", result="42"), QUESTION])]) as stage:
        response_id = begun(stage)
        [question] = asked(stage)
        answer(stage, question, answer="Blue.")
        response = done(stage, response_id)
        assert response["output"][-1]["content"][0]["text"] == "42"


# --- scope -----------------------------------------------------------------------------------------------------------


OF_THE_USER = pytest.mark.parametrize(
    ("name", "arguments"),
    [("ask_user", {"question": "Q?"}), ("notify_user", {"message": "M"}), ("final_answer", {"result": "R"})],
)


@OF_THE_USER
async def test_scopes_were_only_advisory_and_are_enforced_at_execution(name: str, arguments: JSON) -> None:
    registry = FunctionRegistry()
    registry.register(User())
    child = Context("tenant", agent=Agent("helper", depth=1))
    assert registry.discovered_tools(child) == []
    result = await registry.execute(name, arguments, child)
    assert (result.is_error, result.status, result.suspension) == (True, "denied", None)


@on_one_store()
@OF_THE_USER
@BOTH_WAYS
def test_a_sub_agent_that_calls_functions_of_the_user_anyway_is_refused(
    tmp_path: Path, name: str, arguments: JSON, *, stream: bool
) -> None:
    steps: list[Any] = [
        turn(calls=[call("spawn_agent", prompt="Work!")]),
        turn(calls=[call(name, arguments)]),
        "I could not.",
        "Done.",
    ]
    tools = [{"type": "function", "name": function} for function in ("spawn_agent", name)]
    with served_user(tmp_path, steps, section={"sub_agents": {"enabled": True}}) as stage:
        response = create(stage, stream, input="Go!", tools=tools)
        assert [text_of(item) for item in items(response)] == ["Done."]
        assert name in [tool["name"] for tool in stage.requests[0].tools]
        assert name not in [tool["name"] for tool in stage.requests[1].tools]
        [told] = outputs(stage, 2)
        assert told.startswith(f"There is no function '{name}' here.")
        assert questions(stage) == []


def test_exhausted_iterations_are_not_reported_as_completed(tmp_path: Path) -> None:
    steps = [turn(calls=[call("notify_user", message=f"{number}")]) for number in range(3)]
    with served_user(tmp_path, steps, engine={"max_turns": 3}) as stage:
        response = stage.request("POST", "/responses", json={"model": "scripted", "input": "Work!"}).json()
        assert response["status"] == "incomplete"
        assert response["incomplete_details"]["reason"] == "max_turns"


def test_the_description_says_that_the_user_is_a_function() -> None:
    registry = FunctionRegistry()
    registry.register(User())
    described = " ".join(registry.get("ask_user").description.split())
    assert described.startswith(
        "Ask the human user a question. The user is a function in this system. "
        "Use this when you need human input or judgment."
    )
    assert registry.get("ask_user").parameters["required"] == ["question"]


# --- many of them ----------------------------------------------------------------------------------------------------


async def test_parked_runs_take_no_memory_and_a_restart_does_not_wake_them(tmp_path: Path) -> None:
    number = 1000 if os.environ.get("ANTWORT_TEST_FULL") else 100
    config: JSON = {"providers": {"user": {"enabled": True}}}
    steps = [turn(calls=[QUESTION]) for _ in range(number + 20)]

    async def park(app: Embedded, count: int) -> None:
        for _ in range(count):
            await app.accept("Go!")
        await app.at_rest()
        assert [len(request.items) for request in app.model.requests] == [1] * count
        app.model.requests.clear()  # the scripted model would keep them
        gc.collect()

    async with embedded(tmp_path, steps, **config) as app:
        await park(app, 20)  # what is made once is there
        tracemalloc.start()
        try:
            before, tasks = tracemalloc.get_traced_memory()[0], len(asyncio.all_tasks())
            await park(app, number)
            grown = tracemalloc.get_traced_memory()[0] - before
        finally:
            tracemalloc.stop()
        assert app.runs.idle
        assert len(asyncio.all_tasks()) == tasks
        assert grown < 150_000  # however many there are
    async with embedded(tmp_path, [], **config) as app:
        assert app.runs.idle
        page = await app.runs.questions.page(TENANT, status="open", limit=2)
        assert page.has_more
