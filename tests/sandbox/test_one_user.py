"""A server whose namespace has one user, who is called root there and is not: it starts, works and stops."""

import asyncio
from pathlib import Path

import aiohttp
from tests.runs.processes import ServerProcess
from tests.support.parrot import calls_for, parrot

ALONE = """
import os, sys
os.execvp("unshare", ["unshare", "--user", "--map-root-user", sys.executable, "-m", "antwort", *sys.argv[1:]])
"""


async def test_a_server_that_is_the_only_user_there_is_starts_works_and_stops(tmp_path: Path) -> None:
    async with parrot() as model:
        server = ServerProcess(
            tmp_path,
            model,
            providers={"workspace": {"enabled": True}},
            backend={"models": ["m"]},
            program=["-c", ALONE],
        )
        await asyncio.to_thread(server.start)
        try:
            assert Path(f"/proc/{server.pid}/uid_map").read_text().split()[::2] == ["0", "1"]  # noqa: ASYNC240
            asked = calls_for([("shell", {"command": "id -u; echo tea > tea.txt; cat tea.txt"})])
            async with (
                aiohttp.ClientSession(server.url) as session,
                session.post("/v1/responses", json={"model": "m", "input": asked}) as response,
            ):
                said = (await response.json())["output"][-1]["content"][0]["text"]
            assert said.split() == ["1000", "tea"]
            assert await asyncio.to_thread(server.terminate) == 0
        finally:
            await asyncio.to_thread(server.kill)
