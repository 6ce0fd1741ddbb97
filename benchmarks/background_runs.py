"""What background runs cost beside requests in the foreground, to the server and PostgreSQL, and how soon they begin.

With several workers: what a request costs then, and how many runs there are a second.
"""

import contextlib
import http.client
import json
import re
import statistics
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

from tests.support.postgres import PostgresServer

from benchmarks.gateway import (
    ANTWORT,
    PATH,
    TIMES,
    Bench,
    Target,
    Workload,
    configured_target,
    measure_costs,
    open_bench,
)
from benchmarks.measure import Row
from benchmarks.processes import Server, running
from benchmarks.workloads import ASK, BACKGROUND, STORED

METHOD = """\
Background runs: a run is one turn of a model that answers at once. Ratios are of CPU time in the same rounds,
statements count BEGIN and COMMIT too, and the first event of a run is the first that is not of its being accepted."""

RUNS = 200
_STATEMENT = re.compile(r" LOG:  (?:execute [^:]+|statement): ")
_IDLE = 3.0
"""Seconds in which is counted what a server says that has nothing to do."""
_WORKERS = (1, 2, 4)
_STORED = Workload(STORED, {**ASK, "model": "json", "store": True}, RUNS)
_RUN = Workload(BACKGROUND, {**_STORED.body, "background": True}, RUNS)


@dataclass(frozen=True, slots=True)
class Databases:
    """A PostgreSQL, and the servers on databases of it."""

    bench: Bench
    postgres: PostgresServer

    def cpu_seconds(self) -> float:
        return Server(self.postgres.pids()[0], 0).cpu_seconds()

    def target(self, name: str, *options: str) -> tuple[Target, str]:
        """Return a server on a database of its own, and the URL of that."""
        url = self.postgres.create()
        config = {"backends": {"default": {"url": self.bench.mock_url}}, "storage": {"url": url}}
        target = configured_target(name, self.bench.folder / name.replace(" ", "-"), config)
        return replace(target, command=(*target.command, *options), held=False), url

    def statements(self) -> int:
        """Return how many were logged."""
        return len(_STATEMENT.findall((self.postgres.folder / "log").read_text(errors="replace")))

    @contextlib.contextmanager
    def logged(self) -> Iterator[None]:
        """Log every statement."""
        for value in ("all", "none"):
            self.postgres.execute(f"ALTER SYSTEM SET log_statement = '{value}'")
            self.postgres.execute("SELECT pg_reload_conf()")
            if value == "all":
                time.sleep(0.5)  # each connection has read it by its next statement
                yield


def background_rows(*, rounds: int, runs: int = RUNS, worker_counts: Sequence[int] = _WORKERS) -> list[Row]:
    """Take every measurement."""
    postgres = PostgresServer()
    try:
        postgres.start()
        with open_bench() as bench:
            databases = Databases(bench, postgres)
            return [
                *_cost_rows(databases, rounds, runs),
                *_latency_rows(databases, runs),
                *_worker_rows(databases, rounds, runs),
                *(_speed_row(databases, count, runs) for count in worker_counts),
            ]
    finally:
        postgres.remove()


def _cost_rows(databases: Databases, rounds: int, runs: int) -> list[Row]:
    bench = databases.bench
    target, _ = databases.target("costs")
    ratios: list[tuple[float, float]] = []
    with bench.server(target) as server:
        if server is None:
            return []
        stored, run = replace(_STORED, requests=runs), replace(_RUN, requests=runs)
        for taken in range(-1, rounds):
            (own, base), (other, other_base) = zip(
                *(_both_costs(databases, server, target, work) for work in (run, stored)), strict=True
            )
            if taken >= 0:
                ratios.append((own / base, other / other_base))
        statements = [_statements(databases, server, target, work) for work in (stored, run)]
    of_server, of_database = (statistics.median(values) for values in zip(*ratios, strict=True))
    return [
        Row("background run against a stored request: the server", of_server, TIMES, 3),
        Row("background run against a stored request: PostgreSQL", of_database, TIMES, 3),
        Row("statements of a stored request", statements[0], "statements"),
        Row("statements of a background run", statements[1], "statements", 4),
    ]


def _both_costs(databases: Databases, server: Server, target: Target, work: Workload) -> tuple[float, float]:
    """Return the CPU time of the server and of PostgreSQL for a workload."""
    before = databases.cpu_seconds()
    own = databases.bench.cost(server, target, work)
    return own, (databases.cpu_seconds() - before) / work.requests * 1e6


