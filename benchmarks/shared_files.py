"""How long a tenant waits for its files and searches while another has many, large and slow files."""

import contextlib
import json
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from openai import OpenAI

from benchmarks.attacks import pinging, report_of
from benchmarks.gateway import ANTWORT
from benchmarks.measure import BenchmarkError, Row
from benchmarks.processes import Server, running

ATTACKER, OTHER = "attacker", "other"
KEYS = [{"id": name, "key": f"secret-{name}", "tenant": name} for name in (ATTACKER, OTHER)]
LAG = 100.0
"""Milliseconds that the event loop may be late."""
FILES = 10
"""Of the attacker, at a time."""
FILE_ROUNDS = 3
PATIENCE = 120.0
"""Seconds in which a small file must be searchable."""
UNDER_WAY = 3.0
"""Seconds after which an attack has begun."""
CHUNKS: Any = {"type": "static", "static": {"max_chunk_size_tokens": 800, "chunk_overlap_tokens": 0}}
SMALL = "The harbour opens at seven. " * 36
TURN = "The ferry leaves the harbour at seven in the morning. " * 70
"""As much as is embedded at a stretch: one chunk."""
LARGE = "The ferry leaves the harbour at seven in the morning. " * 36_000
SLOW = "<p>x</p>" * 1_500_000
"""A page that takes a minute to be read."""


def share_rows(what: str, alone: float, beside: float, lag: float, unit: float) -> list[Row]:
    """Return what a tenant waits for something as rows, in milliseconds."""
    return [
        Row(f"shares: {what}, alone", alone, "ms"),
        Row(f"shares: {what}, beside an attack", beside, "ms", round(2 * alone + unit, 1)),
        Row(f"shares: {what}, lag of the event loop", lag, "ms", LAG),
    ]


@dataclass(frozen=True, slots=True)
class Tenant:
    """Somebody with a vector store."""

    client: OpenAI
    store: str

    def attach(self, text: str, name: str) -> str:
        """Upload a file, and have it made searchable."""
        made = self.client.files.create(file=(name, text.encode()), purpose="assistants").id
        self.client.vector_stores.files.create(self.store, file_id=made, chunking_strategy=CHUNKS)
        return made

    def status(self, file: str) -> str:
        return self.client.vector_stores.files.retrieve(file, vector_store_id=self.store).status

    def add(self, text: str = SMALL) -> None:
        """Upload a file, and wait until it can be found."""
        file, end = self.attach(text, "small.txt"), time.monotonic() + PATIENCE
        while (status := self.status(file)) == "in_progress":
            if time.monotonic() > end:
                raise BenchmarkError(f"a small file was not searchable within {PATIENCE:g} seconds")
            time.sleep(0.02)
        if status != "completed":
            raise BenchmarkError(f"a small file could not be made searchable: {status}")

    def search(self) -> None:
        self.client.vector_stores.search(self.store, query="When does the harbour open?")


def shared_files_rows(*, rounds: int = FILE_ROUNDS, files: int = FILES, under_way: float = UNDER_WAY) -> list[Row]:
    """Measure files and searches beside pages that take long to be read, and texts of many chunks."""
    with TemporaryDirectory(prefix="antwort-shares-") as name:
        folder = Path(name)
        config = folder / "antwort.yaml"
        providers = {name: {"enabled": True} for name in ("files", "file_search")}
        config.write_text(
            json.dumps({"auth": {"api_keys": KEYS}, "backends": {"default": {"url": "demo"}}, "providers": providers})
        )  # JSON is YAML
        command = (*ANTWORT, "serve", "--port", "0", "--config", str(config), "--data-dir", str(folder / "data"))
        with running(command, core=None, cwd=folder) as server, _tenant(server, OTHER) as other:
            other.add()  # starts the worker
            searching = 4 * rounds
            alone, found = _median(other.add, rounds), _median(other.search, searching)
            unit = max(0.0, _median(lambda: other.add(TURN), rounds) - alone)
            with _attacking(server, SLOW, "slow.html", files, under_way) as lag:
                read = _median(other.add, rounds)
                rows = share_rows("files beside slow pages", alone, read, lag(), unit)
            with _attacking(server, LARGE, "large.txt", files, under_way) as lag:
                beside, embedded = _median(other.search, searching), _median(other.add, rounds)
                worst = lag()
    rows += share_rows("files beside large texts", alone, embedded, worst, unit)
    return rows + share_rows("searches beside large texts", found, beside, worst, 0.0)


@contextlib.contextmanager
def _tenant(server: Server, name: str) -> Iterator[Tenant]:
    url = f"http://127.0.0.1:{server.port}/v1"
    with OpenAI(base_url=url, api_key=f"secret-{name}", timeout=60, max_retries=0) as client:
        yield Tenant(client, client.vector_stores.create(name=name).id)


@contextlib.contextmanager
def _attacking(server: Server, text: str, name: str, files: int, under_way: float) -> Iterator[Callable[[], float]]:
    """Have many files read meanwhile; what is given tells how long others have waited for a sign of life at most."""
    with _tenant(server, ATTACKER) as attacker, pinging(server.port) as pinger:
        attached = [attacker.attach(text, name) for _ in range(files)]
        time.sleep(under_way)
        report_of(pinger)
        yield lambda: float(report_of(pinger)["worst"]) * 1e3
        if all(attacker.status(file) == "completed" for file in attached):
            raise BenchmarkError(f"the attack with {name} was over too soon")
        attacker.client.vector_stores.delete(attacker.store)


def _median(work: Callable[[], object], rounds: int) -> float:
    taken = []
    for _ in range(rounds):
        started = time.perf_counter()
        work()
        taken.append(time.perf_counter() - started)
    return statistics.median(taken) * 1e3
