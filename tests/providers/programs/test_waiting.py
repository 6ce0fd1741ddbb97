"""Programs that wait: for answers and approvals, in the foreground and in the background, and for long calls."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.http.sdk import create, done
from tests.providers.programs.stage import TOOL, program, result, served_programs
from tests.providers.user.stage import answer, asked, begun

from antwort.functions import FunctionSpec
from antwort.testing import matching, turn

BOTH_WAYS = pytest.mark.parametrize("stream", [False, True], ids=["json", "stream"])
USER = {"user": {"enabled": True}}
ASK: Any = {"type": "function", "name": "ask_user"}
ASKING = """
x = (await add(a=1))["sum"]
print("before")
first = await ask_user(question="Which one?")
second = await ask_user(question="Sure?")
print(x, first, second)
"""


def said(call_id: str, output: str) -> Any:
    return {"type": "function_call_output", "call_id": call_id, "output": output}


@BOTH_WAYS
def test_in_the_foreground_each_question_ends_a_response(tmp_path: Path, *, stream: bool) -> None:
    steps: list[Any] = [program(ASKING, "call_1"), program("x + 1", "call_2"), "Blue it is."]
    with served_programs(tmp_path, steps, section=USER) as stage:
        first = create(stage, stream, input="Go!", tools=[TOOL, ASK])
        written, question = (item.to_dict() for item in first.output)
        assert (written["type"], question["type"]) == ("program", "function_call")
        assert question["caller"] == {"type": "program", "caller_id": "call_1"}
        answered = [said(str(question["call_id"]), "The blue one.")]
        second = create(stage, stream, input=answered, previous_response_id=first.id, tools=[TOOL, ASK])
        [question] = [item.to_dict() for item in second.output]
        assert question["caller"] == {"type": "program", "caller_id": "call_1"}
        answered = [said(str(question["call_id"]), "Yes.")]
        third = create(stage, stream, input=answered, previous_response_id=second.id, tools=[TOOL, ASK])
        types = [item.type for item in third.output]
        assert types == ["program_output", "program", "program_output", "message"]
        assert result(stage, 1) == "before\n2 The blue one. Yes."
        assert result(stage, 2) == "3"  # names stay, since it is the same run
        assert third.output_text == "Blue it is."


def test_after_a_program_that_has_waited_there_are_variables(tmp_path: Path) -> None:
    codes = ["x = await ask_user(question='Which one?')\nx", "v = await set_variable('doc', x)\n[v.key, v.size]"]
    with served_programs(tmp_path, [*map(program, codes), "Done."], section=USER) as stage:
        response_id = begun(stage, tools=[TOOL])
        [question] = asked(stage, 1)
        answer(stage, question, answer="Blue.")
        assert done(stage, response_id)["status"] == "completed"
        assert [result(stage, number) for number in (1, 2)] == ["Blue.", '["doc",5]']


def test_in_the_background_it_waits_for_answers_and_approvals(tmp_path: Path) -> None:
    async def refund(order: str) -> str:
        """Give money back."""
        return f"refunded {order}"

    code = "import asyncio\nprint(await asyncio.gather(refund(order='7'), ask_user(question='Why?'), add(a=1)))"
    specs = [FunctionSpec.of(refund, {"approval": "always"})]
    with served_programs(tmp_path, [program(code), "Done."], section=USER, more=specs) as stage:
        response_id = begun(stage, tools=[TOOL])
        for question in asked(stage, 2):
            answer(stage, question, **({"approve": True} if question["kind"] == "approval" else {"answer": "Broken."}))
        assert done(stage, response_id)["status"] == "completed"
        assert result(stage) == "['refunded 7', 'Broken.', {'sum': 2}]"


def test_an_approval_that_is_denied_is_an_error_that_the_program_can_catch(tmp_path: Path) -> None:
    async def refund() -> str:
        """Give money back."""
        return "refunded"

    code = "try:\n    await refund()\nexcept RuntimeError as error:\n    print('caught', error)"
    specs = [FunctionSpec.of(refund, {"approval": "always"})]
    with served_programs(tmp_path, [program(code), "Done."], section=USER, more=specs) as stage:
        first = create(stage, False, input="Go!", tools=[TOOL])
        request = first.output[-1].to_dict()
        assert request["type"] == "mcp_approval_request"
        verdict: Any = {"type": "mcp_approval_response", "approval_request_id": request["id"], "approve": False}
        create(stage, False, input=[verdict], previous_response_id=first.id, tools=[TOOL])
        assert result(stage).startswith("caught The user does not want this call")


def test_a_response_that_is_not_stored_has_programs_that_cannot_wait(tmp_path: Path) -> None:
    code = "x = 1\ntry:\n    await ask_user(question='?')\nexcept RuntimeError as error:\n    print(error)"
    with served_programs(tmp_path, [program(code), program("x"), "Done."], section=USER) as stage:
        create(stage, False, input="Go!", tools=[TOOL, ASK], store=False)
        assert "stored" in result(stage, 1)
        assert result(stage) == "1"


@pytest.mark.parametrize("interpreter", ["monty", "sandbox"])
def test_a_program_that_waits_long_gives_its_process_to_others(tmp_path: Path, interpreter: str) -> None:
    opened = asyncio.Event()

    async def wait() -> str:
        """Wait until somebody opens."""
        await opened.wait()
        return "open"

    async def let_in() -> None:
        """Open."""
        opened.set()

    steps = [
        turn(calls=program("x = 1\nprint(await wait(), x)").calls, by=matching(last="one")),
        turn(calls=program("await let_in()").calls, by=matching(last="two")),
        *[turn("Done.", by=matching(last={"type": "function_call_output"})) for _ in range(2)],
    ]
    specs = [FunctionSpec.of(wait), FunctionSpec.of(let_in)]
    with (
        served_programs(tmp_path, steps, settings={"processes": 1, "interpreter": interpreter}, more=specs) as stage,
        ThreadPoolExecutor(2) as threads,
    ):
        waiting = threads.submit(create, stage, False, input="one", tools=[TOOL])
        create(stage, False, input="two", tools=[TOOL])
        [output] = [item.to_dict() for item in waiting.result().output if item.type == "program_output"]
        assert output["result"] == "open 1"
