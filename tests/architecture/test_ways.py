"""A request passes through no more files than it may: whoever follows it has to open each of them."""

import asyncio
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import httpx
import pytest
from scripts.structure import ROOT

from antwort import Antwort
from antwort.config import Config
from antwort.testing import ScriptServer, call, turn

PACKAGE = f"{ROOT / 'src' / 'antwort'}/"
BESIDE = frozenset({"observability/watchdog.py"})
"""What looks at the event loop now and then, whatever is asked."""
TRIES = 3
"""Requests that are followed; on a busy machine what comes now and then falls into some of them."""
SUNNY = "It is sunny."
CALL = [turn(calls=[call("forecast", city="Berlin")]), turn(SUNNY)]
AGENT = [turn(calls=[call("spawn_agent", prompt="Look.")]), turn("I have looked."), turn(SUNNY)]
WAYS: dict[str, tuple[int, list[Any], dict[str, Any]]] = {
    "an answer": (52, [turn(SUNNY)], {}),
    "a stream": (54, [turn(SUNNY)], {"stream": True}),
    "a background response": (64, [turn(SUNNY)], {"stream": True, "background": True}),
    "a call": (70, CALL, {"tools": [{"type": "function", "name": "forecast"}]}),
    "a sub-agent": (81, AGENT, {"tools": [{"type": "function", "name": "spawn_agent"}]}),
}
"""How many files each may enter, what the model says, and what is asked for."""


async def forecast(city: str) -> str:
    """Forecast the weather for a city."""
    return f"{city}: sunny"


class Footprints:
    """The own files whose code has run."""

    def __init__(self) -> None:
        self.files: set[str] = set()

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        """Take note of a call; threads call this, too."""
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            self.files.add(frame.f_code.co_filename.removeprefix(PACKAGE))


@contextmanager
def followed() -> Iterator[Footprints]:
    """Follow what this thread does, and those that it starts."""
    footprints = Footprints()
    threading.setprofile(footprints)
    sys.setprofile(footprints)
    try:
        yield footprints
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


@pytest.mark.parametrize("way", WAYS)
def test_a_request_passes_through_no_more_files_than_it_may(way: str, tmp_path: Path) -> None:
    most, script, asked = WAYS[way]
    with ScriptServer([*script] * (1 + TRIES)) as model:
        config = Config.model_validate(
            {
                "data_dir": tmp_path,
                "storage": {"url": f"sqlite:///{tmp_path}/ways.db"},
                "backends": {"default": {"url": model.url}},
                "providers": {"sub_agents": {"enabled": True, "offer": "on_request"}},
            }
        )

        async def answer(client: httpx.AsyncClient) -> None:
            found = await client.post("/v1/responses", json={"model": "scripted", "input": "Go!", **asked})
            assert found.status_code == 200
            assert SUNNY in found.text

        async def run() -> set[str]:
            app = Antwort(config, functions=[forecast])
            await app.start(recover=False)  # without sweeps, which come now and then
            async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://local") as client:
                await answer(client)  # the first also makes what all others use
                found = []
                for _ in range(TRIES):
                    footprints.files.clear()
                    await answer(client)
                    found.append(footprints.files - BESIDE)
            await app.close()
            return min(found, key=len)

        with followed() as footprints:
            files = asyncio.run(run())

    assert len(files) <= most, f"{len(files)} files: {', '.join(sorted(files))}"
