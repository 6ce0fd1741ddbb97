"""What a large document costs can be measured: a small version of what `make bench-full` does."""

import sys

from benchmarks.pages import BAR, CHARACTERS, document, pages_rows


def test_the_cost_of_a_document_is_measured_beside_a_plain_script_and_another_release() -> None:
    rows = pages_rows(1, sys.executable)
    assert all(row.value is not None and row.value > 0 for row in rows)
    assert [row.bar for row in rows if row.bar is not None] == [BAR, 1 / 5, 1 / 8]
    own, plain, times = (row.value or 0 for row in rows[1:4])
    assert abs(times - own / plain) < 1e-9


def test_a_document_is_the_same_in_every_run() -> None:
    assert document(3) == document(3)
    assert len(document(3)) == 3 * CHARACTERS
