"""Commands that a signal ends: they close what they have opened, whatever they are doing."""

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.crossed import crossed

Plugin = Callable[[str, str], None]
Process = Callable[..., subprocess.Popen[str]]
PATIENCE = 60.0

LINGERING = """
import asyncio
import time


class Lingering(Provider):
    async def lifespan(self):
        yield
        await asyncio.sleep(0.3)
        print("closed", flush=True)

    @function
    async def wait(self) -> None:
        '''Wait for ever.'''
        print("begun", flush=True)
        await asyncio.Event().wait()

    @function
    async def block(self) -> str:
        '''Block the event loop for a moment.'''
        return self.compute()

    @function(inline=True)
    def compute(self) -> str:
        '''Block the event loop for a moment, without a task.'''
        print("begun", flush=True)
        end = time.monotonic() + 1
        while time.monotonic() < end:
            time.sleep(0.01)
        return "done"
"""


@pytest.mark.parametrize(
    ("name", "numbers"),
    crossed(["wait", "block", "compute"], [[signal.SIGTERM], [signal.SIGHUP], [signal.SIGHUP, signal.SIGTERM]]),
)
def test_a_signal_during_a_call_is_no_failure_of_the_function(
    process: Process, plugin: Plugin, name: str, numbers: list[signal.Signals]
) -> None:
    plugin("lingering", LINGERING)
    command = process("functions", "call", name, "{}", "--plugins-dir", "plugins")
    assert command.stdout is not None
    assert command.stdout.readline() == "begun\n"
    for number in numbers:  # at the end of a session there may be one of each kind
        command.send_signal(number)
    assert command.communicate(timeout=PATIENCE) == ("closed\n", "")
    assert command.returncode in {128 + number for number in numbers}


def test_a_second_signal_ends_a_command_that_blocks(process: Process, plugin: Plugin) -> None:
    plugin("lingering", LINGERING.replace("+ 1", "+ 1000"))
    command = process("functions", "call", "block", "{}", "--plugins-dir", "plugins")
    assert command.stdout is not None
    assert command.stdout.readline() == "begun\n"
    command.send_signal(signal.SIGTERM)
    with pytest.raises(subprocess.TimeoutExpired):
        command.wait(0.5)
    command.send_signal(signal.SIGTERM)
    assert command.wait(PATIENCE) == -signal.SIGTERM


def test_a_signal_while_a_temporary_database_is_opened_leaves_nothing_behind(
    process: Process, plugin: Plugin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = """
    import time
    from antwort.storage.sqlite import SqliteStore

    opening = SqliteStore.open

    def open_slowly(path):
        print("begun", flush=True)
        time.sleep(1)
        return opening(path)

    SqliteStore.open = open_slowly

    @function
    def nothing() -> None:
        '''Do nothing.'''
    """
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    plugin("slow", slow)
    command = process("check", "--plugins-dir", "plugins")
    assert command.stdout is not None
    assert command.stdout.readline() == "begun\n"
    command.send_signal(signal.SIGTERM)
    assert command.communicate(timeout=PATIENCE) == ("", "")
    assert (command.returncode, list(temporary.iterdir())) == (128 + signal.SIGTERM, [])


OVERLOOKED = """
import signal
import threading

from antwort.cli.event_loop import leaving_by_signals

with leaving_by_signals():
    threading.Thread(target=threading.Event().wait, daemon=True).start()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # another thread gets it, so that it wakes nobody up
    print("begun", flush=True)
    input()
"""


def test_a_signal_that_comes_as_somebody_begins_to_wait_for_a_line_is_heard() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", OVERLOOKED], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as command:
        assert command.stdout is not None
        assert command.stdout.readline() == "begun\n"
        command.send_signal(signal.SIGTERM)
        try:
            assert command.wait(timeout=PATIENCE) == 128 + signal.SIGTERM
        finally:
            command.kill()
