"""A scripted model works with variables through whole responses: what it reads stays small."""

import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec

from antwort.app import Antwort
from antwort.backends import ModelRequest
from antwort.config import Config
from antwort.context.values import Place
from antwort.storage import ConversationRecord
from antwort.testing import ScriptedBackend, Turn, call, matching, turn

MEGABYTES = 100 if os.environ.get("ANTWORT_TEST_FULL") else 10
FUNCTIONS = ["store_set", "store_get", "store_ref", "store_list", "store_summarize"]
TOOLS = [{"type": "function", "name": name} for name in [*FUNCTIONS, "dump", "count"]]


async def dump() -> str:
    """Return a long log."""
    return "begin\n" + "a line\n" * 10_000 + "end"


async def count(text: str) -> int:
    """Count the characters of a text."""
    return len(text)


def size_of(request: ModelRequest) -> int:
    return len(msgspec.json.encode([request.items, [*request.tools]]))


def last_output(request: ModelRequest) -> str:
    return str(request.items[-1]["output"])


async def lines(megabytes: int) -> AsyncIterator[bytes]:
    for number in range(megabytes):
        start = b"%07d needle\n" % number
        yield start + b"hay hay hay hay\n" * ((2**20 - len(start)) // 16)


async def test_the_window_stays_small_over_a_large_variable(tmp_path: Path) -> None:
    steps: list[Turn | str] = [
        turn(calls=[call("store_list")]),
        turn(calls=[call("store_summarize", key="big", length=500)]),
        turn(calls=[call("store_get", key="big", grep="^000000[1-9] needle")]),
        turn(calls=[call("store_get", key="big", offset=-100)]),
        turn(calls=[call("store_get", key="big", lines="100000-100002")]),
        "Done.",
    ]
    with ScriptedBackend(steps) as model:
        async with Antwort(Config(data_dir=tmp_path), backend=model) as app:
            await app.values.write(Place("default"), "big", lines(MEGABYTES), kind="text")
            response = await app.run("What is in 'big'?", tools=TOOLS[:5])
        assert response.status == "completed"
        assert "needle" in last_output(model.requests[3])
        assert max(map(size_of, model.requests)) < 8 * 1024


async def test_a_long_result_is_handed_on_by_reference(tmp_path: Path) -> None:
    seen: dict[str, Any] = {}

    def remember(request: ModelRequest) -> None:
        seen.update(json.loads(last_output(request)))

    config = Config(data_dir=tmp_path)
    talk: dict[str, Any] = {"tools": TOOLS, "conversation": "conv_1"}
    with ScriptedBackend([turn(calls=[call("dump")]), turn("Kept.", expect=remember)]) as model:
        async with Antwort(config, backend=model, functions=[dump, count]) as app:
            await app.engine.store.conversations.create(ConversationRecord("conv_1", "default", 1))
            await app.run("Dump it.", **talk)
        assert size_of(model.requests[1]) < 8 * 1024
    steps: list[Turn | str] = [
        turn(calls=[call("count", text={"$ref": seen["$ref"]})]),
        turn(calls=[call("store_get", key=seen["$ref"], lines="1-2")]),
        "Done.",
    ]
    with ScriptedBackend(steps) as model:
        async with Antwort(config, backend=model, functions=[dump, count]) as app:
            await app.run("How long is it?", **talk)
        assert [last_output(request) for request in model.requests[1:]] == ["70009", "begin\na line"]


async def test_without_the_functions_results_come_whole(tmp_path: Path) -> None:
    with ScriptedBackend([turn(calls=[call("dump")]), "Read."]) as model:
        async with Antwort(Config(data_dir=tmp_path), backend=model, functions=[dump]) as app:
            await app.run("Dump it.")
        assert last_output(model.requests[1]).count("a line") == 10_000


async def test_a_model_summarizes_when_it_is_asked_to(tmp_path: Path) -> None:
    steps: list[Turn | str] = [
        turn(calls=[call("store_summarize", key="big", length=300, with_model=True)]),
        turn("Hay, with needles.", expect=matching(text="at byte 0 of", without_tools=["store_get"])),
        turn(calls=[call("store_summarize", key="big", length=300, with_model=True)]),  # it is remembered
        turn(calls=[call("store_summarize", key="big", length=400, with_model=True)]),
        turn("More hay, with needles.", expect=matching(text="at byte 0 of")),
        "Done.",
    ]
    with ScriptedBackend(steps) as model:
        async with Antwort(Config(data_dir=tmp_path), backend=model) as app:
            await app.values.write(Place("default"), "big", lines(1), kind="text")
            await app.run("What is in 'big'?", tools=TOOLS[:5])
        outputs = [json.loads(last_output(model.requests[number]))["summary"] for number in (2, 3, 5)]
        assert outputs == ["Hay, with needles.", "Hay, with needles.", "More hay, with needles."]
        told = [str(model.requests[number].instructions) for number in (1, 4)]
        assert "at most 300 characters" in told[0]
        assert "at most 400 characters" in told[1]
        assert size_of(model.requests[1]) < 60_000
