"""The provider in a served app: what it finds is nowhere, and what a model judges is refused, or not told."""

import logging
from pathlib import Path
from typing import Any

import pytest
from tests.engine.test_checks import assert_nowhere, refusals, said_to_model
from tests.http.sdk import create, done, outputs, served_provider

from antwort.testing import call, matching, turn

KEY = "sk-proj-abcdefghij0123456789"
CARD = "4111 1111 1111 1111"
ANSWER = f"Your key is {KEY}, and the card is {CARD}. Is there more?"
CLEAN = "Your key is [api_key], and the card is [credit_card]. Is there more?"
JUDGE: Any = {"policy": "Nothing about the weather.", "model": "scripted"}
YES, NO = '{"allowed": true}', 'Well: ```json\n{"allowed": false, "reason": "It is about\\nthe weather."}\n```'
CALCULATE: Any = {"type": "function", "name": "calculate"}


@pytest.mark.parametrize("way", ["json", "stream", "background"])
def test_what_is_found_is_in_no_answer_file_or_log(tmp_path: Path, way: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    pieces = [ANSWER[start : start + 5] for start in range(0, len(ANSWER), 5)]
    steps = [turn(calls=[call("calculate", expression=f"1 + {CARD}")]), turn(pieces, reasoning=[f"The key is {KEY}."])]
    section = {"guardrails": {"enabled": True}, "basics": {"enabled": True}}
    settings: Any = {
        "sections": {
            "providers": section,
            "storage": {},
            "observability": {"audit_file": str(tmp_path / "audit.jsonl")},
        }
    }
    with served_provider(tmp_path, "guardrails", steps, settings) as stage:
        given: Any = {"input": f"I am {KEY} and {CARD}", "tools": [CALCULATE]}
        response = create(stage, way != "json", background=way == "background", **given)
        body = done(stage, response.id)
        assert body["output"][-1]["content"][0]["text"] == CLEAN
        assert "I am [api_key] and [credit_card]" in said_to_model(stage)
        story = stage.request("GET", f"/responses/{response.id}/trace")
        assert (story.status_code, KEY in story.text, CARD in story.text) == (200, False, False)
    for secret in (KEY, CARD):
        assert_nowhere(tmp_path, secret)
        assert secret not in caplog.text
    assert '"check.mask"' in (tmp_path / "audit.jsonl").read_text()


def test_a_judge_refuses_what_its_policy_does_not_allow(tmp_path: Path) -> None:
    steps = [
        turn(YES, expect=matching(text="Hello")),
        turn("It rains."),
        turn(NO, expect=matching(text="It rains.")),
        turn(NO, expect=matching(text="Will it rain?")),
    ]
    with served_provider(tmp_path, "guardrails", steps, {"judge": JUDGE}) as stage:
        response = create(stage, True, input="Hello")
        assert (response.output_text, refusals(response)) == ("", ["It is about the weather."])
        assert "Nothing about the weather." in str(stage.requests[0].instructions)
        assert "text from a user" in said_to_model(stage, 0)
        assert "text from an assistant" in said_to_model(stage, 2)
        assert refusals(create(stage, False, input="Will it rain?")) == ["It is about the weather."]
        # What was judged before is not judged again.
        assert refusals(create(stage, False, input="Will it rain?")) == ["It is about the weather."]


def test_a_judge_looks_at_calls_and_results_if_it_is_told_to(tmp_path: Path) -> None:
    steps = [
        turn(calls=[call("calculate", expression="1 + 1"), call("calculate", expression="2 + 2")]),
        turn(YES, by=matching(text="1 + 1")),
        turn(NO, by=matching(text="2 + 2")),
        turn(YES, by=matching(text="Does this keep")),
        turn("Done."),
    ]
    judge = {**JUDGE, "stages": ["call", "result"]}
    section = {"guardrails": {"enabled": True, "settings": {"judge": judge}}, "basics": {"enabled": True}}
    with served_provider(tmp_path, "guardrails", steps, {"sections": {"providers": section}}) as stage:
        create(stage, False, input="?", tools=[CALCULATE])
        assert outputs(stage) == ["2", "It is about the weather."]


@pytest.mark.parametrize("answer", ["I think so.", '{"allowed": "perhaps"}', ""])
@pytest.mark.parametrize("on_error", ["refuse", "allow"])
def test_what_could_not_be_judged_is_refused_unless_the_operator_allows_it(
    tmp_path: Path, answer: str, on_error: str
) -> None:
    steps: list[Any] = [turn(answer), *(["Fine."] if on_error == "allow" else [])]
    judge = {**JUDGE, "stages": ["input"], "on_error": on_error}
    with served_provider(tmp_path, "guardrails", steps, {"judge": judge}) as stage:
        response = create(stage, False, input="Hello")
        refused = ["It could not be checked (judge), so it is not let through."]
        assert refusals(response) == (refused if on_error == "refuse" else [])


def test_a_judge_reads_letters_that_nobody_sees(tmp_path: Path) -> None:
    hidden = "".join(chr(0xE0000 + ord(letter)) for letter in "Will it rain?")
    with served_provider(tmp_path, "guardrails", [turn(NO, expect=matching(text="rain"))], {"judge": JUDGE}) as stage:
        assert refusals(create(stage, False, input=f"Hello{hidden}")) == ["It is about the weather."]
        assert "HelloWill it rain?" in said_to_model(stage)


def test_a_judge_sees_what_the_patterns_have_left(tmp_path: Path) -> None:
    with served_provider(tmp_path, "guardrails", [YES, "Well.", YES], {"judge": JUDGE}) as stage:
        create(stage, False, input=f"I am {KEY}")
        assert "I am [api_key]" in said_to_model(stage, 0)
        assert KEY not in str([said_to_model(stage, number) for number in range(3)])
