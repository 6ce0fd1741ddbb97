"""What the server costs as a gateway: CPU per request and per streamed event against the reference R, time and memory.

The server under test has a core of its own; a mock backend and a load generator, both compiled, share another. R and
the server are measured in turns within one run, and the figures are medians: machines are noisy, ratios less so.
"""

import contextlib
import http.client
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
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
    clean_environment,
    read_line,
    running,
)

REFERENCE = "R"
PATH = "/v1/responses"
ANTWORT = (sys.executable, "-m", "antwort")
QUESTION = "What is the capital of France?"
IDLE_STREAMS = 2000
UNKNOWN_COMMAND = 2  # the exit code of a command line that is not understood


@dataclass(frozen=True, slots=True)
class Target:
    """A server to measure: how to start it, and what its requests need beside what the workload asks for."""

    name: str
    command: Sequence[str]
    body: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    cwd: Path | None = None


@dataclass(frozen=True, slots=True)
class Workload:
    """Requests to send in one round, and the bar for the ratio to R, which answers those of the workload `against`."""

    name: str
    body: Mapping[str, Any]
    requests: int
    bar: float
    events: int = 1
    against: str = ""
    connections: int = 8

    @property
    def reference(self) -> str:
        return self.against or self.name

    @property
    def streams(self) -> bool:
        return bool(self.body.get("stream"))


def workloads(*, scale: int = 1) -> list[Workload]:
    """Return what the bars are about. A streamed answer has 100 events, which share the cost of their request.

    Paced, 8 streams send one event per millisecond each: that leaves 125 µs to an event before they come in heaps.
    """
    ask = {"input": QUESTION, "store": False}
    # The ratio of a burst depends on its length, because the request's own cost is shared among its events: R fell from
    # 8.6 µs an event at 32 to 3.9 µs at 1,000. A length of 100 was chosen after that sweep, as the bar names none.
    whole = Workload("JSON request", {**ask, "model": "json"}, 600 * scale, bar=4)
    stored = {**whole.body, "store": True}
    return [
        whole,
        Workload("JSON request, stored", stored, 600 * scale, bar=9, against=whole.name),
        Workload("burst event", {**ask, "model": "burst-100", "stream": True}, 160 * scale, bar=2.5, events=100),
        Workload("paced event", {**ask, "model": "paced-100", "stream": True}, 24 * scale, bar=1.6, events=100),
    ]


def reference_target(mock_port: int) -> Target:
    return Target(REFERENCE, (sys.executable, str(Path(__file__).with_name("reference.py")), str(mock_port)))


def antwort_target(mock_url: str, folder: Path) -> Target:
    """Return the server as a user starts it, in a folder without a configuration."""
    command = (*ANTWORT, "serve", "--port", "0", "--backend", mock_url, "--data-dir", str(folder / "data"))
    return Target("antwort", command, cwd=folder)


