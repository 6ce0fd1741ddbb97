"""A real browser, which people would use, in front of the shipped server."""

import contextlib
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


@pytest.fixture(scope="module")
def usual_tab(browser: Browser) -> Iterator[Page]:
    """The tab of the first console of each test: to make one takes as long as most of them.

    Each server has a port of its own, so a browser keeps nothing for one that it has from another.
    """
    with _new_tab(browser) as page:
        yield page


@pytest.fixture
def desk(browser: Browser, usual_tab: Page) -> Iterator[Callable[..., Desk]]:
    """Open the console of a server in a tab of its own; nobody complains there until the test ends."""
    complaints: list[str] = []
    asked: list[str] = []
    with contextlib.ExitStack() as closing:
        free = [usual_tab]

        def open_desk(url: str, place: str = "", *, key: str = "", **options: Any) -> Desk:
            if free and not options:
                page = free.pop()
                closing.callback(page.wait_for_url, "about:blank")
                closing.callback(page.evaluate, "sessionStorage.clear(); location.replace('about:blank')")
            else:
                page = closing.enter_context(_new_tab(browser, **options))
            closing.enter_context(_listening(page, complaints, asked))
            if key:
                closing.enter_context(page.add_init_script(f"sessionStorage.setItem('antwort.key', '{key}')"))
            page.goto(f"{url}/{place}")
            return Desk(page, url, asked)

        yield open_desk
    assert complaints == []


@contextlib.contextmanager
def _new_tab(browser: Browser, **options: Any) -> Iterator[Page]:
    context = browser.new_context(**{"viewport": {"width": 1200, "height": 800}, "reduced_motion": "reduce", **options})
    context.set_default_timeout(PATIENCE)
    yield context.new_page()
    context.close()


@contextlib.contextmanager
def _listening(page: Page, complaints: list[str], asked: list[str]) -> Iterator[None]:
    """Take down what is asked for and what goes wrong on a page: scripts that fail, what its policy has stopped."""

    def take(message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"} and not message.text.startswith(EXPECTED):
            complaints.append(message.text)

    listeners: dict[Any, Callable[..., None]] = {
        "request": lambda request: asked.append(request.url),
        "console": take,
        "pageerror": lambda error: complaints.append(str(error)),
        "dialog": lambda dialog: complaints.append(dialog.message),
    }
    for event, listener in listeners.items():
        page.on(event, listener)
    yield
    for event, listener in listeners.items():
        page.remove_listener(event, listener)