def _statements(databases: Databases, server: Server, target: Target, work: Workload) -> float:
    """Return the statements of a request, without those that the server sends anyway."""
    with databases.logged():
        before = databases.statements()
        time.sleep(_IDLE)
        idle = (databases.statements() - before) / _IDLE
        before, started = databases.statements(), time.perf_counter()
        databases.bench.run(server, target, work)
        taken = time.perf_counter() - started
        return (databases.statements() - before - idle * taken) / work.requests


# --- how soon --------------------------------------------------------------------------------------------------------


def _latency_rows(databases: Databases, runs: int) -> list[Row]:
    """Measure the time from a request to the first event of its run, made by the same server and by another."""
    what = "from the request to the first event of a background run"
    rows = []
    with ExitStack() as stack:
        target, _ = databases.target("latency")
        server = stack.enter_context(running(target.command, core=None, cwd=target.cwd))
        rows.append(Row(f"{what}, p50", _first_event(server, runs), "ms", 30))
    with ExitStack() as stack:
        target, _ = databases.target("latency apart", "--without-worker")
        server = stack.enter_context(running(target.command, core=None, cwd=target.cwd))
        options = target.command[target.command.index("--config") : -1]
        stack.enter_context(running((*ANTWORT, "worker", *options), core=None, cwd=target.cwd))
        rows.append(Row(f"{what} that a worker makes, p50", _first_event(server, runs), "ms", 30))
    return rows


def _first_event(server: Server, runs: int) -> float:
    """Return the median in milliseconds, of runs one after the other."""
    body = json.dumps({**_RUN.body, "stream": True})
    taken = []
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)) as connection:
        for number in range(runs + runs // 10):
            started = time.perf_counter()
            connection.request("POST", PATH, body, {"content-type": "application/json"})
            answer = connection.getresponse()
            while b"response.in_progress" not in answer.readline():
                pass
            if number >= runs // 10:
                taken.append((time.perf_counter() - started) * 1e3)
            answer.read()
    return statistics.median(taken)


# --- several workers -------------------------------------------------------------------------------------------------


def _worker_rows(databases: Databases, rounds: int, runs: int) -> list[Row]:
    """Measure a stored request with two workers against one, with as many connections each and in all.

    What one process does at the same time it does together, so with as many in all each of two has less of that.
    """
    work = [
        replace(_STORED, name=f"{STORED}, {connections}", requests=2 * runs, connections=connections)
        for connections in (8, 16)
    ]
    one, two = (databases.target(f"workers {count}", "--workers", str(count))[0] for count in (1, 2))
    costs = measure_costs(databases.bench, [one, two], work, rounds=rounds)
    base = (one.name, work[0].name)
    each = costs.ratio((two.name, work[1].name), base)
    in_all = costs.ratio((two.name, work[0].name), base)
    return [
        Row("stored request with two workers, 8 connections each, against one with 8", each, TIMES, 1.1),
        Row("stored request with two workers, 8 connections in all, against one with 8", in_all, TIMES),
    ]


def _speed_row(databases: Databases, count: int, runs: int) -> Row:
    """Measure how many background runs are over in a second, the load and the model on the same cores."""
    target, url = databases.target(f"speed {count}", "--workers", str(count))
    work = replace(_RUN, requests=4 * runs, connections=16)
    with running(target.command, core=None, cwd=target.cwd) as server:
        databases.bench.run(server, target, replace(work, requests=runs))
        with _watched(databases, url) as unfinished:
            started = time.perf_counter()
            databases.bench.run(server, target, work)
            ended = time.perf_counter()
    over = unfinished[-1] if unfinished else ended  # who looks may have been kept waiting until all were over
    return Row(f"background runs with {count} workers", work.requests / (over - started), "a second")


@contextlib.contextmanager
def _watched(databases: Databases, url: str) -> Iterator[list[float]]:
    """Note, as long as the block lasts, the moments in which some run was not over."""
    moments: list[float] = []
    left = threading.Event()

    def watch() -> None:
        query = "SELECT 1 FROM responses WHERE background AND status IN ('queued', 'in_progress') LIMIT 1"
        while not left.wait(0.02):
            if databases.postgres.execute(query, url):
                moments.append(time.perf_counter())

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield moments
    finally:
        left.set()
        thread.join()
