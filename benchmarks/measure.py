"""Measuring CPU time on noisy machines: interleaved rounds, and the median of each."""

import argparse
import asyncio
import gc
import statistics
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any


class BenchmarkError(Exception):
    """A measurement could not be taken; the message says why and what helps."""


def positive(text: str) -> int:
    """Read a number of the command line that counts something: a whole one, from 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number, at least 1 (got {text!r})")
    return int(text)


@dataclass(frozen=True)
class Row:
    """One line of the table: a figure, if there is one, and the bar it is held against."""

    what: str
    value: float | None
    unit: str
    bar: float | None = None

    @property
    def shown(self) -> str:
        if self.value is None:
            return "not available"
        return f"{self.value:,.{2 if self.value < 10 else 1}f} {self.unit}"

    @property
    def bar_shown(self) -> str:
        return "" if self.bar is None else f"≤ {self.bar:g} {self.unit}"

    @property
    def verdict(self) -> str:
        if self.bar is None or self.value is None:
            return ""
        return "ok" if self.value <= self.bar else "over"

    def as_json(self) -> dict[str, Any]:
        value = None if self.value is None else round(self.value, 3)
        return {"what": self.what, "value": value, "unit": self.unit, "bar": self.bar}


Call = Callable[[], Awaitable[Any]]


async def cpu_of_rounds(calls: Mapping[str, Call], *, rounds: int, repeat: int) -> dict[str, list[float]]:
    """Return the CPU microseconds per call of each candidate in each of the interleaved rounds."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():  # warm up
        for _ in range(repeat // 10 + 1):
            await call()
    gc.freeze()  # what is there already is not looked through again before each measurement
    for _ in range(rounds):
        for name, call in calls.items():
            gc.collect()
            started = time.process_time()
            for _ in range(repeat):
                await call()
            times[name].append((time.process_time() - started) / repeat * 1e6)
    return times


def cpu_per_call(calls: Mapping[str, Call], *, rounds: int, repeat: int) -> dict[str, float]:
    """Return the median CPU microseconds per call of each candidate, taken in interleaved rounds."""
    times = asyncio.run(cpu_of_rounds(calls, rounds=rounds, repeat=repeat))
    return {name: statistics.median(values) for name, values in times.items()}
