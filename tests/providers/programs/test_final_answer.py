"""Programs that end the work: what they give is the answer when they are over, and the model is not asked again."""

from pathlib import Path
from typing import Any

import pytest
from tests.http.sdk import create, done
from tests.providers.programs.stage import TOOL, program, result, served_programs
from tests.providers.programs.test_waiting import said
from tests.providers.sub_agents.stage import does
from tests.providers.user.stage import answer, asked, begun

from antwort.testing import Turn, call, turn

BOTH_WAYS = pytest.mark.parametrize("stream", [False, True], ids=["json", "stream"])
USER = {"user": {"enabled": True}, "sub_agents": {"enabled": True}}
FINAL: Any = {"type": "function", "name": "final_answer"}
ASK: Any = {"type": "function", "name": "ask_user"}
TOOLS: Any = [TOOL, FINAL]


@BOTH_WAYS
@pytest.mark.parametrize("interpreter", ["monty", "sandbox"])
def test_a_program_ends_the_work_with_its_answer(tmp_path: Path, interpreter: str, *, stream: bool) -> None:
    code = "total = (await add(a=1))['sum']\nawait final_answer(f'It is {total}.')\nprint('printed')"
    settings = {"interpreter": interpreter}
    with served_programs(tmp_path, [program(code), "Next."], section=USER, settings=settings) as stage:
        response = create(stage, stream, input="Go!", tools=TOOLS)
        assert (response.status, response.output_text) == ("completed", "It is 2.")
        assert [item.type for item in response.output] == ["program", "program_output", "message"]
        assert response.output[1].to_dict()["result"] == "printed"
        assert len(stage.requests) == 1
        # Whoever continues it reads the program, what it has printed, and the answer.
        create(stage, stream, input="And?", previous_response_id=response.id, tools=TOOLS)
        assert [item["type"] for item in stage.requests[1].items] == [
            *("message", "function_call", "function_call_output", "message", "message")
        ]


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("42", "42"),
        ("{'found': [1, 2]}", '{"found":[1,2]}'),
        ("await set_variable('report', 'long ' * 50_000)", "long " * 50_000),
    ],
    ids=["a number", "a dict", "a variable"],
)
def test_what_is_no_text_is_written_and_a_variable_is_its_value(tmp_path: Path, given: str, text: str) -> None:
    with served_programs(tmp_path, [program(f"await final_answer({given})")], section=USER) as stage:
        response = create(stage, False, input="Go!", tools=TOOLS)
        assert response.output_text == text


def test_the_last_answer_counts(tmp_path: Path) -> None:
    code = "await final_answer('first')\nawait final_answer('second')"
    with served_programs(tmp_path, [program(code)], section=USER) as stage:
        assert create(stage, False, input="Go!", tools=TOOLS).output_text == "second"


def test_a_program_that_fails_gives_no_answer(tmp_path: Path) -> None:
    steps: list[Turn | str] = [
        program("await final_answer('wrong')\n1 / 0"),
        program("await final_answer(None)"),
        program("1 + 1"),
        "Right.",
    ]
    with served_programs(tmp_path, steps, section=USER) as stage:
        response = create(stage, False, input="Go!", tools=TOOLS)
        assert response.output_text == "Right."
        assert "ZeroDivisionError" in result(stage, 1)
        assert "RuntimeError" in result(stage, 2)
        assert result(stage, 3) == "2"


def test_an_agent_that_has_no_final_answer_has_none_in_programs(tmp_path: Path) -> None:
    with served_programs(tmp_path, [program("await final_answer('x')"), "Done."], section={}) as stage:
        assert create(stage, False, input="Go!", tools=[TOOL]).output_text == "Done."
        assert "NameError" in result(stage)


@BOTH_WAYS
def test_an_answer_is_given_after_a_question_of_the_program(tmp_path: Path, *, stream: bool) -> None:
    code = "import asyncio\ngiven = await asyncio.gather(final_answer('early'), ask_user(question='Which?'))\n"
    code += "await final_answer(f'The {given[1]} one.')"
    with served_programs(tmp_path, [program(code)], section=USER) as stage:
        tools = [*TOOLS, ASK]
        first = create(stage, stream, input="Go!", tools=tools)
        _, question = (item.to_dict() for item in first.output)
        answered = [said(str(question["call_id"]), "blue")]
        second = create(stage, stream, input=answered, previous_response_id=first.id, tools=tools)
        assert second.output_text == "The blue one."
        assert len(stage.requests) == 1


def test_in_the_background_too(tmp_path: Path) -> None:
    code = "given = await ask_user(question='Which?')\nawait final_answer(f'The {given} one.')"
    with served_programs(tmp_path, [program(code)], section=USER) as stage:
        response_id = begun(stage, tools=[*TOOLS, ASK])
        [question] = asked(stage)
        answer(stage, question, answer="blue")
        response = done(stage, response_id)
        assert response["output"][-1]["content"][0]["text"] == "The blue one."
        assert len(stage.requests) == 1


def test_an_answer_beside_a_question_of_the_same_turn_is_refused_in_the_foreground(tmp_path: Path) -> None:
    ending = call("run_program", code="await final_answer('mine')")
    steps: list[Turn | str] = [turn(calls=[ending, call("ask_user", question="Which?")]), "Blue it is."]
    with served_programs(tmp_path, steps, section=USER) as stage:
        tools = [*TOOLS, ASK]
        first = create(stage, False, input="Go!", tools=tools)
        [question] = [item for item in first.output if item.type == "function_call"]
        second = create(
            stage, False, input=[said(question.call_id, "blue")], previous_response_id=first.id, tools=tools
        )
        assert second.output_text == "Blue it is."
        read = str([item for item in stage.requests[1].items if item["type"] == "function_call_output"])
        assert "Give your result when you have read the answer." in read


@pytest.mark.parametrize(
    ("given", "found"),
    [("'short'", "short"), ("{'a': 1}", '{"a":1}'), ("await set_variable('report', 'x' * 5000)", 5000)],
    ids=["a text", "a dict", "a variable"],
)
def test_a_sub_agent_returns_its_result_from_a_program(tmp_path: Path, given: str, found: Any) -> None:
    steps: list[Turn | str] = [
        does("spawn_agent", prompt="work"),
        program(f"await return_result({given})"),
        "Done.",
    ]
    tools = [*TOOLS, {"type": "function", "name": "spawn_agent"}]
    with served_programs(tmp_path, steps, section=USER) as stage:
        create(stage, False, input="Go!", tools=tools)
        told = result(stage)
        assert (f'"size":{found}' in told) if isinstance(found, int) else (found.replace('"', '\\"') in told)
        assert len(stage.requests) == 3
