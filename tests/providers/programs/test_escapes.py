"""Attempts of programs to get at what is not theirs, or to take too much: all contained, and the server lives."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.providers.programs.stage import TOOL, program, result, served_programs
from tests.runs.embedded import TENANT, embedded

from antwort.provider import Place

SETTINGS = {"seconds": 1, "max_memory": 32 * 1024**2, "max_calls": 300, "max_printed": 2000}

# What is tried, and what comes of it.
ATTEMPTS = {
    "reading a file": ("open('/etc/passwd').read()", "PermissionError"),
    "reading a file by its path": ("import pathlib\npathlib.Path('/etc/passwd').read_text()", "PermissionError"),
    "writing a file": ("open('/tmp/x', 'w').write('x')", "PermissionError"),
    "listing a folder": ("import os\nos.listdir('/')", "Error"),
    "the environment": ("import os\nos.environ", "RuntimeError"),
    "a shell": ("import os\nos.system('id')", "AttributeError"),
    "a process": ("import subprocess", "ModuleNotFoundError"),
    "a socket": ("import socket", "ModuleNotFoundError"),
    "memory by address": ("import ctypes", "ModuleNotFoundError"),
    "modules of the interpreter": ("import sys\nsys.modules", "AttributeError"),
    "importing by name": ("__import__('os')", "NameError"),
    "importing by a library": ("import importlib", "ModuleNotFoundError"),
    "all classes": ("().__class__.__bases__[0].__subclasses__()", "AttributeError"),
    "globals of a function": ("(lambda: 0).__globals__", "AttributeError"),
    "code in a text": ("eval('open(\"/etc/passwd\")')", "PermissionError"),
    "frames of a traceback": ("try:\n    1/0\nexcept Exception as e:\n    e.__traceback__.tb_frame", "AttributeError"),
    "a loop without end": ("while True:\n    pass", "TimeoutError"),
    "a loop that catches all": (
        "while True:\n    try:\n        1/0\n    except BaseException:\n        pass",
        "TimeoutError",
    ),
    "a memory bomb": ("x = [0] * 10**9", "MemoryError"),
    "a list that grows": ("x = []\nwhile True:\n    x.append('y' * 1000)", "Error"),
    "doubling": ("x = 'a'\nwhile True:\n    x = x + x", "Error"),
    "a memory that is almost full": ("x = 'a' * 30_000_000\nlen(x)", "MemoryError"),
    "a huge number": ("10 ** 10 ** 9", "MemoryError"),
    "shifting": ("1 << 10 ** 12", "MemoryError"),
    "formatting": ("'%1000000000d' % 1", "MemoryError"),
    "recursion": ("def f(n):\n    return f(n + 1)\nf(0)", "RecursionError"),
    "nesting": ("x = []\nfor _ in range(100000):\n    x = [x]\nx", ""),
    "a slow pattern": ("import re\nre.match('(a+)+$', 'a' * 60 + 'b') is None", "true"),
    "printing without end": ("while True:\n    print('x' * 1000)", "TimeoutError"),
    "a billion calls": ("import asyncio\nawait asyncio.gather(*[add(a=i) for i in range(10**9)])", "Error"),
    "calls that are refused, again and again": (
        "while True:\n    try:\n        await add(a=1)\n    except RuntimeError:\n        pass",
        "Error",
    ),
    "a long sleep, often": ("import time\nfor _ in range(3):\n    time.sleep(0.01)\n'up'", "up"),
    "calling the provider's own calls": ("await _variable_load('../../etc/passwd')", "RuntimeError"),
    "programs in programs": ("await run_program(code='1')", "NameError"),
    "ending the run": ("await final_answer(result='mine')", "NameError"),
    "source that is no Python": ("x = = 1", "SyntaxError"),
    "source with a NUL": ("x = '\x00'\n1", ""),
}


@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_an_attempt_is_contained_and_the_server_lives(attempt: str, tmp_path: Path) -> None:
    code, expected = ATTEMPTS[attempt]
    steps: list[Any] = [program(code), "Tried.", program("1 + 1"), "Alive."]
    with served_programs(tmp_path, steps, settings=SETTINGS) as stage:
        client = stage.client()
        client.responses.create(model="scripted", input="Go!", tools=[TOOL])
        read = result(stage)
        assert expected in read
        assert "root:" not in read
        client.responses.create(model="scripted", input="Go!", tools=[TOOL])
        assert result(stage) == "2"


def test_variables_of_other_runs_and_tenants_are_out_of_reach(tmp_path: Path) -> None:
    auth = {"api_keys": [{"id": name, "key": f"key-{name}", "tenant": name} for name in ("one", "two")]}
    set_it = "v = await set_variable('plan', 'secret')\nprint(v.id)"
    by_key = program("print(await (await variable('plan')).load())")
    steps: list[Any] = [program(set_it), "Done.", by_key, "Done."]
    with served_programs(tmp_path, steps, auth=auth) as stage:
        for _ in range(2):
            stage.client("key-one").responses.create(model="scripted", input="Go!", tools=[TOOL])
        name = result(stage, 1)
        assert name.startswith("var_")
        assert "secret" not in result(stage)
    by_id = program(f"print(await (await variable('{name}')).load())")
    reading = program(f"await _variable_read('{name}', 0, 100)")
    with served_programs(tmp_path, [by_id, reading, "Done."], auth=auth) as stage:
        stage.client("key-two").responses.create(model="scripted", input="Go!", tools=[TOOL])
        assert "secret" not in result(stage, 1) + result(stage, 2)
        assert "RuntimeError" in result(stage, 2)


@pytest.mark.parametrize("how", ["altered", "of another run", "unsigned"])
async def test_a_forged_state_is_not_used(tmp_path: Path, how: str) -> None:
    code = "x = await ask_user(question='Go on?')\nprint('went on')"
    providers = {"programs": {"enabled": True}, "user": {"enabled": True}}
    async with embedded(tmp_path, [program(code, "call_1"), "Done."], (), providers=providers) as app:
        values = app.app.values
        assert values is not None
        response_id = await app.accept()
        await app.at_rest()
        [question] = (await app.runs.questions.page(TENANT, status="open")).data
        where = {"scope": "agent", "scope_id": f"{response_id}.program", "key": "call_1"}
        [kept] = await values.list(TENANT, where=where)
        signed = b"".join([piece async for piece in values.read(kept)])
        sealer = app.app.engine.planner._sealer
        forged = {
            "altered": signed[:-1] + bytes([signed[-1] ^ 1]),
            "of another run": sealer.sign("program resp_other resp_other", TENANT, signed[32:]),
            "unsigned": signed[32:],
        }[how]
        await values.write(Place(TENANT, "agent", f"{response_id}.program", response_id), "call_1", pieces(forged))
        await app.runs.questions.answer(TENANT, question.id, {"text": "yes"})
        response, _ = await app.result(response_id)
        assert response["status"] == "completed"
        items = app.model.script.requests[-1].items
        [output] = [item["output"] for item in items if item["type"] == "function_call_output"]
        assert "altered" in output
        assert "went on" not in output


async def pieces(data: bytes) -> AsyncIterator[bytes]:
    yield data
