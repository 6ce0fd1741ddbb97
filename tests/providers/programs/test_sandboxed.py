"""Programs in the sandbox: Python itself, with the functions of the agent, within the same limits."""

import asyncio
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.http.sdk import create, done
from tests.providers.programs.stage import TOOL, Shop, program, ran, result, served_programs
from tests.providers.user.stage import answer, asked, begun
from tests.runs.embedded import embedded

from antwort.errors import ConfigError
from antwort.functions import FunctionSpec
from antwort.providers.programs import sandboxed as module
from antwort.sandbox.control_groups import ControlGroups
from antwort.testing import Turn

SANDBOX = {"interpreter": "sandbox"}
AUTO = {"interpreter": "auto"}
USER = {"user": {"enabled": True}}
ASK: Any = {"type": "function", "name": "ask_user"}


def read(folder: Path, *codes: str, settings: dict[str, Any] = SANDBOX, shop: Shop | None = None) -> list[str]:
    """Run programs one after the other in one run; return what the model reads of each."""
    steps: list[Turn | str] = [*map(program, codes), "Done."]
    with served_programs(folder, steps, shop, settings=settings) as stage:
        stage.client().responses.create(model="scripted", input="Go!", tools=[TOOL])
        return [result(stage, number) for number in range(1, len(codes) + 1)]


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("1 + 1", "2"),
        ("'text'", "text"),
        ("{'a': (1, None)}", '{"a":[1,null]}'),
        ("x = 1", "(The program has printed nothing.)"),
        ("await add(1, b=2)", '{"sum":3}'),
        ("f = add\nawait f(a=1)", '{"sum":2}'),
        ("add(a=1)", "<coroutine add> (nobody has awaited this call, so it was not made)"),
        ("[float('nan'), {1: {2}}]", '[null,{"1":[2]}]'),
        (
            "import sys, os\nprint('a')\nprint('b', file=sys.stderr)\nos.write(1, b'c')\nos.system('echo d')",
            "a\nb\ncd\n0",
        ),
        ("try:\n    await fail()\nexcept RuntimeError as error:\n    print(error)", "fail failed: ValueError: no luck"),
        ("import sys\nprint(1)\nsys.exit()", "1"),
        ("import asyncio\ndef f():\n    return asyncio.run(add(a=1))\nf()", '{"sum":2}'),
        ("if __name__ == '__main__':\n    print('main')", "main"),
    ],
)
def test_what_programs_can_do(tmp_path: Path, code: str, expected: str) -> None:
    assert ran(tmp_path, code, settings=SANDBOX) == expected


def test_an_error_is_the_traceback_of_the_program_alone(tmp_path: Path) -> None:
    found = ran(tmp_path, "def f(x):\n    return 1 / x\nprint('so')\nf(0)", settings=SANDBOX)
    assert found.startswith('so\nTraceback (most recent call last):\n  File "program.py", line 4, in <module>')
    assert found.endswith("ZeroDivisionError: division by zero")
    assert "<string>" not in found


def test_five_hundred_calls_at_once(tmp_path: Path) -> None:
    shop = Shop()
    code = "import asyncio\nr = await asyncio.gather(*[add(a=i) for i in range(500)])\nsum(x['sum'] for x in r)"
    with served_programs(tmp_path, [program(code), "Done."], shop, settings=SANDBOX) as stage:
        create(stage, False, input="Go!", tools=[TOOL])
        assert result(stage) == str(sum(range(501)))
    assert (len(shop.counted), len(set(shop.counted))) == (500, 500)


# --- names -----------------------------------------------------------------------------------------------------------

DEFINING = """
import math
from functools import lru_cache

class Base:
    def __init__(self, x):
        self.x = x

class Child(Base):
    def twice(self):
        return 2 * self.x

@lru_cache
def cached(n):
    return n + 1

square = lambda n: n * n
child = Child(21)
pair = [child, child]
numbers = (n for n in [1, 2])
"""


