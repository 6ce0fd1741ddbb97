"""Programs keep windows small: what they read and ask does not stand there."""

import os
from pathlib import Path
from typing import Any

import msgspec
from tests.providers.programs.stage import TOOL, program, served_programs

from antwort.testing import matching, turn

FULL = bool(os.environ.get("ANTWORT_TEST_FULL"))
SIZE, QUESTIONS = (100_000_000, 200) if FULL else (10_000_000, 40)
LINE = b"The quick brown fox jumps over the lazy dog, again and again and again.\n"
CODE = f"""
import asyncio
v = await variable("book")
step = v.size // {QUESTIONS}

async def one(i):
    part = await v.read(i * step, 500)
    return await call_llm(prompt=f"Is this about foxes? " + part)

answers = await asyncio.gather(*[one(i) for i in range({QUESTIONS})])
print(v.size, len([a for a in answers if a == "Yes."]))
"""


def test_a_large_variable_and_many_questions_leave_every_window_small(tmp_path: Path) -> None:
    steps: list[Any] = [program(CODE)]
    steps += [turn("Yes.", by=matching(text="Is this about foxes? ")) for _ in range(QUESTIONS)]
    steps.append(turn("It is.", by=matching(last={"type": "function_call_output"})))
    asking: Any = {"type": "function", "name": "call_llm", "allowed_callers": ["programmatic"]}
    data = LINE * (SIZE // len(LINE))
    section = {"sub_agents": {"enabled": True}}
    with served_programs(tmp_path, steps, section=section, over_http=True) as stage:
        query = {"key": "book"}
        stage.request("PUT", "/variables", params=query, content=data).raise_for_status()
        response = stage.client().responses.create(model="scripted", input="Is it about foxes?", tools=[TOOL, asking])
        assert response.output_text == "It is."
        sizes = [len(msgspec.json.encode(body)) for body in stage.bodies]
    [result] = [item.to_dict()["result"] for item in response.output if item.type == "program_output"]
    assert result == f"{len(data)} {QUESTIONS}"
    assert len(sizes) == QUESTIONS + 2
    assert max(sizes) < 8000
