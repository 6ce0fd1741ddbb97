"""A program that makes calls of the provider as whoever it is told to be: calls and results are lines of JSON.

`python runner.py root|ordinary FOLDER`. The app starts before it becomes an ordinary user, who may not be able to read
what it imports.
"""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

from antwort import Antwort, Context
from antwort.config import Config
from antwort.testing import ScriptedBackend

NOBODY = 65534
SETTINGS = {
    "max_time": "5s",
    "max_memory": 100 << 20,
    "max_bytes": 20 << 20,
    "max_files": 200,
    "max_output": 100_000,
    "max_processes": 20,
}


def tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


async def main(kind: str, folder: Path) -> None:
    os.environ["ANTWORT_TEST_SECRET"] = "the-secret-of-the-environment"
    settings: Any = {"code_interpreter": {"enabled": True, "settings": SETTINGS}}
    config = Config(data_dir=folder, providers=settings)
    with ScriptedBackend([]) as model:
        async with Antwort(config, backend=model) as app:
            if kind == "ordinary" and os.geteuid() == 0:
                for path in [folder, *folder.rglob("*")]:  # noqa: ASYNC240 - nobody waits
                    os.chown(path, NOBODY, NOBODY)
                os.setgroups([])
                os.setresgid(NOBODY, NOBODY, NOBODY)
                os.setresuid(NOBODY, NOBODY, NOBODY)
                app.sandbox._groups = None  # what root could do is not what this one can
            tell("ready")
            loop = asyncio.get_running_loop()
            while line := await loop.run_in_executor(None, sys.stdin.readline):
                asked = json.loads(line)
                ctx = Context(asked["tenant"], conversation_id=asked["conversation"])
                done = await app.registry.execute("code_interpreter", {"code": asked["code"]}, ctx)
                tell(json.dumps(done.output))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2])))
