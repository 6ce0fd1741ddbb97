"""What `scripts/setup` shows while it installs."""

import contextlib
import os
import pty
import subprocess
from collections.abc import Iterator
from pathlib import Path

FUNCTIONS = "sed -n '/^show()/,/^}/p;/^count_packages()/,/^}/p' scripts/setup"
SAID = r"Collecting a==1\nDownloading a.whl\nProcessing ./b.whl\nIgnoring c\nInstalling collected packages: a, b\n"
ROOT = Path(__file__).parents[2]


def counted(stderr: int) -> None:
    script = f"eval \"$({FUNCTIONS})\"; printf '{SAID}' | count_packages 3"
    subprocess.run(["bash", "-c", script], check=True, stderr=stderr, cwd=ROOT, timeout=60)


def pieces(terminal: int) -> Iterator[str]:
    """Yield what a terminal shows until nobody writes to it any more, which is an error of it."""
    with contextlib.suppress(OSError):
        while piece := os.read(terminal, 4096):
            yield piece.decode()


def test_where_somebody_watches_packages_are_counted_in_one_line() -> None:
    ours, theirs = pty.openpty()
    counted(theirs)
    os.close(theirs)
    shown = "".join(pieces(ours))
    os.close(ours)
    assert shown.split("\r\x1b[K") == [
        "",
        "setup: package 1 of 3",
        "setup: package 2 of 3",
        "setup: package 3 of 3",
        "setup: unpacking 3 packages, which takes longest",
        "",
    ]


def test_elsewhere_nothing_is_shown(tmp_path: Path) -> None:
    with (tmp_path / "shown").open("wb") as file:
        counted(file.fileno())
    assert (tmp_path / "shown").read_bytes() == b""
