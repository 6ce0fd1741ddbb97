"""What code in a sandbox costs: a command, beside the bare program that it starts."""

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

import uvloop

from antwort import Antwort
from antwort.config import Config
from antwort.testing import ScriptedBackend
from benchmarks.measure import Row
from benchmarks.programs import Work, medians

BAR = 40.0
"""Milliseconds that a command may take."""
ROUNDS = 40
METHOD = f"""\
Sandboxes: calls of the registry, each of which executes the command `true` in the sandbox, beside `bash -c true` that
is started as it is. In ms, time that passes, medians of {ROUNDS} rounds in which they take turns."""


def sandboxes_rows(*, rounds: int = ROUNDS) -> list[Row]:
    """Measure commands of an app with a model in the same process."""
    with TemporaryDirectory() as folder:
        return uvloop.run(_rows(Path(folder), rounds))


async def _rows(folder: Path, rounds: int) -> list[Row]:
    config = Config.model_validate({"data_dir": folder, "providers": {"workspace": {"enabled": True}}})
    with ScriptedBackend([]) as model:
        async with Antwort(config, backend=model) as app:
            works: dict[str, Work] = {
                "bare": _bare,
                "shell": lambda: app.registry.execute("shell", {"command": "true"}),
            }
            _, clock = await medians(works, rounds)
    return [
        Row("sandboxes: a command", clock["shell"], "ms", BAR),
        Row("sandboxes: the same without a sandbox", clock["bare"], "ms"),
    ]


async def _bare() -> None:
    process = await asyncio.create_subprocess_exec("bash", "-c", "true")
    await process.wait()
