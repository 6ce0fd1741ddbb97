"""What the tests of programs share: a served app with the provider, functions to call, and programs as turns."""

import asyncio
import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tests.http.sdk import Served, served

from antwort.context import Context
from antwort.functions import FunctionSpec
from antwort.testing import Turn, call, turn

TOOL: Any = {"type": "programmatic_tool_calling"}


class Shop:
    """Functions that count their calls."""

    def __init__(self) -> None:
        self.counted: list[str | None] = []
        self.at_once = self.most_at_once = 0

    async def add(self, ctx: Context, a: int, b: int = 1) -> dict[str, int]:
        """Add numbers."""
        self.counted.append(ctx.call_id)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(0)
        self.at_once -= 1
        return {"sum": a + b}

    async def fail(self) -> str:
        """Fail."""
        raise ValueError("no luck")

    async def text(self, length: int) -> str:
        """Return a text."""
        return "x" * length

    @property
    def specs(self) -> list[FunctionSpec]:
        return [FunctionSpec.of(self.add), FunctionSpec.of(self.fail), FunctionSpec.of(self.text)]


def program(code: str, call_id: str | None = None) -> Turn:
    """Return a turn in which the model writes a program."""
    return turn(calls=[call("run_program", code=code, **({} if call_id is None else {"call_id": call_id}))])


@contextlib.contextmanager
def served_programs(
    tmp_path: Path, steps: Iterable[Turn | str], shop: Shop | None = None, **options: Any
) -> Iterator[Served]:
    """Serve an app with the provider; `settings` are its own, `section` other entries, `more` functions beside it."""
    own = {"enabled": True, "settings": options.pop("settings", {})}
    section = {"programs": own, "variables": {"enabled": True}, **options.pop("section", {})}
    database = {"url": f"sqlite:///{tmp_path / 'antwort.db'}"}
    functions = [*(shop or Shop()).specs, *options.pop("more", ())]
    with served(tmp_path, steps, section=section, functions=functions, **{"storage": database, **options}) as stage:
        yield stage


def result(stage: Served, number: int = -1) -> str:
    """Return what the model has read of the last program."""
    outputs = [item["output"] for item in stage.requests[number].items if item["type"] == "function_call_output"]
    return str(outputs[-1])


def ran(tmp_path: Path, code: str, shop: Shop | None = None, **options: Any) -> str:
    """Run one program in a served app; return what the model reads of it."""
    fields = options.pop("fields", {})
    with served_programs(tmp_path, [program(code), "Done."], shop, **options) as stage:
        stage.client().responses.create(model="scripted", input="Go!", tools=[TOOL], **fields)
        return result(stage)
