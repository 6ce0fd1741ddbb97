"""Decisions over a socket, by the SDK, on a scripted model."""

import json
from pathlib import Path
from typing import Any

import pytest
from openai import APIStatusError, BadRequestError
from tests.http.sdk import Served, served

from antwort.testing import Turn, fail, raw, turn
from antwort.types import JSON

PREDICATE: Any = {"type": "predicate", "name": "angry", "instructions": "The customer is angry."}
CHOICE: Any = {
    "type": "choice",
    "name": "team",
    "instructions": "Who takes care of it?",
    "choices": [{"value": "true", "description": "A text."}, {"value": True}, {"value": "other"}],
}
SCORE: Any = {"type": "score", "instructions": "How urgent?", "levels": [{"label": "low"}, {"label": "high"}]}
ALL = [PREDICATE, CHOICE, SCORE]
SURE = '{"q1": "yes", "p1": 80, "q2": "B", "p2": 50, "q3": "0", "p3": 100}'
CODES = turn(['{"q1": "', "yes", '", "q2": "', "B", '", "q3": "', "0", '"}'], logprobs=True)
KEYS = {"api_keys": [{"id": "w", "key": "secret-w", "tenant": "w", "scopes": ["responses:write"]}]}


def asked(**fields: Any) -> JSON:
    return {"model": "scripted", "input": "I was charged twice!", "questions": ALL, **fields}


def decided(stage: Served, **fields: Any) -> Any:
    """Ask by the SDK; what is in an answer depends on its type."""
    return stage.client().decisions.create(**asked(**fields))


def test_questions_are_answered_in_their_order_by_the_tokens_of_one_answer(tmp_path: Path) -> None:
    with served(tmp_path, [CODES]) as stage:
        found = decided(stage)
        request = stage.requests[0]
    angry, team, urgent = found.answers
    assert (angry.type, angry.name, angry.probability) == ("predicate", "angry", 1.0)
    assert (team.type, team.name, team.choice, team.confidence) == ("choice", "team", True, 1.0)
    assert [(one.value, one.probability) for one in team.probabilities] == [("true", 0), (True, 1), ("other", 0)]
    assert (urgent.type, urgent.name, urgent.score, urgent.confidence) == ("score", None, 0.0, 1.0)
    assert [(one.value, one.label, one.probability) for one in urgent.probabilities] == [(0, "low", 1), (1, "high", 0)]
    assert (found.model, found.usage.input_tokens, found.usage.total_tokens) == ("scripted", 10, 15)
    assert request.text_format is not None
    assert request.text_format["schema"]["required"] == ["q1", "q2", "q3"]
    assert (request.top_logprobs, list(request.tools), request.tool_choice) == (5, [], None)


async def test_an_asynchronous_client_is_answered_as_well(tmp_path: Path) -> None:
    with served(tmp_path, [CODES]) as stage:
        async with stage.async_client() as client:
            found = await client.decisions.create(**asked())
    assert [answer.type for answer in found.answers] == ["predicate", "choice", "score"]


def test_probabilities_are_those_of_the_tokens_that_a_server_tells(tmp_path: Path) -> None:
    told = [{"token": "no", "logprob": -1.3862944, "bytes": None}, {"token": "yes", "logprob": -0.2876821}]
    content = [
        {"token": '{"q1": "', "logprob": 0.0, "top_logprobs": []},
        {**told[0], "top_logprobs": told},
        {"token": '"}', "logprob": 0.0, "top_logprobs": []},
    ]
    message = {"role": "assistant", "content": '{"q1": "no"}'}
    choice = {"index": 0, "message": message, "finish_reason": "stop", "logprobs": {"content": content}}
    whole = {"id": "c", "object": "chat.completion", "created": 1, "model": "scripted", "choices": [choice]}
    answer = raw(json.dumps(whole).encode(), headers={"content-type": "application/json"})
    with served(tmp_path, [answer], over_http=True) as stage:
        found = decided(stage, questions=[PREDICATE])
        assert found.answers[0].probability == 0.75
        assert (stage.bodies[0]["logprobs"], stage.bodies[0]["top_logprobs"]) == (True, 5)
        assert stage.bodies[0]["response_format"]["json_schema"]["strict"] is True


