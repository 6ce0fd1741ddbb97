"""A blocked event loop: the metric shows it, and the log names who blocks it, while it is blocked."""

import asyncio
import logging
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.http.sdk import served
from typing_extensions import override

from antwort import Antwort
from antwort.config import Config, ObservabilityConfig
from antwort.observability import LoopWatchdog, Metrics
from antwort.provider import Provider, function, route
from antwort.testing import RunningApp, Turn, call, running, turn

PATIENCE = 60.0
WATCHED = ObservabilityConfig(loop_warning=0.2)


class Log(logging.Handler):
    """Waits for a line of the log, which comes from another thread."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self._news = threading.Condition()

    @override
    def emit(self, record: logging.LogRecord) -> None:
        with self._news:
            self.lines.append(record.getMessage())
            self._news.notify_all()

    def wait_for(self, text: str) -> str:
        with self._news:
            assert self._news.wait_for(lambda: any(text in line for line in self.lines), PATIENCE), self.lines
            return next(line for line in self.lines if text in line)


@pytest.fixture
def log() -> Iterator[Log]:
    handler, logger = Log(), logging.getLogger("antwort.observability.watchdog")
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)


class Freezing(Provider):
    """Blocks the loop until it is told to stop."""

    def __init__(self) -> None:
        super().__init__()
        self.thawed = threading.Event()

    @route("POST", "/v1/freeze")
    async def freeze(self) -> dict[str, bool]:
        """Block the loop."""
        return {"thawed": self.thawed.wait(PATIENCE)}

    @function
    async def compute(self) -> str:
        """Block the loop for a model."""
        return str(self.thawed.wait(PATIENCE))

    @function(inline=True)
    def compute_inline(self) -> str:
        """Block the loop for a model, without a task."""
        return str(self.thawed.wait(PATIENCE))


def lags(site: RunningApp) -> tuple[float, float]:
    """Return how many looks there were, and how many of them came too late."""
    page = httpx.get(f"{site.url}/metrics").text
    buckets = {}
    for line in page.splitlines():
        if line.startswith("antwort_loop_lag_seconds_bucket"):
            name, _, value = line.rpartition(" ")
            buckets[name.split('"')[1]] = float(value)
    return buckets["+Inf"], buckets["+Inf"] - buckets["0.1"]


def test_whoever_blocks_the_loop_is_named_while_it_is_blocked(tmp_path: Path, log: Log) -> None:
    provider = Freezing()
    app = Antwort(Config(data_dir=tmp_path, observability=WATCHED), providers=[provider])
    with running(app) as site:
        asking = threading.Thread(target=lambda: httpx.post(f"{site.url}/v1/freeze", timeout=PATIENCE))
        asking.start()
        line = log.wait_for("test_watchdog.Freezing.freeze:")
        provider.thawed.set()
        asking.join()
        assert line.startswith("the event loop is blocked, and nothing else is answered: task 'Task-")
        log.wait_for("the event loop was blocked, or had no processor, for ")
        end = time.monotonic() + PATIENCE
        while (counted := lags(site))[0] <= counted[1]:  # the first beat that is in time may still be to come
            assert time.monotonic() < end
        assert counted[1] >= 1
    assert len([line for line in log.lines if "Freezing.freeze" in line]) == 1


@pytest.mark.parametrize("name", ["compute", "compute_inline"])
def test_a_function_that_computes_too_long_is_named_with_its_provider(tmp_path: Path, log: Log, name: str) -> None:
    provider = Freezing()
    steps: list[Turn | str] = [turn(calls=[call(name)]), "Done."]
    with served(tmp_path, steps, providers=[provider], observability=WATCHED) as stage:
        client = stage.client()
        asking = threading.Thread(target=lambda: client.responses.create(model="scripted", input="Compute."))
        asking.start()
        line = log.wait_for(f"test_watchdog.Freezing.{name}:")
        provider.thawed.set()
        asking.join()
    assert f"task 'call {name} (freezing)' is at " in line


async def test_a_loop_that_turns_is_looked_at_and_not_spoken_of(log: Log) -> None:
    metrics = Metrics("1")
    watchdog = LoopWatchdog(metrics, 30)
    others = set(threading.enumerate())  # of apps that tests of other modules share
    watchdog.start()
    (thread,) = [thread for thread in set(threading.enumerate()) - others if thread.name == "antwort-watchdog"]
    deadline = time.monotonic() + PATIENCE
    while "antwort_loop_lag_seconds_count 2.0" not in metrics.render(None)[0].decode():
        assert time.monotonic() < deadline
        await asyncio.sleep(0)
    watchdog.close()
    assert log.lines == []
    thread.join(PATIENCE)
    assert not thread.is_alive()
