"""How the cost of a request grows: with events, history, functions, stored responses, files, chunks and tenants.

And that of a start: with keys and functions.
"""

import http.client
import json
import math
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.gateway import (
    Bench,
    Costs,
    Place,
    Target,
    Workload,
    antwort_target,
    configured_target,
    measure_costs,
    open_bench,
)
from benchmarks.measure import BenchmarkError, Row
from benchmarks.plots import Plot, Series, plotted
from benchmarks.processes import Server, cpu_seconds, running
from benchmarks.workloads import (
    ASK,
    JSON_REQUEST,
    client_functions,
    connected,
    conversation,
    functions_target,
    got,
    history,
    posted,
    upload,
)

FLAT, LINEAR = 0.2, 1.15
"""Bars for the power with which a cost grows: 0 is flat, 1 linear, 2 quadratic. They leave room for noise."""
_UPLOADS = 50
"""Files that are uploaded to measure what one costs."""
_ASKED = 50
"""Requests for the same thing to measure what one costs."""
_STARTS = 5
"""Starts of each size at most: one takes a second."""
_PATIENCE = 600.0
"""Seconds in which a file must be searchable."""
METHOD = """\
Growth: CPU time of the server per request, 8 connections at once. All sizes of a kind take turns for {rounds} rounds,
but for stored responses, files, chunks and requests for the same thing, which only become more and come on one
connection; a figure is the median of the rounds. A start is all CPU time until the server listens; "each" is what one
key or function adds to it. The power is that of the last step: 0 is flat, 1 linear, 2 quadratic."""


@dataclass(frozen=True, slots=True)
class Growth:
    """What costs were measured for, the lines that they make, and the power beyond which they grow too fast."""

    name: str
    title: str
    x: str
    series: Sequence[Series]
    bar: float
    each: bool = False
    """Whether to tell what one more adds."""

    def plot(self) -> Plot:
        return Plot(self.title, self.x, self.series)

    def rows(self) -> list[Row]:
        rows = []
        for series in self.series:
            what = f"growth with {self.x}: {series.name}"
            rows += [Row(f"{what}, {x:,.0f}", y, "µs") for x, y in series.points]
            if self.each:
                rows.append(Row(f"{what}, each", slope(series), "µs"))
            rows.append(Row(f"{what}, power of the growth", power(series), "", self.bar))
        return rows


def power(series: Series) -> float:
    """Return with which power of x the cost grows at the end."""
    (x1, y1), (x2, y2) = series.points[-2:]
    return max(0.0, math.log(y2 / y1) / math.log(x2 / x1))


def slope(series: Series) -> float:
    """Return what one more adds to the cost, over all sizes."""
    (x1, y1), (x2, y2) = series.points[0], series.points[-1]
    return max(0.0, (y2 - y1) / (x2 - x1))


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes that are measured."""

    events: Sequence[int] = (10, 30, 100, 300, 1_000, 3_000, 10_000)
    turns: Sequence[int] = (1, 3, 10, 30, 100, 300, 1_000)
    functions: Sequence[int] = (1, 3, 10, 30, 100, 300, 1_000)
    responses: Sequence[int] = (1, 10, 100, 1_000, 10_000, 100_000)
    tenants: Sequence[int] = (1, 10, 100, 1_000, 5_000)
    files: Sequence[int] = (1, 10, 100, 1_000, 10_000)
    chunks: Sequence[int] = (100, 1_000)
    """Of one more file each; to embed more takes minutes."""
    asked: Sequence[int] = (1, 10, 100, 1_000)
    started: Sequence[int] = (1, 100, 1_000)
    requests: float = 1.0
    """How many to measure each of them with: a share of what makes a figure steady."""

    def count(self, steady: int) -> int:
        """Return how many requests to make where so many make a figure steady."""
        return max(8, round(steady * self.requests))


def growth_rows(*, rounds: int, folder: Path | None = None, sizes: Sizes | None = None) -> list[Row]:
    """Measure every kind of growth; write the plots into a folder."""
    sizes = sizes or Sizes()
    if folder is not None:
        make_folder(folder)
    with open_bench() as bench:
        measured = [
            events_growth(bench, sizes, rounds),
            history_growth(bench, sizes, rounds),
            functions_growth(bench, sizes, rounds),
            responses_growth(bench, sizes, rounds),
            tenants_growth(bench, sizes, rounds),
            files_growth(bench, sizes, rounds),
            chunks_growth(bench, sizes, rounds),
            description_growth(bench, sizes, rounds),
            start_growth(bench, sizes.started, min(rounds, _STARTS)),
        ]
    if folder is not None:
        for growth in measured:
            (folder / f"growth-{growth.name}.svg").write_text(plotted(growth.plot()))
    return [row for growth in measured for row in growth.rows()]


def make_folder(folder: Path) -> None:
    """Make the folder for the plots, before the work: it takes long."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BenchmarkError(f"{folder} cannot be a folder for plots: {error}") from error


