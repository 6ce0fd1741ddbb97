"""How fast files become searchable, what that needs, and how long others wait for the server meanwhile."""

import random
import re
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
from openai import OpenAI

from benchmarks.attacks import pinging, report_of
from benchmarks.gateway import ANTWORT, TIMES
from benchmarks.measure import BenchmarkError, Row
from benchmarks.processes import Server, cpu_seconds, running
from benchmarks.retrieval import read_sections

LOOKS = 2.0
"""Seconds between looks at a batch: each is a request that others wait for, too."""
BAR = 2.0
"""How many times longer 99 of 100 requests may take while files are read and embedded."""
PATIENCE = 1800.0
"""Seconds in which a batch must be done."""
METHOD = """\
Ingestion: the server as it is shipped, which starts one worker itself, on all cores. Documents in Markdown of 1,300
tokens or so, cut as usual, come in batches; before each batch the server has nothing to do for a while. All the time
somebody asks the demo model for a response every 50 ms. The CPU time of a chunk is that of the worker; the ratio is the
median of the rounds."""
CONFIG = "providers:\n  files:\n    enabled: true\n  file_search:\n    enabled: true\n"
MODEL = "antwort-demo"


@dataclass(frozen=True, slots=True)
class Scale:
    """How much of everything there is."""

    documents: int = 30
    """Of each round."""
    sections: int = 14
    """Of each document."""
    rest: float = 20.0
    """Seconds without work before each batch."""
    rounds: int = 3


@dataclass(slots=True)
class Outcome:
    """What was seen in all rounds."""

    seconds: float = 0.0
    documents: int = 0
    chunks: float = 0.0
    cpu: float = 0.0
    memory: float = 0.0
    """Megabytes of the worker at its largest."""
    idle: list[float] = field(default_factory=list)
    busy: list[float] = field(default_factory=list)
    """Milliseconds within which 99 of 100 requests were answered, in each round."""
    lost: int = 0

    def rows(self) -> list[Row]:
        """Return them as rows."""
        ratios = [busy / idle for busy, idle in zip(self.busy, self.idle, strict=True)]
        return [
            Row("ingestion: documents", self.documents / self.seconds, "a second"),
            Row("ingestion: chunks", self.chunks / self.seconds, "a second"),
            Row("ingestion: CPU time of the worker for a chunk", self.cpu / self.chunks * 1e3, "ms"),
            Row("ingestion: memory of the worker", self.memory, "MB"),
            Row("ingestion: a small request before it, 99 of 100", statistics.median(self.idle), "ms"),
            Row("ingestion: a small request beside it, 99 of 100", statistics.median(self.busy), "ms"),
            Row("ingestion: a small request beside it", statistics.median(ratios), TIMES, BAR),
            Row("ingestion: small requests that failed", self.lost, "requests", 0),
        ]


def ingestion_rows(scale: Scale | None = None) -> list[Row]:
    """Start a server, and give it documents."""
    scale = scale or Scale()
    with TemporaryDirectory(prefix="antwort-ingestion-") as name:
        folder = Path(name)
        (folder / "antwort.yaml").write_text(CONFIG)
        command = (*ANTWORT, "serve", "--port", "0", "--data-dir", str(folder / "data"))
        with running(command, core=None, cwd=folder) as server:
            return _measured(server, scale).rows()


def _measured(server: Server, scale: Scale) -> Outcome:
    outcome, texts = Outcome(), documents(scale.sections)
    url = f"http://127.0.0.1:{server.port}"
    with OpenAI(base_url=f"{url}/v1", api_key="none", timeout=60) as client, pinging(server.port, MODEL) as pinger:
        store = client.vector_stores.create(name="measured").id
        for _ in range(scale.rounds):
            files = [_uploaded(client, next(texts)) for _ in range(scale.documents)]
            report_of(pinger)
            time.sleep(scale.rest)
            outcome.idle.append(_late(report_of(pinger), outcome))
            started = time.monotonic()
            _ingest(client, store, files, server, outcome)
            outcome.seconds += time.monotonic() - started
            outcome.busy.append(_late(report_of(pinger), outcome))
        outcome.documents = scale.rounds * scale.documents
        outcome.chunks = _metric(url, "antwort_ingestion_chunks_total")
        outcome.cpu = sum(map(cpu_seconds, _workers(server)))
    return outcome


def documents(sections: int) -> Iterator[str]:
    """Yield documents without end, each of other sections; the same in every run."""
    chance, known = random.Random(7), read_sections()
    number = 0
    while True:
        number += 1
        chosen = (known[chance.randrange(len(known))] for _ in range(sections))
        parts = [f"## {one.heading} {chance.randrange(1000)}\n\n{one.chunk.text.strip()}\n" for one in chosen]
        yield "\n".join([f"# Document {number}\n", *parts])


def _uploaded(client: OpenAI, text: str) -> str:
    return client.files.create(file=("document.md", text.encode()), purpose="assistants").id


def _ingest(client: OpenAI, store: str, files: list[str], server: Server, outcome: Outcome) -> None:
    """Attach files, and wait until they can be found."""
    batch = client.vector_stores.file_batches.create(store, file_ids=files)
    deadline = time.monotonic() + PATIENCE
    while batch.status == "in_progress":
        if time.monotonic() > deadline:
            raise BenchmarkError(f"the files were not searchable within {PATIENCE:g} seconds")
        time.sleep(LOOKS)
        outcome.memory = max([outcome.memory, *map(_largest, _workers(server))])
        batch = client.vector_stores.file_batches.retrieve(batch.id, vector_store_id=store)
    if batch.file_counts.completed != len(files):
        raise BenchmarkError(f"{batch.file_counts.failed} files could not be made searchable")


def _late(report: dict[str, Any], outcome: Outcome) -> float:
    outcome.lost += int(report["lost"])
    return float(report["late"]) * 1e3


def _metric(url: str, name: str) -> float:
    page = httpx.get(f"{url}/metrics", timeout=60).text
    found = re.search(rf"^{name} (\S+)$", page, re.MULTILINE)
    if found is None:
        raise BenchmarkError(f"the server has no metric {name}")
    return float(found[1])


def _workers(server: Server) -> list[int]:
    """Return the processes of workers, without those that read documents for them."""
    return [pid for pid in server.processes() if {b"ingest", b"watch"} <= set(_arguments(pid))]


def _arguments(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:  # it has just ended
        return []


def _largest(pid: int) -> float:
    """Return the megabytes of a process at its largest."""
    try:
        found = re.search(r"^VmHWM:\s+(\d+) kB$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    except OSError:  # it has just ended
        return 0.0
    return int(found[1]) * 1024 / 1e6 if found else 0.0
