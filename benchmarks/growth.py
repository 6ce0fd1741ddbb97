"""How the cost of a request grows: with events, history, functions, stored responses, files and tenants."""

import math
import statistics
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
from benchmarks.workloads import (
    ASK,
    JSON_REQUEST,
    client_functions,
    connected,
    conversation,
    functions_target,
    history,
    upload,
)

FLAT, LINEAR = 0.2, 1.15
"""Bars for the power with which a cost grows: 0 is flat, 1 linear, 2 quadratic. They leave room for noise."""
_UPLOADS = 50
"""Files that are uploaded to measure what one costs."""
METHOD = """\
Growth: CPU time of the server per request, 8 connections at once. All sizes of a kind take turns for {rounds} rounds,
but for stored responses and files, which only become more; a figure is the median of the rounds. The power is that of
the last step: 0 is flat, 1 linear, 2 quadratic."""


@dataclass(frozen=True, slots=True)
class Growth:
    """What costs were measured for, the lines that they make, and the power beyond which they grow too fast."""

    name: str
    title: str
    x: str
    series: Sequence[Series]
    bar: float

    def plot(self) -> Plot:
        return Plot(self.title, self.x, self.series)

    def rows(self) -> list[Row]:
        rows = []
        for series in self.series:
            what = f"growth with {self.x}: {series.name}"
            rows += [Row(f"{what}, {x:,.0f}", y, "µs") for x, y in series.points]
            rows.append(Row(f"{what}, power of the growth", power(series), "", self.bar))
        return rows


