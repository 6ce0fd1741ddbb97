"""The shipped app on a real socket, for tests."""

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass

from antwort.app import Antwort
from antwort.server.serve import bind, running_server, url_of

__all__ = ["RunningApp", "running"]

_PATIENCE = 30.0


@dataclass(frozen=True, slots=True)
class RunningApp:
    """An app that answers at `url` until its `with` block ends."""

    app: Antwort
    url: str
    loop: asyncio.AbstractEventLoop
    """The loop it runs on, in a thread of its own."""


@contextlib.contextmanager
def running(app: Antwort) -> Iterator[RunningApp]:
    """Start an app on a free port of the loopback interface, in a thread of its own, and stop it at the end.

    What goes wrong while starting is raised here.
    """
    ready: Future[str] = Future()
    stop: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def main() -> None:
        leave = asyncio.Event()
        stop.set_result((asyncio.get_running_loop(), leave))
        with bind("127.0.0.1", 0) as sock:
            async with app:
                server = running_server(
                    app.asgi(),
                    app.config.server.model_copy(update={"shutdown_timeout": 1}),
                    on_ready=lambda: ready.set_result(url_of(sock)),
                    on_stop=app.stopping,
                    signals=False,
                )
                serving = asyncio.ensure_future(server.serve(sockets=[sock]))
                await leave.wait()
                server.should_exit = True
                await serving

    def run() -> None:
        try:
            asyncio.run(main())
        except BaseException as error:
            if ready.done():
                raise
            ready.set_exception(error)

    thread = threading.Thread(target=run, name="antwort-testing", daemon=True)
    thread.start()
    try:
        url = ready.result(_PATIENCE)
        yield RunningApp(app, url, stop.result()[0])
    finally:
        with contextlib.suppress(RuntimeError):  # the loop is gone if the start failed
            loop, leave = stop.result(_PATIENCE)
            loop.call_soon_threadsafe(leave.set)
        thread.join(_PATIENCE)
