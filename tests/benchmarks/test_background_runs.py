"""What background runs cost is measured on a real PostgreSQL, and each row has a figure."""

from benchmarks.background_runs import background_rows


def test_each_row_has_a_figure() -> None:
    rows = background_rows(rounds=1, runs=20, worker_counts=[1])
    assert [row.what for row in rows if row.value is None or row.value <= 0] == []
    assert len(rows) == 9
    [statements] = [row.value for row in rows if row.what == "statements of a background run"]
    assert statements is not None
    assert 2 < statements < 4
