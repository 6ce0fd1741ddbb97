import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.clients.stage import Stage, scripted, staged
from tests.http.sdk import Served

from antwort.testing import Turn

collect_ignore = [] if os.environ.get("ANTWORT_TEST_FULL") else ["test_litellm.py"]  # what is not installed otherwise


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the machine's settings reaches a client, and no client tells anybody what it does."""
    for name in list(os.environ):
        if name.upper().startswith(("ANTWORT_", "OPENAI_", "LANGCHAIN_", "LANGSMITH_")):
            monkeypatch.delenv(name)
    for name in ("OPENAI_AGENTS_DISABLE_TRACING", "DO_NOT_TRACK", "ANTWORT_NO_PROBE"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("LANGSMITH_TRACING", "false")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests of a suite by others that do not apply here; their class says which and why."""
    out = [item for item in items if getattr(item, "originalname", "") in _not_applicable(item)]
    if out:
        config.hook.pytest_deselected(items=out)
        items[:] = [item for item in items if item not in out]


def _not_applicable(item: pytest.Item) -> dict[str, str]:
    found: dict[str, str] = getattr(getattr(item, "cls", None), "NOT_APPLICABLE", {})
    return found


@pytest.fixture
def stage(tmp_path: Path, database_url: str) -> Stage:
    """Serve an app in front of a script, on the store of the test."""

    @contextlib.contextmanager
    def stage(*steps: Turn | str, **sections: Any) -> Iterator[Served]:
        with scripted(steps) as model, staged(model, tmp_path, database_url, **sections) as served:
            yield served
        for tape in served.tapes:
            tape.lint()

    return stage
