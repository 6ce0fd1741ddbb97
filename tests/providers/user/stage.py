"""What the tests of questions share: a served app with the provider, and what people see of it."""

import contextlib
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tests.http.sdk import Served, served

from antwort.testing import Turn
from antwort.types import JSON


@contextlib.contextmanager
def served_user(
    tmp_path: Path, steps: Iterable[Turn | str], *, user: JSON | None = None, **options: Any
) -> Iterator[Served]:
    """Serve an app with the provider, on the test's database; `user` are its settings, `section` other entries."""
    section = {"user": {"enabled": True, **(user or {})}, **options.pop("section", {})}
    with served(tmp_path, steps, section=section, **options) as stage:
        yield stage


def begun(stage: Served, **fields: Any) -> str:
    """Begin a response in the background; return its id."""
    response = stage.client().responses.create(model="scripted", background=True, **{"input": "Go!", **fields})
    return str(response.id)


def questions(stage: Served, **query: str) -> list[JSON]:
    """Return questions as the API lists them, the oldest first."""
    found = stage.request("GET", "/questions", params={"order": "asc", **query})
    assert found.status_code == 200, found.text
    data: list[JSON] = found.json()["data"]
    return data


def asked(stage: Served, number: int = 1) -> list[JSON]:
    """Wait until so many questions are open, and return them."""
    for _ in patience():
        if len(found := questions(stage, status="open")) >= number:
            return found
    raise AssertionError(f"there are not {number} questions")


def patience() -> Iterator[None]:
    """Give chances to look again, for two minutes."""
    end, pause = time.monotonic() + 120, 0.005
    while time.monotonic() < end:
        yield
        time.sleep(pause)
        pause = min(1.2 * pause, 0.05)  # what takes long would only take longer if it were asked all the time


def answer(stage: Served, question: JSON, status: int = 200, **body: Any) -> JSON:
    """Answer a question."""
    found = stage.request("POST", f"/questions/{question['id']}/answer", json=body)
    assert found.status_code == status, found.text
    answered: JSON = found.json()
    return answered


def outputs(stage: Served, number: int = -1) -> list[str]:
    """Return the results of calls that the model has read in one of its turns."""
    return [item["output"] for item in stage.requests[number].items if item["type"] == "function_call_output"]
