"""The figures about parts of JSON can be taken: a small version of what `make bench` does."""

from benchmarks.json_parts import SHAPES, json_rows


def test_parts_of_json_are_measured_beside_json_loads() -> None:
    rows = json_rows(full=False, rounds=1, size=200_000)
    assert len(rows) == 2 * len(SHAPES)
    assert {(row.unit, row.bar) for row in rows} == {("times", 2.0)}
    assert all(row.value is not None and row.value > 0 for row in rows)
