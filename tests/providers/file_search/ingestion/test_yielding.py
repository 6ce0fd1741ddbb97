"""Workers stand back behind requests, as far as the server says so, and never stand still."""

import asyncio
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.providers.file_search.ingestion.stage import ingesting
from tests.providers.file_search.stage import PATIENCE, until
from tests.support.embeddings import EmbeddingServer

from antwort.concurrency.load import LITTLE, MUCH, ServerLoad
from antwort.providers.file_search.ingestion import yielding
from antwort.providers.file_search.ingestion.yielding import LATE, Share, SharedWord, ShareTeller, WorkerPace

HOLD = 2.0
"""Seconds for which a request counts."""


@pytest.fixture
def load() -> ServerLoad:
    return ServerLoad()


def looked(share: Share, times: int, at: float = 0.0) -> float:
    return [share.look(at) for _ in range(times)][-1]


def test_where_nobody_asks_for_anything_all_is_used_however_late_the_loop_is(load: ServerLoad) -> None:
    share = Share(load, 4)
    load.lag = 1.0
    assert looked(share, 5) == 1.0


@pytest.mark.parametrize(("processors", "expected"), [(1, 0.5), (2, 0.5), (4, 0.75)])
def test_while_somebody_asks_a_processor_is_left(load: ServerLoad, processors: int, expected: float) -> None:
    share = Share(load, processors)
    share.look(0.0)
    load.asked += MUCH
    assert looked(share, 50) == expected
    assert looked(share, 20, HOLD - 0.01) == expected
    assert looked(share, 1, HOLD) == 1.0


def test_the_later_the_loop_is_while_somebody_asks_the_less_is_used_but_never_nothing(load: ServerLoad) -> None:
    share = Share(load, 2)
    load.asked += MUCH
    load.lag = 2 * LATE
    assert [share.look(0.0) for _ in range(5)] == [1 / 4, 1 / 8, 1 / 16, 1 / 16, 1 / 16]
    load.lag = 0.0
    assert 1 / 16 < looked(share, 1) < looked(share, 2) < looked(share, 100) == 1 / 2


def test_who_only_looks_how_far_something_is_holds_nobody_up(load: ServerLoad) -> None:
    share = Share(load, 2)
    for _ in range(MUCH - 1):
        load.asked += LITTLE
        assert looked(share, 3) == 1.0
    assert looked(share, 10) == 1.0
    load.asked += MUCH * LITTLE
    assert looked(share, 1) == 0.5, "that is many at once"


def test_a_request_that_takes_long_counts_as_long_as_it_takes(load: ServerLoad) -> None:
    share = Share(load, 2)
    load.running = 1
    assert share.look(0.0) == 1.0
    assert share.look(0.1) == 0.5
    assert share.look(60.0) == 0.5
    load.running = 0
    assert share.look(62.0) == 1.0


def test_the_least_that_a_process_of_the_server_says_counts_as_long_as_it_says_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    word, worker = SharedWord(tmp_path / "share"), SharedWord(tmp_path / "share")
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now)
    assert worker.heard() == 1.0, "there is no file yet"
    for pid, share in ((1, 0.5), (2, 1.0), (3, 0.75)):
        monkeypatch.setattr(os, "getpid", lambda pid=pid: pid)
        word.say(share)
    assert worker.heard() == 1.0, "it does not look for the file each time"
    now += 1.0
    word.say(0.75)
    assert worker.heard() == 0.75, "the others have said nothing for a second"
    now -= 0.5
    assert worker.heard() == 0.5
    now += 5.0
    assert worker.heard() == 1.0
    word.close()
    worker.close()
    assert worker.heard() == 1.0


def test_a_file_that_cannot_be_written_stops_nobody(tmp_path: Path) -> None:
    word = SharedWord(tmp_path / "nowhere" / "share")
    word.say(0.5)
    assert word.heard() == 1.0
    word.close()


def test_no_more_threads_compute_at_once_than_may() -> None:
    share, together, most = 0.5, 0, 0
    lock, both = threading.Lock(), threading.Event()

    def compute() -> None:
        nonlocal together, most
        with pace.turn():
            with lock:
                together += 1
                most = max(most, together)
                if together == 4:
                    both.set()
            both.wait(PATIENCE)
            with lock:
                together -= 1

    pace = WorkerPace(lambda: share)
    pace.begin(4)
    with ThreadPoolExecutor(4) as threads:
        held = [threads.submit(compute) for _ in range(4)]
        until(lambda: most == 2)
        share = 1.0  # nobody waits any more
        for one in held:
            one.result(PATIENCE)
    assert most == 4


def test_a_thread_pauses_so_long_that_it_uses_no_more_than_its_share() -> None:
    now, paused = 0.0, list[float]()
    pace = WorkerPace(lambda: 1 / 4, paused.append, lambda: now)
    pace.begin(2)
    with pace.turn():
        now += 0.125
    assert paused == [0.125], "half of one thread"
    with pace.turn():
        now += 60
    assert paused == [0.125, 1.0], "nothing stands still"


async def test_workers_are_told_as_long_as_there_is_work(
    load: ServerLoad, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(yielding, "EVERY", 0.001)
    teller, worker = ShareTeller(load, tmp_path / "share"), SharedWord(tmp_path / "share")
    monkeypatch.setattr(yielding, "_VALID", 1e9)
    load.running = 1
    teller.need()
    await asyncio.to_thread(until, (tmp_path / "share").exists)
    await asyncio.to_thread(until, lambda: worker.heard() < 1.0)
    await teller.close()
    worker.close()


def test_a_server_with_a_file_to_read_tells_its_workers(tmp_path: Path, embeddings: EmbeddingServer) -> None:
    with ingesting(tmp_path, {"embedding_url": embeddings.url}) as stage:
        file = tmp_path / "providers" / "file_search" / "share"
        load = stage.provider.services.load
        assert (load.running, file.exists()) == (0, False)
        store = stage.client.vector_stores.create()
        asked = load.asked
        stage.client.vector_stores.files.create(store.id, file_id=stage.upload("tea"))
        assert load.asked - asked == MUCH
        until(file.exists)
