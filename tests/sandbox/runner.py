"""A program that runs commands in the sandbox as whoever it is told to be: requests and results are lines of JSON.

`python runner.py root|plain|ordinary FOLDER`: as root, as root on a machine without control groups, as a user like any
other. It becomes that user after all that it needs is imported, which such a user may not be able to read.
"""

import asyncio
import base64
import concurrent.futures.thread  # noqa: F401 - asyncio imports it when it is needed, which is too late
import json
import os
import sys
from pathlib import Path
from typing import Any

from antwort.errors import FunctionUnavailableError
from antwort.sandbox import Sandbox, SandboxLimits
from antwort.sandbox.control_groups import ControlGroups

NOBODY = 65534


def tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


async def main(kind: str, folder: Path) -> None:
    sandbox = Sandbox()
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
        try:
            done = await sandbox.run(asked["command"], own, limits=SandboxLimits(**asked["limits"]))
            told: dict[str, Any] = {"ending": done.ending, "exit_code": done.exit_code}
            told |= {"stdout": base64.b64encode(done.stdout).decode(), "stderr": base64.b64encode(done.stderr).decode()}
        except FunctionUnavailableError as error:
            told = {"error": str(error)}
        tell(json.dumps(told))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2])))
