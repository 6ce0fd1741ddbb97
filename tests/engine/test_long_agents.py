"""Agents that work for long in a small window: old calls leave it, and what came of them can be read on."""

import os
import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.providers.sub_agents.brain import Brain, size_of
from tests.providers.sub_agents.stage import does
from typing_extensions import override

from antwort import Antwort
from antwort.backends.base import ModelRequest, TurnSink
from antwort.config import Config
from antwort.context import ANONYMOUS_TENANT
from antwort.context.values import Place
from antwort.errors import BadRequestError
from antwort.testing import Turn, call, turn
from antwort.types import JSON
from antwort.wire.responses import ResponseObject

FULL = bool(os.environ.get("ANTWORT_TEST_FULL"))
READS = 200 if FULL else 20
LINES = 2_000_000 if FULL else 200_000
FEW_LINES = 20_000
WINDOW = 8000
"""Tokens that the model takes."""
BYTES_PER_TOKEN = 3
STORE: Any = [{"type": "function", "name": name} for name in ("store_get", "spawn_agent", "return_result")]


def line(number: int) -> str:
    return f"{number:08}: all work and no play makes a dull boy\n"


async def _document(lines: int) -> AsyncIterator[bytes]:
    for start in range(0, lines, 1000):
        yield "".join(map(line, range(start, start + 1000))).encode()


class SmallModel(Brain):
    """A model with a small window, which refuses what does not fit into it; it says how large it is, or does not."""

    def __init__(self, decide: Callable[[ModelRequest], Turn | str], *, tells: bool) -> None:
        super().__init__(decide)
        self._tells = tells
        self.refused = 0
        self.sizes: list[int] = []
        """Tokens of the requests."""

    @override
    async def run(self, request: ModelRequest, sink: TurnSink) -> None:
        tokens = size_of(request) // BYTES_PER_TOKEN
        self.sizes.append(tokens)
        if tokens > WINDOW:
            self.refused += 1
            raise BadRequestError("The conversation is too long.", param="input", code="context_length_exceeded")
        await super().run(request, sink)

    @override
    async def context_window(self, model: str) -> int | None:
        return WINDOW if self._tells else None


class Reader:
    """What the model does: it reads a document part by part, then what has left its window, and answers."""

    def __init__(self, read: Callable[[int], Turn], *, child: bool = False) -> None:
        self._read = read
        self._child = child
        self.done = 0
        self.parts: list[str] = []
        """What was read of the document, as the model has read it first."""
        self.again: list[str] = []
        """What was read of what has left the window: a list of calls perhaps, then what came of the first of them."""

    def decide(self, request: ModelRequest) -> Turn | str:
        """Return what the model says."""
        items = request.items
        if "compress conversations" in (request.instructions or ""):
            return f"{self.done} parts were read."
        if self._child and "read it all" not in str([item for item in items if item.get("role") == "user"]):
            return "Done." if _outputs(items) else does("spawn_agent", prompt="read it all")
        if self.done:
            (self.parts if self.done <= READS else self.again).append(_outputs(items)[-1])
        self.done += 1
        if self.done <= READS:
            return self._read(self.done - 1)
        if not self.again:
            return does("store_get", key=_reference(items))
        if '"call":"store_get"' in self.again[-1]:
            return does("store_get", key=_found(self.again[-1]))
        return turn(calls=[call("return_result", value="Read.")]) if self._child else "Read."

    def check(self) -> None:
        """Check that all was read, and that what has left could be read on."""
        assert self.done > READS
        assert self.again[-1].partition("\n")[2] in "\n".join(self.parts)


def _outputs(items: Sequence[JSON]) -> list[str]:
    return [str(item["output"]) for item in items if item["type"] == "function_call_output"]


def _reference(items: Sequence[JSON]) -> str:
    """Return the first reference to what has left: it stands in the place of a result, or of many calls."""
    return _found(str([item.get("output") or item.get("content") for item in items]))


def _found(text: str) -> str:
    found = re.search(r'"\$ref":"(var_\w+)"', text)
    assert found is not None, "nothing has left the window"
    return found[1]


def parts(number: int) -> Turn:
    """Read as much as the function gives."""
    return does("store_get", key="document", offset=number * 4000)


def lines(number: int) -> Turn:
    """Read one line."""
    return does("store_get", key="document", grep=f"^{number * 7:08}:")


@asynccontextmanager
async def small(
    folder: Path, reader: Reader, *, tells: bool = True, lines: int = FEW_LINES, **engine: Any
) -> AsyncIterator[tuple[Antwort, SmallModel]]:
    brain = SmallModel(reader.decide, tells=tells)
    settings = {"data_dir": folder, "engine": {"max_turns": 2 * READS + 10, **engine}}
    providers = {name: {"enabled": True} for name in ("variables", "sub_agents", "programs", "user")}
    async with Antwort(Config.model_validate({**settings, "providers": providers}), backend=brain) as app:
        await app.values.write(Place(ANONYMOUS_TENANT), "document", _document(lines), kind="text")
        yield app, brain


