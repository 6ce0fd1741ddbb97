"""The figures about programs can be taken: a small version of what `make bench-full` does."""

from benchmarks.programs import programs_rows


def test_programs_are_measured_beside_the_calls_they_make() -> None:
    rows = programs_rows(rounds=3)
    assert [(row.what, row.unit, row.bar) for row in rows] == [
        ("programs: one that computes, beyond a plain call", "ms", 1.0),
        ("programs: each call of one", "ms", 1.0),
        ("programs: one with a call, stored, beyond the call stored", "ms", None),
        ("programs: the start of the interpreter", "ms", None),
    ]
    assert all(row.value is not None for row in rows)
