"""A small disk on which the code of one tenant takes all it may: nobody else notices."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import aiohttp
from tests.runs.processes import ServerProcess
from tests.support.parrot import calls_for, parrot
from tests.support.small_disk import small_disk

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


async def test_code_that_takes_all_it_may_on_a_small_disk_makes_no_request_of_others_fail(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    async with parrot() as model:
        with small_disk(tmp_path / "data", SIZE) as disk:
            program = ON_DISK.format(json.dumps(disk.command(sys.executable, "-m", "antwort")))
            server = ServerProcess(
                tmp_path,
                model,
                providers={"workspace": {"enabled": True, "settings": {"max_bytes": LIMIT, "max_file_bytes": SIZE}}},
                backend={"models": ["m"]},
                sections={"auth": {"api_keys": KEYS}, "sandbox": {"unbounded": "allow"}},
                program=["-c", program],
            )
            await asyncio.to_thread(server.start)
            try:
                async with aiohttp.ClientSession(server.url) as session:
                    greedy, other = Client(session, "greedy"), Client(session, "other")
                    taking = asyncio.create_task(greedy.shell("head -c 230M /dev/zero > all"))
                    answers = [await other.ask("Hello.")]
                    while not taking.done():
                        answers.append(await other.ask("Hello."))
                    assert "[no room: a workspace holds at most 104,857,600 bytes" in await taking
                    assert disk.free() > RESERVE
                    for _ in range(3):
                        assert "The disk of the server is nearly full" in await greedy.shell("head -c 1M /dev/zero > x")
                        answers.append(await other.ask("Hello."))
                    assert set(answers) == {(200, "Hello.")}
                    await greedy.delete_workspaces()
                    assert await other.shell("echo tea > tea.txt; cat tea.txt") == "tea"
                assert await asyncio.to_thread(server.terminate) == 0
            finally:
                await asyncio.to_thread(server.kill)
