"""Pages that are pictures: drawn by PDFium and read by tesseract, in the process that reads the file.

What a hostile picture does, it does there, too: that process and all that it starts have limits together.
"""

import os
import subprocess
import time
from collections.abc import Sequence
from typing import Any

from antwort.documents.ocr import OcrRequest

_FINENESS = 300
"""Dots in an inch, as tesseract's models have learned letters."""
_POINTS = 72
_MOST_PIXELS = 12_000_000
"""Of a page, which is drawn less finely if it is large."""
_PAGE_SECONDS = 300.0
_FEW = 4
"""Languages that are looked for together at most if none is named: each takes as long as the first."""
_USUAL = "eng"
_SAID = 300


class PictureReader:
    """Recognises the text of pages, as long as there is time."""

    def __init__(self, request: OcrRequest) -> None:
        self._request = request
        self._end = time.monotonic() + request.seconds
        self._languages = ""
        self._is_able = True
        """Its languages are installed: a page that cannot be read says nothing of the next one."""
        self.problem = ""
        """Why a page could not be read, a sentence; the last one counts."""

    def text_of(self, page: Any) -> str | None:
        """Return the text of a page of PDFium; None if it cannot be recognised, or not in time."""
        left = self._end - time.monotonic()
        if left <= 0:
            self.problem = (
                f"Recognising takes longer than {self._request.seconds:g} seconds (`max_ocr_time` of file search)."
            )
            return None
        try:
            self._languages = self._languages or self._chosen()
            return self._recognised(_picture(page), min(left, _PAGE_SECONDS)) if self._is_able else None
        except subprocess.TimeoutExpired:
            self.problem = f"Recognising a page takes longer than {min(left, _PAGE_SECONDS):.0f} seconds."
        except OSError as error:
            self.problem = f"'{self._request.program}' cannot be started: {error.strerror}."
        return None

    def _chosen(self) -> str:
        """Return the languages to look for; those that are not installed are a problem."""
        done = self._run(["--list-langs"], b"", _PAGE_SECONDS)
        there = [line.strip() for line in done.stdout.decode(errors="replace").splitlines()[1:]]
        known = [name for name in there if name not in {"osd", "equ", "snum"} and "/" not in name]
        if missing := [name for name in self._request.languages if name not in there]:
            self._is_able = False
            packages = " ".join(f"tesseract-ocr-{name.replace('_', '-')}" for name in missing)
            self.problem = f"tesseract lacks languages of `ocr_languages`; install them: apt-get install {packages}."
        chosen = self._request.languages or (known if len(known) <= _FEW else [_USUAL])
        return "+".join(chosen) or _USUAL

    def _recognised(self, picture: bytes, seconds: float) -> str | None:
        options = ["stdin", "stdout", "-l", self._languages, "--dpi", str(_FINENESS)]
        done = self._run(options, picture, seconds)
        if done.returncode == 0:
            return done.stdout.decode(errors="replace")
        said = done.stderr.decode(errors="replace").strip().splitlines()
        self.problem = f"tesseract broke off: {(said or ['it said nothing'])[-1][:_SAID]}"
        return None

    def _run(self, options: Sequence[str], stdin: bytes, seconds: float) -> "subprocess.CompletedProcess[bytes]":
        return subprocess.run(  # noqa: S603 - what it reads is foreign, and what is started is not
            [self._request.program, *options],
            input=stdin,
            capture_output=True,
            check=False,
            timeout=seconds,
            env={**os.environ, "OMP_THREAD_LIMIT": "1"},  # there is one processor for it
        )


def _picture(page: Any) -> bytes:
    """Return what is on a page as shades of grey, in the format PGM."""
    width, height = page.get_size()
    scale = min(_FINENESS / _POINTS, (_MOST_PIXELS / max(width * height, 1.0)) ** 0.5)
    drawn = page.render(scale=scale, grayscale=True)
    rows = memoryview(drawn.buffer).cast("B")
    lines = (rows[start : start + drawn.width] for start in range(0, drawn.stride * drawn.height, drawn.stride))
    return b"P5 %d %d 255\n" % (drawn.width, drawn.height) + b"".join(lines)
