"""A program that makes calls of a provider as whoever it is told to be: calls and results are lines of JSON.

`python function_runner.py root|ordinary FOLDER PROVIDERS`, the last as the section of a configuration in JSON. The app
starts before it becomes an ordinary user, who may not be able to read what it imports.
"""

import asyncio
import ctypes
import json
import os
import sys
from pathlib import Path
from typing import Any

from antwort import Antwort, Context
from antwort.config import Config
from antwort.testing import ScriptedBackend

NOBODY = 65534
PR_SET_DUMPABLE = 4


def tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


async def main(kind: str, folder: Path, providers: Any) -> None:
    config = Config(data_dir=folder, providers=providers)
    with ScriptedBackend([]) as model:
        async with Antwort(config, backend=model) as app:
            if kind == "ordinary" and os.geteuid() == 0:
                for path in [folder, *folder.rglob("*")]:  # noqa: ASYNC240 - nobody waits
                    os.chown(path, NOBODY, NOBODY)
                os.setgroups([])
                os.setresgid(NOBODY, NOBODY, NOBODY)
                os.setresuid(NOBODY, NOBODY, NOBODY)
                ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)  # as it is for who was never somebody else
                app.sandbox._groups = None  # what root could do is not what this one can
                for disks in app.sandbox.disks.values():
                    disks.close()
                    disks.open()
            tell("ready")
            loop = asyncio.get_running_loop()
            while line := await loop.run_in_executor(None, sys.stdin.readline):
                asked = json.loads(line)
                ctx = Context(asked["tenant"], conversation_id=asked["conversation"])
                done = await app.registry.execute(asked["name"], asked["arguments"], ctx)
                tell(json.dumps({"output": done.output, "status": done.status}))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3])))
