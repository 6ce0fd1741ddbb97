"""What the console is like to use: for everybody, quickly, and with much of everything."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import httpx
from playwright.sync_api import expect
from tests.console.desk import Desk, console
from tests.console.test_chat import over, say, split
from tests.console.test_runs import begin

from antwort.testing import RunningApp, Turn, call, turn

Open = Callable[..., Desk]
AXE = Path(__file__).parent / "node" / "node_modules" / "axe-core" / "axe.min.js"
LOOK = """async options => {
  const { violations } = await axe.run(document, { resultTypes: ["violations"], ...options });
  return violations.filter(({ impact }) => impact === "serious" || impact === "critical")
    .map(({ id, nodes }) => [id, ...nodes.map(({ html }) => html)]);
}"""
COLOURS = ("color-contrast", "link-in-text-block")
SCHEMES: dict[Literal["light", "dark"], Any] = {"light": {}, "dark": {"runOnly": {"type": "rule", "values": COLOURS}}}
"""What is looked at in each: all but the colours is the same."""
EVENTS = 600


def accuse(tab: Desk, view: str) -> list[Any]:
    """Return the serious problems of accessibility that axe finds, in the light and in the dark."""
    if not tab.page.evaluate("'axe' in window"):
        tab.page.evaluate(AXE.read_text(encoding="utf-8"))
    found: list[Any] = []
    for scheme, options in SCHEMES.items():
        tab.page.emulate_media(color_scheme=scheme)
        found += [[scheme, view, *one] for one in tab.page.evaluate(LOOK, options)]
    return found


def test_axe_finds_no_serious_problem_on_any_view(tmp_path: Path, desk: Open) -> None:
    ask = call("ask_user", question="Which colour?")
    text = "## A title\n\n> A quote\n\n- one\n- [two](https://example.org)\n\n```\ncode\n```\n\n| a |\n|---|\n| `c` |"
    steps: list[Turn | str] = [turn(calls=[call("split", a=1)], reasoning="Hm."), text, turn(calls=[ask])]
    with console(tmp_path, *steps, offered=[split]) as (server, _):
        httpx.post(
            f"{server.url}/v1/files", data={"purpose": "user_data"}, files={"file": ("tea.txt", b"Tea")}, timeout=60
        ).raise_for_status()
        tab = desk(server.url, color_scheme="light")
        tab.press("Options")
        tab.sees("calculate")
        found = accuse(tab, "options")
        tab.press("Options")
        say(tab, "Hi")
        over(tab)
        tab.page.locator("details.call summary").click()
        found += accuse(tab, "chat")
        tab.press("Code")
        found += accuse(tab, "code")
        tab.press("Close")
        name = begin(server, tools=[{"type": "function", "name": "ask_user"}])
        for view, seen in VIEWS.items():
            tab.go(f"#/{view.replace('ID', name)}")
            tab.sees(seen)
            for line in tab.page.locator(".more > summary, .pair > summary").all():
                line.click()
            found += accuse(tab, view)
    assert found == []


VIEWS = {
    "runs": "waiting",
    "runs/ID": "Which colour?",
    "runs/compare/ID/ID": "What was done",
    "runs/traces": "None has come.",
    "inbox": "Which colour?",
    "functions": "sub_agents",
    "functions/calculate": "Try it",
    "files": "tea.txt",
    "server": "Make a key",
}
"""The views, each with something to be seen there."""


def test_a_quick_stream_is_shown_in_full_without_holding_the_page_up(tmp_path: Path, desk: Open) -> None:
    pieces = [f"word{number} " + ("\n\n" if number % 40 == 39 else "") for number in range(EVENTS)]
    with console(tmp_path, turn(pieces)) as (server, _):
        tab = desk(server.url)
        say(tab, "Go!")
        over(tab)
        shown = tab.page.locator(".message").inner_text()
        assert shown.split() == "".join(pieces).split()
        tab.page.reload()
        expect(tab.page.locator(".message")).to_be_visible()


def test_a_page_that_was_open_before_is_not_fetched_again(tmp_path: Path, desk: Open) -> None:
    with console(tmp_path) as (server, _):
        tab = desk(server.url)
        tab.sees("What would you like to know?")
        tab.page.reload()
        tab.sees("What would you like to know?")
        loaded = tab.page.evaluate(
            "performance.getEntriesByType('resource').filter(({ name }) => name.includes('/console/'))"
            ".map(({ name, transferSize }) => [name, transferSize])"
        )
        assert len(loaded) > 10
        assert [name for name, transferred in loaded if transferred > 1_000] == []


def fill_with_runs(server: RunningApp, number: int) -> None:
    """Make many runs at once."""
    with httpx.Client(base_url=server.url, timeout=60) as client:
        for _ in range(number):
            client.post("/v1/responses", json={"input": "Hi", "background": True}).raise_for_status()


def test_a_long_list_of_runs_is_read_page_by_page(tmp_path: Path, desk: Open) -> None:
    with console(tmp_path, *["Done."] * 120) as (server, _):
        fill_with_runs(server, 120)
        tab = desk(server.url, "#/runs")
        expect(tab.page.locator("tbody tr")).to_have_count(50)
        tab.press("Show more")
        expect(tab.page.locator("tbody tr")).to_have_count(120)
        expect(tab.button("Show more")).to_have_count(0)