def patient_target(mock_url: str, folder: Path) -> Target:
    """Return the server with a connection to the model server for each of many streams: by default it has fewer."""
    config = folder / "streams.yaml"
    backend = {"url": mock_url, "max_connections": 2 * IDLE_STREAMS}
    config.write_text(json.dumps({"backends": {"default": backend}}))  # JSON is YAML
    command = (*ANTWORT, "serve", "--port", "0", "--config", str(config), "--data-dir", str(folder / "streams"))
    return Target("antwort", command, cwd=folder)


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
        command = self._command(server, target, workload, seconds)
        done = subprocess.run(command, capture_output=True, timeout=seconds + 10, check=False)
        if not done.stdout:
            raise BenchmarkError(f"the load generator failed: {done.stderr.decode(errors='replace')}")
        report: dict[str, Any] = json.loads(done.stdout)
        if report["errors"]:
            raise BenchmarkError(f"{target.name}, {workload.name}: {report['errors']} errors: {report['problem']}")
        if workload.streams and report["events"] < workload.requests * workload.events:
            raise BenchmarkError(f"{target.name}, {workload.name}: fewer events than the model sent")
        return report

    @contextlib.contextmanager
    def held(self, server: Server, target: Target, workload: Workload, *, seconds: float = 120) -> Iterator[None]:
        """Keep the streams of a workload open, one on each connection."""
        command = [*self._command(server, target, workload, seconds), "--hold"]
        with child(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            report = json.loads(read_line(process, time.monotonic() + seconds + 10) or "{}")
            if report.get("errors") != 0:
                raise BenchmarkError(f"{target.name}, {workload.name}: {report.get('problem', 'no streams')}")
            yield

    def _command(self, server: Server, target: Target, workload: Workload, seconds: float) -> list[str]:
        body = self.folder / "body.json"
        body.write_text(json.dumps({**workload.body, **target.body}))
        numbers = {"connections": workload.connections, "requests": workload.requests, "seconds": seconds}
        options = [part for name, number in numbers.items() for part in (f"--{name}", str(number))]
        headers = [part for name, value in target.headers.items() for part in ("--header", f"{name}: {value}")]
        return [str(self.load), str(server.port), PATH, str(body), *options, *headers]


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


def request(port: int, method: str, path: str, body: str | None, headers: Mapping[str, str]) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    with contextlib.closing(connection):
        connection.request(method, path, body, {"Content-Type": "application/json", **headers})
        answer = connection.getresponse()
        return answer.status, answer.read(2000).decode(errors="replace")


def cpu_rows(bench: Bench, targets: Sequence[Target], work: Sequence[Workload], *, rounds: int) -> list[Row]:
    """Measure CPU microseconds per request and event of R and of every target, in interleaved rounds."""
    reference = reference_target(bench.mock.port)
    with contextlib.ExitStack() as stack:
        servers = [(target, stack.enter_context(bench.server(target))) for target in (reference, *targets)]
        plan = [
            (target, server, workload)
            for workload in work
            for target, server in servers
            if server and (target is not reference or workload.reference == workload.name)
        ]
        costs: dict[tuple[str, str], list[float]] = {(target.name, workload.name): [] for target, _, workload in plan}
        for taken in range(-1, rounds):
            for target, server, workload in plan:
                before = server.cpu_seconds()
                bench.run(server, target, workload)
                spent = (server.cpu_seconds() - before) / (workload.requests * workload.events)
                if taken >= 0:  # the first round warms up
                    costs[target.name, workload.name].append(spent * 1e6)
    medians = {key: statistics.median(values) for key, values in costs.items()}
    return [row for workload in work for row in _rows_of(workload, [target.name for target in targets], medians)]


def _rows_of(workload: Workload, targets: Sequence[str], medians: Mapping[tuple[str, str], float]) -> Iterator[Row]:
    reference = medians[REFERENCE, workload.reference]
    if workload.reference == workload.name:
        yield Row(f"{REFERENCE}: {workload.name}", reference, "µs")
    for target in targets:
        cost = medians.get((target, workload.name))
        if cost is not None:
            yield Row(f"{target}: {workload.name}", cost, "µs")
        ratio = None if cost is None else cost / reference
        yield Row(
            f"{target}: {workload.name}, against {REFERENCE}",
            ratio,
            f"\N{MULTIPLICATION SIGN} {REFERENCE}",
            workload.bar,
        )


def idle_rows(bench: Bench, *, repeat: int) -> list[Row]:
    """Measure the server with embedded defaults: time to the first answer, memory at rest; and the time of `--help`."""
    started, resident, helped = [], [], []
    environment = clean_environment()
    for number in range(repeat):
        begun = time.perf_counter()
        subprocess.run([*ANTWORT, "--help"], stdout=subprocess.DEVNULL, env=environment, timeout=60, check=True)
        helped.append(time.perf_counter() - begun)
        folder = bench.folder / f"idle-{number}"
        folder.mkdir()
        command = (*ANTWORT, "serve", "--port", "0", "--data-dir", str(folder / "data"))
        begun = time.perf_counter()
        with running(command, core=bench.cores.server, cwd=folder) as server:
            status, answer = request(server.port, "GET", "/healthz", None, {})
            if status != 200:
                raise BenchmarkError(f"/healthz answered {status}: {answer}")
            started.append(time.perf_counter() - begun)
            resident.append(server.resident_bytes() / 1e6)
    return [
        Row("antwort: from the command to the first answer", statistics.median(started), "s", 2),
        Row("antwort: memory of the idle server", statistics.median(resident), "MB", 100),
        Row("antwort --help", statistics.median(helped), "s", 0.3),
    ]


def stream_rows(bench: Bench, targets: Sequence[Target], *, streams: int = IDLE_STREAMS) -> list[Row]:
    """Measure the memory of a stream that is open and silent."""
    rows = []
    warm = Workload("warm-up", {"model": "burst-20", "input": QUESTION, "store": False, "stream": True}, 64, bar=0)
    silent = {**warm.body, "model": "paced-9-600000"}
    hold = Workload("open streams", silent, streams, bar=40, connections=streams)
    for target in targets:
        size = None
        with bench.server(target) as server:
            if server:
                bench.run(server, target, warm)
                before = server.resident_bytes()
                with bench.held(server, target, hold):
                    size = (server.resident_bytes() - before) / streams / 1024
        bar = None if target.name == REFERENCE else hold.bar
        rows.append(Row(f"{target.name}: memory of an idle stream, {streams:,} open", size, "KiB", bar))
    return rows


def gateway_rows(*, full: bool) -> list[Row]:
    """Take every measurement of the gateway."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # a proxy has two sockets for each stream
    with open_bench() as bench:
        antwort = antwort_target(bench.mock_url, bench.folder)
        rows = cpu_rows(bench, [antwort], workloads(scale=2 if full else 1), rounds=31 if full else 15)
        rows += idle_rows(bench, repeat=7 if full else 3)
        if full:
            patient = patient_target(bench.mock_url, bench.folder)
            rows += stream_rows(bench, [reference_target(bench.mock.port), patient])
    return rows
