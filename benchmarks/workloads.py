"""What the gateway is asked in the bench, and in which configurations: every row of `make bench`, with its bar."""

import contextlib
import http.client
import json
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tests.support.postgres import PostgresServer

from benchmarks.attacks import pinging, report_of
from benchmarks.gateway import (
    PATH,
    QUESTION,
    REFERENCE,
    TIMES,
    Bench,
    Costs,
    Place,
    Preparation,
    Target,
    Workload,
    antwort_target,
    configured_target,
    costs_beside_reference,
    open_bench,
    prepared,
    raise_limit,
    reference_target,
    request,
    rows_of,
)
from benchmarks.idle import idle_rows, patient_target, stream_rows
from benchmarks.measure import BenchmarkError, Row
from benchmarks.processes import Server

BURST = 64
PACED = 100
TURNS = (1, 100, 500)
FUNCTIONS = (10, 1000)
ASK: Mapping[str, Any] = {"input": QUESTION, "store": False}
JSON_REQUEST = "JSON request"
STORED = "JSON request, stored"
BACKGROUND = "background run"
BURST_EVENT = "burst event"
OVER_WEBSOCKET = "burst event over a WebSocket"
CALL = "two turns with one call"
PROGRAM = "two turns with a program that calls nothing"
MESSAGE = "message"
MESSAGE_EVENT = "burst event of a message"
MESSAGES = "/v1/messages"
CALCULATE = {"type": "function", "name": "calculate"}

METHOD = f"""\
Figures in µs are CPU time, user and system, of the server with its children; PostgreSQL, the model and the load are
not in it. The server has a core of its own, and the same addresses at each start if the system allows it; 8 connections
ask at once. The unit is one POST {PATH}, or one event of a stream: {BURST} events that the model sends at
once (burst), {PACED} that it sends 1 ms apart (paced), with their share of the request. R, the least that a proxy in
Python can do (benchmarks/reference.py), and antwort take turns for {{rounds}} rounds after a warm-up: figures are
medians of the rounds, ratios medians of each round's ratios. What is compared with something of another row is asked
once more in each round, in short turns with it, since a machine is slower for seconds."""


def workloads(*, scale: float = 1) -> list[Workload]:
    """Return what every gateway can be asked.

    The ratio of a burst depends on its length, because the cost of its request is shared among its events. Paced, 8
    streams send one event per millisecond each: that leaves 125 µs to an event before they come in heaps.
    """
    whole = Workload(JSON_REQUEST, {**ASK, "model": "json"}, 400, bar=3.3)
    burst = Workload(BURST_EVENT, {**ASK, "model": f"burst-{BURST}", "stream": True}, 160, 1.9, BURST)
    work = [
        whole,
        replace(whole, name=STORED, body={**whole.body, "store": True}, bar=4.6, against=whole.name),
        burst,
        replace(burst, name="burst event, stored", body={**burst.body, "store": True}, bar=2.5, against=burst.name),
        Workload("paced event", {**ASK, "model": f"paced-{PACED}", "stream": True}, 24, 1.6, PACED),
    ]
    return [_scaled(workload, scale) for workload in work]


def _scaled(workload: Workload, scale: float) -> Workload:
    return replace(workload, requests=max(workload.connections, round(workload.requests * scale)))