def events_growth(bench: Bench, sizes: Sizes, rounds: int) -> Growth:
    """Measure streams of more and more events."""

    kinds = {"not stored": False, "stored": True}
    work = [
        Workload(
            f"{kind}, {size}",
            {**ASK, "stream": True, "store": store, "model": f"burst-{size}"},
            sizes.count(16_000 // (size + 60)),
        )
        for kind, store in kinds.items()
        for size in sizes.events
    ]
    costs = measure_costs(bench, [_new(bench, "events")], work, rounds=rounds)
    series = [
        _series(kind, sizes.events, costs, [("antwort", f"{kind}, {size}") for size in sizes.events]) for kind in kinds
    ]
    return Growth("events", "CPU time of a streamed response", "events per response", series, LINEAR)


def history_growth(bench: Bench, sizes: Sizes, rounds: int) -> Growth:
    """Measure requests that go on from more and more turns."""
    body = {**ASK, "model": "json"}
    kinds = {"previous_response_id": history, "conversation": conversation}
    work = {
        kind: [
            Workload(f"{kind} after {size}", body, sizes.count(16_000 // (size + 80)), prepare=prepare(size))
            for size in sizes.turns
        ]
        for kind, prepare in kinds.items()
    }
    every = [one for some in work.values() for one in some]
    costs = measure_costs(bench, [_new(bench, "history")], every, rounds=rounds)
    series = [_series(kind, sizes.turns, costs, [("antwort", one.name) for one in some]) for kind, some in work.items()]
    return Growth("history", "CPU time of a request that goes on from others", "turns before", series, LINEAR)


def functions_growth(bench: Bench, sizes: Sizes, rounds: int) -> Growth:
    """Measure requests with more and more functions, registered or brought along."""
    plain = Workload(JSON_REQUEST, {**ASK, "model": "json"}, sizes.count(200))
    brought = [
        Workload(f"with {size}", {**plain.body, **client_functions(size)}, sizes.count(20_000 // (size + 99)))
        for size in sizes.functions
    ]
    registered = [functions_target(bench, size) for size in sizes.functions]
    client = replace(_new(bench, "functions"), only=[one.name for one in brought])
    costs = measure_costs(bench, [*registered, client], [plain, *brought], rounds=rounds)
    series = [
        _series("registered, all offered", sizes.functions, costs, [(one.name, plain.name) for one in registered]),
        _series("of the client", sizes.functions, costs, [("antwort", one.name) for one in brought]),
    ]
    return Growth("functions", "CPU time of a request with functions", "functions", series, LINEAR)


def responses_growth(bench: Bench, sizes: Sizes, rounds: int) -> Growth:
    """Measure requests beside more and more responses that are stored already."""
    stored = Workload("stored", {**ASK, "model": "json", "store": True}, sizes.count(100))
    target = _new(bench, "responses")
    points: dict[str, list[tuple[float, float]]] = {"stored": [], "going on from one": []}
    with bench.server(target) as server:
        if server is None:
            raise BenchmarkError("the server is not available")
        warming = replace(stored, body={**stored.body, "store": False}, requests=sizes.count(400))
        bench.run(server, target, warming)
        latest = history(1)(server, target)
        going_on = replace(stored, body={**stored.body, **latest, "store": False})
        count = 1
        for size in sizes.responses:
            if size > count:
                bench.run(server, target, replace(stored, requests=size - count), seconds=600)
                count = size
            for name, workload in zip(points, (stored, going_on), strict=True):
                costs = [bench.cost(server, target, workload) for _ in range(rounds)]
                points[name].append((float(size), statistics.median(costs)))
            count += stored.requests * rounds
    series = [Series(name, values) for name, values in points.items()]
    return Growth("responses", "CPU time of a request beside stored responses", "stored responses", series, FLAT)


def tenants_growth(bench: Bench, sizes: Sizes, rounds: int) -> Growth:
    """Measure stored requests of more and more tenants, who take turns."""

    targets = [_tenants(bench, size, "tenants") for size in sizes.tenants]
    body = {**ASK, "model": "json", "store": True}
    work = [Workload(f"{size} tenants", body, sizes.count(max(400, size)), keys=size) for size in sizes.tenants]
    costs = measure_costs(bench, targets, work, rounds=rounds)
    series = _series("stored", sizes.tenants, costs, [(target.name, target.name) for target in targets])
    return Growth("tenants", "CPU time of a request of one of many tenants", "tenants, each with a key", [series], FLAT)


def files_growth(bench: Bench, sizes: Sizes, rounds: int) -> Growth:
    """Measure uploads beside more and more files that are stored already."""
    target, count, uploads = _new(bench, "files"), 0, sizes.count(_UPLOADS)
    points: list[tuple[float, float]] = []
    with bench.server(target) as server:
        if server is None:
            raise BenchmarkError("the server is not available")
        with connected(server) as connection:
            for size in sizes.files:
                while count < size:
                    upload(connection)
                    count += 1
                costs = []
                for _ in range(rounds):
                    before = server.cpu_seconds()
                    for _ in range(uploads):
                        upload(connection)
                    costs.append((server.cpu_seconds() - before) / uploads * 1e6)
                    count += uploads
                points.append((float(size), statistics.median(costs)))
    return Growth("files", "CPU time of an upload", "stored files", [Series("small files", points)], FLAT)


def chunks_growth(bench: Bench, sizes: Sizes, rounds: int) -> Growth:
    """Measure looks at a vector store in which there are more and more chunks."""
    config = {
        "backends": {"default": {"url": bench.mock_url}},
        "providers": {"files": {"enabled": True}, "file_search": {"enabled": True}},
    }
    target, count = configured_target("vector stores", bench.folder / "growth-chunks", config), 0
    points: list[tuple[float, float]] = []
    with bench.server(target) as server:
        if server is None:
            raise BenchmarkError("the server is not available")
        with connected(server) as connection:
            path = f"/v1/vector_stores/{posted(connection, '/v1/vector_stores', {'name': 'measured'})['id']}"
            for size in sizes.chunks:
                _attach(connection, path, size - count)
                count = size
                costs = [_cost_of_asking(server, connection, path, sizes.count(_ASKED)) for _ in range(rounds)]
                points.append((float(size), statistics.median(costs)))
    series = Series("GET /v1/vector_stores/{id}", points)
    return Growth("chunks", "CPU time of a look at a vector store", "chunks in it", [series], FLAT)


def _attach(connection: http.client.HTTPConnection, path: str, chunks: int) -> None:
    """Add a file of so many chunks to a vector store, and wait until it can be found."""
    paragraphs = (f"Chapter {number} says: " + f"the number {number} is one of many. " * 8 for number in range(chunks))
    static = {"max_chunk_size_tokens": 100, "chunk_overlap_tokens": 0}
    body = {
        "file_id": upload(connection, "\n\n".join(paragraphs)),
        "chunking_strategy": {"type": "static", "static": static},
    }
    file = f"{path}/files/{posted(connection, f'{path}/files', body)['id']}"
    deadline = time.monotonic() + _PATIENCE
    while (status := json.loads(got(connection, file))["status"]) == "in_progress":
        if time.monotonic() > deadline:
            raise BenchmarkError(f"the file was not searchable within {_PATIENCE:g} seconds")
        time.sleep(0.2)
    if status != "completed":
        raise BenchmarkError(f"the file could not be made searchable: {status}")


def description_growth(bench: Bench, sizes: Sizes, rounds: int) -> Growth:
    """Measure requests for the description of the API after more and more of them."""
    target, count, path, asked = _new(bench, "description"), 0, "/openapi.json", sizes.count(_ASKED)
    points: list[tuple[float, float]] = []
    with bench.server(target) as server:
        if server is None:
            raise BenchmarkError("the server is not available")
        with connected(server) as connection:
            for size in sizes.asked:
                while count < size:
                    got(connection, path)
                    count += 1
                costs = [_cost_of_asking(server, connection, path, asked) for _ in range(rounds)]
                points.append((float(size), statistics.median(costs)))
                count += rounds * asked
    series = Series("GET /openapi.json", points)
    return Growth("description", "CPU time of the description of the API", "requests before", [series], FLAT)


def _cost_of_asking(server: Server, connection: http.client.HTTPConnection, path: str, asked: int) -> float:
    """Return the CPU microseconds of the process that answers: the one that reads files has its own chores."""
    before = cpu_seconds(server.pid)
    for _ in range(asked):
        got(connection, path)
    return (cpu_seconds(server.pid) - before) / asked * 1e6


def start_growth(bench: Bench, sizes: Sequence[int], rounds: int) -> Growth:
    """Measure starts with more and more keys, and with more and more functions."""
    targets = {
        "start with keys": [_tenants(bench, size, "start") for size in sizes],
        "start with functions": [functions_target(bench, size, "start-functions") for size in sizes],
    }
    costs: dict[tuple[str, int], list[float]] = {}
    for _ in range(rounds):
        for kind, some in targets.items():
            for size, target in zip(sizes, some, strict=True):
                with running(target.command, core=bench.cores.server, cwd=target.cwd) as server:
                    costs.setdefault((kind, size), []).append(server.cpu_seconds() * 1e6)
    series = [Series(kind, [(float(size), statistics.median(costs[kind, size])) for size in sizes]) for kind in targets]
    return Growth("start", "CPU time of a start", "keys, or functions", series, LINEAR, each=True)


def _tenants(bench: Bench, count: int, folder: str) -> Target:
    """Return the server with so many tenants, each with a key."""
    name = f"{count} tenants"
    keys = [{"id": f"k{n}", "key": f"sk-{n:06}", "tenant": f"t{n}"} for n in range(count)]
    config = {"backends": {"default": {"url": bench.mock_url}}, "auth": {"api_keys": keys}}
    target = configured_target(name, bench.folder / f"{folder}-{count}", config)
    return replace(target, headers={"Authorization": "Bearer sk-000000"}, only=[name])


def _new(bench: Bench, name: str) -> Target:
    """Return a server with data of its own."""
    folder = bench.folder / f"growth-{name}"
    folder.mkdir()
    return antwort_target(bench.mock_url, folder)


def _series(name: str, sizes: Sequence[int], costs: Costs, places: Sequence[Place]) -> Series:
    medians = [(size, costs.median(place)) for size, place in zip(sizes, places, strict=True)]
    return Series(name, [(float(size), median) for size, median in medians if median is not None])
