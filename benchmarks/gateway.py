"""What a gateway costs: CPU per request and per streamed event, against the reference R.

The server under test has a core of its own; a mock backend and a load generator, both compiled, share another. R and
the servers are measured in turns, round by round. A figure is the median of the rounds, a ratio the median of the
ratios of each round: machines are noisy, and what happens in one round happens to both.
"""

import contextlib
import http.client
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.build import build
from benchmarks.measure import BenchmarkError, Row
from benchmarks.processes import (
    Cores,
    Server,
    ServerExitError,
    available_cores,
    child,
    read_line,
    running,
)

REFERENCE = "R"
PATH = "/v1/responses"
ANTWORT = (sys.executable, "-m", "antwort")
TIMES = "\N{MULTIPLICATION SIGN}"
QUESTION = "What is the capital of France?"
QUIET = 0.0015
"""Seconds of CPU in 50 ms below which a server has nothing to do but its regular chores."""
_PARTS = 5
"""In how many turns those are measured that are compared side by side."""
UNKNOWN_COMMAND = 2  # the exit code of a command line that is not understood


@dataclass(frozen=True, slots=True)
class Target:
    """A server to measure: how to start it, and what its requests need beside what the workload asks for."""

    name: str
    command: Sequence[str]
    body: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    cwd: Path | None = None
    only: Sequence[str] = ()
    """The names of the workloads it gets; all of them if there are none."""
    held: bool = True
    """Whether the bars of the workloads are about it."""

    def gets(self, workload: "Workload") -> bool:
        return not self.only or workload.name in self.only


Preparation = Callable[[Server, Target], Mapping[str, Any]]
"""Brings a server into the state that a workload needs, once, and returns what its requests have to say further."""


@dataclass(frozen=True, slots=True)
class Workload:
    """Requests to send in one round, and the bar for the ratio to R, which answers those of the workload `against`."""

    name: str
    body: Mapping[str, Any]
    requests: int
    bar: float | None = None
    events: int = 1
    """Those that the model sends in an answer: the cost is told for each of them."""
    against: str = ""
    connections: int = 8
    websocket: bool = False
    keys: int = 0
    """How many API keys take turns, `sk-000000` and so on."""
    prepare: Preparation | None = None
    path: str = PATH

    @property
    def reference(self) -> str:
        return self.against or self.name

    @property
    def streams(self) -> bool:
        return bool(self.body.get("stream"))

    @property
    def in_background(self) -> bool:
        return bool(self.body.get("background"))


def reference_target(mock_port: int) -> Target:
    return Target(REFERENCE, (sys.executable, str(Path(__file__).with_name("reference.py")), str(mock_port)))


def antwort_target(mock_url: str, folder: Path) -> Target:
    """Return the server as a user starts it, in a folder without a configuration."""
    command = (*ANTWORT, "serve", "--port", "0", "--backend", mock_url, "--data-dir", str(folder / "data"))
    return Target("antwort", command, cwd=folder)


def configured_target(name: str, folder: Path, config: Mapping[str, Any]) -> Target:
    """Return the server with a configuration, in a folder of its own."""
    folder.mkdir()
    file = folder / "antwort.yaml"
    file.write_text(json.dumps(config))  # JSON is YAML
    command = (*ANTWORT, "serve", "--port", "0", "--config", str(file), "--data-dir", str(folder / "data"))
    return Target(name, command, cwd=folder)


