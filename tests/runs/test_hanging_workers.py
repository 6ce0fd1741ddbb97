"""A worker that hangs: it is noticed and replaced, requests go on, and so do its runs."""

import contextlib
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from tests.runs.processes import ServerProcess
from tests.runs.steady_model import steady_model

from antwort.testing import lint_stream

PATIENCE = 60.0
TIMEOUT = 3.0
"""Seconds without a sign of life: a worker that only waits for a processor gives one in this time."""
RUNS = 6
STARTS = re.compile(r'^process_start_time_seconds\{worker="(\d)"\} (\S+)', re.MULTILINE)
BLOCKING = """
import time

from antwort.provider import Provider, route


class Blocking(Provider):
    @route("GET", "/v1/block")
    async def block(self) -> str:
        '''Block the event loop.'''
        while True:
            time.sleep(1000)
"""


@pytest.fixture
def server(tmp_path: Path, ready_url: str) -> Iterator[ServerProcess]:
    with steady_model() as model:
        storage = {"storage": {"url": ready_url}}
        made = ServerProcess(tmp_path, model, workers=2, worker_timeout=TIMEOUT, sections=storage)
        tmp_path.joinpath("plugins", "blocking.py").write_text(BLOCKING)
        made.start()
        yield made
        made.kill()


def client_of(server: ServerProcess) -> httpx.Client:
    """Return a client that has a new connection for each request, so that it may meet any worker."""
    return httpx.Client(base_url=server.url, timeout=PATIENCE, limits=httpx.Limits(max_keepalive_connections=0))


def stop_one(server: ServerProcess) -> None:
    """Stop one of the workers, as a debugger does."""
    os.kill(server.children()[0], signal.SIGSTOP)


def block_one(server: ServerProcess) -> None:
    """Have one of the workers block its event loop."""

    def ask() -> None:
        with contextlib.suppress(httpx.TransportError), client_of(server) as client:
            client.get("/v1/block")

    threading.Thread(target=ask, daemon=True).start()


def wait_for(what: Callable[[], bool]) -> None:
    """Wait until something is so."""
    end = time.monotonic() + PATIENCE
    while not what():
        assert time.monotonic() < end, "it does not come about"
        time.sleep(0.01)


def starts(client: httpx.Client) -> set[tuple[str, str]]:
    """Return the numbers of the workers, and when their processes were started, as the metrics of both tell it."""
    found: set[tuple[str, str]] = set()

    def all_tell() -> bool:
        found.update(STARTS.findall(client.get("/metrics").text))
        return {number for number, _ in found} == {"0", "1"}

    wait_for(all_tell)
    return found


@pytest.mark.parametrize("hang", [stop_one, block_one])
def test_a_worker_that_hangs_is_replaced_and_requests_and_runs_go_on(
    server: ServerProcess, hang: Callable[[ServerProcess], None]
) -> None:
    before = server.children()
    with client_of(server) as client, ThreadPoolExecutor(8) as clients:

        def begin(number: int) -> str | None:
            body = {"model": "steady", "input": f"run-{number}", "background": True}
            try:
                return str(client.post("/v1/responses", json=body).json()["id"])
            except httpx.TransportError:  # the worker had taken it, and then did not get to it
                return None

        started = starts(client)
        runs = [begin(number) for number in range(RUNS)]
        assert all(runs)
        hang(server)
        runs += clients.map(begin, range(RUNS, 3 * RUNS))  # half of them wait for the successor
        assert runs.count(None) <= 8  # as many as there are clients
        wait_for(lambda: len(set(server.children()) - set(before)) == 1)
        for run in filter(None, runs):
            content = client.get(f"/v1/responses/{run}", params={"stream": True}).content
            assert lint_stream(content).types[-1] == "response.completed"
        assert len(starts(client) - started) == 1
    after = server.children()
    assert len(after) == 2
    assert len(set(before) & set(after)) == 1
    assert server.terminate() == 0
    (hung,) = set(before) - set(after)
    number = before.index(hung)
    assert f"worker {number}, process {hung}, gives no sign of life for 3 s; it is killed" in server.errors
    assert f"worker {number}, process {hung}, was killed by SIGKILL; it is started again at once" in server.errors
    repeated = [call for call, count in server.executions().items() if count > 1]
    assert [call for call in repeated if call.endswith("_0")] == []  # those that charge


def test_workers_that_were_suspended_together_with_all_else_are_not_replaced(server: ServerProcess) -> None:
    everybody = [server.pid, *server.children()]
    for pid in everybody:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(TIMEOUT + 1)  # that time passes is what this is about
    for pid in everybody:
        os.kill(pid, signal.SIGCONT)
    with client_of(server) as client:
        assert {client.get("/healthz").status_code for _ in range(16)} == {200}
    assert server.children() == everybody[1:], server.errors
    assert server.terminate() == 0
    assert "sign of life" not in server.errors
