"""What `antwort ingest` shows while it works: a bar in a terminal, and a line now and then elsewhere."""

import shutil
import time
from collections.abc import Callable, Sequence
from typing import TextIO

from typing_extensions import override

from antwort.cli.folder_upload import FileReport, LocalFile, StoredFile, UploadWatcher
from antwort.cli.terminal import harmless

_WIDTH = 24
"""Characters of the bar."""
_EVERY, _EVERY_LINE = 0.1, 30.0
"""Seconds between two pictures of a terminal, and between two lines elsewhere."""
_SURE = 1.0
"""Seconds before which no rate is told."""
_ENOUGH = 0.05
"""Part of all bytes before which no time left is told, unless a file says how far it is: small files come first."""
_CLEAR = "\r\x1b[K"


class NoProgress(UploadWatcher):
    """Shows nothing."""

    @override
    def see(self, file: LocalFile, state: StoredFile) -> None:
        pass

    @override
    def end(self, report: FileReport) -> None:
        pass

    @override
    def close(self) -> None:
        pass


class ShownProgress(UploadWatcher):
    """Shows how far all files are, at which rate, how long it takes, and how far the file is that was looked at last.

    Files count by their bytes: how many chunks one has is not known before it is read.
    """

    def __init__(
        self,
        files: Sequence[LocalFile],
        out: TextIO,
        *,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._out = out
        self._is_terminal = out.isatty()
        self._now = now
        self._sizes = {file.name: _size(file) for file in files}
        self._files = len(files)
        self._total = sum(self._sizes.values())
        self._ended = 0
        self._done = 0.0
        """Bytes of files that are done with."""
        self._chunks = 0
        """Chunks of those."""
        self._states: dict[str, StoredFile] = {}
        self._last = ""
        """The file that was looked at last."""
        self._began = now()
        self._shown = self._began - (_EVERY if self._is_terminal else 0)

    @override
    def see(self, file: LocalFile, state: StoredFile) -> None:
        self._states[file.name] = state
        self._last = file.name
        self._show()

    @override
    def end(self, report: FileReport) -> None:
        state = self._states.pop(report.name, None)
        size = self._sizes.pop(report.name, 0)
        if report.outcome == "removed":
            return
        self._ended += 1
        if report.outcome == "unchanged":
            self._total -= size
        else:
            self._done += size
        if state is not None:
            self._chunks += state.chunks or state.embedded
        self._show()

    @override
    def close(self) -> None:
        if self._is_terminal:
            self._out.write(_CLEAR)
            self._out.flush()

    def _show(self) -> None:
        now = self._now()
        if now - self._shown < (_EVERY if self._is_terminal else _EVERY_LINE):
            return
        self._shown = now
        if self._is_terminal:
            line = f"{self._bar()} {self._text(now)}"
            self._out.write(f"{_CLEAR}{line[: shutil.get_terminal_size().columns - 1]}")
        else:
            self._out.write(f"antwort: {self._text(now)}\n")
        self._out.flush()

    @property
    def _part(self) -> float:
        """The part of all bytes that can be found."""
        begun = sum(self._sizes.get(name, 0) * state.part for name, state in self._states.items())
        return min(1.0, (self._done + begun) / self._total) if self._total else 1.0

    def _bar(self) -> str:
        full = int(_WIDTH * self._part)
        return f"[{'#' * full}{'-' * (_WIDTH - full)}]"

    def _text(self, now: float) -> str:
        parts = [f"{self._ended:,} of {self._files:,} files"]
        chunks, elapsed = self._chunks + sum(one.embedded for one in self._states.values()), now - self._began
        if chunks and elapsed >= _SURE:
            parts.append(f"{chunks:,} chunk{'' if chunks == 1 else 's'}, {chunks / elapsed:.1f} a second")
        least = 0.0 if any(one.part for one in self._states.values()) else _ENOUGH
        if (part := self._part) > least and elapsed >= _SURE:
            parts.append(f"{_duration(elapsed * (1 - part) / part)} left")
        text = ", ".join(parts)
        state = self._states.get(self._last)
        return text if state is None else f"{text}; {harmless(self._last)}: {_described(state)}"


def _described(state: StoredFile) -> str:
    if state.chunks is None:
        return state.phase or "waiting"
    pages = "" if state.pages is None else f", {state.pages:,} pages"
    return f"{state.embedded:,} of {state.chunks:,} chunks{pages}"


def _duration(seconds: float) -> str:
    """Say how long something takes, about."""
    if seconds < 60:
        return f"{round(seconds)} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def _size(file: LocalFile) -> int:
    try:
        return max(1, file.path.stat().st_size)
    except OSError:  # it is told when its turn comes
        return 1