class Bench:
    """A mock backend, a load generator, and the servers between them."""

    def __init__(self, cores: Cores, folder: Path, mock: Server) -> None:
        self.cores = cores
        self.folder = folder
        self.mock = mock
        self.load = build("load")

    @property
    def mock_url(self) -> str:
        return f"http://127.0.0.1:{self.mock.port}/v1"

    @contextlib.contextmanager
    def server(self, target: Target) -> Iterator[Server | None]:
        """Start a target; give None if it does not know the command line or the route yet."""
        with contextlib.ExitStack() as stack:
            try:
                server = stack.enter_context(running(target.command, core=self.cores.server, cwd=target.cwd))
            except ServerExitError as error:
                if error.code != UNKNOWN_COMMAND:
                    raise
                print(f"{target.name} is not available: {error}", file=sys.stderr)
                yield None
                return
            body = json.dumps({"model": "json", "input": QUESTION, "store": False, **target.body})
            status, answer = request(server.port, "POST", PATH, body, target.headers)
            if status not in {200, 404}:
                raise BenchmarkError(f"{target.name} answered {status} to {body}: {answer}")
            if status == 404:
                print(f"{target.name} is not available: POST {PATH} answered 404: {answer}", file=sys.stderr)
            yield server if status == 200 else None

    def run(self, server: Server, target: Target, workload: Workload, *, seconds: float = 60) -> dict[str, Any]:
        """Send the requests of a workload, and return the report of the load generator, which must be clean."""
        asked = self.stats()["asked"]
        command = self._command(server, target, workload, seconds)
        done = subprocess.run(command, capture_output=True, timeout=seconds + 10, check=False)
        if not done.stdout:
            raise BenchmarkError(f"the load generator failed: {done.stderr.decode(errors='replace')}")
        report: dict[str, Any] = json.loads(done.stdout)
        if report["errors"]:
            raise BenchmarkError(f"{target.name}, {workload.name}: {report['errors']} errors: {report['problem']}")
        if workload.streams and report["events"] < workload.requests * workload.events:
            raise BenchmarkError(f"{target.name}, {workload.name}: fewer events than the model sent")
        if workload.in_background:
            self._wait_for_runs(server, asked + workload.requests)
        return report

    def cost(self, server: Server, target: Target, workload: Workload) -> float:
        """Run a workload, and return the CPU microseconds of the server per request, or per event."""
        before = server.cpu_seconds()
        self.run(server, target, workload)
        return (server.cpu_seconds() - before) / (workload.requests * workload.events) * 1e6

    def stats(self) -> dict[str, int]:
        """Return how many completions the mock backend was asked for, and how many paced streams it has open."""
        status, answer = request(self.mock.port, "GET", "/stats", None, {})
        if status != 200:
            raise BenchmarkError(f"the mock backend answered {status}: {answer}")
        stats: dict[str, int] = json.loads(answer)
        return stats

    def _wait_for_runs(self, server: Server, asked: int) -> None:
        """Wait until the model was asked so often, and the server has nothing more to do."""
        deadline = time.monotonic() + 60
        spent, quiet = server.cpu_seconds(), 0
        while quiet < 3:  # once may be by chance: somebody else has the core
            if time.monotonic() > deadline:
                raise BenchmarkError("the background runs do not end")
            time.sleep(0.05)
            before, spent = spent, server.cpu_seconds()
            quiet = quiet + 1 if spent - before < QUIET and self.stats()["asked"] >= asked else 0

    @contextlib.contextmanager
    def held(self, server: Server, target: Target, workload: Workload, *, seconds: float = 120) -> Iterator[None]:
        """Keep the streams of a workload open, one on each connection."""
        command = [*self._command(server, target, workload, seconds), "--hold"]
        with child(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            report = json.loads(read_line(process, time.monotonic() + seconds + 10) or "{}")
            if report.get("errors") != 0:
                raise BenchmarkError(f"{target.name}, {workload.name}: {report.get('problem', 'no streams')}")
            yield

    @contextlib.contextmanager
    def busy(self, server: Server, target: Target, workload: Workload) -> Iterator[None]:
        """Send the requests of a workload over and over meanwhile."""
        endless = replace(workload, requests=10**9)
        with child(self._command(server, target, endless, 600), stdout=subprocess.DEVNULL):
            yield

    def _command(self, server: Server, target: Target, workload: Workload, seconds: float) -> list[str]:
        body = self.folder / "body.json"
        body.write_text(json.dumps({**workload.body, **target.body}))
        numbers = {"connections": workload.connections, "requests": workload.requests, "seconds": seconds}
        options = [part for name, number in numbers.items() for part in (f"--{name}", str(number))]
        if workload.keys:
            options += ["--keys", str(workload.keys)]
        if workload.websocket:
            options.append("--websocket")
        headers = [part for name, value in target.headers.items() for part in ("--header", f"{name}: {value}")]
        return [str(self.load), str(server.port), workload.path, str(body), *options, *headers]


@contextlib.contextmanager
def open_bench() -> Iterator[Bench]:
    """Give a bench with its mock backend running."""
    cores = available_cores()
    if cores.shared:
        print("one core only: the load shares it with the server, so the figures are too high", file=sys.stderr)
    with (
        TemporaryDirectory() as folder,
        cores.reserved(),
        running([str(build("mock"))], core=cores.client) as mock,
    ):
        yield Bench(cores, Path(folder), mock)


def raise_limit() -> None:
    """Let this process, and the servers it starts, open as many files as they may: a stream is two of a proxy."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def request(port: int, method: str, path: str, body: str | None, headers: Mapping[str, str]) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    with contextlib.closing(connection):
        connection.request(method, path, body, {"Content-Type": "application/json", **headers})
        answer = connection.getresponse()
        return answer.status, answer.read(2000).decode(errors="replace")


Place = tuple[str, str]
"""Where a cost was measured: the names of the target and of the workload."""


@dataclass(frozen=True, slots=True)
class Costs:
    """CPU microseconds per request, or per event, for each round."""

    rounds: Mapping[Place, Sequence[float]]
    together: Sequence["Costs"] = ()
    """What was measured once more, side by side, to be compared: the ratios come from there."""

    def median(self, place: Place) -> float | None:
        values = self.rounds.get(place)
        return statistics.median(values) if values else None

    def ratio(self, place: Place, base: Place, *, beyond: Place | None = None) -> float | None:
        """Return the median of the ratios of each round, of what something costs beyond something else, if so asked."""
        compared = {place, base, beyond or base}
        for costs in self.together:
            if compared <= costs.rounds.keys():
                return costs.ratio(place, base, beyond=beyond)
        values, bases = self.rounds.get(place), self.rounds.get(base)
        if not values or not bases:
            return None
        less = self.rounds[beyond] if beyond else [0.0] * len(values)
        return statistics.median((value - off) / beside for value, off, beside in zip(values, less, bases, strict=True))


def measure_costs(
    bench: Bench,
    targets: Sequence[Target],
    work: Sequence[Workload],
    *,
    rounds: int,
    together: Sequence[Sequence[Place]] = (),
) -> Costs:
    """Measure what each workload costs each target that gets it, in interleaved rounds; the first one warms up.

    Places that are `together` are measured once more in each round, in turns of a part of their requests: a machine
    that is slower for some seconds is so for all of them.
    """
    costs: dict[Place, list[float]] = {}
    beside: list[dict[Place, list[float]]] = [{} for _ in together]
    with contextlib.ExitStack() as stack:
        servers = [(target, stack.enter_context(bench.server(target))) for target in targets]
        plan = [
            (target, server, prepared(workload, server, target))
            for workload in work
            for target, server in servers
            if server and target.gets(workload)
        ]
        for taken in range(-1, rounds):
            for target, server, workload in plan:
                cost = bench.cost(server, target, workload)
                if taken >= 0:
                    costs.setdefault((target.name, workload.name), []).append(cost)
            for places, found in zip(together, beside, strict=True) if taken >= 0 else ():
                parts = [
                    (target, server, _part(workload))
                    for target, server, workload in plan
                    if (target.name, workload.name) in places
                ]
                spent = [[bench.cost(server, target, part) for target, server, part in parts] for _ in range(_PARTS)]
                for (target, _, part), values in zip(parts, zip(*spent, strict=True), strict=True):
                    found.setdefault((target.name, part.name), []).append(statistics.mean(values))
    return Costs(costs, [Costs(found) for found in beside])


def _part(workload: Workload) -> Workload:
    return replace(workload, requests=max(workload.connections, workload.requests // _PARTS))


def prepared(workload: Workload, server: Server, target: Target) -> Workload:
    if workload.prepare is None:
        return workload
    return replace(workload, body={**workload.body, **workload.prepare(server, target)})


def cpu_rows(bench: Bench, targets: Sequence[Target], work: Sequence[Workload], *, rounds: int) -> list[Row]:
    """Measure CPU microseconds per request and event of R and of every target, in interleaved rounds."""
    costs = costs_beside_reference(bench, targets, work, rounds=rounds)
    return [row for workload in work for row in rows_of(workload, targets, costs)]


def costs_beside_reference(
    bench: Bench,
    targets: Sequence[Target],
    work: Sequence[Workload],
    *,
    rounds: int,
    together: Sequence[Sequence[Place]] = (),
) -> Costs:
    """Measure the targets and, in the same rounds, R with the workloads that others are held against."""
    own = [workload.name for workload in work if workload.reference == workload.name]
    reference = replace(reference_target(bench.mock.port), only=own)
    return measure_costs(bench, [reference, *targets], work, rounds=rounds, together=together)


def rows_of(workload: Workload, targets: Sequence[Target], costs: Costs) -> Iterator[Row]:
    """Return what a workload costs R and each target, and the ratios."""
    if workload.reference == workload.name:
        yield Row(f"{REFERENCE}: {workload.name}", costs.median((REFERENCE, workload.name)), "µs")
    for target in targets:
        if target.gets(workload):
            yield from _rows_of_target(workload, target, costs)


def _rows_of_target(workload: Workload, target: Target, costs: Costs) -> Iterator[Row]:
    place = target.name, workload.name
    what = ": ".join(place)
    cost = costs.median(place)
    if cost is not None:
        yield Row(what, cost, "µs")
    ratio = costs.ratio(place, (REFERENCE, workload.reference))
    bar = workload.bar if target.held else None
    yield Row(f"{what}, against {REFERENCE}", ratio, f"{TIMES} {REFERENCE}", bar)
