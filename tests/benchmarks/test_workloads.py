"""Every row of the bench does the work that it is named after."""

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import httpx
import pytest
from typing_extensions import override

from benchmarks.gateway import Bench, antwort_target
from benchmarks.processes import Server
from benchmarks.workloads import (
    client_functions,
    cold_row,
    functions_target,
    history,
    neighbour_rows,
    own_rows,
    own_workloads,
)

ANSWER = {"choices": [{"index": 0, "message": {"role": "assistant", "content": "Hello"}, "finish_reason": "stop"}]}


class Model(ThreadingHTTPServer):
    """A model server that keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        super().__init__(("127.0.0.1", 0), ModelHandler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"


class ModelHandler(BaseHTTPRequestHandler):
    server: Model

    def do_POST(self) -> None:
        self.server.asked.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
        body = json.dumps(ANSWER).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    @override
    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def model() -> Iterator[Model]:
    with Model() as model:
        thread = Thread(target=model.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield model
        model.shutdown()
        thread.join()


def ask(server: Server | None, **fields: Any) -> dict[str, Any]:
    assert server is not None
    body = {"model": "json", "input": "Hello", "store": False, **fields}
    answer = httpx.post(f"http://127.0.0.1:{server.port}/v1/responses", json=body, timeout=60)
    assert answer.status_code == 200, answer.text
    response: dict[str, Any] = answer.json()
    return response


def test_registered_functions_are_all_offered(bench: Bench, model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Bench, "mock_url", model.url)
    with bench.server(functions_target(bench, 12)) as server:
        ask(server)
    assert len(model.asked[-1]["tools"]) == 12


def test_functions_of_the_client_are_all_offered(bench: Bench, model: Model) -> None:
    with bench.server(antwort_target(model.url, bench.folder)) as server:
        ask(server, **client_functions(12))
    assert len(model.asked[-1]["tools"]) == 12


def test_a_history_has_its_turns(bench: Bench, model: Model) -> None:
    target = antwort_target(model.url, bench.folder)
    with bench.server(target) as server:
        assert server is not None
        ask(server, **history(3)(server, target))
    assert [message["role"] for message in model.asked[-1]["messages"]] == ["user", "assistant"] * 3 + ["user"]


def test_a_history_is_read_by_a_server_that_was_started_anew(bench: Bench) -> None:
    asked = bench.stats()["asked"]
    row = cold_row(bench, turns=2, chains=2)
    assert row.value is not None
    assert row.value > 0
    assert bench.stats()["asked"] == asked + 2 + 2 * 2 + 100 + 2  # each start is tried out with one request


def test_a_call_and_a_program_have_two_turns_and_a_background_run_ends(bench: Bench) -> None:
    target = antwort_target(bench.mock_url, bench.folder)
    work = {workload.name: workload for workload in own_workloads()}
    with bench.server(target) as server:
        before = bench.stats()["asked"]
        ask(server, **work["two turns with one call"].body)
        program = ask(server, **work["two turns with a program that calls nothing"].body)
        assert [item["type"] for item in program["output"]] == ["program", "program_output", "message"]
        assert (program["output"][1]["result"], bench.stats()["asked"]) == ("2", before + 4)
        assert server is not None
        bench.run(server, target, work["background run"])
        whole = ask(server, **{**work["background run"].body, "background": False})
        assert (whole["status"], bench.stats()["asked"]) == ("completed", before + 4 + 120 + 1)


def test_every_row_is_taken(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.workloads.TURNS", (1, 2))
    monkeypatch.setattr("benchmarks.workloads.FUNCTIONS", (2, 5))
    rows = own_rows(bench, scale=0.05, rounds=1)
    assert all(row.value is not None and row.value > 0 for row in rows)
    names = [row.what for row in rows]
    assert len(names) == len(set(names))
    assert any("PostgreSQL" in name for name in names)
    assert any("WebSocket" in name for name in names)
    assert any("2 turns" in name for name in names)
    assert "antwort, 5 registered functions: JSON request, against 2" in names


def test_a_small_request_is_timed_alone_and_beside_long_histories(bench: Bench) -> None:
    asked = bench.stats()["asked"]
    rows = neighbour_rows(bench, rounds=2, turns=3, seconds=0.3)
    assert [row.unit for row in rows] == ["ms", "\N{MULTIPLICATION SIGN}"]
    assert all(row.value is not None and row.value > 0 for row in rows)
    assert bench.stats()["asked"] > asked + 20
