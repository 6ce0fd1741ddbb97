"""`kill -9` of a server whose programs are busy: none outlives it, and the next one has its port at once."""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest
from tests.runs.processes import ServerProcess
from tests.server.test_descriptors import PROGRAMS
from tests.support.embeddings import EmbeddingServer
from tests.support.parrot import calls_for, parrot

from antwort.sandbox.usage import descendants

PATIENCE = 60.0
"""Seconds after which something does not happen any more."""
INGESTION, VECTORS, INTERPRETER = b"\0ingest\0watch", b"vectors.embedded.worker", b"monty\0subprocess"
CLOSE_ON_EXEC = os.O_CLOEXEC
BUSY = "while :; do :; done # 600"


def command_of(process: int) -> bytes:
    """Return the command line of a process; empty if it is gone, or what it is to execute is still to come."""
    try:
        command = Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return b""
    return b"" if b"execvp" in command else command


def born(process: int) -> str:
    """Return what tells a process from a later one of the same number; empty if it is gone, or only to be buried."""
    try:
        state, *rest = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if state in "ZX" else rest[18]


def programs(server: ServerProcess) -> dict[int, bytes]:
    """Return the processes that a server has started, directly or not."""
    return {process: command_of(process) for process in descendants(server.pid) if process != server.pid}


async def until_busy(server: ServerProcess) -> dict[int, bytes]:
    """Wait until the server has a program of each kind."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        found = programs(server)
        kinds = (INGESTION, VECTORS, INTERPRETER, BUSY.encode())
        if all(any(kind in command for command in found.values()) for kind in kinds):
            return found
        await asyncio.sleep(0.05)
    raise AssertionError(f"not all programs have started: {programs(server)}")


async def keep_busy(session: aiohttp.ClientSession) -> None:
    """Give the server work for all its programs."""
    form = aiohttp.FormData({"purpose": "assistants"})
    form.add_field("file", b"Tea is a drink.", filename="tea.txt")
    async with session.post("/v1/files", data=form) as response:
        file = (await response.json())["id"]
    async with session.post("/v1/vector_stores", json={"name": "s", "file_ids": [file]}) as response:
        assert response.status == 200, await response.text()
    calls = [("shell", {"command": BUSY}), ("run_program", {"code": "while True:\n    pass"})]
    for one in calls:
        body = {"model": "m", "input": calls_for([one]), "background": True}
        async with session.post("/v1/responses", json=body) as response:
            assert response.status == 200, await response.text()


def inheritable(process: int) -> Iterator[str]:
    """Yield the descriptors, but for the standard ones, that programs which a process starts could inherit."""
    for entry in Path(f"/proc/{process}/fdinfo").iterdir():
        with contextlib.suppress(FileNotFoundError):  # it was closed meanwhile
            flags = next(line for line in entry.read_text().splitlines() if line.startswith("flags:"))
            if int(entry.name) > 2 and not int(flags.split()[1], 8) & CLOSE_ON_EXEC:
                yield f"{entry.name}: {Path(f'/proc/{process}/fd/{entry.name}').readlink()}"


def sockets(process: int) -> list[str]:
    """Return the sockets that a process has."""
    try:
        links = [str(one.readlink()) for one in Path(f"/proc/{process}/fd").iterdir()]
    except OSError:
        return []
    return [link for link in links if link.startswith("socket:")]


@pytest.mark.parametrize("loop", PROGRAMS)
async def test_no_program_outlives_a_server_that_is_killed_and_the_next_one_has_its_port(
    tmp_path: Path, loop: str
) -> None:
    with EmbeddingServer() as embeddings:
        async with parrot() as model:
            search = {"embedding_url": embeddings.url, "vector_backend": "embedded"}
            server = ServerProcess(
                tmp_path,
                model,
                providers={
                    "file_search": {"enabled": True, "settings": search},
                    "files": {"enabled": True},
                    "programs": {"enabled": True, "settings": {"seconds": 600}},
                    "workspace": {"enabled": True, "settings": {"max_time": 600}},
                },
                backend={"models": ["m"]},
                program=PROGRAMS[loop],
            )
            await asyncio.to_thread(server.start)
            known: dict[int, str] = {}
            try:
                async with aiohttp.ClientSession(server.url) as session:
                    await keep_busy(session)
                    found = await until_busy(server)
                assert list(inheritable(server.pid)) == []
                own = set(sockets(server.pid))
                assert [command for process, command in found.items() if own & set(sockets(process))] == []
                known = {process: born(process) for process in found}
                for process, command in found.items():
                    if any(kind in command for kind in (INGESTION, VECTORS, INTERPRETER)):
                        os.kill(process, signal.SIGSTOP)  # no program is busier than one that does not run
                port = server.url.rpartition(":")[2]
                await asyncio.to_thread(server.kill)
                await asyncio.to_thread(server.start, "--port", port)
                end = time.monotonic() + PATIENCE
                while left := [found[process] for process, birth in known.items() if born(process) == birth != ""]:
                    assert time.monotonic() < end, left
                    await asyncio.sleep(0.05)
            finally:
                await asyncio.to_thread(server.kill)
                for process, birth in known.items():
                    if born(process) == birth != "":
                        os.kill(process, signal.SIGKILL)
