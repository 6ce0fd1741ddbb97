"""An app under test: on a real socket, with a plain client for its routes and a way to call its functions."""

import asyncio
import contextlib
import http.client
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import urlsplit

from antwort.app import Antwort
from antwort.config import Config, LoadedConfig
from antwort.context import ANONYMOUS_TENANT, Context
from antwort.functions import FunctionProvider, FunctionSpec, ToolResult
from antwort.testing.server import running

__all__ = ["Answer", "AppFactory", "ServedApp", "served"]

_PATIENCE = 120.0


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
        return asyncio.run_coroutine_threadsafe(execution, self._loop).result(_PATIENCE)

    def request(self, method: str, path: str, *, key: str | None = None, body: Any = None) -> Answer:
        """Send a request, with an API key and a JSON body if given."""
        headers = {} if key is None else {"authorization": f"Bearer {key}"}
        content = None
        if body is not None:
            content = json.dumps(body)
            headers["content-type"] = "application/json"
        with contextlib.closing(http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=_PATIENCE)) as connection:
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
