"""Programs that sleep: others have their processes meanwhile, and they do not sleep for ever."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.providers.programs.stage import TOOL, program, ran, served_programs

from antwort.functions import FunctionSpec
from antwort.providers.programs import program as module
from antwort.testing import Turn, turn


class Door:
    """Tells a program when it need not wait any more."""

    def __init__(self) -> None:
        self.asked, self.opened = threading.Event(), threading.Event()

    async def is_open(self) -> bool:
        """Tell whether the door is open."""
        self.asked.set()
        return self.opened.is_set()


def test_a_program_that_sleeps_gives_its_process_to_others(tmp_path: Path) -> None:
    waits = "import time\nx = 41\nwhile not await is_open():\n    time.sleep(1)\nx + 1"
    door = Door()
    steps: list[Turn | str] = [program(waits), program("1 + 1"), turn("Two."), turn("Open.")]
    more = [FunctionSpec.of(door.is_open)]
    with (
        served_programs(tmp_path, steps, more=more, settings={"processes": 1}) as stage,
        ThreadPoolExecutor() as threads,
    ):
        client = stage.client()
        waiting = threads.submit(lambda: client.responses.create(model="scripted", input="Wait!", tools=[TOOL]))
        door.asked.wait()
        other = client.responses.create(model="scripted", input="Go!", tools=[TOOL])
        door.opened.set()
        assert [item.to_dict().get("result") for item in other.output][1] == "2"
        assert [item.to_dict().get("result") for item in waiting.result().output][1] == "42"


def test_a_program_does_not_sleep_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SLEEP_IN_ALL", 0.05)
    read = ran(tmp_path, "import time\nwhile True:\n    time.sleep(0.02)")
    assert "RuntimeError: A program may sleep for 0.05 seconds in all." in read
