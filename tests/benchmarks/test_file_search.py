"""The figures about file search can be taken: a small version of what `make bench-full` does."""

import os
from pathlib import Path

import pytest

from benchmarks.chunks import Store
from benchmarks.databases import DATABASES
from benchmarks.file_search import Scale, database_rows, percentile


def alive(pid: int) -> bool:
    """Say whether a process runs; one that nobody has asked about since it ended does not."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes() != b""
    except OSError:
        return False


SMALL = Scale(chunks=600, queries=20, own=100, tenants=4, theirs=5, rounds=1, rest=0.05)


MEASURED = DATABASES if os.environ.get("ANTWORT_TEST_FULL") else ["embedded"]


@pytest.mark.parametrize("name", MEASURED)
def test_every_database_is_measured(name: str) -> None:
    rows = database_rows(name, SMALL)
    assert [(row.what.removeprefix(f"{name}: "), row.unit, row.bar) for row in rows] == [
        ("600 chunks, written", "s", None),
        ("600 chunks, memory", "MB", None),
        ("600 chunks, files in memory", "MB", None),
        ("600 chunks, search by vector, p50", "ms", None),
        ("600 chunks, search by vector, p99", "ms", None),
        ("600 chunks, the nearest one is found", "%", None),
        ("600 chunks, hybrid search, p50", "ms", None),
        ("600 chunks, hybrid search, p99", "ms", None),
        ("100 chunks, own collection, alone, p50", "ms", None),
        ("100 chunks, own collection, beside 4 other tenants, p50", "ms", None),
        ("100 chunks, own collection, beside 4 other tenants", "\N{MULTIPLICATION SIGN} alone", 1.5),
        ("100 chunks, own collection, each of the 4 others in turn, p50", "ms", None),
        ("100 chunks, own collection, each of the 4 others in turn, p99", "ms", None),
        ("100 chunks, own collection, memory of 4 other tenants", "MB", None),
        ("100 chunks, shared collection, alone, p50", "ms", None),
        ("100 chunks, shared collection, beside 4 other tenants, p50", "ms", None),
        ("100 chunks, shared collection, beside 4 other tenants", "\N{MULTIPLICATION SIGN} alone", 1.5),
        ("100 chunks, shared collection, each of the 4 others in turn, p50", "ms", None),
        ("100 chunks, shared collection, each of the 4 others in turn, p99", "ms", None),
        ("100 chunks, shared collection, memory of 4 other tenants", "MB", None),
    ]
    assert rows[5].value == 100
    assert all(row.value is not None and row.value > 0 for row in rows if row.unit != "MB")


async def test_the_memory_and_the_work_of_a_database_are_seen() -> None:
    for opened in DATABASES.values():
        async with opened() as database:
            assert database.memory() > 1
            assert database.mapped() > 0  # a share of what others have in memory too
            assert database.cpu_seconds() > 0
            assert os.getpid() not in database.processes()


async def test_no_process_is_left() -> None:
    for opened in DATABASES.values():
        with pytest.raises(RuntimeError):
            async with opened() as database:
                pids = database.processes()
                assert pids
                raise RuntimeError
        assert not any(map(alive, pids))


def test_chunks_and_queries_are_the_same_in_every_run() -> None:
    one, two = (Store("own", 1200, 16, seed=7) for _ in range(2))
    batches = list(one.batches())
    assert batches == list(two.batches())
    assert list(one.queries(5, hybrid=True)) == list(two.queries(5, hybrid=True))
    assert [len(batch) for batch in batches] == [500, 500, 200]
    assert len({chunk.id for batch in batches for chunk in batch}) == 1200


def test_percentiles_are_those_of_the_values() -> None:
    assert (percentile([float(n) for n in range(101)], 50), percentile([float(n) for n in range(101)], 99)) == (50, 99)
