"""A small disk on which the code of one tenant takes all it may: nobody else notices."""

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
from tests.runs.processes import ServerProcess
from tests.support.parrot import calls_for, parrot
from tests.support.small_disk import SmallDisk, small_disk

MB = 1 << 20
SIZE, LIMIT, RESERVE = 240 * MB, 100 * MB, 64 * MB
ON_DISK = "import json, os, sys; command = json.loads({!r}); os.execvp(command[0], command + sys.argv[1:])"
KEYS = [{"id": name, "key": f"sk-{name}-0123456789", "tenant": name} for name in ("greedy", "other")]


class Client:
    """One tenant."""

    def __init__(self, session: aiohttp.ClientSession, tenant: str) -> None:
        self._session = session
        self._headers = {"Authorization": f"Bearer sk-{tenant}-0123456789"}

    async def ask(self, said: str) -> tuple[int, Any]:
        """Return the status of a response, and what the model said."""
        asked = {"model": "m", "input": said}
        async with self._session.post("/v1/responses", json=asked, headers=self._headers) as response:
            body = await response.json()
            return response.status, body["output"][-1]["content"][0]["text"] if response.status == 200 else body

    async def shell(self, command: str) -> str:
        """Return what the model read of a command, in a workspace of its own."""
        status, said = await self.ask(calls_for([("shell", {"command": command})]))
        assert status == 200, said
        return str(said)

    async def delete_workspaces(self) -> None:
        """Delete all that there are."""
        async with self._session.get("/v1/workspaces", headers=self._headers) as response:
            found = (await response.json())["data"]
        for one in found:
            async with self._session.delete(f"/v1/workspaces/{one['id']}", headers=self._headers) as response:
                assert response.status == 200


@contextlib.asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[tuple[SmallDisk, Client, Client]]:
    """Give a server on a small disk, with its tenants, who are greedy and not."""
    (folder / "data").mkdir()
    async with parrot() as model:
        with small_disk(folder / "data", SIZE) as disk:
            program = ON_DISK.format(json.dumps(disk.command(sys.executable, "-m", "antwort")))
            server = ServerProcess(
                folder,
                model,
                providers={"workspace": {"enabled": True, "settings": {"max_bytes": LIMIT, "max_file_bytes": SIZE}}},
                backend={"models": ["m"]},
                sections={"auth": {"api_keys": KEYS}, "sandbox": {"unbounded": "allow"}},
                program=["-c", program],
            )
            await asyncio.to_thread(server.start)
            try:
                async with aiohttp.ClientSession(server.url) as session:
                    yield disk, Client(session, "greedy"), Client(session, "other")
                assert await asyncio.to_thread(server.terminate) == 0
            finally:
                await asyncio.to_thread(server.kill)


async def test_code_that_takes_all_it_may_on_a_small_disk_makes_no_request_of_others_fail(tmp_path: Path) -> None:
    async with serving(tmp_path) as (disk, greedy, other):
        taking = asyncio.create_task(greedy.shell("head -c 230M /dev/zero > all"))
        answers = [await other.ask("Hello.")]
        while not taking.done() and len(answers) < 100:  # they take room, too
            answers.append(await other.ask("Hello."))
        assert "[no room: a workspace holds at most 104,857,600 bytes" in await taking
        assert disk.free() > SIZE - LIMIT * 1.1 - 20 * MB
        for _ in range(3):
            assert "The disk of the server is nearly full" in await greedy.shell("head -c 1M /dev/zero > x")
            answers.append(await other.ask("Hello."))
        assert set(answers) == {(200, "Hello.")}
        await greedy.delete_workspaces()
        assert await other.shell("echo tea > tea.txt; cat tea.txt") == "tea"


async def test_what_the_kernel_has_yet_to_write_is_counted_so_that_one_tenant_does_not_fill_a_small_disk(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path) as (disk, greedy, other):
        said = [await greedy.shell("head -c 45M /dev/zero | tr '\\0' x > part; echo written") for _ in range(7)]
        os.sync()
        assert disk.free() > 50 * MB
        assert await other.ask("Hello.") == (200, "Hello.")
        assert said[0] == "written"
        assert "The disk of the server is nearly full" in said[-1]
