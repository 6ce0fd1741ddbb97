"""How a server stops: what it waits for, and for how long."""

import asyncio
import logging
import socket

import pytest
import uvloop
from starlette.types import Receive, Scope, Send

from antwort.config import ServerConfig
from antwort.server.http.serve import Server, bind

REQUEST = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n"
LARGE = 64 * 1024**2
OK = {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"4")]}


class SlowApp:
    """Answers when it is told to."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.answer = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Wait, then answer."""
        self.asked.set()
        await self.answer.wait()
        await send(OK)
        await send({"type": "http.response.body", "body": b"done"})


async def _stopped(
    settings: ServerConfig, *, answered: bool = False, hurried: bool = False, told_again: bool = False
) -> bytes:
    """Have a request under way when a server is told to stop; return what its client gets."""
    app = SlowApp()
    told: list[str] = []
    server = Server(app, settings, on_ready=lambda: told.append("ready"), on_stop=lambda: told.append("stop"))
    with bind("127.0.0.1", 0) as sock:
        port = sock.getsockname()[1]
        serving = asyncio.ensure_future(server.serve([sock]))
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(REQUEST)
        await app.asked.wait()
        assert (told, server.stopping) == (["ready"], False)
        server.stop(hurry=True)
        if hurried:
            server.stop(hurry=True)
        if told_again:
            server.stop()
        await asyncio.sleep(0)
        assert server.stopping
        if answered:
            app.answer.set()
        read = await asyncio.wait_for(reader.read(), 30)
        await asyncio.wait_for(serving, 60)
        writer.close()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)
    assert told == ["ready", "stop"]
    return read


def test_a_request_that_is_running_is_answered_before_the_server_ends(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    read = asyncio.run(_stopped(ServerConfig(), answered=True))
    assert read.startswith(b"HTTP/1.1 200 OK\r\ndate: ")
    assert read.endswith(b"done")
    assert "requests that are still running: 1" in caplog.text


def test_a_request_that_takes_too_long_is_cut_off(caplog: pytest.LogCaptureFixture) -> None:
    assert asyncio.run(_stopped(ServerConfig(shutdown_timeout=1.0))) == b""
    assert "requests that are cut off: 1" in caplog.text


def test_who_is_in_a_hurry_and_says_it_twice_waits_for_no_request() -> None:
    async def stopped() -> bytes:
        async with asyncio.timeout(60):
            return await _stopped(ServerConfig(shutdown_timeout=3600.0), hurried=True)

    assert asyncio.run(stopped()) == b""


def test_a_third_signal_does_not_take_the_hurry_back() -> None:
    async def stopped() -> bytes:
        async with asyncio.timeout(60):
            return await _stopped(ServerConfig(shutdown_timeout=3600.0), hurried=True, told_again=True)

    assert asyncio.run(stopped()) == b""


class _LargeApp:
    """Answers with more than the buffers between it and a client take."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer at once."""
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % LARGE)]})
        await send({"type": "http.response.body", "body": bytes(LARGE)})


def test_a_client_that_does_not_read_cannot_keep_a_server_from_ending(monkeypatch: pytest.MonkeyPatch) -> None:
    async def wait_for_connections(self: asyncio.Server) -> None:
        """Do as it does since Python 3.12."""
        await asyncio.Event().wait()

    async def stopped() -> None:
        server = Server(_LargeApp(), ServerConfig(shutdown_timeout=1.0))
        with bind("127.0.0.1", 0) as sock:
            serving = asyncio.ensure_future(server.serve([sock]))
            _, writer = await asyncio.open_connection(*sock.getsockname(), limit=1024)
            writer.write(REQUEST)
            await asyncio.sleep(0.1)
            server.stop()
            await asyncio.wait_for(serving, 60)
            writer.transport.abort()

    monkeypatch.setattr(asyncio.Server, "wait_closed", wait_for_connections)
    asyncio.run(stopped())


@pytest.mark.parametrize("steps", range(4))
def test_a_connection_that_is_made_when_the_server_stops_already_does_not_keep_it_waiting(steps: int) -> None:
    async def stopped() -> bytes:
        app = SlowApp()
        server = Server(app, ServerConfig(shutdown_timeout=3600.0))
        with bind("127.0.0.1", 0) as sock:
            serving = asyncio.ensure_future(server.serve([sock]))
            reader, writer = await asyncio.open_connection(*sock.getsockname())
            writer.write(REQUEST)
            await app.asked.wait()
            with socket.create_connection(sock.getsockname()):
                for _ in range(steps):  # it is accepted in one of them, and becomes a connection in a later one
                    await asyncio.sleep(0)
                server.stop()
                await asyncio.sleep(0.1)
                app.answer.set()
                await asyncio.wait_for(serving, 60)
            read = await reader.read()
            writer.close()
            return read

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:  # asyncio's drops it
        assert runner.run(stopped()).endswith(b"done")
