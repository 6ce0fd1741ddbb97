"""A real server whose plug-ins leave something running: when all is closed, the process ends all the same."""

import json
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from tests.support.crossed import crossed

from antwort.testing import ScriptServer, call, turn

Plugin = Callable[[str, str], None]
Listening = Callable[..., tuple[subprocess.Popen[str], list[str]]]
PATIENCE = 60.0
ENDLESS = {
    "thread": "threading.Thread(target=threading.Event().wait, name='endless').start()",
    "busy thread": "threading.Thread(target=burn, name='endless').start()",
    "thread of a pool": "concurrent.futures.ThreadPoolExecutor(1).submit(threading.Event().wait)",
    "thread of the loop": "asyncio.get_running_loop().run_in_executor(None, threading.Event().wait)",
    "call at the end": "atexit.register(threading.Event().wait)",
    "last moment": "sys.endless = Endless()",
}
PLUGIN = """
import asyncio, atexit, concurrent.futures, sys, threading, time


def burn():
    while True:
        try:
            pass
        except:
            pass


async def endless():
    while True:
        try:
            await asyncio.sleep(0.01)
        except:
            pass


class Endless:
    sleep = time.sleep

    def __del__(self):
        while True:
            self.sleep(1)


class Leaving(Provider):
    async def lifespan(self):
        {at_start}
        yield
        {at_close}

    @function(timeout=0.05)
    async def go_on(self) -> None:
        '''Go on for ever.'''
        await endless()
"""


def leaving(plugin: Plugin, *, at_start: str = "pass", at_close: str = "pass") -> None:
    plugin("leaving", PLUGIN.format(at_start=at_start, at_close=at_close))


def messages(stderr: str) -> list[str]:
    """Return what the log says."""
    return [json.loads(line)["message"] for line in stderr.splitlines()]


@pytest.mark.parametrize("what", ENDLESS)
def test_nothing_that_a_plug_in_has_started_holds_a_server_that_was_told_to_stop(
    listening: Listening, plugin: Plugin, what: str
) -> None:
    leaving(plugin, at_start=ENDLESS[what])
    server, _ = listening("--plugins-dir", "plugins", "--log-level", "warning")
    server.send_signal(signal.SIGTERM)
    _, stderr = server.communicate(timeout=PATIENCE)
    if what == "last moment":  # Python lets go of all there is, and is in no state to say anything
        assert (server.returncode, stderr) == (-signal.SIGALRM, "")
        return
    assert server.returncode == 0
    assert messages(stderr)[-1].startswith("the process ends without what does not end: ")
    if what in {"thread", "busy thread"}:
        assert messages(stderr)[-1].endswith(": threads endless")


def test_a_call_that_was_left_behind_does_not_hold_a_server_that_was_told_to_stop(
    listening: Listening, plugin: Plugin
) -> None:
    leaving(plugin)
    with ScriptServer([turn(calls=[call("go_on")]), turn("Fine.")]) as model:
        server, banner = listening("--plugins-dir", "plugins", "--backend", model.url, "--log-level", "warning")
        url = banner[-1].removeprefix("Listening on ")
        answer = httpx.post(f"{url}/v1/responses", json={"input": "Go."}, timeout=PATIENCE).json()
        assert answer["status"] == "completed"
        server.send_signal(signal.SIGTERM)
        _, stderr = server.communicate(timeout=PATIENCE)
    assert server.returncode == 0
    assert messages(stderr)[-1] == "the process ends without what does not end: call go_on (leaving)"


def test_a_thread_of_a_plug_in_does_not_hold_workers(
    listening: Listening, plugin: Plugin, ready_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTWORT_STORAGE__URL", ready_url)
    leaving(plugin, at_start=ENDLESS["thread"])
    server, _ = listening("--plugins-dir", "plugins", "--workers", "2", "--log-level", "warning", "--backend", "demo")
    server.send_signal(signal.SIGTERM)
    _, stderr = server.communicate(timeout=PATIENCE)
    assert server.returncode == 0
    assert messages(stderr) == ["the process ends without what does not end: threads endless"] * 2


@pytest.mark.parametrize(
    ("number", "hang"),
    crossed([signal.SIGTERM, signal.SIGINT], ["await asyncio.Event().wait()", "await endless()"]),
)
def test_a_second_signal_ends_what_is_waited_for_while_providers_close(
    listening: Listening, plugin: Plugin, config: Callable[[str], Path], number: signal.Signals, hang: str
) -> None:
    config("functions:\n  close_timeout: 1h\n")
    leaving(plugin, at_close=f"print('closing', flush=True)\n        {hang}")
    server, _ = listening("--plugins-dir", "plugins")
    server.send_signal(signal.SIGTERM)
    assert server.stdout is not None
    assert "closing\n" in iter(server.stdout.readline, ""), "it has ended"
    server.send_signal(number)
    server.communicate(timeout=PATIENCE)
    assert server.returncode == 0