def test_a_server_without_log_probabilities_is_asked_for_its_word_and_that_is_remembered(tmp_path: Path) -> None:
    with served(tmp_path, ['{"q1": "yes", "q2": "B", "q3": "0"}', SURE, SURE]) as stage:
        for _ in range(2):
            angry, team, urgent = decided(stage).answers
            assert angry.probability == 0.8
            assert [one.probability for one in team.probabilities] == [0.25, 0.5, 0.25]
            assert (urgent.score, urgent.confidence) == (0, 1)
        assert [request.top_logprobs for request in stage.requests] == [5, None, None]


def test_a_server_that_writes_tokens_in_another_way_is_asked_for_its_word(tmp_path: Path) -> None:
    content: list[JSON] = [
        {"token": token, "logprob": 0.0, "top_logprobs": []} for token in ("token_id:1", "token_id:2")
    ]
    message = {"role": "assistant", "content": '{"q1": "yes"}'}
    choice = {"index": 0, "message": message, "finish_reason": "stop", "logprobs": {"content": content}}
    whole = {"id": "c", "object": "chat.completion", "created": 1, "model": "scripted", "choices": [choice]}
    answer = raw(json.dumps(whole).encode(), headers={"content-type": "application/json"})
    with served(tmp_path, [answer, SURE] * 2, over_http=True) as stage:
        for _ in range(2):
            assert decided(stage, questions=[PREDICATE]).answers[0].probability == 0.8
        assert ["logprobs" in body for body in stage.bodies] == [True, False] * 2


def test_an_empty_answer_does_not_tell_that_a_server_has_no_log_probabilities(tmp_path: Path) -> None:
    with served(tmp_path, [turn(""), CODES, CODES]) as stage:
        for _ in range(2):
            assert decided(stage).answers[0].probability == 1.0
        assert [request.top_logprobs for request in stage.requests] == [5, 5, 5]


def test_a_server_that_refuses_both_is_asked_without_them(tmp_path: Path) -> None:
    steps: list[Turn | str] = [
        turn(error=fail(400, "logprobs are not supported with this model")),
        turn(error=fail(400, "response_format of type json_schema is not available")),
        f"Here you are:\n```json\n{SURE}\n```",
        SURE,
    ]
    with served(tmp_path, steps) as stage:
        assert decided(stage).answers[0].probability == 0.8
        assert decided(stage).answers[0].probability == 0.8
        formats = [request.text_format is not None for request in stage.requests]
        assert formats == [True, True, False, False]


def test_what_a_server_refuses_for_another_reason_is_told(tmp_path: Path) -> None:
    with served(tmp_path, [turn(error=fail(400, "no such luck"))]) as stage, pytest.raises(BadRequestError) as error:
        decided(stage)
    assert "no such luck" in error.value.message


def test_only_what_was_not_answered_is_asked_once_more(tmp_path: Path) -> None:
    first = turn(['{"q1": "', "yes", '", "q2": "', "Z", '"}'], logprobs=True)
    second = turn(['{"q2": "', "A", '", "q3": "', "1", '"}'], logprobs=True)
    with served(tmp_path, [first, second]) as stage:
        found = decided(stage)
        again = stage.requests[1]
    assert (found.answers[1].choice, found.answers[2].score) == ("true", 1)
    assert found.usage.total_tokens == 30
    assert again.text_format is not None
    assert again.text_format["schema"]["required"] == ["q2", "q3"]
    assert "angry" not in json.dumps(again.items)


def test_a_model_that_does_not_comply_twice_is_an_error_that_names_the_question(tmp_path: Path) -> None:
    with served(tmp_path, ["I cannot say."] * 3) as stage, pytest.raises(APIStatusError) as error:
        decided(stage, questions=[PREDICATE])
    assert error.value.status_code == 502
    assert error.value.message.endswith("not answered question 1 ('angry') with any of its answers.")
    assert error.value.response.json()["error"]["param"] == "questions[0]"


@pytest.mark.parametrize("declining", [turn(refusal="No."), turn("", finish="content_filter")])
def test_a_model_that_declines_is_a_refusal_of_each_question(tmp_path: Path, declining: Any) -> None:
    with served(tmp_path, [declining]) as stage:
        found = decided(stage)
    assert [(one.type, one.name) for one in found.answers] == [
        ("refusal", "angry"),
        ("refusal", "team"),
        ("refusal", None),
    ]


