"""What a turn asks of the model server: a later one what it would ask as the first."""

import json
from pathlib import Path
from typing import Any

import pytest

from antwort import Antwort
from antwort.config import Config
from antwort.context import Context
from antwort.engine.calls.admission import Totals
from antwort.engine.turns.model_turn import model_request, next_request
from antwort.testing import ScriptedBackend
from antwort.wire.requests import decode_create
from antwort.wire.responses import Usage

FUNCTIONS = [{"type": "function", "name": name, "parameters": {"type": "object"}} for name in ("look", "write")]
SAID = [
    {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c1", "output": "Nothing."},
]


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"max_output_tokens": 100, "temperature": 0.2, "top_p": 0.5, "top_logprobs": 2, "user": "u"},
        {"tools": FUNCTIONS, "parallel_tool_calls": False, "text": {"verbosity": "low"}},
        {"tools": FUNCTIONS, "tool_choice": "required", "reasoning": {"effort": "low"}},
        {"tools": FUNCTIONS, "tool_choice": {"type": "function", "name": "look"}},
    ],
    ids=["plain", "sampling", "functions", "required", "one"],
)
async def test_a_later_turn_asks_what_it_would_as_the_first(tmp_path: Path, fields: dict[str, Any]) -> None:
    totals = Totals()
    async with Antwort(Config(data_dir=tmp_path, providers={}), backend=ScriptedBackend([])) as app:
        create = decode_create(json.dumps({"model": "scripted", "input": "Hi", **fields}))
        plan = await app.engine.plan(create, Context("t", scopes=frozenset({"*"})))
    first = model_request(plan, plan.window, plan.choice, totals, stream=True)
    said, choice = [*plan.window, *SAID], plan.choice.relaxed()
    totals.usage = Usage(output_tokens=30)
    totals.repetition.withheld = frozenset({"look"})
    second = next_request(first, plan, said, choice, totals)
    assert second == model_request(plan, said, choice, totals, stream=True)
    totals.without_tools = True
    third = next_request(second, plan, said, choice, totals)
    assert third == model_request(plan, said, choice, totals, stream=True)
    assert not third.tools
