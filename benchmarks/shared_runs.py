"""How long a tenant waits for its run after a crash that left many runs of another."""

import json
import os
import signal
import statistics
import time
from pathlib import Path
from typing import Any

from openai import OpenAI

from benchmarks.attacks import pinging, report_of
from benchmarks.gateway import ANTWORT, Bench
from benchmarks.measure import BenchmarkError, Row
from benchmarks.processes import Server, running
from benchmarks.shared_files import ATTACKER, KEYS, OTHER, share_rows

RUNS = 200
"""Of the attacker, under way when the server is killed."""
RUN_ROUNDS = 3
MODEL = "paced-40-50"
"""Takes two seconds to answer, so that all runs have begun and none has ended."""
PATIENCE = 60.0


def shared_runs_rows(bench: Bench, *, rounds: int = RUN_ROUNDS, runs: int = RUNS) -> list[Row]:
    """Measure a run that is taken up after a crash, alone and among those of another tenant."""
    config = bench.folder / "recovered.yaml"
    config.write_text(json.dumps({"auth": {"api_keys": KEYS}, "backends": {"default": {"url": bench.mock_url}}}))
    alone: list[float] = []
    beside: list[float] = []
    worst = 0.0
    for number in range(rounds):
        for taken, crowd in ((alone, 0), (beside, runs)):
            seconds, lag = _recovered(config, bench.folder / f"recovered-{number}-{crowd}", crowd)
            taken.append(seconds * 1e3)
            worst = max(worst, lag * 1e3 if crowd else 0.0)
    return share_rows("runs after a crash", statistics.median(alone), statistics.median(beside), worst, 0.0)


def _recovered(config: Path, data: Path, crowd: int) -> tuple[float, float]:
    """Kill a server with a run, after those of a crowd; return when it has ended at the next one, and others' wait."""
    command = (*ANTWORT, "serve", "--port", "0", "--config", str(config), "--data-dir", str(data))
    with running(command, core=None, cwd=config.parent) as server:
        for _ in range(crowd):
            _begin(server, ATTACKER)
        run = _begin(server, OTHER)
        os.kill(server.pid, signal.SIGKILL)
    started = time.perf_counter()
    with running(command, core=None, cwd=config.parent) as server, pinging(server.port) as pinger:
        _wait(server, run)
        return time.perf_counter() - started, float(report_of(pinger)["worst"])


def _client(server: Server, tenant: str) -> OpenAI:
    url = f"http://127.0.0.1:{server.port}/v1"
    return OpenAI(base_url=url, api_key=f"secret-{tenant}", timeout=PATIENCE, max_retries=0)


def _begin(server: Server, tenant: str) -> str:
    with _client(server, tenant) as client:
        made: Any = client.responses.create(model=MODEL, input="Hello", background=True)
        return str(made.id)


def _wait(server: Server, run: str) -> None:
    end = time.monotonic() + PATIENCE
    with _client(server, OTHER) as client:
        while (status := client.responses.retrieve(run).status) in {"queued", "in_progress"}:
            if time.monotonic() > end:
                raise BenchmarkError(f"a run was not made within {PATIENCE:g} seconds after a crash")
            time.sleep(0.02)
    if status != "completed":
        raise BenchmarkError(f"a run has ended as {status} after a crash")