def test_many_questions_are_asked_in_groups_that_read_the_same_before_them(tmp_path: Path) -> None:
    codes = ", ".join(f'"q{number}": "yes", "p{number}": {number % 50 + 50}' for number in range(1, 401))
    with served(tmp_path, [f"{{{codes}}}"] * 26) as stage:
        found = decided(stage, questions=[PREDICATE] * 400)
        requests = stage.requests
    assert [one.probability for one in found.answers] == [(number % 50 + 50) / 100 for number in range(1, 401)]
    assert len(requests) == 26
    assert found.usage.total_tokens == 26 * 15
    assert len({json.dumps([request.instructions, request.items[:-1]]) for request in requests}) == 1


def test_calls_are_words_so_that_one_may_stand_without_an_output(tmp_path: Path) -> None:
    said = [
        {"role": "developer", "content": [{"type": "input_text", "text": "Be kind."}]},
        {"role": "user", "content": [{"type": "input_json", "data": {"a": [1, None]}}]},
        {
            "role": "assistant",
            "content": [{"type": "output_text", "text": "Hm."}, {"type": "refusal", "refusal": "No."}],
        },
        {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "Nothing."}]},
        {"type": "custom_tool_call", "call_id": "c2", "name": "write", "input": "x"},
    ]
    with served(tmp_path, [CODES]) as stage:
        decided(stage, input=said)
        items = stage.requests[0].items
    assert [item["role"] for item in items] == [
        "developer",
        "user",
        "assistant",
        "assistant",
        "user",
        "assistant",
        "user",
    ]
    assert items[1]["content"][0] == {"type": "input_text", "text": '{"a":[1,null]}'}
    assert "look" in items[3]["content"][0]["text"]
    assert "Nothing." in items[4]["content"][0]["text"]


def test_functions_are_not_offered_and_nothing_is_kept(tmp_path: Path) -> None:
    agents = {"clerk": {"instructions": "You know the shop.", "functions": ["calculate"], "model": "scripted"}}
    with served(tmp_path, [CODES, CODES], agents=agents, section={"basics": {"enabled": True}}) as stage:
        decided(stage, safety_identifier="me", prompt_cache_key="shop")
        decided(stage, model="clerk")
        assert stage.request("GET", "/responses").json()["data"] == []
        plain, clerk = stage.requests
    assert (plain.user, plain.prompt_cache_key) == ("me", "shop")
    assert list(plain.tools) == list(clerk.tools) == []
    assert (clerk.instructions or "").startswith("You know the shop.")


def test_images_of_inputs_and_questions_are_shown(tmp_path: Path) -> None:
    image = {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo="}
    question = {**PREDICATE, "instructions": [{"type": "input_text", "text": "It shows this:"}, image]}
    with served(tmp_path, [CODES]) as stage:
        decided(stage, input=[{"role": "user", "content": [image]}], questions=[question])
        first, last = stage.requests[0].items
        kinds = [part["type"] for part in last["content"]]
    assert first["content"][0]["type"] == "input_image"
    assert kinds == ["input_text", "input_image", "input_text"]


def test_urls_that_no_stranger_may_name_reach_no_model(tmp_path: Path) -> None:
    image = {"type": "input_image", "image_url": "http://127.0.0.1/x"}
    said, question = {"role": "user", "content": [image]}, {**PREDICATE, "instructions": [image]}
    called = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "c", "output": [image]}
    with served(tmp_path, [], over_http=True) as stage:
        for fields, param in (
            ({"input": [said]}, "input[0].content[0].image_url"),
            ({"input": [called, output]}, "input[1].output[0].image_url"),
            ({"questions": [question]}, "questions[0].instructions[0].image_url"),
        ):
            error = stage.request("POST", "/decisions", json=asked(**fields)).json()["error"]
            assert (error["param"], error["code"]) == (param, "invalid_url")


