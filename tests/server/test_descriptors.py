"""Descriptors have one owner: two tenants who use programs, files and plain answers side by side get their own only."""

import asyncio
import contextlib
import os
import subprocess
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import aiohttp
import pytest
from tests.runs.processes import ServerProcess
from tests.support.parrot import calls_for, parrot

CALLS = 5000 if os.environ.get("ANTWORT_TEST_FULL") else 100
"""Programs that are started in the sandbox, under each loop."""
AT_ONCE = 4
"""Calls in one answer of the model."""
CLIENTS = 4
"""Those of each tenant."""
PROGRAMS = {
    "uvloop": ["-m", "antwort"],
    "asyncio": ["-c", "import sys; sys.modules['uvloop'] = None; from antwort.cli.main import main; main()"],
}
TENANTS = ("anna", "bert")
NAMES = ("bwrap", "unshare", "setpriv", "nsenter", "prlimit")
"""What the programs are called that make a sandbox."""


@dataclass
class Client:
    """One of a tenant, who goes on until enough programs were started."""

    session: aiohttp.ClientSession
    tenant: str
    left: list[int]
    """Calls to be made, by all clients together."""
    numbers: "count[int]"

    def mark(self, kind: str) -> str:
        """Return what nobody else says."""
        return f"{kind}-{self.tenant}-{next(self.numbers)}"

    async def answer(self, text: str) -> str:
        """Ask the model, and return what it says."""
        async with self.session.post("/v1/responses", json={"model": "m", "input": text}) as response:
            body = await response.json()
            assert response.status == 200, body
        return str(body["output"][-1]["content"][0]["text"])

    async def work(self) -> None:
        """Use everything at the same time, over and over."""
        while self.left[0] > 0:
            self.left[0] -= AT_ONCE
            await asyncio.gather(self.shell(), self.files(), self.plain())

    async def shell(self) -> None:
        """Have commands executed."""
        mark = self.mark("shell")
        commands = [f"read -r; echo {mark} {number}" for number in range(AT_ONCE)]
        said = await self.answer(calls_for(("shell", {"command": command}) for command in commands))
        assert said.split("\n") == [f"{mark} {number}" for number in range(AT_ONCE)]

    async def plain(self) -> None:
        """Ask for an answer without calls."""
        mark = self.mark("plain")
        assert await self.answer(mark) == mark

    async def files(self) -> None:
        """Upload, download and delete."""
        mark = self.mark("file")
        content = mark.encode() * 1000
        form = aiohttp.FormData({"purpose": "user_data"})
        form.add_field("file", content, filename=f"{mark}.txt")
        async with self.session.post("/v1/files", data=form) as response:
            made = await response.json()
            assert (response.status, made.get("filename")) == (200, f"{mark}.txt"), made
        async with self.session.get(f"/v1/files/{made['id']}/content") as response:
            assert (response.status, await response.read()) == (200, content)
        async with self.session.delete(f"/v1/files/{made['id']}") as response:
            assert await response.json() == {"id": made["id"], "object": "file", "deleted": True}


async def side_by_side(url: str) -> None:
    """Let clients of both tenants work at the same time; the first wrong answer ends it."""
    left, numbers = [CALLS], count()
    async with contextlib.AsyncExitStack() as stack, asyncio.TaskGroup() as group:
        for tenant in TENANTS:
            session = await stack.enter_async_context(
                aiohttp.ClientSession(url, headers={"Authorization": f"Bearer key-of-{tenant}-which-is-long"})
            )
            for _ in range(CLIENTS):
                group.create_task(Client(session, tenant, left, numbers).work())


def bad_closes(folder: Path) -> dict[str, str]:
    """Return the environment of a server that writes down which descriptors are closed that are none."""
    library = folder / "bad_closes.so"
    source = Path(__file__).parent.parent / "support" / "bad_closes.c"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
    return {"LD_PRELOAD": str(library), "ANTWORT_BAD_CLOSES": str(folder / "bad-closes")}


def sandboxes(server: ServerProcess) -> list[str]:
    """Return the programs of sandboxes that the server has."""
    names = [Path(f"/proc/{child}/comm") for child in server.children()]
    return [name.read_text().strip() for name in names if name.exists() and name.read_text().strip() in NAMES]


@pytest.mark.parametrize("loop", PROGRAMS)
async def test_tenants_who_start_programs_side_by_side_get_their_own_answers(tmp_path: Path, loop: str) -> None:
    keys = [{"id": tenant, "key": f"key-of-{tenant}-which-is-long", "tenant": tenant} for tenant in TENANTS]
    async with parrot() as model:
        server = ServerProcess(
            tmp_path,
            model,
            providers={"workspace": {"enabled": True}, "files": {"enabled": True}},
            backend={"models": ["m"]},
            sections={"auth": {"api_keys": keys}, "sandbox": {"unbounded": "allow"}},
            program=PROGRAMS[loop],
            environment=bad_closes(tmp_path),
        )
        await asyncio.to_thread(server.start)
        try:
            await side_by_side(server.url)
            assert sandboxes(server) == []
            assert await asyncio.to_thread(server.terminate) == 0
        finally:
            await asyncio.to_thread(server.kill)
    bad = tmp_path / "bad-closes"
    assert not bad.exists(), bad.read_text()
    assert "Traceback" not in server.errors
