"""Readers that stall and vanish are counted, and what they leave behind is seen."""

import pytest

from benchmarks.endurance import Outcome, endured, remaining, tasks_of, tasks_target
from benchmarks.gateway import Bench, Workload


def test_readers_of_all_kinds_leave_nothing_behind(bench: Bench) -> None:
    outcome = endured(bench, seconds=8, streams=20)
    assert (outcome.readers["errors"], outcome.readers["problem"]) == (0, "")
    assert outcome.readers["stalled"] >= 4
    assert (outcome.tasks, outcome.streams, outcome.others["lost"]) == (0, 0, 0)
    assert outcome.others["pings"] > 0
    assert len(outcome.memory) > 0
    names = [row.what for row in outcome.rows(20)]
    assert "20 streams: tasks that are left over" in names


def test_what_is_left_over_is_counted(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.endurance.PARTING", 0)
    target = tasks_target(bench, 10)
    silent = {"model": "paced-9-600000", "input": "Hello", "store": False, "stream": True}
    with bench.server(target) as server:
        assert server is not None
        before = tasks_of(server)
        with bench.held(server, target, Workload("held", silent, 5, connections=5)):
            tasks, streams = remaining(bench, server, before)
    assert tasks >= 5
    assert streams == 5


def test_memory_that_grows_is_over_the_bar() -> None:
    readers = {"ended": 1, "stalled": 0, "vanished": 0, "errors": 0}
    others = {"median": 0.001, "late": 0.002, "worst": 0.003, "lost": 0}

    def verdict(memory: list[int]) -> str:
        rows = Outcome(0.5, memory, readers, others, others, 0, 0).rows(1)
        return next(row.verdict for row in rows if row.what.endswith("against before"))

    assert verdict([10, 100, 100, 100]) == "ok"
    assert verdict([100, 100, 105, 110]) == "over"
