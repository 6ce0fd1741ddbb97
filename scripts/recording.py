"""Make the recording of docs/first-five-minutes.md: an SVG that plays what the page shows.

`python scripts/recording.py` installs antwort into a copy of the sources, in a terminal, and writes what it shows into
the page, which takes minutes. `make docs` runs the other commands of the page again and writes the SVG from all of it.
"""

import os
import pty
import re
import select
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "first-five-minutes.md"
IMAGE = ROOT / "docs" / "images" / "first-five-minutes.svg"

_CONSOLE = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_INSTALL = re.compile(r"(?P<before>\$ make serve\n)(?P<shown>.*?)(?=^```$)", re.MULTILINE | re.DOTALL)
_CHANGING = re.compile(r"setup: (package|unpacking) ")
"""Lines that take each other's place."""
_COLUMNS = 100
_LINE, _CHARACTER, _MARGIN = 18, 8, 12
"""Pixels."""
_TYPING, _PRINTING, _PAUSE, _READING = 0.9, 0.12, 1.2, 0.5
"""Seconds: before a command's output, for each line of it, after it, for each state of a line that changes."""
_SHOWN_STATES = 6


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the terminal: its text, its row, and when it appears and is gone."""

    text: str
    row: int
    start: float
    end: float | None = None


def recording(page: str) -> str:
    """Return the SVG that plays the sessions of a page."""
    lines = list(_played("".join(_CONSOLE.findall(page)).splitlines()))
    height = (max(line.row for line in lines) + 1) * _LINE + 2 * _MARGIN
    width = _COLUMNS * _CHARACTER + 2 * _MARGIN
    texts = "\n".join(_text(line) for line in lines)
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    return f"""<svg xmlns="http://www.w3.org/2000/svg" {size} xml:space="preserve">
<style>
text {{ font: 13px ui-monospace, Menlo, Consolas, monospace; fill: #d0d7de; white-space: pre; animation: show 0s both }}
.command {{ fill: #7ee787 }}
.changing {{ opacity: 0 }}
@keyframes show {{ from {{ opacity: 0 }} to {{ opacity: 1 }} }}
@keyframes hide {{ from {{ opacity: 1 }} to {{ opacity: 0 }} }}
</style>
<rect width="100%" height="100%" rx="8" fill="#0d1117"/>
{texts}
</svg>
"""


def _played(shown: Sequence[str]) -> Iterator[Line]:
    now, row = 0.5, 0
    for text, following in zip(shown, [*shown[1:], ""], strict=True):
        changes = _CHANGING.match(text) is not None
        until_next = _READING if _CHANGING.match(following) else _PRINTING
        now += _TYPING if text.startswith("$ ") and row else _READING if changes else _PRINTING
        for part in _wrapped(text):
            yield Line(part, row, now, now + until_next if changes else None)
            row += not changes
        now += _PAUSE if following.startswith("$ ") else 0


def _wrapped(text: str) -> list[str]:
    """Return a line as a terminal shows it."""
    return [text[start : start + _COLUMNS] for start in range(0, len(text), _COLUMNS)] or [""]


def _text(line: Line) -> str:
    y = _MARGIN + (line.row + 1) * _LINE - 5
    kind = "command" if line.text.startswith("$ ") else "changing" if line.end is not None else ""
    hidden = "" if line.end is None else f", hide 0s {line.end:.2f}s forwards"
    style = f"animation: show 0s {line.start:.2f}s both{hidden}"
    named = f' class="{kind}"' if kind else ""
    return f'<text x="{_MARGIN}" y="{y}"{named} style="{style}">{escape(line.text, quote=False)}</text>'


# --- the installation ------------------------------------------------------------------------------------------------


def installation() -> list[str]:
    """Install into a copy of the sources, in a terminal, and return the lines and states of lines that it shows."""
    with tempfile.TemporaryDirectory() as folder:
        files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True).stdout
        packed = subprocess.run(["tar", "c", "--null", "-T-"], input=files, cwd=ROOT, check=True, capture_output=True)
        subprocess.run(["tar", "x"], input=packed.stdout, cwd=folder, check=True)
        shown = _in_terminal(["scripts/setup", "serve"], Path(folder))
    # What pip says of the machine's own settings has a colour, and is none of a page's business.
    states = [state.strip() for state in re.split(r"\r\x1b\[K|\r?\n|\x1b\[\d+m", shown)]
    return _thinned([state for state in states if state.startswith("setup: ")])


def _in_terminal(command: Sequence[str], folder: Path) -> str:
    ours, theirs = pty.openpty()
    with subprocess.Popen(command, cwd=folder, stdin=theirs, stdout=theirs, stderr=theirs) as running:
        os.close(theirs)
        shown = b""
        while select.select([ours], [], [], 600)[0]:
            try:
                piece = os.read(ours, 65536)
            except OSError:  # how Linux says that nobody has the other side any more
                break
            if not piece:
                break
            shown += piece
    os.close(ours)
    if running.returncode:
        raise SystemExit(shown.decode(errors="replace"))
    return shown.decode(errors="replace")


def _thinned(states: list[str]) -> list[str]:
    """Leave out most of the states of the line that counts."""
    counted = [state for state in states if state.startswith("setup: package ")]
    kept = set(counted[:: max(1, len(counted) // _SHOWN_STATES)])
    return [state for state in states if not state.startswith("setup: package ") or state in kept]


def main() -> None:
    """Record the installation, and write it into the page."""
    shown = "".join(f"{line}\n" for line in installation())
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(_INSTALL.sub(lambda found: found["before"] + shown, page), encoding="utf-8")


if __name__ == "__main__":
    main()