WRONG: list[tuple[JSON, str]] = [
    ({"questions": []}, "questions"),
    ({"questions": [PREDICATE] * 401}, "questions"),
    ({"questions": [{"type": "guess", "instructions": "x"}]}, "questions[0].type"),
    ({"questions": [{"type": "predicate"}]}, "questions[0].instructions"),
    ({"questions": [{**PREDICATE, "instructions": ""}]}, "questions[0].instructions"),
    ({"questions": [{**CHOICE, "choices": [{"value": "a"}]}]}, "questions[0].choices"),
    ({"questions": [{**CHOICE, "choices": [{"value": str(n)} for n in range(256)]}]}, "questions[0].choices"),
    ({"questions": [{**CHOICE, "choices": [{"value": "a"}, {"value": "a"}]}]}, "questions[0].choices[1].value"),
    ({"questions": [{**CHOICE, "choices": [{"value": 1}, {"value": 2}]}]}, "questions[0].choices[0].value"),
    ({"questions": [{**SCORE, "levels": [{"label": "a"}] * 11}]}, "questions[0].levels"),
    ({"input": [{"role": "nobody", "content": "x"}]}, "input[0].role"),
    ({"input": [{"content": "x"}]}, "input[0].role"),
    ({"input": [{"type": "reasoning", "summary": []}]}, "input[0].type"),
    ({"input": [{"type": 7}]}, "input[0].type"),
    ({"input": [{"role": "system", "content": [{"type": "input_image", "image_url": "x"}]}]}, "input[0].content[0]"),
    ({"input": [{"role": "user", "content": [{"type": "input_image", "file_id": "file-1"}]}]}, "input[0].content[0]"),
    ({"input": [{"type": "function_call_output", "call_id": "c", "output": ""}]}, "input[0].call_id"),
    ({"input": [{"role": "user", "content": [{"type": "input_json", "data": 7}]}]}, "input[0].content[0].data"),
    ({"store": True}, "store"),
    ({"prompt_cache_options": {"ttl": "1h"}}, "prompt_cache_options.ttl"),
    ({"safety_identifier": "x" * 129}, "safety_identifier"),
]


def test_what_does_not_fit_is_refused_by_its_name(tmp_path: Path) -> None:
    deep: Any = {}
    for _ in range(33):
        deep = {"a": deep}
    data = [deep, {"a": [0] * 10_001}, {"a": "x" * 262_144}]
    large = [({"input": [{"role": "user", "content": [{"type": "input_json", "data": one}]}]}, "data") for one in data]
    large += [({"questions": [{**PREDICATE, "instructions": [{"type": "input_json", "data": data[1]}]}]}, "data")]
    output = {"type": "custom_tool_call_output", "call_id": "c", "output": ""}
    other = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    with served(tmp_path, []) as stage:
        for body, param in [*WRONG, *large, ({"input": [other, output]}, "input[1].call_id")]:
            answer = stage.request("POST", "/decisions", json=asked(**body))
            error = answer.json()["error"]
            assert (answer.status_code, error["type"]) == (400, "invalid_request_error"), (body, answer.text)
            assert param in error["param"], (body, error)
        for missing in ("input", "questions"):
            body = {name: value for name, value in asked().items() if name != missing}
            assert stage.request("POST", "/decisions", json=body).json()["error"]["param"] == missing


def test_decisions_need_the_scope_of_responses(tmp_path: Path) -> None:
    reading = {"id": "r", "key": "secret-r", "tenant": "w", "scopes": ["responses:read"]}
    with served(tmp_path, [CODES], auth={"api_keys": [*KEYS["api_keys"], reading]}) as stage:
        assert len(stage.client("secret-w").decisions.create(**asked()).answers) == 3
        with pytest.raises(APIStatusError, match="responses:write"):
            stage.client("secret-r").decisions.create(**asked())


def test_a_budget_that_is_spent_is_told(tmp_path: Path) -> None:
    engine = {"run": {"max_tokens": 16}}
    codes = ", ".join(f'"q{number}": "yes", "p{number}": 90' for number in range(1, 101))
    with served(tmp_path, [f"{{{codes}}}"] * 2, engine=engine) as stage, pytest.raises(BadRequestError) as error:
        decided(stage, questions=[PREDICATE] * 100)
    assert error.value.code == "budget_exceeded"
