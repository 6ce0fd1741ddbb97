"""Measuring CPU time on noisy machines: interleaved rounds, and the median of each."""

import asyncio
import gc
import statistics
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Row:
    """One line of the table: a figure and the bar it is held against."""

    what: str
    value: float
    unit: str
    bar: float | None = None

    @property
    def shown(self) -> str:
        return f"{self.value:,.1f} {self.unit}"

    @property
    def bar_shown(self) -> str:
        return "" if self.bar is None else f"≤ {self.bar:g} {self.unit}"

    @property
    def verdict(self) -> str:
        if self.bar is None:
            return ""
        return "ok" if self.value <= self.bar else "over"

    def as_json(self) -> dict[str, Any]:
        return {"what": self.what, "value": round(self.value, 3), "unit": self.unit, "bar": self.bar}


def cpu_per_call(calls: Mapping[str, Callable[[], Awaitable[Any]]], *, rounds: int, repeat: int) -> dict[str, float]:
    """Return the median CPU microseconds per call of each candidate, taken in interleaved rounds."""
    times: dict[str, list[float]] = {name: [] for name in calls}

    async def measure() -> None:
        for call in calls.values():  # warm up
            for _ in range(repeat // 10 + 1):
                await call()
        for _ in range(rounds):
            for name, call in calls.items():
                gc.collect()
                started = time.process_time()
                for _ in range(repeat):
                    await call()
                times[name].append((time.process_time() - started) / repeat * 1e6)

    asyncio.run(measure())
    return {name: statistics.median(values) for name, values in times.items()}