def test_names_stay_for_the_next_program_and_what_cannot_is_told_when_it_is_missed(tmp_path: Path) -> None:
    using = (
        "print(child.twice(), isinstance(child, Base), pair[0] is pair[1], cached(1), square(3), math.pi > 3)\n1 / 0"
    )
    found = read(tmp_path, DEFINING, using, "print(Child(1).twice(), len(pair))\nnext(numbers)")
    assert found[1].startswith("42 True True 2 9 True\nTraceback")
    assert found[2].startswith("2 2\n")
    assert "'numbers' of an earlier program could not be kept. Define it again." in found[2]


def test_another_run_does_not_see_them(tmp_path: Path) -> None:
    with served_programs(tmp_path, [program("x = 40"), "Done.", program("x"), "Done."], settings=SANDBOX) as stage:
        create(stage, False, input="Go!", tools=[TOOL])
        create(stage, False, input="Go!", tools=[TOOL])
        assert "NameError: name 'x' is not defined" in result(stage)


def test_names_of_the_small_interpreter_are_carried_over_and_stay_there(tmp_path: Path) -> None:
    first = "import json\nx = {'a': [1, (2, 3)]}\ndef f():\n    return 1"
    second = "class A(dict):\n    pass\ny = A(x)\ny['a'][1]"
    found = read(tmp_path, first, second, "print(y['a'], json.dumps(type(y).__name__))\nf()", settings=AUTO)
    assert found[1] == "[2,3]"
    assert found[2].startswith('[1, (2, 3)] "A"\n')
    assert "'f' of an earlier program could not be kept" in found[2]


# --- limits ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("interpreter", ["monty", "sandbox"])
def test_a_program_over_its_memory_keeps_what_it_has_printed(tmp_path: Path, interpreter: str) -> None:
    code = "print('before')\nx = []\nwhile True:\n    x.append('y' * 100_000)"
    found = read(tmp_path, "kept = 1", code, "kept + 1", settings={"interpreter": interpreter})
    assert found[1].startswith("before\n")
    assert "MemoryError" in found[1]
    assert found[2] == "2"


def test_memory_that_python_does_not_count_ends_the_program_and_what_it_has_printed_is_kept(tmp_path: Path) -> None:
    code = """
import os
print('before')
for _ in range(24):
    if os.fork() == 0:
        break
x = [bytes(1_000_000) for _ in range(60)]
y = [bytearray(b'x' * 1_000_000) for _ in range(60)]
while True:
    pass
"""
    settings = {**SANDBOX, "max_memory": 64 * 1024**2, "seconds": 20}
    found, after = read(tmp_path, code, "1 + 1", settings=settings)
    assert found.startswith("before\n")
    assert "MemoryError" in found or "TimeoutError" in found or "ended" in found
    assert after == "2"


def test_time_counts_while_it_computes_and_not_while_it_waits(tmp_path: Path) -> None:
    async def slow() -> str:
        """Take long."""
        await asyncio.sleep(2.5)
        return "done"

    codes = ["import time\nprint(await slow())\ntime.sleep(2.5)\nprint('up')", "print('a')\nwhile True:\n    pass"]
    steps: list[Turn | str] = [*map(program, codes), "Done."]
    settings = {**SANDBOX, "seconds": 2}
    with served_programs(tmp_path, steps, settings=settings, more=[FunctionSpec.of(slow)]) as stage:
        create(stage, False, input="Go!", tools=[TOOL])
        assert result(stage, 1) == "done\nup"
        assert result(stage, 2).startswith("a\nTimeoutError: The program has computed for longer than 2 seconds.")


def test_waiting_for_nothing_ends(tmp_path: Path) -> None:
    found = ran(tmp_path, "import asyncio\nawait asyncio.Event().wait()", settings={**SANDBOX, "seconds": 0.5})
    assert found.startswith("TimeoutError")


