"""Parts of large values, found while they stream by: lines, matches of a pattern, head and tail.

Each scanner takes pieces with `feed`, which says whether it wants another one, and ends with `end`.
"""

import re
import time
from collections.abc import AsyncIterator, Callable
from typing import Protocol

from pydantic_core import SchemaError, SchemaValidator, core_schema

from antwort.concurrency.large_work import LargeWork
from antwort.errors import FunctionError
from antwort.lazy_imports import compiled_on_use

# --- regular expressions of models: whatever they are, they hold nobody up -------------------------------------------
# Rust's take a time that grows with the text alone, but for each character up to as long as the pattern is with all
# its repetitions written out; and the interpreter stands still meanwhile. So that length is bounded, little text is
# looked at in one go, and a pattern that is slow all the same is given up.


_PART = compiled_on_use(r"\\[pP]\{[^}]*\}|\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\{(\d*),?(\d*)\}|[()]|.", re.DOTALL)
_CLASS = 20
"""How many single characters a class such as `\\w` is worth."""
_LARGEST = 4000
_LONGEST_NUMBER = 4
SLOW = 0.1
"""Seconds of work within which one look at a piece of text is over, with any pattern that is worth it."""
PATIENCE = 10.0
"""Seconds of work that all looks may take together."""
Clock = Callable[[], float]


def size_of(pattern: str) -> int:
    """Return about how many steps a pattern has with all its repetitions written out."""
    sizes, last = [0], 0
    for part in _PART.finditer(pattern):
        text = part[0]
        if text == "(":
            sizes.append(0)
            continue
        if text == ")":
            last = sizes.pop() if len(sizes) > 1 else 0
        elif text[0] == "{" and part[1] is not None and len(text) > 2:
            numbers = [number for number in (part[1], part[2]) if number]
            if any(len(number) > _LONGEST_NUMBER for number in numbers):
                return _LARGEST + 1
            times = max(map(int, numbers), default=1)
            sizes[-1] += last * (times - 1)
            last *= times
            continue
        else:
            last = _CLASS if text[0] == "[" or (text[0] == "\\" and text[1:2] in "wWdDsSpP") else 1
        sizes[-1] += last
    return sum(sizes)


class Pattern:
    """Tells whether texts have a match."""

    def __init__(self, pattern: str, clock: Clock = time.thread_time) -> None:
        if size_of(pattern) > _LARGEST:
            raise FunctionError(f"'{pattern[:80]}' is too large with its repetitions written out. Use a shorter one.")
        self._pattern = pattern
        self._clock = clock
        self._matches = _compiled(pattern)
        # Whatever matches a line matches the lines together, unless it is about the ends of the text.
        ends = re.search(r"\\[Az]|\(\?[a-z]*-", pattern)
        self._matches_lines = None if ends is not None else _compiled(f"(?m){pattern}")
        self._worked = 0.0

    def matches(self, line: str) -> bool:
        """Tell whether a line has a match; a FunctionError if the pattern takes too long."""
        return self._timed(self._matches, line)

    def may_match(self, lines: bytes) -> bool:
        """Tell whether one of many lines may match: most often none does, and that is known at once."""
        if self._matches_lines is None or b"\r" in lines:
            return True
        return self._timed(self._matches_lines, lines.decode(errors="replace"))

    def _timed(self, matches: Callable[[str], bool], text: str) -> bool:
        began = self._clock()
        found = matches(text)
        took = self._clock() - began
        self._worked += took
        if took > SLOW or self._worked > PATIENCE:
            raise FunctionError(f"To look for '{self._pattern[:80]}' takes too long. Use a simpler pattern.")
        return found


def _compiled(pattern: str) -> Callable[[str], bool]:
    try:
        schema = core_schema.str_schema(pattern=pattern, regex_engine="rust-regex")
        return SchemaValidator(schema).isinstance_python
    except SchemaError as error:
        reason = str(error).strip().splitlines()[-1].strip()
        raise FunctionError(f"'{pattern[:80]}' is no regular expression: {reason[:200]}") from None


# --- parts of large values -------------------------------------------------------------------------------------------


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
