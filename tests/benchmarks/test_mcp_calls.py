"""The figures about calls of MCP servers can be taken: a small version of what `make bench` does."""

from benchmarks.mcp_calls import mcp_rows


def test_calls_of_both_eras_are_measured() -> None:
    rows = mcp_rows(full=False, repeat=5)
    assert [(row.what, row.unit, row.bar) for row in rows] == [
        ("mcp_call: one call, 2026-07-28", "ms", 1.5),
        ("mcp_call: one call, 2025-11-25", "ms", 1.5),
    ]
    assert all(row.value is not None for row in rows)
