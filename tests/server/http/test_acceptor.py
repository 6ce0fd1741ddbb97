"""Many connections at once: each is answered, with what it asked for or with a 503, and none is thrown away."""

import asyncio
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import uvloop
from starlette.types import Receive, Scope, Send

from antwort.config import ConnectionsConfig, ServerConfig
from antwort.server.http.client_connections import CommonState
from antwort.server.http.protocol import HttpProtocol
from antwort.server.http.serve import Server, bind

FULL = bool(os.environ.get("ANTWORT_TEST_FULL"))
PATIENCE = 60.0
REQUEST = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"
LOOPS = pytest.mark.parametrize("new_loop", [uvloop.new_event_loop, asyncio.new_event_loop], ids=["uvloop", "asyncio"])
NewLoop = Callable[[], asyncio.AbstractEventLoop]


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer at once."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


def served(
    new_loop: NewLoop, settings: ServerConfig, visit: Callable[[tuple[str, int]], Coroutine[Any, Any, Any]]
) -> Any:
    """Serve the app on a loop while somebody visits it; return what came of that."""

    async def main() -> Any:
        server = Server(app, settings)
        with bind("127.0.0.1", 0) as sock:
            serving = asyncio.ensure_future(server.serve([sock]))
            try:
                return await asyncio.wait_for(visit(sock.getsockname()), 2 * PATIENCE)
            finally:
                server.stop()
                await serving

    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(main())


def answers(socks: list[socket.socket]) -> Counter[str]:
    """Read an answer from each connection, and count what they are; who gets none has read `reset` or nothing."""
    found: Counter[str] = Counter()
    with selectors.DefaultSelector() as selector:
        for sock in socks:
            sock.setblocking(False)
            selector.register(sock, selectors.EVENT_READ)
        end = time.monotonic() + PATIENCE
        while selector.get_map() and time.monotonic() < end:
            for key, _ in selector.select(1.0):
                sock = key.fileobj  # type: ignore[assignment]
                selector.unregister(sock)
                try:
                    answer = sock.recv(65536)
                except ConnectionError:
                    answer = b"x reset"
                if b" 503 " in answer:
                    assert b"\r\nretry-after: 1\r\n" in answer
                found[answer[:20].decode().split(" ")[1] if answer else "nothing"] += 1
                sock.close()
        found["never"] += len(selector.get_map())
    return +found


@LOOPS
@pytest.mark.parametrize("late", ["new", "between two requests"])
def test_connections_that_wait_to_be_read_are_not_idle_however_long_it_takes(new_loop: NewLoop, late: str) -> None:
    number = 1000 if FULL else 100
    settings = ServerConfig(connections=ConnectionsConfig(max_idle_per_address=number // 2))

    async def main() -> Counter[str]:
        now = [0.0]
        state = CommonState(app, settings, most=2 * number)
        state.watch.clock = lambda: now[0]
        pairs = [socket.socketpair() for _ in range(number)]
        make = asyncio.get_running_loop().connect_accepted_socket
        for near, far in pairs:
            await make(lambda: HttpProtocol(state), near)
            if late != "new":
                far.sendall(REQUEST)
                assert (await asyncio.to_thread(far.recv, 65536)).endswith(b"ok")
        for _, far in pairs:
            far.sendall(REQUEST)
        for _ in range(3):  # nobody reads meanwhile
            now[0] += 1000.0
            state.watch.sweep()
        return await asyncio.to_thread(answers, [far for _, far in pairs])

    with asyncio.Runner(loop_factory=new_loop) as runner:
        assert runner.run(main()) == {"200": number}


@LOOPS
@pytest.mark.parametrize("sends_at_once", [True, False], ids=["requests at once", "requests later"])
def test_connections_beyond_the_limit_wait_or_are_told_and_none_is_reset(
    new_loop: NewLoop, sends_at_once: bool
) -> None:
    number = 400 if FULL else 80
    settings = ServerConfig(connections=ConnectionsConfig(max_open=number // 4))

    async def visit(address: tuple[str, int]) -> Counter[str]:
        socks = []
        for _ in range(number):
            socks.append(socket.create_connection(address))
            if sends_at_once:
                socks[-1].sendall(REQUEST)
        if not sends_at_once:
            await asyncio.sleep(0)
            for sock in socks:
                sock.sendall(REQUEST)
        return await asyncio.to_thread(answers, socks)

    found = served(new_loop, settings, visit)
    assert found.keys() <= {"200", "503"}, found
    assert found.total() == number
    assert found["200"] >= number // 4


@pytest.mark.parametrize(("handles", "number"), [(128, 200), (256, 400), (0, 1000)])
def test_connections_that_come_while_the_server_stands_still_are_answered(
    tmp_path: Path, handles: int, number: int
) -> None:
    """It stands still as on a machine that has no time for it. With few file handles most connections have to wait."""
    limit = f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({handles}, {handles})); " if handles else ""
    start = f"{limit}from antwort.cli.main import main; main()"
    command = [sys.executable, "-c", start, "serve", "--port", "0", "--data-dir", str(tmp_path)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=tmp_path
    ) as process:
        try:
            assert process.stdout is not None
            url = next(word for line in process.stdout for word in line.split() if word.startswith("http://127.0.0.1:"))
            address = (urlsplit(url).hostname or "", urlsplit(url).port or 0)
            process.send_signal(signal.SIGSTOP)
            socks = []
            for _ in range(number):
                socks.append(socket.create_connection(address, timeout=PATIENCE))
                socks[-1].sendall(REQUEST)
            process.send_signal(signal.SIGCONT)
            found = answers(socks)
        finally:
            process.send_signal(signal.SIGCONT)
            process.terminate()
            rest = process.communicate(timeout=PATIENCE)[0]
    assert found.keys() <= {"200", "503"}, (found, rest)
    assert found.total() == number
    assert found["200"] == number if not handles else found["200"] > 16
    assert process.returncode == 0, rest
