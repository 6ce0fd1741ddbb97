"""Comparing gateways: the same requests to each in turn, round by round, and the median of the rounds."""

import contextlib
import itertools
import os
import platform
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.support.postgres import PostgresServer

from benchmarks.gateway import Bench, open_bench
from benchmarks.measure import BenchmarkError
from benchmarks.peers import gateways as rows
from benchmarks.peers.environments import UnavailableError, install
from benchmarks.peers.gateways import Gateway, Site
from benchmarks.peers.lines import Line, lines, prove
from benchmarks.peers.results import Column, Comparison, Figure, Row
from benchmarks.peers.running import Running, free_port, settle, started
from benchmarks.processes import running

Installed = tuple[Gateway, Path]
"""A gateway, and the folder of its programs."""
NOTE = 200
"""How many characters of a reason are told."""


class Hall:
    """Where gateways are started: a bench, an MCP server, a database server, and folders that nobody shares."""

    def __init__(self, bench: Bench, tools_port: int, stack: contextlib.ExitStack) -> None:
        self.bench = bench
        self._tools_url = f"http://127.0.0.1:{tools_port}/mcp"
        self._stack = stack
        self._postgres: PostgresServer | None = None
        self._numbers = itertools.count()

    @contextlib.contextmanager
    def started(self, gateway: Gateway, programs: Path, *, postgres: bool = False) -> Iterator[Running]:
        """Start a gateway in a folder, and with a database if it is to have one, of its own."""
        folder = self.bench.folder / f"{gateway.name}-{next(self._numbers)}"
        folder.mkdir()
        site = Site(
            model_url=f"http://127.0.0.1:{self.bench.mock.port}",
            tools_url=self._tools_url,
            port=free_port(),
            metrics_port=free_port(),
            folder=folder,
            database_url=self._new_database() if postgres else "",
        )
        with started(gateway, programs, site, core=self.bench.cores.server) as server:
            yield server

    def _new_database(self) -> str:
        if self._postgres is None:
            self._postgres = PostgresServer()
            self._stack.callback(self._postgres.remove)
            self._postgres.start()
        return self._postgres.create()


@contextlib.contextmanager
def open_hall() -> Iterator[Hall]:
    """Give a hall; its database server is started when the first database is asked for."""
    with contextlib.ExitStack() as stack:
        bench = stack.enter_context(open_bench())
        program = Path(__file__).with_name("tool_server.py")
        tools = stack.enter_context(running((sys.executable, str(program)), core=bench.cores.client))
        yield Hall(bench, tools.port, stack)


def compare(chosen: Sequence[Gateway], *, rounds: int) -> Comparison:
    """Measure every row for every gateway that can be had."""
    columns, had = [], []
    for gateway in chosen:
        version = gateway.requirement.rpartition("==")[2]
        missing, programs = "", Path()
        if gateway.requirement:
            try:
                programs = install(gateway.package or gateway.name, gateway.requirement)
            except UnavailableError as error:
                missing = str(error)
        columns.append(Column(gateway.name, version, gateway.remarks.get("", ""), missing))
        if not missing:
            had.append((gateway, programs))
    with open_hall() as hall:
        found = [*cpu_rows(hall, had, lines(), rounds=rounds), *idle_rows(hall, had, repeat=min(rounds, 5))]
    return Comparison(time.strftime("%Y-%m-%d"), machine(), rounds, columns, found)


def machine() -> str:
    """Return what is worth knowing of the machine."""
    return f"{os.cpu_count()} cores, {platform.machine()}, {platform.system()}, Python {platform.python_version()}"


