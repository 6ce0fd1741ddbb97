"""Programs through the shipped server, with the official SDK."""

import contextlib
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from openai.types.responses import Response
from tests.http.sdk import create
from tests.providers.programs.stage import TOOL, Shop, program, ran, result, served_programs

from antwort.types import JSON

BOTH_WAYS = pytest.mark.parametrize("stream", [False, True], ids=["json", "stream"])


def items(response: Response) -> list[JSON]:
    output: Any = response.to_dict()["output"]
    return list(output)


@BOTH_WAYS
def test_a_program_is_two_items_and_its_result_is_what_the_model_reads(tmp_path: Path, *, stream: bool) -> None:
    code = "x = await add(a=1)\nprint('so', x)\nx['sum'] + 40"
    with served_programs(tmp_path, [program(code, "call_1"), "It is 42."]) as stage:
        response = create(stage, stream, input="Go!", tools=[TOOL])
        written, output, _ = items(response)
        assert (written["type"], written["code"], written["call_id"]) == ("program", code, "call_1")
        assert len(written["fingerprint"]) == 64
        assert (output["type"], output["status"], output["call_id"]) == ("program_output", "completed", "call_1")
        assert output["result"] == result(stage) == "so {'sum': 2}\n42"
        assert response.output_text == "It is 42."


@pytest.mark.parametrize(
    ("code", "read"),
    [
        ("1 + 1", "2"),
        ("'text'", "text"),
        ("{'a': (1, None)}", '{"a":[1,null]}'),
        ("print('a')\nprint('b')", "a\nb"),
        ("x = 1", "(The program has printed nothing.)"),
        ("await add(1, b=2)", '{"sum":3}'),
        ("f = add\nawait f(a=1)", '{"sum":2}'),
        ("[await add(a=i) for i in range(2)]", '[{"sum":1},{"sum":2}]'),
        ("import asyncio\nawait asyncio.sleep(0.01)\n'up'", "up"),
        ("from dataclasses import dataclass\n@dataclass\nclass P:\n    a: int\nP(1)", '{"a":1}'),
        ("try:\n    await fail()\nexcept RuntimeError as error:\n    print(error)", "fail failed: ValueError: no luck"),
        ("len(await text(length=40000))", "40000"),
        (
            "v = await variable(await text(length=80000))\nprint(v.size, v.kind, len(await v.read(79990, 100)))",
            "80000 text 10",
        ),
        ("add(a=1)", "<coroutine external_future(0)> (nobody has awaited this call, so it was not made)"),
    ],
)
def test_what_programs_can_do(tmp_path: Path, code: str, read: str) -> None:
    assert ran(tmp_path, code) == read


def test_names_are_there_in_the_next_program_also_after_one_that_fails(tmp_path: Path) -> None:
    steps: list[Any] = [
        program("x = 40\ndef two():\n    return 2"),
        program("y = 1\n1 / 0"),
        program("x + two() + y"),
        "Done.",
    ]
    with served_programs(tmp_path, steps) as stage:
        response = create(stage, False, input="Go!", tools=[TOOL])
        assert "ZeroDivisionError: division by zero" in result(stage, 2)
        assert result(stage) == "43"
        assert [item["status"] for item in items(response) if item["type"] == "program_output"][1] == "incomplete"


def test_another_run_does_not_see_them(tmp_path: Path) -> None:
    with served_programs(tmp_path, [program("x = 40"), "Done.", program("x"), "Done."]) as stage:
        create(stage, False, input="Go!", tools=[TOOL])
        create(stage, False, input="Go!", tools=[TOOL])
        assert "NameError: name 'x' is not defined" in result(stage)


@pytest.mark.parametrize(("code", "kept"), [("sum(n for n in range(10) if n >= 3)", 0), ("1 / 0", 0), ("x = 1", 1)])
def test_only_what_a_program_leaves_for_the_next_one_is_kept(tmp_path: Path, code: str, kept: int) -> None:
    ran(tmp_path, code)
    with contextlib.closing(sqlite3.connect(tmp_path / "antwort.db")) as database:
        assert database.execute("SELECT count(*) FROM variable_versions").fetchone() == (kept,)


