"""A real browser, which people would use, in front of the shipped server."""

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, expect, sync_playwright
from tests.console.desk import PATIENCE, Desk

FLAGS = (
    "--headless",
    "--no-sandbox",  # tests are run as root
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
EXPECTED = "Failed to load resource"
"""What browsers say of answers that are errors: tests look at what the page makes of them."""


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the machine's settings reaches a server."""
    for name in list(os.environ):
        if name.upper().startswith(("ANTWORT_", "OPENAI_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("ANTWORT_NO_PROBE", "1")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    expect.set_options(timeout=PATIENCE)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def desk(browser: Browser) -> Iterator[Callable[..., Desk]]:
    """Open the console of a server in a tab of its own; nobody complains there until the test ends."""
    complaints: list[str] = []
    asked: list[str] = []

    def open_desk(url: str, place: str = "", *, key: str = "", **options: Any) -> Desk:
        context = browser.new_context(**{"viewport": {"width": 1200, "height": 800}, **options})
        context.set_default_timeout(PATIENCE)
        page = context.new_page()
        _listen(page, complaints)
        page.on("request", lambda request: asked.append(request.url))
        if key:
            page.add_init_script(f"sessionStorage.setItem('antwort.key', '{key}')")
        page.goto(f"{url}/{place}")
        return Desk(page, url, asked)

    yield open_desk
    for context in browser.contexts:
        context.close()
    assert complaints == []


def _listen(page: Page, complaints: list[str]) -> None:
    """Take down what goes wrong on a page: scripts that fail, and what its policy has stopped."""

    def take(message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"} and not message.text.startswith(EXPECTED):
            complaints.append(message.text)

    page.on("console", take)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("dialog", lambda dialog: complaints.append(dialog.message))
