"""The figures about ingestion can be taken: a small version of what `make bench-full` does."""

from itertools import islice

from benchmarks.ingestion import BAR, Outcome, Scale, documents, ingestion_rows


def test_throughput_memory_and_waiting_are_measured() -> None:
    rows = ingestion_rows(Scale(documents=1, sections=2, rest=0.2, rounds=1))
    assert [(row.what.removeprefix("ingestion: "), row.unit, row.bar) for row in rows] == [
        ("documents", "a second", None),
        ("chunks", "a second", None),
        ("CPU time of the worker for a chunk", "ms", None),
        ("memory of the worker", "MB", None),
        ("a small request before it, 99 of 100", "ms", None),
        ("a small request beside it, 99 of 100", "ms", None),
        ("a small request beside it", "\N{MULTIPLICATION SIGN}", BAR),
        ("small requests that failed", "requests", 0),
    ]
    assert all(row.value is not None and row.value > 0 for row in rows[:-1])
    assert rows[-1].value == 0


def test_the_ratio_is_the_median_of_the_rounds() -> None:
    seen = Outcome(10.0, 20, 40.0, 4.0, 300.0, idle=[1.0, 2.0, 4.0], busy=[3.0, 2.0, 6.0])
    assert [row.value for row in seen.rows()] == [2.0, 4.0, 100.0, 300.0, 2.0, 3.0, 1.5, 0]


def test_documents_are_the_same_in_every_run_and_each_another() -> None:
    one, two = (list(islice(documents(3), 4)) for _ in range(2))
    assert one == two
    assert len(set(one)) == 4
    assert all(text.count("\n## ") == 3 for text in one)
