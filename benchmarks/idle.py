"""What the server costs when it has nothing to do: at rest, and with streams that are open and silent."""

import statistics
import subprocess
import time
from collections.abc import Sequence

from benchmarks.gateway import ANTWORT, QUESTION, REFERENCE, Bench, Target, Workload, configured_target, request
from benchmarks.measure import BenchmarkError, Row
from benchmarks.processes import clean_environment, running

IDLE_STREAMS = 2000


def patient_target(bench: Bench, *, streams: int = IDLE_STREAMS) -> Target:
    """Return the server with a connection to the model server for each of many streams: by default it has fewer."""
    backend = {"url": bench.mock_url, "max_connections": streams + 100}
    return configured_target("antwort", bench.folder / "streams", {"backends": {"default": backend}})


def idle_rows(bench: Bench, *, repeat: int) -> list[Row]:
    """Measure the server with embedded defaults: time to the first answer, memory at rest; and the time of `--help`."""
    started, worked, resident, helped = [], [], [], []
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
            worked.append(server.cpu_seconds())
            resident.append(server.resident_bytes() / 1e6)
    return [
        Row("antwort: from the command to the first answer", statistics.median(started), "s", 2),
        Row("antwort: CPU time until then", statistics.median(worked), "s", 0.5),
        Row("antwort: memory of the idle server", statistics.median(resident), "MB", 60),
        Row("antwort --help", statistics.median(helped), "s", 0.3),
    ]


def stream_rows(bench: Bench, targets: Sequence[Target], *, streams: int = IDLE_STREAMS) -> list[Row]:
    """Measure the memory of a stream that is open and silent, and that the model has begun to answer."""
    rows = []
    warm = Workload("warm-up", {"model": "burst-20", "input": QUESTION, "store": False, "stream": True}, 64, bar=None)
    silent = {**warm.body, "model": "paced-9-600000"}
    hold = Workload("open streams", silent, streams, bar=30, connections=streams)
    for target in targets:
        size = None
        with bench.server(target) as server:
            if server:
                bench.run(server, target, warm)
                before = server.resident_bytes()
                with bench.held(server, target, hold):
                    size = (server.resident_bytes() - before) / streams / 1024
                    connected = bench.stats()["streams"]
                    if connected != streams:
                        raise BenchmarkError(f"{target.name}: the model answers {connected:,} streams of {streams:,}")
        bar = None if target.name == REFERENCE else hold.bar
        rows.append(Row(f"{target.name}: memory of an idle stream, {streams:,} open", size, "KiB", bar))
    return rows