def test_names_stay_beside_programs_that_only_compute(tmp_path: Path) -> None:
    steps: list[Any] = [program(code) for code in ("1 + 1", "x = []", "x.append(40)", "2 * 3", "x[0] + 3")]
    with served_programs(tmp_path, [*steps, "Done."]) as stage:
        create(stage, False, input="Go!", tools=[TOOL])
        assert [result(stage, number) for number in (1, 4, 5)] == ["2", "6", "43"]


def test_five_hundred_calls_at_once_are_one_result_and_as_many_run_as_may(tmp_path: Path) -> None:
    shop = Shop()
    code = "import asyncio\nr = await asyncio.gather(*[add(a=i) for i in range(500)])\nsum(x['sum'] for x in r)"
    with served_programs(tmp_path, [program(code), "Done."], shop, engine={"parallel_calls": 8}) as stage:
        response = create(stage, False, input="Go!", tools=[TOOL])
        assert result(stage) == str(sum(range(501)))
        assert [item["type"] for item in items(response)] == ["program", "program_output", "message"]
        first, second = (len(str(request.items)) for request in stage.requests)
    assert second - first < 2000
    assert (len(shop.counted), len(set(shop.counted)), shop.most_at_once) == (500, 500, 8)


def test_variables_are_read_in_parts(tmp_path: Path) -> None:
    code = """
v = await set_variable("doc", "\\n".join(f"line {i} ü" for i in range(1, 1001)))
parts = []
offset = 0
while offset < v.size:
    parts.append(await v.read(offset, 999))
    offset += 999
same = await variable("doc")
print("".join(parts) == await same.load(), (await v.lines(10, 2)), (await v.grep("line 77. ", 2)))
print([one.key for one in await variables()], await text(length=1) == "x")
"""
    read = ran(tmp_path, code)
    assert read == "True ['line 10 ü', 'line 11 ü'] ['770: line 770 ü', '771: line 771 ü']\n['doc'] True"


def test_a_long_result_becomes_a_variable(tmp_path: Path) -> None:
    read = ran(tmp_path, "print('y' * 20000)")
    assert '"$ref":"var_' in read
    assert len(read) < 2500


def test_variables_are_there_for_a_program_after_others_that_named_none_also_after_one_that_has_failed(
    tmp_path: Path,
) -> None:
    codes = ["x = [1, 2]", "1 / 0", "v = await set_variable('doc', 'a\\nb')\nx", "[v.size, x, Variable is type(v)]"]
    with served_programs(tmp_path, [*map(program, codes), "Done."]) as stage:
        create(stage, False, input="Go!", tools=[TOOL])
        assert "ZeroDivisionError" in result(stage, 2)
        assert [result(stage, number) for number in (3, 4)] == ["[1,2]", "[3,[1,2],true]"]


def test_wide_letters_name_the_same(tmp_path: Path) -> None:
    name = "set_variable".translate({ord(letter): ord(letter) + 0xFEE0 for letter in "setvarible"})
    assert ran(tmp_path, f"v = await {name}('doc', 'a')\nv.size") == "1"


def test_only_what_the_request_says_can_be_called(tmp_path: Path) -> None:
    tools: Any = [TOOL, {"type": "function", "name": "add", "allowed_callers": ["programmatic"]}]
    tools.append({"type": "function", "name": "text", "allowed_callers": ["direct"]})
    steps: list[Any] = [program("print(await add(a=1))\nawait text(length=1)"), "Done."]
    with served_programs(tmp_path, steps) as stage:
        create(stage, False, input="Go!", tools=tools)
        offered = {str(tool["name"]): tool for tool in stage.requests[0].tools}
        assert "add" not in offered
        assert "async def add(*, a: int, b: int = 1) -> Any" in offered["run_program"]["description"]
        assert result(stage).startswith("{'sum': 2}\nTraceback")
        assert "NameError: name 'text' is not defined" in result(stage)