def test_a_program_does_not_sleep_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SLEEP_IN_ALL", 0.05)
    found = ran(tmp_path, "import time\nwhile True:\n    time.sleep(0.02)", settings=SANDBOX)
    assert "RuntimeError: A program may sleep for 0.05 seconds in all." in found


def test_what_a_program_has_started_does_not_compute_on_while_it_sleeps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SLEEP_IN_ALL", 30.0)
    busy = (
        "import os, time\nfor n in range(1, 999):\n    while time.process_time() < n / 10: pass\n    os.write(2, b'#')"
    )
    code = (
        f"import asyncio, subprocess, sys\nfor _ in range(2):\n    subprocess.Popen([sys.executable, '-c', {busy!r}])\n"
    )
    found = ran(tmp_path, code + "while True:\n    await asyncio.sleep(0.9)", settings={**SANDBOX, "seconds": 2})
    assert "TimeoutError: The program has computed for longer than 2 seconds." in found
    assert found.count("#") < 40  # tenths of a second


def test_what_a_program_has_started_has_no_more_memory_without_control_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ControlGroups, "find", lambda: ControlGroups({}))
    grow = "kept = []\nwhile True:\n    kept.append(b'x' * 2**20)\n    os.write(2, b'#')"
    code = f"import os\nfor _ in range(12):\n    if os.fork() == 0:\n        break\n{grow}"
    found = ran(tmp_path, code, settings={**SANDBOX, "max_memory": 64 << 20})
    assert "MemoryError" in found
    assert found.count("#") < 1.1 * 128


def test_calls_and_prints_have_their_limits(tmp_path: Path) -> None:
    shop = Shop()
    code = (
        "n = 0\ntry:\n    while True:\n        await add(a=1)\n        n += 1\nexcept Exception as e:\n    print(n, e)"
    )
    settings = {**SANDBOX, "max_calls": 5, "max_printed": 1000}
    found = read(tmp_path, code, "print('x' * 5000)", settings=settings, shop=shop)
    assert found[0] == "5 A program may make 5 calls."
    assert len(shop.counted) == 5
    assert found[1] == "x" * 1000 + "\n(What it has printed further is left out.)"


@pytest.mark.parametrize("settings", [{}, SANDBOX])
def test_what_is_printed_and_the_last_value_have_one_limit_together(tmp_path: Path, settings: dict[str, Any]) -> None:
    codes = ("print('x' * 600)\n'y' * 600", "'y' * 5000", "print('x' * 5000)\n'y' * 5000", "print('x' * 900)\n'y' * 90")
    found = read(tmp_path, *codes, settings={**settings, "max_printed": 1000})
    left_out = "\n(What it has printed further is left out.)"
    assert found == [
        "x" * 600 + "\n" + "y" * 399 + left_out,
        "y" * 1000 + left_out,
        "x" * 1000 + left_out,
        "x" * 900 + "\n" + "y" * 90,
    ]


# --- waiting ---------------------------------------------------------------------------------------------------------

ASKING = """
import random, asyncio

async def two(i):
    first = (await add(a=i))["sum"]
    return (await add(a=first))["sum"]

x = sum(await asyncio.gather(*[two(i) for i in range(5)]))
chosen = random.random()
print("before")
first = await ask_user(question=f"Which one? {chosen}")
second = await ask_user(question="Sure?")
print(x, first, second)
"""


def test_a_program_that_waits_begins_again_and_no_call_is_made_twice(tmp_path: Path) -> None:
    shop = Shop()
    steps: list[Any] = [program(ASKING, "call_1"), program("x + 1", "call_2"), "Blue it is."]
    with served_programs(tmp_path, steps, shop, section=USER, settings=SANDBOX) as stage:
        response = create(stage, False, input="Go!", tools=[TOOL, ASK])
        for text in ("The blue one.", "Yes."):
            question = response.output[-1].to_dict()
            assert question["caller"] == {"type": "program", "caller_id": "call_1"}
            said: Any = {"type": "function_call_output", "call_id": question["call_id"], "output": text}
            response = create(stage, False, input=[said], previous_response_id=response.id, tools=[TOOL, ASK])
        assert result(stage, 1) == "before\n20 The blue one. Yes."
        assert result(stage, 2) == "21"
    assert (len(shop.counted), len(set(shop.counted))) == (10, 10)


