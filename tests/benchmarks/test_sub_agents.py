"""The figures about agents can be taken: a small version of what `make bench-full` does."""

from benchmarks.sub_agents import agents_rows


def test_sub_agents_are_measured_beside_those_of_frameworks() -> None:
    rows = agents_rows(number=40, rounds=1)
    assert [(row.what.removeprefix("agents: "), row.unit, row.bar) for row in rows] == [
        ("a model call with antwort's HTTP client", "ms", None),
        ("a model call with the openai package", "ms", None),
        ("antwort, each", "ms", None),
        ("antwort, each beyond the bare model call", "ms", 1.5),
        ("antwort, not stored, each", "ms", None),
        ("antwort, not stored, each beyond the bare model call", "ms", 1.5),
        ("openai-agents, each", "ms", None),
        ("openai-agents, each beyond the bare model call", "ms", None),
        ("pydantic-ai, each", "ms", None),
        ("pydantic-ai, each beyond the bare model call", "ms", None),
        ("antwort, 40 in the next request", "KB", 2.0),
        ("antwort, not stored, 40 in the next request", "KB", 2.0),
        ("openai-agents, 40 in the next request", "KB", None),
        ("pydantic-ai, 40 in the next request", "KB", None),
    ]
    windows = [row.value for row in rows if row.unit == "KB" and row.value is not None]
    assert max(windows[:2]) < 2.0 < min(windows[2:])
