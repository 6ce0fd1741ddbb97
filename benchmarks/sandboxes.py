"""What code in a sandbox costs: a command, beside the bare program that it starts, and code in a session."""

import asyncio
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import uvloop

from antwort import Antwort
from antwort.config import Config
from antwort.context import ANONYMOUS_TENANT, Context
from antwort.testing import ScriptedBackend
from benchmarks.measure import Row
from benchmarks.programs import Work, medians

BAR = 25.0
"""Milliseconds that a command may take."""
SESSION_BAR = 10.0
"""Milliseconds that code may take in a session that is there."""
ROUNDS = 40
METHOD = f"""\
Sandboxes: calls of the registry, each of which executes the command `true` in the sandbox, beside `bash -c true` that
is started as it is; and Python code, in a session that is there, and in one that is begun for it. In ms, time that
passes, medians of {ROUNDS} rounds in which they take turns."""


def sandboxes_rows(*, rounds: int = ROUNDS) -> list[Row]:
    """Measure commands and code of an app with a model in the same process."""
    with TemporaryDirectory() as folder:
        return uvloop.run(_rows(Path(folder), rounds))


async def _rows(folder: Path, rounds: int) -> list[Row]:
    providers = {"workspace": {"enabled": True}, "code_interpreter": {"enabled": True}}
    config = Config.model_validate({"data_dir": folder, "providers": providers})
    conversations = (Context(ANONYMOUS_TENANT, conversation_id=f"new{number}") for number in count())
    code = {"code": "1 + 1"}
    with ScriptedBackend([]) as model:
        async with Antwort(config, backend=model) as app:
            works: dict[str, Work] = {
                "bare": _bare,
                "shell": lambda: app.registry.execute("shell", {"command": "true"}),
                "session": lambda: app.registry.execute("code_interpreter", code),
                "new": lambda: app.registry.execute("code_interpreter", code, next(conversations)),
            }
            _, clock = await medians(works, rounds)
    return [
        Row("sandboxes: a command", clock["shell"], "ms", BAR),
        Row("sandboxes: the same without a sandbox", clock["bare"], "ms"),
        Row("sandboxes: code in a session", clock["session"], "ms", SESSION_BAR),
        Row("sandboxes: code in a new session", clock["new"], "ms"),
    ]


async def _bare() -> None:
    process = await asyncio.create_subprocess_exec("bash", "-c", "true")
    await process.wait()
