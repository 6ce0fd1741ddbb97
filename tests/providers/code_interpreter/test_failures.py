"""Calls that did not come to their end, for clients and for the model: stopped, killed, out of memory."""

from pathlib import Path

import pytest
from openai.types.responses.response_code_interpreter_tool_call import OutputLogs
from tests.providers.code_interpreter.stage import OUTPUTS, TOOL, calls, outputs, running_code, staged

MEMORY = 100 << 20
HUNGRY = "b = b'x' * (600 << 20)"


@pytest.mark.parametrize(
    ("code", "why"),
    [
        (
            f"print('begun', flush=True)\n{HUNGRY}",
            "[The session has ended: it used more than 104,857,600 bytes of memory.",
        ),
        (
            f"import os\nprint('begun', flush=True)\nif os.fork() == 0:\n    {HUNGRY}\nos.wait()\nos._exit(0)",
            "[The session has ended: it used more than 104,857,600 bytes of memory.",
        ),
        (
            "import os, signal\nprint('begun', flush=True)\nos.kill(os.getpid(), signal.SIGKILL)",
            "[The session has ended: the interpreter has ended, by the signal SIGKILL.",
        ),
        (
            "print('begun', flush=True)\nimport os; os._exit(3)",
            "[The session has ended: the interpreter has ended. ",
        ),
        ("print('begun')\nwhile True: pass", "[Stopped: it took longer than 3 seconds.]"),
        (
            "import signal\nprint('begun')\nsignal.signal(2, signal.SIG_IGN)\nwhile True: pass",
            "[The session has ended: it took longer than 3 seconds and did not stop.",
        ),
        ("print('begun')\nwhile True: print('x' * 100)", "[Stopped: it printed more than 50,000 bytes;"),
    ],
    ids=["memory", "memory of a child that takes the session with it", "killed", "exit", "time", "stubborn", "output"],
)
def test_a_call_that_was_ended_is_failed_for_clients_and_says_why(tmp_path: Path, code: str, why: str) -> None:
    limits = {"max_memory": MEMORY, "max_time": "3s", "max_output": 50_000}
    with staged(tmp_path, running_code(code), **limits) as stage:
        answer = stage.client().responses.create(model="m", input="Go.", tools=[TOOL], include=OUTPUTS)
        (item,) = calls(answer)
        assert item.status == "failed"
        assert answer.status == "completed"
        (output,) = item.outputs or []
        assert isinstance(output, OutputLogs)
        for told in (output.logs, outputs(stage)[-1]):
            assert told.startswith("begun\n")
            assert why in told


def test_a_child_that_ran_out_of_memory_fails_its_call_and_no_other_one(tmp_path: Path) -> None:
    starved = (
        f"import os\nchild = os.fork()\nif child == 0:\n    {HUNGRY}\n    os._exit(0)\nx = os.waitpid(child, 0)[1]"
    )
    steps = running_code("1", starved, "x", "os._exit(3)")
    with staged(tmp_path, steps, max_memory=MEMORY) as stage:
        answer = stage.client().responses.create(model="m", input="Go.", tools=[TOOL], include=OUTPUTS)
        read = outputs(stage)
        assert [item.status for item in calls(answer)] == ["completed", "failed", "completed", "failed"]
        if "session has ended" in read[1]:  # where nobody has control groups, all of it is ended
            return
        assert (
            read[1] == "[A process that the code has started was ended: it used more than 104,857,600 bytes of memory.]"
        )
        assert read[2] == "9"
        assert "[The session has ended: the interpreter has ended. " in read[3]


def test_an_error_of_the_code_is_no_failure_of_the_call(tmp_path: Path) -> None:
    with staged(tmp_path, running_code("1 / 0", "%timeit 1", "def f(:")) as stage:
        answer = stage.client().responses.create(model="m", input="Go.", tools=[TOOL])
        assert [item.status for item in calls(answer)] == ["completed"] * 3