class Ledger:
    """What was found so far, by gateway and row: a cost for each round, or why there is none."""

    def __init__(self, had: Sequence[Installed]) -> None:
        self._gateways = [gateway for gateway, _ in had]
        self._costs: dict[tuple[str, str], list[float]] = {}
        self._missing = {(gateway.name, row): why for gateway in self._gateways for row, why in gateway.missing.items()}

    def lacks(self, gateway: Gateway, row: str) -> bool:
        return (gateway.name, row) in self._missing

    def give_up(self, gateway: Gateway, row: str, why: object) -> None:
        self._missing[gateway.name, row] = " ".join(str(why).split())[:NOTE]

    def note(self, gateway: Gateway, row: str, cost: float) -> None:
        self._costs.setdefault((gateway.name, row), []).append(cost)

    def row(self, what: str) -> Row:
        return Row(what, "µs", {gateway.name: self._figure(gateway, what) for gateway in self._gateways})

    def _figure(self, gateway: Gateway, row: str) -> Figure:
        place = (gateway.name, row)
        if place in self._missing:
            return Figure(note=self._missing[place])
        return Figure(statistics.median(self._costs[place]), gateway.remarks.get(row, ""))


def cpu_rows(hall: Hall, had: Sequence[Installed], work: Sequence[Line], *, rounds: int) -> list[Row]:
    """Measure what each row costs each gateway, in interleaved rounds; the first one warms up."""
    ledger = Ledger(had)
    with contextlib.ExitStack() as stack:
        plan: list[tuple[Line, Running]] = []
        for postgres, installed in itertools.product((False, True), had):
            plan += _planned(hall, installed, [line for line in work if line.postgres == postgres], ledger, stack)
        plan.sort(key=lambda planned: work.index(planned[0]))  # the gateways take turns in every row
        for taken in range(-1, rounds):
            _tell(f"round {taken + 1} of {rounds}")
            for line, server in plan:
                if ledger.lacks(server.gateway, line.what):
                    continue
                try:
                    if taken < 0:
                        prove(server, line)
                    cost = cost_of(hall.bench, server, line)
                except BenchmarkError as error:
                    ledger.give_up(server.gateway, line.what, error)
                    continue
                if taken >= 0:
                    ledger.note(server.gateway, line.what, cost)
    return [ledger.row(line.what) for line in work]


def _planned(
    hall: Hall, installed: Installed, work: Sequence[Line], ledger: Ledger, stack: contextlib.ExitStack
) -> Iterator[tuple[Line, Running]]:
    """Start a gateway for those rows that it can do, and give each with it."""
    gateway, programs = installed
    asked = [line for line in work if not ledger.lacks(gateway, line.what)]
    if not asked:
        return
    try:
        server = stack.enter_context(hall.started(gateway, programs, postgres=asked[0].postgres))
    except BenchmarkError as error:
        for line in asked:
            ledger.give_up(gateway, line.what, f"does not start: {error}")
        return
    for line in asked:
        yield line, server


def cost_of(bench: Bench, gateway: Running, line: Line) -> float:
    """Return the CPU microseconds, user and system, that a request or an event of a row costs."""
    steps = line.steps(gateway)
    settle(gateway.server)
    before = gateway.server.cpu_seconds()
    for step in steps:
        bench.run(gateway.server, gateway.target, step)
    settle(gateway.server)
    return (gateway.server.cpu_seconds() - before) / (steps[0].requests * line.events) * 1e6


def idle_rows(hall: Hall, had: Sequence[Installed], *, repeat: int) -> Iterator[Row]:
    """Measure the time to the first answer, and the memory after it, in interleaved rounds."""
    seconds: dict[str, list[float]] = {}
    memory: dict[str, list[float]] = {}
    for taken in range(repeat):
        _tell(f"start {taken + 1} of {repeat}")
        for gateway, programs in had:
            with contextlib.suppress(BenchmarkError), hall.started(gateway, programs) as server:
                settle(server.server)
                seconds.setdefault(gateway.name, []).append(server.seconds)
                memory.setdefault(gateway.name, []).append(server.server.resident_bytes() / 1e6)
    none = Figure(note="does not start")
    for what, unit, values in ((rows.MEMORY, "MB", memory), (rows.START, "s", seconds)):
        medians = {name: Figure(statistics.median(taken)) for name, taken in values.items()}
        yield Row(what, unit, {gateway.name: medians.get(gateway.name, none) for gateway, _ in had})


def _tell(what: str) -> None:
    print(what, file=sys.stderr, flush=True)
