"""A real server with functions that do what no function should: every response ends, and so does the server."""

import json
import signal
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from antwort.testing import ScriptServer, call, lint_stream, turn

Plugin = Callable[[str, str], None]
Listening = Callable[..., tuple[subprocess.Popen[str], list[str]]]
PATIENCE = 60.0

HOSTILE = """
import asyncio
import sys
import threading


async def leave():
    sys.exit(3)


def wanting(error):
    raise error


async def fail():
    raise ValueError("a child has failed")


class Hostile(Provider):
    @function
    async def group(self) -> str:
        '''Handle the failure of a child.'''
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(fail())
        except* ValueError:
            pass
        return "handled"

    @function
    async def leaves(self) -> str:
        '''Start a task that wants to end the process.'''
        asyncio.create_task(leave()).add_done_callback(lambda task: task.exception())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return "still here"

    @function
    async def calls_back(self) -> str:
        '''Let callbacks of the loop want to end the process, or the loop.'''
        loop = asyncio.get_running_loop()
        loop.call_soon(sys.exit, 3)
        loop.call_later(0, sys.exit, 3)
        loop.call_soon(loop.stop)
        for error in (SystemExit, KeyboardInterrupt):
            done = loop.create_future()
            done.add_done_callback(lambda _, error=error: wanting(error))
            done.set_result(None)
        await asyncio.sleep(0.01)
        return "still here"

    @function(timeout=0.05)
    async def stubborn(self) -> None:
        '''Ignore every cancellation, and start a task that does too.'''
        self.child = asyncio.create_task(for_ever())
        await for_ever()

    @function(timeout=0.05)
    async def threaded(self) -> None:
        '''Wait for a thread that does not end.'''
        await asyncio.to_thread(threading.Event().wait)


async def for_ever():
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass
"""


@pytest.mark.parametrize(
    ("name", "output"),
    [
        ("group", "handled"),
        ("leaves", "still here"),
        ("calls_back", "still here"),
        ("stubborn", "stubborn did not finish within 0.05 s."),
        ("threaded", "threaded did not finish within 0.05 s."),
    ],
)
def test_whatever_a_function_does_the_response_ends_and_the_server_stops_on_a_signal(
    listening: Listening, plugin: Plugin, name: str, output: str
) -> None:
    plugin("hostile", HOSTILE)
    turns = [turn(calls=[call(name)]), turn("Fine.")]
    with ScriptServer(turns * 3) as model:
        server, banner = listening("--plugins-dir", "plugins", "--backend", model.url)
        url = banner[-1].removeprefix("Listening on ")
        with httpx.Client(base_url=f"{url}/v1", timeout=PATIENCE) as client:
            plain = client.post("/responses", json={"input": "Go."})
            assert (plain.status_code, plain.json()["status"]) == (200, "completed"), plain.text
            streamed = client.post("/responses", json={"input": "Go.", "stream": True})
            assert lint_stream(streamed.content).response["status"] == "completed"
            background: dict[str, Any] = {"input": "Go.", "background": True, "stream": True}
            assert lint_stream(client.post("/responses", json=background).content).response["status"] == "completed"
        for request in model.requests[1::2]:
            assert output in json.dumps(request, ensure_ascii=False)
        server.send_signal(signal.SIGTERM)
        server.communicate(timeout=PATIENCE)
        assert server.returncode == 0


def test_a_provider_that_hangs_at_its_close_does_not_keep_the_server_from_stopping(
    listening: Listening, plugin: Plugin, config: Callable[[str], Any]
) -> None:
    plugin(
        "hanging",
        """
        import asyncio

        class Hanging(Provider):
            async def lifespan(self):
                yield
                while True:
                    try:
                        await asyncio.Event().wait()
                    except asyncio.CancelledError:
                        pass
        """,
    )
    config("functions:\n  close_timeout: 0.1\n  grace: 0.1\n")
    server, _ = listening("--plugins-dir", "plugins")
    server.send_signal(signal.SIGTERM)
    _, stderr = server.communicate(timeout=PATIENCE)
    assert server.returncode == 0
    assert "provider 'hanging' did not close within 0.1 seconds" in stderr
    assert "Traceback" not in stderr


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (
            "async def lifespan(self):\n        raise SystemExit(0)\n        yield",
            "could not be started: SystemExit: 0",
        ),
        ("def __init__(self, settings=None):\n        raise SystemExit(0)", "cannot be loaded: SystemExit: 0"),
        (
            "def __init__(self, settings=None):\n        raise type('Odd', (BaseException,), {})('no luck')",
            "cannot be loaded: Odd: no luck",
        ),
        (
            "def __init__(self, settings=None):\n        raise __import__('asyncio').CancelledError",
            "cannot be loaded: CancelledError",
        ),
        (
            "def tools(self):\n        raise type('Odd', (BaseException,), {})('no luck')",
            "cannot be registered: it wanted to end the process (Odd: no luck)",
        ),
        (
            "calls = Counter(full_name='antwort_http_requests_total', documentation='Calls.')",
            "its metric 'antwort_http_requests_total' is one of the server's own; rename it",
        ),
        (
            "calls = Counter(full_name='antwort_builtin_tool_executions_total', documentation='Calls.')",
            "provider 'odd': the metric 'antwort_builtin_tool_executions' exists already",
        ),
        (
            "async def lifespan(self):\n        await __import__('asyncio').Event().wait()\n        yield",
            "did not start within 0.1 seconds",
        ),
    ],
)
def test_a_provider_that_leaves_or_hangs_at_the_start_is_one_line_and_exit_code_2(
    refused: Callable[..., str], plugin: Plugin, config: Callable[[str], Any], body: str, said: str
) -> None:
    plugin("odd", f"class Odd(Provider):\n    {body}\n")
    config("functions:\n  start_timeout: 0.1\n")
    line = refused("serve", "--port", "0", "--plugins-dir", "plugins")
    assert "providers.odd" in line
    assert said in line


STUCK_ROUTES = """
import os
import threading


class Stuck(Provider):
    @route("GET", "/v1/stuck")
    def stuck(self) -> str:
        '''Do not end.'''
        os.write(1, b"stuck\\n")  # in one piece, as print is not
        threading.Event().wait()
"""
QUICK_ROUTE = """
class Quick(Provider):
    @route("GET", "/v1/quick")
    def quick(self) -> str:
        '''End at once.'''
        return "here"
"""


def test_stuck_routes_keep_neither_others_from_answering_nor_the_server_from_stopping(
    listening: Listening, plugin: Plugin, config: Callable[[str], Any]
) -> None:
    stuck = 40  # as many as there are threads in the pool of anyio, which all would share
    plugin("stuck", STUCK_ROUTES)
    plugin("quick", QUICK_ROUTE)
    config(f"server:\n  shutdown_timeout: 0.1\nfunctions:\n  threads: {stuck}\n")
    server, banner = listening("--plugins-dir", "plugins")
    url = banner[-1].removeprefix("Listening on ")
    assert server.stdout is not None
    with ThreadPoolExecutor(stuck) as clients:
        answers = [clients.submit(httpx.get, f"{url}/v1/stuck", timeout=2 * PATIENCE) for _ in range(stuck)]
        for _ in answers:
            assert server.stdout.readline() == "stuck\n"
        assert httpx.get(f"{url}/v1/quick", timeout=PATIENCE).json() == "here"
        server.send_signal(signal.SIGTERM)
        server.communicate(timeout=PATIENCE)
        assert server.returncode == 0
        assert {answer.result().status_code for answer in answers} == {503}
