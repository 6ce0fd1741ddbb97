"""The shipped app on a socket, with every tool type that it has and a model that answers whatever it is asked."""

import contextlib
import http.client
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from antwort import Antwort
from antwort.config import Config
from antwort.provider import Hosted, function
from antwort.testing import ScriptedBackend, running

__all__ = ["Answer", "Stage", "staged"]

STEPS = 5_000
NOWHERE = "http://127.0.0.1:9"
PROVIDERS: dict[str, Any] = {
    "web_search": {"enabled": True, "settings": {"url": NOWHERE}},
    "file_search": {"enabled": True},
    "files": {"enabled": True},
    "code_interpreter": {"enabled": True},
    "programs": {"enabled": True},
    "workspace": {"enabled": True},
}
"""Those with hosted tools; the model calls none of them."""


@function(hosted=Hosted(types=("mcp", "image_generation", "tool_search")), offer="on_request")
async def others() -> str:
    """Stand for the types of OpenAI's tools that nobody here has: what requests say of them is checked as well."""
    raise AssertionError


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back."""

    status: int
    body: Any

    @property
    def error(self) -> tuple[str | None, str | None, str | None]:
        """The type, the parameter and the code of an error."""
        error = self.body.get("error") or {}
        return error.get("type"), error.get("param"), error.get("code")


class Stage:
    """One connection to the server, used for everything."""

    def __init__(self, url: str) -> None:
        self._connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)

    def ask(self, method: str, path: str, body: Any = None) -> Answer:
        """Send a request; a body that is no bytes is sent as JSON."""
        return self._ask(method, path, body, "application/json")

    def _ask(self, method: str, path: str, body: Any, kind: str) -> Answer:
        headers = {} if body is None else {"content-type": kind}
        sent = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        self._connection.request(method, f"/v1{path}", sent, headers)
        response = self._connection.getresponse()
        read = response.read()
        is_json = (response.headers["content-type"] or "").startswith("application/json")
        return Answer(response.status, json.loads(read) if is_json else {})

    def make(self, path: str, body: Any) -> Any:
        """Create something that there must be."""
        answer = self.ask("POST", path, body)
        assert answer.status == 200, answer
        return answer.body

    def upload(self, name: str, content: bytes) -> str:
        """Upload a file, and return its id."""
        parts = {'name="purpose"': b"assistants", f'name="file"; filename="{name}"': content}
        form = b"".join(
            b"--cut\r\nContent-Disposition: form-data; %s\r\n\r\n%s\r\n" % (head.encode(), part)
            for head, part in parts.items()
        )
        answer = self._ask("POST", "/files", form + b"--cut--\r\n", "multipart/form-data; boundary=cut")
        assert answer.status == 200, answer
        return str(answer.body["id"])

    def close(self) -> None:
        self._connection.close()


@contextlib.contextmanager
def staged(folder: Path) -> Iterator[Stage]:
    """Serve the app."""
    config = Config.model_validate({"data_dir": folder, "providers": PROVIDERS})
    app = Antwort(config, backend=ScriptedBackend(["Hello"] * STEPS, models=["scripted"]), functions=[others])
    with running(app) as server:
        stage = Stage(server.url)
        yield stage
        stage.close()