def test_in_the_background_it_waits_for_answers_and_approvals(tmp_path: Path) -> None:
    async def refund(order: str) -> str:
        """Give money back."""
        return f"refunded {order}"

    code = "import asyncio\nprint(await asyncio.gather(refund(order='7'), ask_user(question='Why?'), add(a=1)))"
    specs = [FunctionSpec.of(refund, {"approval": "always"})]
    with served_programs(tmp_path, [program(code), "Done."], section=USER, more=specs, settings=SANDBOX) as stage:
        response_id = begun(stage, tools=[TOOL])
        for question in asked(stage, 2):
            answer(stage, question, **({"approve": True} if question["kind"] == "approval" else {"answer": "Broken."}))
        assert done(stage, response_id)["status"] == "completed"
        assert result(stage) == "['refunded 7', 'Broken.', {'sum': 2}]"


def test_a_response_that_is_cancelled_ends_its_program(tmp_path: Path) -> None:
    began = threading.Event()

    async def started() -> None:
        """Tell that it runs."""
        began.set()

    mark = f"600.{os.getpid()}"
    code = f"import subprocess\nawait started()\nsubprocess.run(['sleep', '{mark}'])"
    with served_programs(
        tmp_path, [program(code)], more=[FunctionSpec.of(started)], settings={**SANDBOX, "seconds": 600}
    ) as stage:
        response_id = begun(stage, tools=[TOOL])
        assert began.wait(60)
        stage.client().responses.cancel(response_id)
        assert done(stage, response_id)["status"] == "cancelled"
    assert not [one for one in Path("/proc").glob("[0-9]*/cmdline") if mark.encode() in _content(one)]


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


# --- where a program runs --------------------------------------------------------------------------------------------


def test_a_program_that_is_not_understood_before_its_first_call_runs_in_the_sandbox(tmp_path: Path) -> None:
    code = "import hashlib as h\nprint('once')\nprint((5).bit_length())\nawait add(a=1)"
    assert read(tmp_path, code, settings=AUTO) == ['once\n3\n{"sum":2}']


def test_a_program_that_has_made_a_call_is_not_run_again_elsewhere(tmp_path: Path) -> None:
    shop = Shop()
    [found] = read(tmp_path, "x = await add(a=1)\nprint(x)\n(5).bit_length()", settings=AUTO, shop=shop)
    assert found.startswith("{'sum': 2}\nTraceback")
    assert len(shop.counted) == 1


def test_a_program_goes_on_only_where_it_has_begun(tmp_path: Path) -> None:
    steps: list[Any] = [
        program("class A(dict):\n    pass\nx = await ask_user(question='?')\nprint(x)", "call_1"),
        "Done.",
    ]
    with served_programs(tmp_path, steps[:1], section=USER, settings=AUTO) as stage:
        first = create(stage, False, input="Go!", tools=[TOOL, ASK])
        said: Any = {"type": "function_call_output", "call_id": first.output[-1].to_dict()["call_id"], "output": "yes"}
    with served_programs(tmp_path, steps[1:], section=USER) as stage:
        create(stage, False, input=[said], previous_response_id=first.id, tools=[TOOL, ASK])
        assert "begun in the sandbox, which is switched off now" in result(stage)


async def test_a_python_that_is_not_there_is_an_error_at_the_start(tmp_path: Path) -> None:
    providers = {"programs": {"enabled": True, "settings": {"interpreter": "auto", "python": "python9"}}}
    with pytest.raises(ConfigError, match="set `python` to the path of another one"):
        async with embedded(tmp_path, [], (), providers=providers):
            raise AssertionError("it has started")
