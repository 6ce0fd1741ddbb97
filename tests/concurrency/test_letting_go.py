"""Giving back the memory of something large, while others have their turn."""

from pathlib import Path
from typing import Any

import pytest
from tests.concurrency.test_large_work import Ticks, ticking
from tests.runs.embedded import embedded
from typing_extensions import override

from antwort.concurrency import large_work
from antwort.concurrency.large_work import MANY_VALUES, is_many, let_go
from antwort.testing import call, turn

SEVERAL = 5


class Number(int):
    """A number that says in which turn of the loop it is freed."""

    ticks: Ticks
    freed: list[int]

    def __del__(self) -> None:
        self.freed.append(self.ticks.count)

    @override
    def __repr__(self) -> str:
        return str(int(self))


def numbers(count: int, ticks: Ticks, freed: list[int]) -> list[int]:
    """Return numbers that write down when they are freed."""
    kind = type("Own", (Number,), {"ticks": ticks, "freed": freed})
    return [kind(number) for number in range(count)]


def test_only_what_has_very_many_parts_is_taken_apart() -> None:
    assert is_many([0] * MANY_VALUES)
    assert is_many(dict.fromkeys(range(MANY_VALUES)))
    few: list[Any] = [None, 7, "x" * MANY_VALUES, [0], {}, range(MANY_VALUES)]
    assert not any(map(is_many, few))


async def test_the_loop_has_its_turn_while_a_list_or_an_object_is_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_work, "SLICE", 0)  # else a quick machine is done after few turns
    freed: list[int] = []
    async with ticking() as ticks:
        values: Any = numbers(2 * MANY_VALUES, ticks, freed)
        held = [values, dict(enumerate(numbers(2 * MANY_VALUES, ticks, freed)))]
        del values
        await let_go(held)
    assert len(freed) == 4 * MANY_VALUES
    assert len(set(freed)) > SEVERAL


async def test_what_somebody_else_has_is_left_alone() -> None:
    mine = list(range(MANY_VALUES))
    await let_go([mine])
    assert mine == list(range(MANY_VALUES))


async def test_a_large_result_of_a_function_is_freed_bit_by_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(large_work, "SLICE", 0)  # else a quick machine is done after few turns
    freed: list[int] = []
    async with ticking() as ticks:

        async def count() -> list[int]:
            """Count."""
            return numbers(2 * MANY_VALUES, ticks, freed)

        async with embedded(tmp_path, [turn(calls=[call("count")]), "Many."], [count]) as app:
            response, _ = await app.result(await app.accept())
    assert response["status"] == "completed"
    assert len(freed) == 2 * MANY_VALUES
    assert len(set(freed)) > SEVERAL
