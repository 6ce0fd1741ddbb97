"""Programs that are started beside the event loop: their pipes, their ends, and that none is left behind."""

import asyncio
import os
import select
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from antwort.concurrency.child_processes import ChildProcess, ProcessHandle, tied

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


async def test_only_what_is_asked_for_is_a_pipe() -> None:
    child = await start("sh", "-c", "cat; echo out", piped=["stdout"])
    assert await child.stdout.read() == b"out\n"
    assert await child.wait() == 0
    assert not hasattr(child, "stdin")
    child.close()


def _starter(child: int) -> Path:
    """Return the thread that has started a process."""
    tasks = Path("/proc/self/task").iterdir()
    (found,) = [task for task in tasks if str(child) in (task / "children").read_text().split()]
    return found


async def test_the_thread_that_starts_a_program_lives_as_long_as_it() -> None:
    """The kernel ends a program that wants to end with its parent when that thread ends."""
    child = await start("setpriv", "--pdeathsig", "KILL", "cat")
    starter = _starter(child.pid)
    child.stdin.write(b"hello")
    assert await child.stdout.read(5) == b"hello"
    assert starter.exists()
    child.stdin.close()
    assert await child.wait() == 0
    child.close()


async def test_a_process_that_is_gone_is_never_taken_for_another() -> None:
    child = await start("cat")
    handle = ProcessHandle(child.pid)
    waiting = [asyncio.create_task(handle.wait()) for _ in range(2)]
    handle.send_signal(signal.SIGKILL)
    await asyncio.gather(*waiting)
    assert await child.wait() == -signal.SIGKILL
    handle.send_signal(signal.SIGKILL)
    handle.close()
    handle.close()
    handle.send_signal(signal.SIGKILL)
    await handle.wait()
    child.close()
    with pytest.raises(ProcessLookupError):
        ProcessHandle(child.pid)


async def test_whoever_waits_for_a_process_stops_to_when_its_handle_is_closed() -> None:
    child = await start("cat")
    handle = ProcessHandle(child.pid)
    waiting = asyncio.create_task(handle.wait())
    await asyncio.sleep(0)
    handle.close()
    await waiting
    child.stdin.close()
    assert await child.wait() == 0
    child.close()


def test_a_program_whose_loop_is_closed_is_still_waited_for() -> None:
    child: ChildProcess

    async def leave() -> None:
        nonlocal child
        child = await start("sleep", "600")
        child.close()

    asyncio.run(leave())
    os.kill(child.pid, signal.SIGKILL)
    while Path(f"/proc/{child.pid}").exists():
        threading.Event().wait(0.01)


_PARENT = """
import shutil, subprocess, sys
from antwort.concurrency.child_processes import tied
if sys.argv[1] == "python":
    shutil.which = lambda name: None
command = tied(["sleep", "1000"], niceness=7)
assert ("setpriv" in command[0]) == (sys.argv[1] == "setpriv"), command
print(subprocess.Popen(command).pid, flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("by", ["setpriv", "python"])
def test_a_program_that_is_tied_ends_with_whoever_has_started_it(by: str) -> None:
    piped = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", _PARENT, by], stdin=piped, stdout=piped) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        handle = os.pidfd_open(child)
        try:
            while Path(f"/proc/{child}/comm").read_text() != "sleep\n":
                time.sleep(0.01)
            niceness = os.getpriority(os.PRIO_PROCESS, child) - os.getpriority(os.PRIO_PROCESS, 0)
            parent.kill()
            assert select.select([handle], [], [], 30)[0], "it lives on"
            assert niceness == 7
        finally:
            os.close(handle)


@pytest.mark.parametrize("by", ["setpriv", "python"])
def test_a_program_is_not_even_started_if_whoever_has_tied_it_is_gone(by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if by == "python":
        monkeypatch.setattr("shutil.which", lambda _: None)
    command = ["1" if part == str(os.getpid()) else part for part in tied(["echo", "started"])]

    ended = subprocess.run(command, stdout=subprocess.PIPE, check=False)

    assert (ended.returncode, ended.stdout) == (1, b"")
