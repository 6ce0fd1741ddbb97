"""The figures about sandboxes can be taken: a small version of what `make bench-full` does."""

from benchmarks.sandboxes import sandboxes_rows


def test_commands_and_code_are_measured() -> None:
    rows = sandboxes_rows(rounds=2)
    assert [(row.what, row.unit, row.bar) for row in rows] == [
        ("sandboxes: a command", "ms", 25.0),
        ("sandboxes: the same without a sandbox", "ms", None),
        ("sandboxes: code in a session", "ms", 10.0),
        ("sandboxes: code in a new session", "ms", None),
    ]
    assert all(row.value is not None and row.value > 0 for row in rows)
