"""Parts of large values, found while they stream by: lines, matches of a pattern, head and tail.

Each scanner takes pieces with `feed`, which says whether it wants another one, and ends with `end`.
"""

import time
from collections.abc import AsyncIterator
from typing import Protocol

from antwort.concurrency.large_work import LargeWork
from antwort.errors import FunctionError
from antwort.lazy_imports import compiled_on_use
from antwort.text.patterns import Clock, Pattern

_RANGE = compiled_on_use(r"\s*(\d{1,18})\s*(?:[-:]\s*(\d{1,18})?\s*)?")
_PIECE, _OVERLAP = 1000, 200
"""Bytes of a long line that are looked at together, and how many of them are looked at again with the next ones."""
_BLOCK = 4096
"""Bytes of short lines that are looked at together. More of them would not be quicker, and hold others up."""
_SHOWN = 300
"""Characters of a line that are shown."""


class Scanner(Protocol):
    """Something that takes a value in pieces."""

    def feed(self, chunk: bytes) -> bool:
        """Take the next piece; return whether another one is wanted."""

    def end(self) -> None:
        """Take note that the value is over."""


async def scan(chunks: AsyncIterator[bytes], scanner: Scanner, work: LargeWork) -> None:
    """Give a value to a scanner, which works on a thread: the event loop only hands the pieces on."""
    async for chunk in chunks:
        if not await work.run(scanner.feed, chunk):
            return
    await work.run(scanner.end)


def whole_characters(data: bytes, *, from_start: bool, to_end: bool) -> tuple[int, bytes]:
    """Leave halves of characters out at the ends of a part of a text; return how many bytes at its beginning, too."""
    lead = 0
    while not from_start and lead < min(3, len(data)) and 0x80 <= data[lead] < 0xC0:
        lead += 1
    end = len(data)
    for back in range(1, min(3, end - lead) + 1) if not to_end else ():
        byte = data[end - back]
        if byte >= 0xC0:
            needed = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            end -= back if back < needed else 0
        if byte < 0x80 or byte >= 0xC0:
            break
    return lead, data[lead:end]


def text_of(data: bytes, *, from_start: bool, to_end: bool) -> str:
    """Return the text of a part, without halves of characters at its ends."""
    return whole_characters(data, from_start=from_start, to_end=to_end)[1].decode(errors="replace")


def parse_lines(lines: str) -> tuple[int, int | None]:
    """Read a range of lines such as `10-20`, `10-` or `10`; the first line is 1."""
    found = _RANGE.fullmatch(lines)
    if found is None or int(found[1]) < 1:
        raise FunctionError(f"'{lines[:40]}' is no range of lines; write it like '10-20'.")
    first = int(found[1])
    is_single = not set("-:") & set(lines)
    last = first if is_single else None if found[2] is None else int(found[2])
    if last is not None and last < first:
        raise FunctionError(f"'{lines[:40]}' ends before it begins; write it like '10-20'.")
    return first, last


class LineScanner:
    """Keeps the lines of a range, `most` bytes of them."""

    def __init__(self, first: int, last: int | None, most: int) -> None:
        self._first = first
        self._last = last
        self._most = most
        self._content = bytearray()
        self.line = 1
        """The line that the next byte belongs to."""

    def feed(self, chunk: bytes) -> bool:
        """Take the next piece."""
        start, missing = 0, self._first - self.line
        if missing > 0 and (count := chunk.count(b"\n")) < missing:
            self.line += count
            return True
        while self.line < self._first:
            self.line, start = self.line + 1, chunk.index(b"\n", start) + 1
        if self._last is None:
            self._content += chunk[start : start + self._most + 1 - len(self._content)]
            return not self.is_cut
        while self.line <= self._last and start < len(chunk) and not self.is_cut:
            end = chunk.find(b"\n", start)
            stop = len(chunk) if end < 0 else end + 1
            self._content += chunk[start:stop][: self._most + 1 - len(self._content)]
            start = stop
            self.line += end >= 0
        return self.line <= self._last and not self.is_cut

    def end(self) -> None:
        """Nothing is left to do."""

    @property
    def is_cut(self) -> bool:
        """Tell whether there was more than is kept."""
        return len(self._content) > self._most

    def text(self) -> str:
        """Return the lines."""
        return text_of(bytes(self._content[: self._most]), from_start=True, to_end=not self.is_cut).removesuffix("\n")


class GrepScanner:
    """Counts the lines that have a match, and keeps the first ones with their numbers, `most` characters of them."""

    def __init__(self, pattern: str, most: int, clock: Clock = time.thread_time) -> None:
        self._pattern = Pattern(pattern, clock)
        self._most = most
        self._rest = b""
        self._line = 1
        self.count = 0
        self.shown: list[str] = []

    def feed(self, chunk: bytes) -> bool:
        """Take the next piece."""
        data = self._rest + chunk
        start, end = 0, data.rfind(b"\n") + 1
        while start < end:
            stop = (data.rfind(b"\n", start, start + _BLOCK) + 1) or (data.index(b"\n", start) + 1)
            self._look_through(data[start:stop])
            start = stop
        rest = data[end:]
        if len(rest) > 64 * _PIECE:  # a line without end is looked at as it comes
            self._look_at(rest[:-_OVERLAP])
            rest = rest[-_OVERLAP:]
        self._rest = rest
        return True

    def end(self) -> None:
        """Look at the last line."""
        if self._rest:
            self._look_at(self._rest)

    def _look_through(self, lines: bytes) -> None:
        """Look at some lines together, which most often is enough; a single long one is looked at in parts."""
        if len(lines) > _BLOCK or self._pattern.may_match(lines):
            for line in lines.split(b"\n")[:-1]:
                self._look_at(line)
                self._line += 1
        else:
            self._line += lines.count(b"\n")

    def _look_at(self, line: bytes) -> None:
        start = 0
        while start < len(line) or not start:
            text = line[start : start + _PIECE].decode(errors="replace").removesuffix("\r")
            if self._pattern.matches(text):
                self._note(text)
                start += _PIECE
            else:
                start += _PIECE if start + _PIECE >= len(line) else _PIECE - _OVERLAP

    def _note(self, text: str) -> None:
        self.count += 1
        if self._most > 0:
            shown = f"{self._line}: {text if len(text) <= _SHOWN else text[:_SHOWN] + '…'}"
            self._most -= len(shown) + 1
            self.shown.append(shown)


class LineCounter:
    """Counts lines."""

    def __init__(self) -> None:
        self.lines = 1

    def feed(self, chunk: bytes) -> bool:
        """Take the next piece."""
        self.lines += chunk.count(b"\n")
        return True

    def end(self) -> None:
        """Nothing is left to do."""
