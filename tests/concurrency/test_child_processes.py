"""Programs that are started beside the event loop: their pipes, their ends, and that none is left behind."""

import asyncio
import os
import signal
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

from antwort.concurrency.child_processes import ChildProcess, pipe_reader

HERE = Path("/")
PATH = {"PATH": "/usr/bin:/bin"}


async def start(*command: str, **options: Any) -> ChildProcess:
    return await ChildProcess.start(command, environment=PATH, cwd=HERE, **options)


async def test_a_program_is_talked_to_until_it_ends() -> None:
    child = await start("sh", "-c", "cat; echo no >&2; exit 3")
    child.stdin.write(b"hello\n")
    child.stdin.close()
    assert await child.stdout.read() == b"hello\n"
    assert await child.stderr.read() == b"no\n"
    assert await child.wait() == child.returncode == 3
    child.close()


async def test_a_program_has_nothing_but_what_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTWORT_TEST_SECRET", "secret")
    given, kept = os.pipe()
    child = await start("sh", "-c", "env; pwd; ls /proc/self/fd", inherited=[given])
    said = (await child.stdout.read()).decode().split()
    assert not any("secret" in word for word in said)
    assert "/" in said
    assert str(given) in said
    assert str(kept) not in said
    await child.wait()
    child.close()
    os.close(given)
    os.close(kept)


async def test_whoever_reads_is_at_the_end_when_the_pipes_are_closed() -> None:
    child = await start("sleep", "600")
    reading = asyncio.create_task(child.stdout.read())
    os.kill(child.pid, signal.SIGKILL)
    assert await child.wait() == -signal.SIGKILL
    child.close()
    assert await reading == b""


async def test_what_cannot_be_started_says_why() -> None:
    with pytest.raises(FileNotFoundError):
        await start("no-such-program")
    with pytest.raises(ValueError, match="null"):
        await start("echo", "\0")


@pytest.mark.parametrize("times", [1, 3])
async def test_whoever_is_cancelled_while_a_program_starts_leaves_none_behind(
    monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    begun, go_on = asyncio.Event(), threading.Event()
    loop, popen = asyncio.get_running_loop(), subprocess.Popen
    started: list[subprocess.Popen[bytes]] = []

    def slowly(*args: Any, **options: Any) -> "subprocess.Popen[bytes]":
        loop.call_soon_threadsafe(begun.set)
        go_on.wait(60)
        started.append(popen(*args, **options))
        return started[0]

    monkeypatch.setattr(subprocess, "Popen", slowly)
    starting = asyncio.create_task(start("sleep", "600"))
    await begun.wait()
    for _ in range(times):
        starting.cancel()
        await asyncio.sleep(0.01)
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert started[0].returncode == -signal.SIGKILL


def test_whoever_is_cancelled_while_a_pipe_is_connected_closes_nothing_of_others() -> None:
    """A descriptor that is closed twice is somebody else's the second time."""
    uvloop = pytest.importorskip("uvloop")

    async def cancelled() -> None:
        end, other_end = os.pipe()
        pipe = os.fdopen(end, "rb", 0)
        connecting = asyncio.create_task(pipe_reader(pipe))
        await asyncio.sleep(0)
        connecting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await connecting
        for _ in range(5):
            await asyncio.sleep(0)
        others = os.open("/dev/null", os.O_RDONLY)
        pipe.close()
        os.fstat(others)
        os.close(others)
        os.close(other_end)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(cancelled())
