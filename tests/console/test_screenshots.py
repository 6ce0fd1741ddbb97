"""The pictures in `docs/console.md`: with ANTWORT_SCREENSHOTS they are made anew, else they are there and are small."""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import expect
from tests.console.desk import Desk, console
from tests.console.test_chat import find_page, over, say

from antwort.testing import Turn, call, turn

Open = Callable[..., Desk]
ROOT = Path(__file__).parents[2]
PICTURES = ROOT / "docs" / "images"
MOST = 120_000
MAKE = bool(os.environ.get("ANTWORT_SCREENSHOTS"))
BASICS = {"basics": {"enabled": True, "offer": "always"}}
LOOKS: dict[str, dict[str, Any]] = {
    "light": {"color_scheme": "light"},
    "dark": {"color_scheme": "dark"},
    "phone": {"color_scheme": "light", "viewport": {"width": 390, "height": 800}, "device_scale_factor": 1.5},
}
TEA = """Tea is a **drink** made of the leaves of *Camellia sinensis* [1]. What is done with the leaves makes the kind:

| Kind | Oxidised | Water | Minutes |
|---|---|---|---|
| Green | no | 80 °C | 2 |
| Oolong | partly | 90 °C | 3 |
| Black | fully | 95 °C | 4 |

A cup takes 2 g of leaves, so 240 cups take `480 g`."""


def keep(tab: Desk, name: str) -> None:
    """Make a picture of what is seen."""
    tab.page.evaluate("document.activeElement?.blur()")
    picture = tab.page.screenshot(animations="disabled")
    assert len(picture) < MOST
    if MAKE:
        (PICTURES / f"console-{name}.png").write_bytes(picture)


@pytest.mark.parametrize("look", LOOKS)
def test_a_chat(tmp_path: Path, desk: Open, look: str) -> None:
    calls = [call("find_page", topic="tea"), call("calculate", expression="240 * 2")]
    steps = [
        turn(calls=calls, reasoning="The user asks for kinds of tea, and for an amount."),
        turn([TEA], usage=(412, 96)),
    ]
    with console(tmp_path, *steps, offered=[find_page], providers=BASICS) as (server, _):
        tab = desk(server.url, **LOOKS[look])
        say(tab, "Which kinds of tea are there, and how much is needed for 240 cups?")
        over(tab)
        keep(tab, f"chat-{look}")


def test_a_run(tmp_path: Path, desk: Open) -> None:
    configs = [{"prompt": f"Read chapter {number}."} for number in range(1, 4)]
    names = ["spawn_many", "ask_user"]
    steps: list[Turn | str] = [
        turn(calls=[call("spawn_many", configs=configs)], usage=(612, 58)),
        *[turn("Read.", usage=(380, 41))] * 3,
        turn(calls=[call("ask_user", question="Shall the summary be short or long?", choices=["short", "long"])]),
    ]
    with console(tmp_path, *steps) as (server, _):
        body = {
            "input": "Sum it up.",
            "background": True,
            "tools": [{"type": "function", "name": name} for name in names],
        }
        name = httpx.post(f"{server.url}/v1/responses", json=body, timeout=60).json()["id"]
        tab = desk(server.url, f"#/runs/{name}")
        tab.sees("Shall the summary be short or long?")
        expect(tab.page.locator("nav .count:visible")).to_have_text("1")
        keep(tab, "run")


def test_two_runs(tmp_path: Path, desk: Open) -> None:
    steps: list[Turn | str] = [
        *(turn(calls=[call("find_page", topic="tea")], usage=(212, 18)), turn("Tea is a drink.", usage=(380, 41))),
        *(
            turn(calls=[call("find_page", topic="coffee")], usage=(212, 18)),
            turn(calls=[call("calculate", expression="1/0")]),
        ),
        turn("Coffee is a drink, too.", usage=(380, 44)),
    ]
    with console(tmp_path, *steps, offered=[find_page], providers=BASICS) as (server, _):
        names = []
        for drink in ("tea", "coffee"):
            body = {"input": f"What is {drink}?"}
            names.append(httpx.post(f"{server.url}/v1/responses", json=body, timeout=60).json()["id"])
        tab = desk(server.url, f"#/runs/compare/{'/'.join(names)}", viewport={"width": 1200, "height": 900})
        tab.sees("What was done")
        tab.page.locator(".pair").nth(2).locator("summary").click()
        keep(tab, "compare")


@pytest.mark.parametrize("view", ["functions", "server"])
def test_a_view(tmp_path: Path, desk: Open, view: str) -> None:
    with console(tmp_path, offered=[find_page], providers=BASICS) as (server, _):
        tab = desk(server.url, "#/server" if view == "server" else "#/functions/calculate")
        if view == "server":
            for _again in range(4):  # as many looks as make a line
                with tab.page.expect_response("**/metrics"):
                    pass
            tab.sees("scripted")
        else:
            tab.page.get_by_label("expression").fill("(3 + 4) * sqrt(2)")
            tab.press("Call it")
            expect(tab.page.get_by_label("Result")).to_be_visible()
        keep(tab, view)


def test_every_picture_of_the_page_is_there_and_is_small() -> None:
    named = re.findall(r"\(images/(console-[\w-]+\.png)\)", (ROOT / "docs" / "console.md").read_text(encoding="utf-8"))
    assert sorted(named) == sorted(path.name for path in PICTURES.glob("console-*.png"))
    assert named
    assert [name for name in named if (PICTURES / name).stat().st_size > MOST] == []
