"""How far functions are, for the clients that ask for it."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.http.sdk import Served, served

from antwort import Context
from antwort.provider import Progress
from antwort.testing import call, lint_stream, turn

STEPS = [turn(calls=[call("count", to=3, call_id="call_1")]), turn("Counted.")]
ASKED = {"antwort-show-progress": "1"}


async def yielding(to: int) -> AsyncIterator[Progress | str]:
    """Count."""
    for number in range(1, to + 1):
        yield Progress(f"{number} of {to}", number / to)
    yield "done"


def threaded(ctx: Context, to: int) -> str:
    """Count."""
    for number in range(1, to + 1):
        ctx.emit(Progress(f"{number} of {to}", number / to))
    return "done"


def told(stage: Served, headers: dict[str, str], **body: Any) -> list[dict[str, Any]]:
    answer = httpx.post(
        f"{stage.server.url}/v1/responses",
        json={"model": "scripted", "input": "Go", "stream": True, **body},
        headers=headers,
        timeout=60,
    )
    events = lint_stream(answer.content).events
    return [event for event in events if event["type"] == "antwort:progress"]


@pytest.mark.parametrize("handler", [yielding, threaded])
@pytest.mark.parametrize("background", [False, True])
def test_a_stream_that_asks_has_how_far_functions_are(tmp_path: Path, handler: Any, background: bool) -> None:
    handler.__name__ = "count"
    with served(tmp_path, STEPS, functions=[handler]) as stage:
        first, *_, last = told(stage, ASKED, background=background)
    assert (first["call_id"], first["name"], first["message"]) == ("call_1", "count", "1 of 3")
    assert (last["message"], last["fraction"]) == ("3 of 3", 1.0)


def test_nobody_else_has(tmp_path: Path) -> None:
    threaded.__name__ = "count"
    with served(tmp_path, STEPS, functions=[threaded]) as stage:
        assert told(stage, {}) == []


def test_a_function_that_tells_very_often_is_heard_now_and_then(tmp_path: Path) -> None:
    def count(ctx: Context, to: int) -> str:
        """Count."""
        for number in range(10_000):
            ctx.emit(Progress(f"{number} of {to}"))
        return "done"

    with served(tmp_path, STEPS, functions=[count]) as stage:
        assert 1 <= len(told(stage, ASKED)) < 100