async def ask(app: Antwort, text: str = "read it all", **options: Any) -> ResponseObject:
    return await app.run(text, model="scripted", **{"tools": STORE, **options})


@pytest.mark.parametrize("truncation", ["disabled", "auto"])
@pytest.mark.parametrize("tells", [True, False], ids=["known window", "measured window"])
async def test_an_agent_reads_on_and_on_in_a_small_window(tmp_path: Path, truncation: str, *, tells: bool) -> None:
    reader = Reader(parts)
    async with small(tmp_path, reader, tells=tells, lines=LINES if tells else FEW_LINES) as (app, brain):
        response = await ask(app, truncation=truncation)
        assert (response.status, response.output_text) == ("completed", "Read.")
        reader.check()
        assert brain.refused <= (0 if tells else 2)
        # The response can be continued, by whoever has read nothing of it yet.
        again = await ask(app, previous_response_id=response.id)
        assert again.status == "completed"
        assert brain.refused <= (0 if tells else 2)


async def test_nobody_else_sees_what_has_left(tmp_path: Path) -> None:
    reader = Reader(parts)
    async with small(tmp_path, reader, show_calls=True) as (app, _):
        response = await ask(app)
        calls: list[Any] = [item for item in response.output if isinstance(item, dict)]
        shown = [item["output"] for item in calls if item["type"] == "antwort:function_call"]
        assert shown[:READS] == reader.parts[:READS]
        assert all(output.startswith("[bytes ") for output in shown[:READS])


@pytest.mark.parametrize("tells", [True, False], ids=["known window", "measured window"])
async def test_a_sub_agent_reads_on_and_on_in_a_small_window(tmp_path: Path, *, tells: bool) -> None:
    reader = Reader(parts, child=True)
    async with small(tmp_path, reader, tells=tells) as (app, brain):
        response = await ask(app, "root")
        assert response.status == "completed"
        reader.check()
        assert brain.refused <= (0 if tells else 2)


@pytest.mark.parametrize("read", [parts, lines])
async def test_no_window_of_the_recursive_agent_has_more_than_eight_kilobytes(
    tmp_path: Path, read: Callable[[int], Turn]
) -> None:
    reader = Reader(read)
    async with small(tmp_path, reader, tells=False, lines=LINES) as (app, brain):
        response = await ask(app, agent="recursive", tools=None)
        assert response.status == "completed"
        assert reader.done > READS
        assert brain.largest <= 8000
        assert all(read not in {"", "No line"} for read in reader.parts)


async def test_what_the_recursive_agent_reads_is_all_of_it(tmp_path: Path) -> None:
    """A result that does not fit is shorter, and says where it goes on."""
    read: list[str] = []

    def decide(request: ModelRequest) -> Turn | str:
        outputs = _outputs(request.items)
        if outputs:
            header, _, text = outputs[-1].partition("\n")
            read.append(text)
            offset = int(header.rpartition("offset=")[2].rstrip("]"))
            return "Read." if len(read) == 10 else does("store_get", key="document", offset=offset)
        return does("store_get", key="document")

    async with small(tmp_path, Reader(parts)) as (app, brain):
        brain._decide = decide
        assert (await ask(app, agent="recursive", tools=None)).output_text == "Read."
        text = "".join(read)
        assert "".join(map(line, range(1000))).startswith(text)
        assert len(text) > 10_000
        assert brain.largest <= 8000


@pytest.mark.parametrize("child", [False, True])
async def test_a_window_is_compacted_while_an_agent_works(tmp_path: Path, *, child: bool) -> None:
    reader = Reader(parts, child=child)
    reader.again = ["-"]  # a summary names no references
    async with small(tmp_path, reader) as (app, brain):
        response = await ask(app, "root" if child else "read it all", context_management=[{"type": "compaction"}])
        assert response.status == "completed"
        assert reader.done > READS
        assert brain.refused == 0
        summaries = [items for items in brain.read if "parts were read." in str(items)]
        assert len(summaries) > 3


async def test_results_that_are_too_much_together_are_read_by_reference(tmp_path: Path) -> None:
    def decide(request: ModelRequest) -> Turn | str:
        outputs = _outputs(request.items)
        if not outputs:
            return turn(calls=[call("store_get", key="document", offset=number * 4000) for number in range(40)])
        return "Read."

    async with small(tmp_path, Reader(parts)) as (app, brain):
        brain._decide = decide
        assert (await ask(app)).output_text == "Read."
        assert brain.refused == 0
