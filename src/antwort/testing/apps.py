"""The shipped app on a real socket, with a plain client for its routes and a way to call its functions."""

import asyncio
import contextlib
import http.client
import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import urlsplit

from antwort.app import Antwort
from antwort.config import Config, LoadedConfig
from antwort.context import ANONYMOUS_TENANT, Context
from antwort.functions import FunctionProvider, FunctionSpec, ToolResult
from antwort.server.http.serve import Server, bind, url_of

_START_PATIENCE = 30.0
_CALL_PATIENCE = 120.0


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
                server = Server(
                    app.connect,
                    app.config.server.model_copy(update={"shutdown_timeout": 1}),
                    on_ready=lambda: ready.set_result(url_of(sock)),
                    on_stop=app.stopping,
                )
                serving = asyncio.ensure_future(server.serve([sock]))
                await leave.wait()
                server.stop()
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
        url = ready.result(_START_PATIENCE)
        yield RunningApp(app, url, stop.result()[0])
    finally:
        with contextlib.suppress(RuntimeError):  # the loop is gone if the start failed
            loop, leave = stop.result(_START_PATIENCE)
            loop.call_soon_threadsafe(leave.set)
        thread.join(_START_PATIENCE)


@dataclass(frozen=True, slots=True)
class Answer:
    """What the server sent back."""

    status: int
    headers: Mapping[str, str]
    """By lower-case name."""
    text: str

    def json(self) -> Any:
        """Return the body, read as JSON."""
        return json.loads(self.text)


@dataclass(frozen=True, slots=True)
class ServedApp:
    """An app that answers at `url` until its `with` block, or its test, ends."""

    app: Antwort
    url: str
    _loop: asyncio.AbstractEventLoop = field(repr=False)

    def call(
        self, function: str, arguments: str | bytes | Mapping[str, Any] = "", ctx: Context | None = None
    ) -> ToolResult:
        """Execute a function as a model would have it executed, on the app's own loop."""
        context = ctx if ctx is not None else Context(ANONYMOUS_TENANT)
        execution = self.app.registry.execute(function, arguments, context)
        return asyncio.run_coroutine_threadsafe(execution, self._loop).result(_CALL_PATIENCE)

    def request(self, method: str, path: str, *, key: str | None = None, body: Any = None) -> Answer:
        """Send a request, with an API key and a JSON body if given."""
        headers = {} if key is None else {"authorization": f"Bearer {key}"}
        content = None
        if body is not None:
            content = json.dumps(body)
            headers["content-type"] = "application/json"
        with contextlib.closing(
            http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=_CALL_PATIENCE)
        ) as connection:
            connection.request(method, path, content, headers)
            response = connection.getresponse()
            text = response.read().decode(errors="replace")
        return Answer(response.status, {name.lower(): value for name, value in response.getheaders()}, text)

    def get(self, path: str, *, key: str | None = None) -> Answer:
        """Send a GET request."""
        return self.request("GET", path, key=key)


@contextlib.contextmanager
def served(
    config: Config | LoadedConfig | Mapping[str, Any] | None = None,
    *,
    functions: Iterable[Callable[..., Any] | FunctionSpec | Mapping[str, Any]] = (),
    providers: Iterable[FunctionProvider] = (),
) -> Iterator[ServedApp]:
    """Start an app on a free port of the loopback interface and stop it at the end of the block.

    A mapping is read like a configuration file. What goes wrong while starting is raised here.
    """
    settings = Config.model_validate(config) if isinstance(config, Mapping) else config
    app = Antwort(settings, functions=functions, providers=providers)
    with running(app) as server:
        yield ServedApp(app, server.url, server.loop)


class AppFactory(Protocol):
    """What the fixture `antwort_app` gives: a function that starts an app."""

    def __call__(
        self,
        config: Config | LoadedConfig | Mapping[str, Any] | None = None,
        *,
        functions: Iterable[Callable[..., Any] | FunctionSpec | Mapping[str, Any]] = (),
        providers: Iterable[FunctionProvider] = (),
    ) -> ServedApp:
        """Start an app on a free port, as `served` does; it runs until the test ends."""
