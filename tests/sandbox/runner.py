"""A program that runs commands in the sandbox as whoever it is told to be: requests and results are lines of JSON.

`python runner.py root|plain|ordinary FOLDER`: as root, as root on a machine without control groups, as a user like any
other; the name of a runtime may follow in the same word. It becomes that user after all that it needs is imported,
which such a user may not be able to read.
"""

import asyncio
import base64
import concurrent.futures.thread  # noqa: F401 - asyncio imports it when it is needed, which is too late
import contextlib
import json
import os
import sys
from pathlib import Path
from typing import Any

from antwort.errors import FunctionUnavailableError
from antwort.sandbox import Sandbox, SandboxLimits, sandbox_of
from antwort.sandbox.control_groups import ControlGroups
from antwort.sandbox.usage import descendants

NOBODY = 65534


def tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


async def finished(sandbox: Sandbox, command: list[str], folder: Path, limits: SandboxLimits) -> dict[str, Any]:
    """Run a command to its end, and tell how that was."""
    done = await sandbox.run(command, folder, limits=limits)
    stdout, stderr = (base64.b64encode(output).decode() for output in (done.stdout, done.stderr))
    return {"ending": done.ending, "exit_code": done.exit_code, "stdout": stdout, "stderr": stderr}


async def paused(sandbox: Sandbox, command: list[str], folder: Path, limits: SandboxLimits) -> dict[str, Any]:
    """Open a process, pause it when it is ready, and tell what went on then although it should not."""
    async with sandbox.open(command, folder, limits=limits) as process:
        await process.stdout.readuntil(b"ready\n")
        await process.pause()
        first = process._first or 0
        inside = list(descendants(first))
        before = {**at_work(first), **ticks(folder)}
        await process.write(b"somebody writes\n")
        (folder / "new").touch()
        await asyncio.sleep(0.2)  # nothing can happen that could be waited for
        after = {**at_work(first), **ticks(folder)}
        went_on = {what: [before.get(what), now] for what, now in after.items() if before.get(what) != now}
        ending = process.ending
        if ending is None:
            await process.resume()
    return {"ending": ending, "went_on": went_on, "left": [one for one in inside if at_work(one)]}


def ticks(folder: Path) -> dict[str, str]:
    """Tell how much was written."""
    file = folder / "ticks"
    return {"ticks": str(file.stat().st_size)} if file.exists() else {}


def at_work(first: int) -> dict[str, str]:
    """Tell how long each thread of a process, and of what it has started, has computed."""
    found = {}
    for process in descendants(first):
        with contextlib.suppress(OSError):
            for thread in Path("/proc", str(process), "task").iterdir():
                found[thread.name] = (thread / "stat").read_text().rpartition(")")[2].split()[11]
    return found


async def main(kind: str, folder: Path) -> None:
    kind, _, runtime = kind.partition(" ")
    sandbox = sandbox_of(runtime or "bubblewrap", Sandbox())
    if kind == "plain":
        sandbox._groups = ControlGroups({})
    elif kind == "ordinary" and os.geteuid() == 0:
        os.chown(folder, NOBODY, NOBODY)
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
    await sandbox.prepare()
    tell("ready")
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        asked = json.loads(line)
        own = folder / asked["folder"]
        own.mkdir(mode=0o700, exist_ok=True)
        limits = SandboxLimits(**asked["limits"])
        try:
            told = await (paused if asked["pause"] else finished)(sandbox, asked["command"], own, limits)
        except FunctionUnavailableError as error:
            told = {"error": str(error)}
        tell(json.dumps(told))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2])))
