"""A real server with code that blocks the event loop for good: limits are kept, and signals heard, all the same."""

import signal
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from antwort.testing import ScriptServer, call, turn

Plugin = Callable[[str, str], None]
Process = Callable[..., subprocess.Popen[str]]
Listening = Callable[..., tuple[subprocess.Popen[str], list[str]]]
PATIENCE = 60.0

BLOCKING = """
import asyncio
import sys
import time


class Blocking(Provider):
    async def lifespan(self):
        {at_start}
        yield
        {at_close}

    @function
    async def block(self) -> None:
        '''Block.'''
        block()

    @function(inline=True)
    def compute_for_ever(self) -> None:
        '''Block, without a task.'''
        block()

    @function
    async def leave_and_block(self) -> None:
        '''Want to end the process, then block.'''
        asyncio.get_running_loop().call_soon(sys.exit)
        await asyncio.sleep(0.01)
        block()


def block():
    print("stuck", flush=True)
    while True:
        time.sleep(1000)
"""


def blocking(plugin: Plugin, *, at_start: str = "pass", at_close: str = "pass") -> None:
    plugin("blocking", BLOCKING.format(at_start=at_start, at_close=at_close))


def wait_until_stuck(server: subprocess.Popen[str]) -> None:
    assert server.stdout is not None
    assert "stuck\n" in iter(server.stdout.readline, ""), "it has ended"


def test_a_provider_that_blocks_the_loop_at_its_start_is_one_line_and_exit_code_2(
    process: Process, plugin: Plugin, config: Callable[[str], Path]
) -> None:
    blocking(plugin, at_start="block()")
    config("functions:\n  start_timeout: 0.1\n")
    server = process("serve", "--port", "0", "--plugins-dir", "plugins", "--log-level", "error")
    _, stderr = server.communicate(timeout=PATIENCE)
    assert server.returncode == 2
    (line,) = stderr.splitlines()
    assert line.startswith("antwort: providers.blocking did not start within 0.1 seconds")
    assert "functions.start_timeout" in line


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_start_that_blocks_the_loop(process: Process, plugin: Plugin, number: signal.Signals) -> None:
    blocking(plugin, at_start="block()")
    server = process("serve", "--port", "0", "--plugins-dir", "plugins", "--log-level", "error")
    wait_until_stuck(server)
    server.send_signal(number)
    _, stderr = server.communicate(timeout=PATIENCE)
    assert server.returncode == 1
    assert "provider blocking has blocked the event loop" in stderr


def test_a_provider_that_blocks_the_loop_at_its_close_does_not_keep_the_server_from_stopping(
    listening: Listening, plugin: Plugin, config: Callable[[str], Path]
) -> None:
    blocking(plugin, at_close="block()")
    config("functions:\n  close_timeout: 0.1\n")
    server, _ = listening("--plugins-dir", "plugins")
    server.send_signal(signal.SIGTERM)
    _, stderr = server.communicate(timeout=PATIENCE)
    assert server.returncode == 1
    assert "provider blocking has blocked the event loop" in stderr


@pytest.mark.parametrize(
    ("signals", "name"), [(1, "block"), (2, "block"), (1, "leave_and_block"), (1, "compute_for_ever")]
)
def test_a_function_that_blocks_the_loop_does_not_keep_the_server_from_stopping(
    listening: Listening, plugin: Plugin, config: Callable[[str], Path], signals: int, name: str
) -> None:
    blocking(plugin)
    if signals == 1:
        config("server:\n  shutdown_timeout: 0.1\nfunctions:\n  close_timeout: 0.1\n")
    else:  # the second one says that it is urgent
        config("server:\n  shutdown_timeout: 1000\n")
    with ScriptServer([turn(calls=[call(name)])]) as model:
        server, banner = listening("--plugins-dir", "plugins", "--backend", model.url)
        asking = threading.Thread(target=ask, args=(banner[-1].removeprefix("Listening on "),))
        asking.start()
        wait_until_stuck(server)
        for number in (signal.SIGTERM, signal.SIGINT)[:signals]:  # two of a kind might be taken for one
            server.send_signal(number)
        _, stderr = server.communicate(timeout=PATIENCE)
        asking.join()
    assert server.returncode == 1
    assert f"call {name} (blocking) has blocked the event loop" in stderr


def ask(url: str) -> Any:
    with pytest.raises(httpx.HTTPError):
        httpx.post(f"{url}/v1/responses", json={"input": "Go."}, timeout=PATIENCE)
