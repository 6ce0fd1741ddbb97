"""Two tenants at every queue, in small."""

from benchmarks.shares import shares_rows


def test_every_queue_is_measured_alone_and_beside_an_attack() -> None:
    rows = shares_rows(rounds=1, attacks=3, children=5, files=2, under_way=0.1, runs=3)
    assert len(rows) == 33
    assert all(row.what.startswith("shares: ") and (row.value or 0) >= 0 for row in rows)
