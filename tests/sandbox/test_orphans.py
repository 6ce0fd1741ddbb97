"""Sandboxes whose server is gone, or nobody wants any more, before they are set up: none is left behind."""

import asyncio
import errno
import os
import random
import secrets
import subprocess
import sys
from pathlib import Path

import pytest

from antwort.concurrency.child_processes import ChildProcess
from antwort.errors import FunctionUnavailableError
from antwort.sandbox import Sandbox, SandboxLimits
from antwort.sandbox.bubblewrap import Surroundings

ROUNDS = 300 if os.environ.get("ANTWORT_TEST_FULL") else 30


@pytest.fixture
def mark() -> str:
    """A time to sleep by which a process is found."""
    return f"600.{secrets.randbelow(10**9):09}"


def running(mark: str) -> list[str]:
    """Return the processes that have a mark, also those that are to execute what has it."""
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                command = (process / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if mark.encode() in command:
                found.append(f"{process.name} {command[0].decode()}")
    return found


def descriptors() -> int:
    """Return how many descriptors this process has."""
    return len(list(Path("/proc/self/fd").iterdir()))


async def ends(mark: str) -> None:
    """Wait until no process has a mark."""
    async with asyncio.timeout(60):
        while running(mark):  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.02)


async def test_a_sandbox_that_has_lost_its_server_before_it_is_set_up_ends(mark: str) -> None:
    box = Sandbox()
    await box.prepare()
    arranged = await asyncio.to_thread(box._arranged, ["sleep", mark], Surroundings(), SandboxLimits())
    os.close(arranged.status)  # as if the server were killed: nobody reads what happens, and nobody says go on
    child = await ChildProcess.start(arranged.arguments, inherited=arranged.openings.files, within=arranged.entered())
    arranged.status = -1
    arranged.openings.close()
    child.close()
    await ends(mark)
    await child.wait()
    await asyncio.to_thread(arranged.undo)


async def test_a_sandbox_that_nobody_wants_any_more_while_it_is_set_up_is_ended(mark: str) -> None:
    box, chance = Sandbox(), random.Random(29)
    await box.prepare()
    for _ in range(ROUNDS):
        calls = [asyncio.create_task(box.run(["sleep", mark])) for _ in range(3)]
        await asyncio.wait(calls, timeout=chance.uniform(0, 0.05))
        for call in calls:
            call.cancel()
        await asyncio.wait(calls)
        assert running(mark) == []


async def test_a_sandbox_for_which_there_are_no_handles_is_ended_and_gives_all_back(
    mark: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_pid: int) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    box = Sandbox()
    await box.run(["true"])
    before = descriptors()
    monkeypatch.setattr(os, "pidfd_open", fail)
    for _ in range(3):
        with pytest.raises(FunctionUnavailableError, match=r"cannot be started: Too many open files\."):
            await box.run(["sleep", mark])
        await ends(mark)
    assert descriptors() <= before
    monkeypatch.undo()
    assert (await box.run(["true"])).exit_code == 0


@pytest.mark.parametrize("host", ["Sandbox", "BareHost"])
async def test_a_command_ends_with_a_server_that_is_killed(mark: str, host: str) -> None:
    program = f"import asyncio; from antwort.sandbox import *; asyncio.run({host}().run(['sleep', '{mark}']))"
    with subprocess.Popen([sys.executable, "-c", program]) as server:  # noqa: ASYNC220
        async with asyncio.timeout(60):
            while not any(process.endswith("sleep") for process in running(mark)):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        server.kill()
    await ends(mark)
