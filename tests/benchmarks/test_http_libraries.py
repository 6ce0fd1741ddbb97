"""HTTP clients and protocols are compared at the same work."""

import sys

import httpx
import pytest

from benchmarks.gateway import Bench
from benchmarks.http_libraries import PROJECT, client_rows, protocol_rows
from benchmarks.processes import running
from benchmarks.protocols import EVENTS, PROTOCOLS


def test_clients_are_compared(bench: Bench) -> None:
    asked = bench.stats()["asked"]
    rows = client_rows(bench, rounds=1, repeat=10)
    assert bench.stats()["asked"] == asked + 2 * 3 * (2 + 10)
    assert [row.bar for row in rows] == [None, None, None, 0.5, 0.2] * 2
    assert all(row.value is not None and row.value > 0 for row in rows)


def test_protocols_are_compared(bench: Bench) -> None:
    rows = protocol_rows(bench, rounds=1, requests=16)
    assert [row.bar for row in rows] == [None, None, None, 1, 0.6, None, None, None, 1.2, 0.8]
    assert all(row.value is not None and row.value > 0 for row in rows)


@pytest.mark.parametrize("name", PROTOCOLS)
def test_each_protocol_answers_alike(bench: Bench, name: str) -> None:
    command = (sys.executable, "-m", "benchmarks.protocols", name)
    with running(command, core=bench.cores.server, cwd=PROJECT) as server:
        url = f"http://127.0.0.1:{server.port}/v1/responses"
        whole, streamed = (httpx.post(url, json=body) for body in ({}, {"stream": True}))
    assert (whole.status_code, len(whole.content), whole.headers["content-type"]) == (200, 300, "application/json")
    assert streamed.text.count("\n\n") == EVENTS + 1
