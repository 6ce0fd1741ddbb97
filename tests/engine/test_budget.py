"""The budget of a run: whose turn it is to ask a model."""

import asyncio
from pathlib import Path

import pytest
from pydantic import ValidationError
from tests.runs.embedded import embedded

from antwort.config import EngineConfig
from antwort.context.agents import RunLimits
from antwort.engine.budget import Budget
from antwort.testing import call, turn


async def test_who_leaves_while_waiting_takes_nobodys_turn() -> None:
    budget = Budget(RunLimits(in_flight=1))
    assert budget.begin()
    leaving, staying = (asyncio.ensure_future(budget.wait()) for _ in range(2))
    await asyncio.sleep(0)
    leaving.cancel()
    budget.settle("m", None)  # it passes over who is about to leave
    assert await staying is True
    assert (await asyncio.gather(leaving, return_exceptions=True))[0].__class__ is asyncio.CancelledError
    assert budget.in_flight == 1


async def test_tokens_that_a_server_does_not_report_are_estimated(tmp_path: Path) -> None:
    def look() -> str:
        """Look."""
        return "nothing new"

    steps = [turn(calls=[call("look")], usage=None) for _ in range(2)]
    async with embedded(tmp_path, [*steps, "Nothing is new."], [look], engine={"run": {"max_tokens": 4000}}) as app:
        response, _ = await app.result(await app.accept("word " * 2000))
        assert response["incomplete_details"] == {"reason": "budget"}
        assert [len(request.tools) for request in app.model.requests] == [1, 1, 0]


def test_a_limit_of_cost_needs_prices() -> None:
    with pytest.raises(ValidationError, match="limits nothing without `prices`"):
        EngineConfig.model_validate({"run": {"max_cost": 5}, "prices": {"m": {}}})
    EngineConfig.model_validate({"run": {"max_cost": 5}, "prices": {"m": {"input": 1}}})
