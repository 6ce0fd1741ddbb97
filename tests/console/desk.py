"""Somebody in front of the console: a tab of a browser, and how one finds things there."""

import contextlib
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from playwright.sync_api import Locator, Page, expect

from antwort import Antwort
from antwort.config import Config
from antwort.testing import RunningApp, ScriptedBackend, ScriptServer, Turn, running

__all__ = ["KEY", "KEYS", "PATIENCE", "Desk", "console", "free_port", "process"]

PATIENCE = 60_000.0
"""Milliseconds; a machine may be busy."""
KEY = "sk-a-key-of-the-tests"
KEYS: dict[str, Any] = {"api_keys": [{"id": "tests", "key": KEY, "tenant": "acme"}]}


@dataclass
class Desk:
    """A tab with the console."""

    page: Page
    url: str
    asked: list[str]
    """The address of each request that any tab of the test has made."""

    def go(self, place: str) -> None:
        """Go to a place of the console, as a link does."""
        self.page.evaluate("place => { location.hash = place }", place)

    def sees(self, text: str, *, within: str = "main") -> None:
        """Wait until a text is to be seen."""
        expect(self.page.locator(within).get_by_text(text).first).to_be_visible()

    def button(self, name: str, *, within: str = "body") -> Locator:
        """Return a button by its label."""
        return self.page.locator(within).get_by_role("button", name=name, exact=True)

    def press(self, name: str, *, within: str = "body") -> None:
        """Press the first button with a label."""
        self.button(name, within=within).first.click()


@contextlib.contextmanager
def console(
    tmp_path: Path, *steps: Turn | str, offered: Sequence[Any] = (), **sections: Any
) -> Iterator[tuple[RunningApp, ScriptedBackend]]:
    """Serve the app with a model that plays a script, and functions of `offered`; the rest is the configuration."""
    config = Config.model_validate({"data_dir": tmp_path / "data", **sections})
    with ScriptedBackend(list(steps)) as model:
        app = Antwort(config, backend=model, functions=offered)
        with running(app) as server:
            yield server, model


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@contextlib.contextmanager
def process(port: int, data: Path, model: ScriptServer, *options: str, kill: bool = False) -> Iterator[str]:
    """Run the shipped command until the block ends; with `kill` it has no time to stop."""
    words = ["serve", "--port", str(port), "--data-dir", str(data), "--backend", model.url, "--model", "scripted"]
    with subprocess.Popen(
        [sys.executable, "-m", "antwort", *words, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as server:
        assert server.stdout is not None
        try:
            for line in server.stdout:
                if line.startswith("Listening"):
                    break
            yield f"http://127.0.0.1:{port}"
        finally:
            server.send_signal(signal.SIGKILL if kill else signal.SIGTERM)
            server.stdout.close()
