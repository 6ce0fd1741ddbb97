"""Many streams for a long time, with readers that stall and vanish: memory, tasks, and how the others fare."""

import json
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Any

from benchmarks.attacks import PROJECT, pinging, program, report_of
from benchmarks.gateway import TIMES, Bench, Target, configured_target, open_bench, raise_limit, request
from benchmarks.measure import BenchmarkError, Row
from benchmarks.processes import Server, child, read_line

STREAMS = 2000
PARTING = 20.0
"""Seconds in which whatever belongs to streams that were left must be gone."""
ALONE = 5.0
"""Seconds in which small requests have the server for themselves: the machine's own share of what they wait."""
METHOD = """\
Streams with readers that stall and vanish: of ten readers six read to the end, at one event a second, two stall for 5
to 30 seconds in an answer that does not fit into the buffers, two leave at any time, with a word or without. Memory of
the last quarter of the time is held against that of the second; others ask for a small response every 50 ms."""
PROVIDER = '''"""Tells how many tasks there are."""

import asyncio

from antwort.provider import Provider, route


class Tasks(Provider):
    """Tells how many tasks there are."""

    name = "tasks"

    @route("GET", "/v1/tasks")
    async def count(self) -> dict[str, int]:
        """Count the tasks."""
        return {"tasks": len(asyncio.all_tasks())}
'''


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was seen: bytes of memory each second, what the readers and the others report, and what is left."""

    share: float
    """How much of its core the server used."""
    memory: list[int]
    readers: dict[str, Any]
    alone: dict[str, Any]
    """How the others fared before there were readers."""
    others: dict[str, Any]
    tasks: int
    streams: int

    def rows(self, count: int) -> list[Row]:
        quarter = max(1, len(self.memory) // 4)
        early, late = (statistics.median(part) for part in (self.memory[quarter : 2 * quarter], self.memory[-quarter:]))
        what = f"{count:,} streams"
        return [
            Row(f"{what}: read to the end", self.readers["ended"], "streams"),
            Row(f"{what}: stalled", self.readers["stalled"], "streams"),
            Row(f"{what}: left by their readers", self.readers["vanished"], "streams"),
            Row(f"{what}: broken", self.readers["errors"], "streams", 0),
            Row(f"{what}: the server's share of its core", self.share * 100, "%"),
            Row(f"{what}: memory", late / 1e6, "MB"),
            Row(f"{what}: memory, against before", late / early, TIMES, 1.05),
            Row(f"{what}: tasks that are left over", self.tasks, "tasks", 0),
            Row(f"{what}: streams of the model that are left over", self.streams, "streams", 0),
            Row(f"{what}: a small request before, median", self.alone["median"] * 1e3, "ms"),
            Row(f"{what}: a small request before, 99 of 100", self.alone["late"] * 1e3, "ms"),
            Row(f"{what}: a small request beside them, median", self.others["median"] * 1e3, "ms"),
            Row(f"{what}: a small request beside them, 99 of 100", self.others["late"] * 1e3, "ms", 100),
            Row(f"{what}: a small request beside them, longest", self.others["worst"] * 1e3, "ms"),
            Row(f"{what}: small requests that failed", self.others["lost"], "requests", 0),
        ]


def endurance_rows(*, seconds: float, streams: int = STREAMS) -> list[Row]:
    """Hold many streams for some time, with readers of all kinds."""
    raise_limit()
    with open_bench() as bench:
        outcome = endured(bench, seconds=seconds, streams=streams)
        if outcome.readers["problem"]:
            print(f"the first stream that broke: {outcome.readers['problem']}", file=sys.stderr)
        return outcome.rows(streams)


def endured(bench: Bench, *, seconds: float, streams: int) -> Outcome:
    """Let readers read for some time, then wait until nothing of their streams is left."""
    target = tasks_target(bench, streams)
    with bench.server(target) as server:
        if server is None:
            raise BenchmarkError("the server is not available")
        before = tasks_of(server)
        with pinging(server.port, "json") as pinger:
            time.sleep(ALONE)
            alone = report_of(pinger)
            begun, spent = time.monotonic(), server.cpu_seconds()
            memory, readers = watched(server, streams, seconds)
            share = (server.cpu_seconds() - spent) / (time.monotonic() - begun)
            report = report_of(pinger)
        tasks, left = remaining(bench, server, before)
    return Outcome(share, memory, readers, alone, report, tasks, left)


def tasks_target(bench: Bench, streams: int) -> Target:
    """Return the server with connections for all streams, and a route that counts tasks."""
    folder = bench.folder / "endurance"
    config = {
        "backends": {"default": {"url": bench.mock_url, "max_connections": streams + 100}},
        "plugins_dir": str(folder / "plugins"),
        "providers": {"tasks": {"enabled": True}},
    }
    target = configured_target("antwort", folder, config)
    (folder / "plugins").mkdir()
    (folder / "plugins" / "tasks.py").write_text(PROVIDER)
    return target


def watched(server: Server, streams: int, seconds: float) -> tuple[list[int], dict[str, Any]]:
    """Start the readers, and return the memory of the server for each second, and their report."""
    memory = []
    command = program("readers", server.port, streams, seconds)
    with child(command, cwd=PROJECT, stdout=subprocess.PIPE) as readers:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(1)
            memory.append(server.resident_bytes())
        report: dict[str, Any] = json.loads(read_line(readers, time.monotonic() + 60) or "{}")
    if not report:
        raise BenchmarkError("the readers have ended without a report")
    return memory, report


def tasks_of(server: Server) -> int:
    """Return how many tasks the server has."""
    status, answer = request(server.port, "GET", "/v1/tasks", None, {})
    if status != 200:
        raise BenchmarkError(f"/v1/tasks answered {status}: {answer}")
    return int(json.loads(answer)["tasks"])


def remaining(bench: Bench, server: Server, before: int) -> tuple[int, int]:
    """Return how many tasks more than before there are, and how many streams of the model, after a while at most."""
    deadline = time.monotonic() + PARTING
    while True:
        left = max(0, tasks_of(server) - before), bench.stats()["streams"]
        if left == (0, 0) or time.monotonic() > deadline:
            return left
        time.sleep(0.5)