def own_workloads(*, scale: float = 1) -> list[Workload]:
    """Return what not every gateway can be asked, or not in this form; R is asked something simpler instead.

    What is held to a bar against R's requests is asked as often as they are: to open connections has a share in each.
    """
    socket = {**ASK, "type": "response.create", "model": f"burst-{BURST}", "stream": True}
    call = {**ASK, "model": "call", "tools": [CALCULATE]}
    code = json.dumps({"code": "1 + 1"})
    program = {**ASK, "model": "call-with", "input": code, "tools": [{"type": "function", "name": "run_program"}]}
    background = {**ASK, "model": "json", "store": True, "background": True}
    message = {"messages": [{"role": "user", "content": QUESTION}], "max_tokens": 1000, "store": False}
    work = [
        Workload(MESSAGE, {**message, "model": "json"}, 400, against=JSON_REQUEST, path=MESSAGES),
        Workload(
            MESSAGE_EVENT,
            {**message, "model": f"burst-{BURST}", "stream": True},
            160,
            events=BURST,
            against=BURST_EVENT,
            path=MESSAGES,
        ),
        Workload(OVER_WEBSOCKET, socket, 400, None, BURST, against=BURST_EVENT, websocket=True),
        _request(BACKGROUND, 120, body=background),
        _request(CALL, 400, 5.5, body=call),
        _request(f"{CALL}, stored", 400, body={**call, "store": True}),
        _request(PROGRAM, 400, body=program),
        *(_request(offering(count), 40_000 // (count + 190), body=client_functions(count)) for count in FUNCTIONS),
        *(_request(after(turns), 20_000 // (turns + 99), prepare=history(turns)) for turns in TURNS),
    ]
    return [_scaled(workload, scale) for workload in work]


def _request(
    name: str,
    requests: int,
    bar: float | None = None,
    *,
    body: Mapping[str, Any] | None = None,
    prepare: Preparation | None = None,
) -> Workload:
    asked = {**ASK, "model": "json", **(body or {})}
    return Workload(name, asked, requests, bar, against=JSON_REQUEST, prepare=prepare)


def offering(count: int) -> str:
    return f"JSON request, {count:,} functions of the client"


def after(turns: int) -> str:
    return f"JSON request after {turns:,} {'turn' if turns == 1 else 'turns'}"


def with_functions(count: int, *, found: bool = False) -> str:
    return f"antwort, {count:,} registered functions" + (" to be found" if found else "")


def client_functions(count: int) -> Mapping[str, Any]:
    """Return a request that brings so many functions."""
    properties = {"number": {"type": "integer", "description": "The number of an order."}}
    parameters = {"type": "object", "properties": properties, "required": ["number"]}
    shared = {"type": "function", "description": "Look an order up by its number.", "parameters": parameters}
    return {"tools": [{**shared, "name": f"look_up_{number}"} for number in range(count)]}


_ITEMS = 20
"""Items that a conversation takes at once."""


def history(turns: int) -> Preparation:
    """Return what holds a conversation of so many turns, each of which goes on from the one before."""

    def prepare(server: Server, target: Target) -> Mapping[str, Any]:
        latest: dict[str, Any] = {}
        with connected(server) as connection:
            for _ in range(turns):
                body = {"model": "json", "input": QUESTION, "store": True, **latest, **target.body}
                latest = {"previous_response_id": posted(connection, PATH, body)["id"]}
        return latest

    return prepare


def conversation(turns: int) -> Preparation:
    """Return what makes a conversation of so many turns, each of a question and an answer."""

    def prepare(server: Server, _: Target) -> Mapping[str, Any]:
        said = [("user", QUESTION), ("assistant", "The door is open.")] * turns
        items = [{"type": "message", "role": role, "content": text} for role, text in said]
        with connected(server) as connection:
            name = posted(connection, "/v1/conversations", {})["id"]
            for start in range(0, len(items), _ITEMS):
                posted(connection, f"/v1/conversations/{name}/items", {"items": items[start : start + _ITEMS]})
        return {"conversation": name}

    return prepare


@contextlib.contextmanager
def connected(server: Server) -> Iterator[http.client.HTTPConnection]:
    """Yield a connection to a server."""
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)) as connection:
        yield connection


def posted(
    connection: http.client.HTTPConnection, path: str, body: Mapping[str, Any] | bytes, kind: str = "application/json"
) -> dict[str, Any]:
    """Send something and return the answer, which must be one."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    connection.request("POST", path, content, {"Content-Type": kind})
    answer = connection.getresponse()
    read = answer.read()
    if answer.status != 200:
        raise BenchmarkError(f"{path} was answered with {answer.status}: {read[:500]!r}")
    made: dict[str, Any] = json.loads(read)
    return made


def got(connection: http.client.HTTPConnection, path: str) -> bytes:
    """Ask for something and return the answer, which must be one."""
    connection.request("GET", path)
    answer = connection.getresponse()
    read = answer.read()
    if answer.status != 200:
        raise BenchmarkError(f"{path} was answered with {answer.status}: {read[:500]!r}")
    return read


def upload(connection: http.client.HTTPConnection, text: str = QUESTION) -> str:
    """Upload a file, a small one unless a text is given, and return its ID."""
    part = "--boundary\r\nContent-Disposition: form-data; name="
    form = f'{part}"purpose"\r\n\r\nuser_data\r\n{part}"file"; filename="a.txt"\r\n\r\n{text}\r\n--boundary--\r\n'
    return str(posted(connection, "/v1/files", form.encode(), "multipart/form-data; boundary=boundary")["id"])


PROVIDER = '''"""Many functions that do nothing."""

from antwort.provider import Provider, function


class Orders(Provider):
    """Looks orders up."""

    name = "orders"
'''
FUNCTION = '''
    @function
    async def look_up_{number}(self, number: int) -> str:
        """Look an order up by its number.

        Args:
            number: The number of an order.
        """
        return str(number)
'''


def functions_target(bench: Bench, count: int, name: str = "functions", *, found: bool = False) -> Target:
    """Return the server with so many registered functions, offered in every request, or found with `tool_search`."""
    folder = bench.folder / f"{name}-{count}{'-found' if found else ''}"
    config = {
        "engine": {"tool_search": {"above": 1 if found else None}},
        "backends": {"default": {"url": bench.mock_url}},
        "plugins_dir": str(folder / "plugins"),
        "providers": {"orders": {"enabled": True}},
    }
    target = configured_target(with_functions(count, found=found), folder, config)
    (folder / "plugins").mkdir()
    code = PROVIDER + "".join(FUNCTION.format(number=number) for number in range(count))
    (folder / "plugins" / "orders.py").write_text(code)
    return replace(target, only=[JSON_REQUEST], held=False)


@contextlib.contextmanager
def postgres_target(bench: Bench) -> Iterator[Target]:
    """Give the server with its responses in PostgreSQL."""
    server = PostgresServer()
    try:
        server.start()
        config = {"backends": {"default": {"url": bench.mock_url}}, "storage": {"url": server.create()}}
        target = configured_target("antwort, PostgreSQL", bench.folder / "postgres", config)
        yield replace(target, only=[STORED], held=False)
    finally:
        server.remove()


@dataclass(frozen=True, slots=True)
class Comparison:
    """One of our own figures against another of them."""

    what: str
    place: Place
    base: Place
    bar: float

    def row(self, costs: Costs) -> Row:
        return Row(f"{': '.join(self.place)}, against {self.what}", costs.ratio(self.place, self.base), TIMES, self.bar)


def comparisons() -> list[Comparison]:
    few, many = FUNCTIONS
    base = (with_functions(few), JSON_REQUEST)
    return [
        Comparison("the same as a response", ("antwort", MESSAGE), ("antwort", JSON_REQUEST), 1.15),
        Comparison("the same of a response", ("antwort", MESSAGE_EVENT), ("antwort", BURST_EVENT), 1.15),
        Comparison("the same over SSE", ("antwort", OVER_WEBSOCKET), ("antwort", BURST_EVENT), 1.3),
        Comparison("a stored request", ("antwort", BACKGROUND), ("antwort", STORED), 3),
        Comparison(f"{few}", (with_functions(many), JSON_REQUEST), base, 1.3),
        Comparison(f"{few}", (with_functions(many, found=True), JSON_REQUEST), base, 1.3),
    ]


def own_rows(bench: Bench, *, scale: float, rounds: int) -> list[Row]:
    """Measure every workload against R, each on the configurations of the server that it is meant for."""
    compared: list[Sequence[Place]] = [(comparison.place, comparison.base) for comparison in comparisons()]
    compared.append([(REFERENCE, JSON_REQUEST), ("antwort", CALL), ("antwort", PROGRAM)])
    with postgres_target(bench) as postgres:
        own = [antwort_target(bench.mock_url, bench.folder), postgres]
        own += [functions_target(bench, count) for count in FUNCTIONS]
        own.append(functions_target(bench, FUNCTIONS[-1], found=True))
        work = [*workloads(scale=scale), *own_workloads(scale=scale)]
        costs = costs_beside_reference(bench, own, work, rounds=rounds, together=compared)
    rows = [row for workload in work for row in rows_of(workload, own, costs)]
    return [*rows, program_row(costs), *(comparison.row(costs) for comparison in comparisons())]


def program_row(costs: Costs) -> Row:
    """Return what a program costs that calls nothing, beyond any other call."""
    ratio = costs.ratio(("antwort", PROGRAM), (REFERENCE, JSON_REQUEST), beyond=("antwort", CALL))
    return Row(f"antwort: {PROGRAM}, beyond those with one call, against R", ratio, f"{TIMES} {REFERENCE}", 12)


def cold_row(bench: Bench, *, turns: int = TURNS[-1], chains: int = 5) -> Row:
    """Measure requests that go on from turns of which the server has nothing in memory, since it was started anew."""
    folder = bench.folder / "cold"
    folder.mkdir()
    target = antwort_target(bench.mock_url, folder)
    body = {**ASK, "model": "json"}
    what, spent = f"antwort: {after(turns)}, the first since the start", None
    with bench.server(target) as server:
        ends = [history(turns)(server, target) for _ in range(chains)] if server else []
    with bench.server(target) as server:
        if server:
            bench.run(server, target, Workload("warm-up", body, 100))
            before = server.cpu_seconds()
            for end in ends:
                status, answer = request(server.port, "POST", PATH, json.dumps({**body, **end}), {})
                if status != 200:
                    raise BenchmarkError(f"{what}: {status}: {answer}")
            spent = (server.cpu_seconds() - before) / chains * 1e6
    return Row(what, spent, "µs")


def neighbour_rows(bench: Bench, *, rounds: int, turns: int = TURNS[-1], seconds: float = 0.5) -> list[Row]:
    """Measure how long a small request takes alone and beside two clients with a long history, in turns.

    This is time, not CPU: what neighbours share is the waiting.
    """
    folder = bench.folder / "neighbours"
    folder.mkdir()
    target = antwort_target(bench.mock_url, folder)
    long = Workload("long history", {**ASK, "model": "json"}, 1, connections=2, prepare=history(turns))
    waits: dict[str, list[float]] = {"alone": [], "beside": []}
    with bench.server(target) as server:
        if server is None:
            return []
        work = prepared(long, server, target)
        with pinging(server.port, "json") as pinger:
            for _ in range(rounds):
                for kind, busy in (("alone", contextlib.nullcontext()), ("beside", bench.busy(server, target, work))):
                    with busy:
                        time.sleep(seconds / 5)
                        report_of(pinger)
                        time.sleep(seconds)
                        waits[kind].append(report_of(pinger)["median"] * 1e3)
    what = f"antwort: a small request beside two clients with {turns:,} turns"
    ratio = statistics.median(beside / alone for alone, beside in zip(waits["alone"], waits["beside"], strict=True))
    return [
        Row(f"{what}, time", statistics.median(waits["beside"]), "ms"),
        Row(f"{what}, time against alone", ratio, TIMES, 4),
    ]


def gateway_rows(*, full: bool, rounds: int) -> list[Row]:
    """Take every measurement of the gateway."""
    raise_limit()
    with open_bench() as bench:
        rows = own_rows(bench, scale=2 if full else 1, rounds=rounds)
        rows.append(cold_row(bench))
        rows += neighbour_rows(bench, rounds=rounds)
        rows += idle_rows(bench, repeat=7 if full else 3)
        rows += stream_rows(bench, [reference_target(bench.mock.port), patient_target(bench)])
    return rows


def rounds_of(*, full: bool) -> int:
    return 31 if full else 15
