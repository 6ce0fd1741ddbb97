"""The budget of a run: whose turn it is to ask a model."""

import asyncio

from antwort.budget import Budget, RunLimits


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