def power(series: Series) -> float:
    """Return with which power of x the cost grows at the end."""
    (x1, y1), (x2, y2) = series.points[-2:]
    return max(0.0, math.log(y2 / y1) / math.log(x2 / x1))


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes that are measured."""

    events: Sequence[int] = (10, 30, 100, 300, 1_000, 3_000, 10_000)
    turns: Sequence[int] = (1, 3, 10, 30, 100, 300, 1_000)
    functions: Sequence[int] = (1, 3, 10, 30, 100, 300, 1_000)
    responses: Sequence[int] = (1, 10, 100, 1_000, 10_000, 100_000)
    tenants: Sequence[int] = (1, 10, 100, 1_000, 5_000)
    files: Sequence[int] = (1, 10, 100, 1_000, 10_000)


def growth_rows(*, rounds: int, folder: Path | None = None, sizes: Sizes | None = None) -> list[Row]:
    """Measure every kind of growth; write the plots into a folder."""
    sizes = sizes or Sizes()
    if folder is not None:
        make_folder(folder)
    with open_bench() as bench:
        measured = [
            events_growth(bench, sizes.events, rounds),
            history_growth(bench, sizes.turns, rounds),
            functions_growth(bench, sizes.functions, rounds),
            responses_growth(bench, sizes.responses, rounds),
            tenants_growth(bench, sizes.tenants, rounds),
            files_growth(bench, sizes.files, rounds),
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


def events_growth(bench: Bench, sizes: Sequence[int], rounds: int) -> Growth:
    """Measure streams of more and more events."""

    kinds = {"not stored": False, "stored": True}
    work = [
        Workload(
            f"{kind}, {size}",
            {**ASK, "stream": True, "store": store, "model": f"burst-{size}"},
            max(8, 16_000 // (size + 60)),
        )
        for kind, store in kinds.items()
        for size in sizes
    ]
    costs = measure_costs(bench, [_new(bench, "events")], work, rounds=rounds)
    series = [_series(kind, sizes, costs, [("antwort", f"{kind}, {size}") for size in sizes]) for kind in kinds]
    return Growth("events", "CPU time of a streamed response", "events per response", series, LINEAR)


def history_growth(bench: Bench, sizes: Sequence[int], rounds: int) -> Growth:
    """Measure requests that go on from more and more turns."""
    body = {**ASK, "model": "json"}
    kinds = {"previous_response_id": history, "conversation": conversation}
    work = {
        kind: [
            Workload(f"{kind} after {size}", body, max(8, 16_000 // (size + 80)), prepare=prepare(size))
            for size in sizes
        ]
        for kind, prepare in kinds.items()
    }
    every = [one for some in work.values() for one in some]
    costs = measure_costs(bench, [_new(bench, "history")], every, rounds=rounds)
    series = [_series(kind, sizes, costs, [("antwort", one.name) for one in some]) for kind, some in work.items()]
    return Growth("history", "CPU time of a request that goes on from others", "turns before", series, LINEAR)


def functions_growth(bench: Bench, sizes: Sequence[int], rounds: int) -> Growth:
    """Measure requests with more and more functions, registered or brought along."""
    plain = Workload(JSON_REQUEST, {**ASK, "model": "json"}, 200)
    brought = [
        Workload(f"with {size}", {**plain.body, **client_functions(size)}, 20_000 // (size + 99)) for size in sizes
    ]
    registered = [functions_target(bench, size) for size in sizes]
    client = replace(_new(bench, "functions"), only=[one.name for one in brought])
    costs = measure_costs(bench, [*registered, client], [plain, *brought], rounds=rounds)
    series = [
        _series("registered, all offered", sizes, costs, [(target.name, plain.name) for target in registered]),
        _series("of the client", sizes, costs, [("antwort", one.name) for one in brought]),
    ]
    return Growth("functions", "CPU time of a request with functions", "functions", series, LINEAR)


def responses_growth(bench: Bench, sizes: Sequence[int], rounds: int) -> Growth:
    """Measure requests beside more and more responses that are stored already."""
    stored = Workload("stored", {**ASK, "model": "json", "store": True}, 100)
    target = _new(bench, "responses")
    points: dict[str, list[tuple[float, float]]] = {"stored": [], "going on from one": []}
    with bench.server(target) as server:
        if server is None:
            raise BenchmarkError("the server is not available")
        bench.run(server, target, replace(stored, body={**stored.body, "store": False}, requests=400))  # warms up
        latest = history(1)(server, target)
        going_on = replace(stored, body={**stored.body, **latest, "store": False})
        count = 1
        for size in sizes:
            if size > count:
                bench.run(server, target, replace(stored, requests=size - count), seconds=600)
                count = size
            for name, workload in zip(points, (stored, going_on), strict=True):
                costs = [bench.cost(server, target, workload) for _ in range(rounds)]
                points[name].append((float(size), statistics.median(costs)))
            count += stored.requests * rounds
    series = [Series(name, values) for name, values in points.items()]
    return Growth("responses", "CPU time of a request beside stored responses", "stored responses", series, FLAT)


def tenants_growth(bench: Bench, sizes: Sequence[int], rounds: int) -> Growth:
    """Measure stored requests of more and more tenants, who take turns."""

    def configured(size: int) -> Target:
        name = f"{size} tenants"
        keys = [{"id": f"k{n}", "key": f"sk-{n:06}", "tenant": f"t{n}"} for n in range(size)]
        config = {"backends": {"default": {"url": bench.mock_url}}, "auth": {"api_keys": keys}}
        target = configured_target(name, bench.folder / f"tenants-{size}", config)
        return replace(target, headers={"Authorization": "Bearer sk-000000"}, only=[name])

    targets = [configured(size) for size in sizes]
    body = {**ASK, "model": "json", "store": True}
    work = [Workload(f"{size} tenants", body, max(400, size), keys=size) for size in sizes]
    costs = measure_costs(bench, targets, work, rounds=rounds)
    series = _series("stored", sizes, costs, [(target.name, target.name) for target in targets])
    return Growth("tenants", "CPU time of a request of one of many tenants", "tenants, each with a key", [series], FLAT)


def files_growth(bench: Bench, sizes: Sequence[int], rounds: int) -> Growth:
    """Measure uploads beside more and more files that are stored already."""
    target, count = _new(bench, "files"), 0
    points: list[tuple[float, float]] = []
    with bench.server(target) as server:
        if server is None:
            raise BenchmarkError("the server is not available")
        with connected(server) as connection:
            for size in sizes:
                while count < size:
                    upload(connection)
                    count += 1
                costs = []
                for _ in range(rounds):
                    before = server.cpu_seconds()
                    for _ in range(_UPLOADS):
                        upload(connection)
                    costs.append((server.cpu_seconds() - before) / _UPLOADS * 1e6)
                    count += _UPLOADS
                points.append((float(size), statistics.median(costs)))
    return Growth("files", "CPU time of an upload", "stored files", [Series("small files", points)], FLAT)


def _new(bench: Bench, name: str) -> Target:
    """Return a server with data of its own."""
    folder = bench.folder / f"growth-{name}"
    folder.mkdir()
    return antwort_target(bench.mock_url, folder)


def _series(name: str, sizes: Sequence[int], costs: Costs, places: Sequence[Place]) -> Series:
    medians = [(size, costs.median(place)) for size, place in zip(sizes, places, strict=True)]
    return Series(name, [(float(size), median) for size, median in medians if median is not None])
