"""What a sub-agent costs, and what many of them leave in the window of the agent that has started them."""

import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.gateway import PATH, Bench, configured_target, open_bench, request
from benchmarks.measure import BenchmarkError, Row
from benchmarks.peers.running import settle
from benchmarks.processes import child, read_line

MODEL = "call-with"
"""Of the mock backend: calls the function with the arguments that it is given as input, and answers anything else."""
IN_FLIGHT = 16
"""Calls of the model at the same time: antwort's default."""
AGENTS = 1000
ROUNDS = 5
BAR = 1.5
"""Milliseconds of CPU that a sub-agent may cost beyond its model call."""
WINDOW_BAR = 2.0
"""KB that many sub-agents may add to what their parent is sent next."""
PATIENCE = 300.0
PROJECT = Path(__file__).parents[1]
STORED, NOT_STORED = "antwort", "antwort, not stored"
OPENAI_AGENTS, PYDANTIC_AI = "openai-agents", "pydantic-ai"
OWN_CALLS, OPENAI_CALLS = "a model call with antwort's HTTP client", "a model call with the openai package"
FRAMEWORKS = (OPENAI_AGENTS, PYDANTIC_AI, OWN_CALLS, OPENAI_CALLS)
"""What is a process that `agent_frameworks` runs."""
BARE = {STORED: OWN_CALLS, NOT_STORED: OWN_CALLS, OPENAI_AGENTS: OPENAI_CALLS, PYDANTIC_AI: OPENAI_CALLS}
"""The model call that an agent of each is measured against: with the HTTP client that it has below itself."""

METHOD = f"""\
Agents: one starts {AGENTS:,} others, which work {IN_FLIGHT} at a time and ask the mock backend once each, and reads
what they answered. In ms, the CPU time of the process for each of them; antwort is the shipped server, which is asked
over HTTP and by default stores every agent, the others are processes that keep nothing. A bare model call is made with
the HTTP client that each has below itself. In KB, what the next request to the model has beyond the one before and the
model's own call. Medians of {ROUNDS} rounds, in which all take turns."""


@dataclass(frozen=True, slots=True)
class Taken:
    """What one round of one candidate took."""

    milliseconds: float
    """Of CPU, for each agent."""
    kilobytes: float
    """That the last request to the model has beyond the first one, and beyond the arguments of the model's call."""


Candidate = Callable[[int], float]
"""Lets so many agents work, and returns the seconds of CPU that they took."""


def arguments(number: int) -> str:
    """Return the arguments with which many agents are started."""
    return json.dumps({"configs": [{"prompt": f"Task {index}"} for index in range(number)]}, separators=(",", ":"))


def agents_rows(*, number: int = AGENTS, rounds: int = ROUNDS) -> list[Row]:
    """Measure sub-agents of antwort, and of frameworks that do the same."""
    taken: dict[str, list[Taken]] = {}
    with open_bench() as bench, contextlib.ExitStack() as stack:
        candidates = {name: stack.enter_context(_framework(bench, name)) for name in FRAMEWORKS}
        antwort = stack.enter_context(_antwort(bench, number))
        candidates |= {STORED: lambda count: antwort(count, True), NOT_STORED: lambda count: antwort(count, False)}
        for round_ in range(-1, rounds):  # the first one warms up
            for name, candidate in candidates.items():
                found = _measured(bench, candidate, number, is_bare=name in BARE.values())
                if round_ >= 0:
                    taken.setdefault(name, []).append(found)
    return [*_cpu_rows(taken), *_window_rows(taken, number)]


def _cpu_rows(taken: Mapping[str, list[Taken]]) -> Iterator[Row]:
    for bare in dict.fromkeys(BARE.values()):
        yield Row(f"agents: {bare}", statistics.median(one.milliseconds for one in taken[bare]), "ms")
    for name, bare in BARE.items():
        yield Row(f"agents: {name}, each", statistics.median(one.milliseconds for one in taken[name]), "ms")
        beyond = [one.milliseconds - call.milliseconds for one, call in zip(taken[name], taken[bare], strict=True)]
        bar = BAR if bare == OWN_CALLS else None
        yield Row(f"agents: {name}, each beyond the bare model call", statistics.median(beyond), "ms", bar)


def _window_rows(taken: Mapping[str, list[Taken]], number: int) -> Iterator[Row]:
    for name, bare in BARE.items():
        size = statistics.median(one.kilobytes for one in taken[name])
        bar = WINDOW_BAR if bare == OWN_CALLS else None
        yield Row(f"agents: {name}, {number:,} in the next request", size, "KB", bar)


def _measured(bench: Bench, candidate: Candidate, number: int, *, is_bare: bool) -> Taken:
    """Let so many agents work, and check that the model was asked by each of them."""
    asked = bench.stats()["asked"]
    seconds = candidate(number)
    stats = bench.stats()
    expected = number if is_bare else number + 2  # an agent that starts others asks before and after
    if stats["asked"] != asked + expected:
        raise BenchmarkError(f"the model was asked {stats['asked'] - asked:,} times, not {expected:,}")
    said = len(json.dumps(arguments(number)))
    return Taken(seconds / number * 1e3, (stats["last"] - stats["first"] - said) / 1e3)


@contextlib.contextmanager
def _framework(bench: Bench, name: str) -> Iterator[Candidate]:
    command = (sys.executable, "-m", "benchmarks.agent_frameworks", name, bench.mock_url)
    with child(command, cwd=PROJECT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        os.sched_setaffinity(process.pid, {bench.cores.server})

        def told() -> str:
            line = read_line(process, time.monotonic() + PATIENCE)
            if line is None:
                raise BenchmarkError(f"{name} has ended")
            return line

        def run(number: int) -> float:
            assert process.stdin is not None
            process.stdin.write(b"%d\n" % number)
            process.stdin.flush()
            return float(told())

        told()  # that it is ready
        yield run


@contextlib.contextmanager
def _antwort(bench: Bench, number: int) -> Iterator[Callable[[int, bool], float]]:
    """Give the shipped server, which lets agents work that are stored or not."""
    config = {"backends": {"default": {"url": bench.mock_url}}, "engine": {"run": {"max_agents": number + 1}}}
    target = configured_target("antwort", bench.folder / "agents", config)
    tools = [{"type": "function", "name": name} for name in ("spawn_many", "store_get")]
    with bench.server(target) as server:
        if server is None:
            raise BenchmarkError("antwort is not available")

        def run(count: int, store: bool) -> float:
            body = {"model": MODEL, "input": arguments(count), "tools": tools, "store": store}
            settle(server)
            before = server.cpu_seconds()
            status, answer = request(server.port, "POST", PATH, json.dumps(body), {})
            settle(server)
            if status != 200:
                raise BenchmarkError(f"antwort answered {status}: {answer}")
            return server.cpu_seconds() - before

        yield run
