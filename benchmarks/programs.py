"""What a program costs: beside the same call made by the model itself, and for each call that it makes."""

import statistics
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import uvloop

from antwort import Antwort
from antwort.config import Config
from antwort.testing import ScriptedBackend, Turn, call, turn
from benchmarks.measure import Row

BAR = 1.0
"""Milliseconds of CPU that a program may cost beyond a plain call, and each call that it makes."""
CALLS = 100
ROUNDS = 40
METHOD = f"""\
Programs: calls of the registry, and responses of one turn with a call, stored in SQLite, in one process with uvloop. A
program of the registry computes and keeps nothing; one of a response calls the function that the plain response calls,
and its names are kept; another one calls it {CALLS} times at once. In ms, CPU time of the process without that of the
interpreter, medians of {ROUNDS} rounds, in which all take turns. The start of the interpreter is the time that the
first program takes beyond the next ones."""

ONE = "await add(a=1)"
MANY = f"import asyncio\nlen(await asyncio.gather(*[add(a=i) for i in range({CALLS})]))"
Work = Callable[[], Awaitable[object]]


async def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


def programs_rows(*, rounds: int = ROUNDS) -> list[Row]:
    """Measure programs of an app with a model in the same process."""
    with TemporaryDirectory() as folder:
        return uvloop.run(_rows(Path(folder), rounds))


async def _rows(folder: Path, rounds: int) -> list[Row]:
    config = Config.model_validate({"data_dir": folder, "providers": {"programs": {"enabled": True}}})
    with ScriptedBackend(_steps(rounds + 1)) as model:
        async with Antwort(config, functions=[add], backend=model) as app:
            first = await _taken(lambda: app.registry.execute("run_program", {"code": "1 + 1"}))
            works: dict[str, Work] = {
                "call": lambda: app.registry.execute("add", {"a": 1}),
                "program": lambda: app.registry.execute("run_program", {"code": "1 + 1"}),
                "plain": lambda: app.run("Go!"),
                "one": lambda: app.run("Go!"),
                "many": lambda: app.run("Go!"),
            }
            cpu, clock = await medians(works, rounds)
    return [
        Row("programs: one that computes, beyond a plain call", cpu["program"] - cpu["call"], "ms", BAR),
        Row("programs: each call of one", (cpu["many"] - cpu["one"]) / (CALLS - 1), "ms", BAR),
        Row("programs: one with a call, stored, beyond the call stored", cpu["one"] - cpu["plain"], "ms"),
        Row("programs: the start of the interpreter", first[1] - clock["program"], "ms"),
    ]


def _steps(rounds: int) -> Iterator[Turn | str]:
    """Yield what the model says in the rounds: a call, a program with one, and a program with many."""
    for _ in range(rounds):
        for made in (call("add", a=1), call("run_program", code=ONE), call("run_program", code=MANY)):
            yield turn(calls=[made])
            yield "Done."


async def medians(works: Mapping[str, Work], rounds: int) -> tuple[dict[str, float], dict[str, float]]:
    """Return the milliseconds of CPU, and of time, that each takes; a first round warms up."""
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in works}
    for _ in range(rounds + 1):
        for name, work in works.items():
            taken[name].append(await _taken(work))
    cpu = {name: statistics.median(cpu for cpu, _ in found[1:]) for name, found in taken.items()}
    return cpu, {name: statistics.median(clock for _, clock in found[1:]) for name, found in taken.items()}


async def _taken(work: Work) -> tuple[float, float]:
    """Return the milliseconds of CPU, and of time, that something takes."""
    cpu, clock = time.process_time(), time.perf_counter()
    await work()
    return 1000 * (time.process_time() - cpu), 1000 * (time.perf_counter() - clock)
