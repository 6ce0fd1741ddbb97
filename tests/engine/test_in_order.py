"""Calls of one turn on the same things are executed as the model has made them; others at the same time."""

import asyncio
from pathlib import Path

from tests.http.sdk import create, served

from antwort.provider import Provider, function
from antwort.testing import call, turn


class Ledger(Provider):
    """Notes when calls begin and end."""

    def __init__(self) -> None:
        super().__init__()
        self.noted: list[str] = []

    async def _work(self, name: str, seconds: float) -> str:
        self.noted.append(f"begin {name}")
        await asyncio.sleep(seconds)
        self.noted.append(f"end {name}")
        return name

    @function(in_order=True)
    async def write(self, name: str, seconds: float = 0.0) -> str:
        """Write."""
        return await self._work(name, seconds)

    @function(in_order=True)
    async def read(self, name: str, seconds: float = 0.0) -> str:
        """Read."""
        return await self._work(name, seconds)

    @function
    async def look(self, name: str, seconds: float = 0.0) -> str:
        """Look."""
        return await self._work(name, seconds)


def test_calls_that_say_so_are_executed_in_order_beside_all_others(tmp_path: Path) -> None:
    ledger = Ledger()
    calls = [
        call("write", name="a", seconds=0.05),
        call("look", name="x", seconds=0.05),
        call("read", name="b"),
        call("write", name="c"),
    ]
    with served(tmp_path, [turn(calls=calls), turn("Done.")], providers=[ledger]) as stage:
        create(stage, False, input="Go.")
        read = [item["output"] for item in stage.requests[1].items if item["type"] == "function_call_output"]
    assert read == ["a", "x", "b", "c"]
    assert [line for line in ledger.noted if not line.endswith("x")] == [
        *("begin a", "end a", "begin b", "end b", "begin c", "end c"),
    ]
    assert ledger.noted.index("begin x") < ledger.noted.index("end a")
