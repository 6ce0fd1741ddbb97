"""What the console costs a browser: the time of the first paint, and frames that are late while an answer comes.

python -m benchmarks.console            prints it
python -m benchmarks.console --write    also writes it into docs/console.md
"""

import argparse
import itertools
import os
import re
import statistics
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from playwright.sync_api import Browser, CDPSession, sync_playwright

from antwort.testing import ScriptServer, turn
from benchmarks.gateway import ANTWORT
from benchmarks.processes import running

PAGE = Path(__file__).parents[1] / "docs" / "console.md"
PLACE = re.compile(r"(?<=<!-- measured: benchmarks\.console -->\n).*?(?=<!-- measured until here -->)", re.DOTALL)
CHROMIUM = "/usr/bin/chromium"
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking")
OPENINGS = 9
RATE = 60
SECONDS = 10
TRIES = 3
FRAME = 1000 / 60
LATE = 1.5
"""Frames after which one is late: then at least one was dropped."""
WATCH = """() => {
  window.frames_ = [];
  window.growths = [];
  const draw = (at) => { window.frames_.push(at); requestAnimationFrame(draw); };
  requestAnimationFrame(draw);
  const grown = () => window.growths.push(performance.now());
  const all = { childList: true, subtree: true, characterData: true };
  new MutationObserver(grown).observe(document.querySelector(".turns"), all);
}"""
"""Take down when each frame was drawn, and when the answer grew."""


@dataclass(frozen=True, slots=True)
class Frames:
    """How many frames a page has drawn in a time, and how many it has not."""

    drawn: int
    dropped: int
    longest: float
    """Milliseconds between two frames at most."""

    @classmethod
    def of(cls, moments: Sequence[float], begin: float, end: float) -> "Frames":
        during = [at for at in moments if begin <= at <= end]
        gaps = [after - before for before, after in itertools.pairwise(during)]
        return cls(len(during), sum(round(gap / FRAME) - 1 for gap in gaps if gap > LATE * FRAME), max(gaps))


@dataclass(frozen=True, slots=True)
class Streaming:
    """How an answer was shown."""

    events: float
    """Events a second."""
    frames: Frames
    idle: Frames
    """Those of the same page in the seconds before, in which nothing came: what others on the machine take."""
    work: float
    """Milliseconds of the main thread for a frame."""


def first_paints(browser: Browser, url: str) -> list[float]:
    """Open the page as somebody who has never been there, several times; return the milliseconds of each."""
    found = []
    for _ in range(OPENINGS):
        context = browser.new_context(viewport={"width": 1200, "height": 800})
        page = context.new_page()
        page.goto(url, wait_until="networkidle")
        found.append(float(page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")))
        context.close()
    return found


def streamed(browser: Browser, url: str) -> Streaming:
    """Ask for an answer that comes in many pieces, and watch the frames from its first piece to its last."""
    context = browser.new_context(viewport={"width": 1200, "height": 800})
    page = context.new_page()
    page.goto(url)
    page.get_by_label("Message").fill("Go!")
    page.evaluate(WATCH)
    page.wait_for_timeout(1000 * SECONDS)
    inside = context.new_cdp_session(page)
    inside.send("Performance.enable")
    before, started = _busy(inside), float(page.evaluate("performance.now()"))
    page.get_by_label("Message").press("Enter")
    page.get_by_role("button", name="Retry").wait_for(timeout=60_000)
    busy = _busy(inside) - before
    moments: list[float] = page.evaluate("frames_")
    growths: list[float] = page.evaluate("growths")
    context.close()
    few = len(growths) // 20  # what comes before and after it is left out
    frames = Frames.of(moments, growths[few], growths[-few])
    whole = (growths[-1] - growths[0]) / 1000
    drawn = len([at for at in moments if started <= at])
    return Streaming(RATE * SECONDS / whole, frames, Frames.of(moments, moments[0], started), 1000 * busy / drawn)


def _busy(inside: CDPSession) -> float:
    """Return the seconds that the main thread of a page has worked."""
    found = {one["name"]: float(one["value"]) for one in inside.send("Performance.getMetrics")["metrics"]}
    return found["TaskDuration"]


def measured() -> str:
    """Measure, and return what was found as a paragraph."""
    pieces = [f"word{number} " + ("\n\n" if number % 40 == 39 else "") for number in range(RATE * SECONDS)]
    answer = turn(pieces, pace=0.9 / RATE)  # what is left is what a piece takes
    with (
        TemporaryDirectory(prefix="antwort-console-") as folder,
        ScriptServer([answer] * TRIES, models=["scripted"]) as model,
        running(
            (*ANTWORT, "serve", "--port", "0", "--data-dir", folder, "--backend", model.url, "--model", "scripted"),
            core=None,
        ) as server,
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        url = f"http://127.0.0.1:{server.port}/"
        paints = first_paints(browser, url)
        tries = [streamed(browser, url) for _ in range(TRIES)]
        version = browser.version.partition(".")[0]
        browser.close()
    return _told(paints, min(tries, key=lambda one: one.frames.dropped), version)


def _told(paints: list[float], shown: Streaming, version: str) -> str:
    text = (
        f"The first paint of a page that was never opened before comes after {statistics.median(paints):.0f} ms, the "
        f"median of {len(paints)} ({min(paints):.0f} to {max(paints):.0f}). An answer of {RATE * SECONDS} events, "
        f"{shown.events:.0f} a second, was shown in {shown.frames.drawn} frames, of which {shown.frames.dropped} were "
        f"dropped, in the best of {TRIES} tries (in the {SECONDS} seconds before, in which nothing came, "
        f"{shown.idle.dropped} were); a frame took {shown.work:.1f} ms of work, of the {FRAME:.1f} ms that there are. "
        f"Chromium {version} without a graphics card, with server, model and browser on "
        f"{len(os.sched_getaffinity(0))} cores; `python -m benchmarks.console` takes it on yours."
    )
    return textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False) + "\n"


def main() -> None:
    """Measure, print it, and write it down if asked to."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--write", action="store_true", help="write it into docs/console.md")
    write = parser.parse_args().write
    told = measured()
    print(told, end="")
    if write:
        page = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(PLACE.sub(lambda _: told, page), encoding="utf-8")


if __name__ == "__main__":
    main()
