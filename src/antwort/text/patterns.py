"""Regular expressions of models: whatever they are, they hold nobody up.

Rust's take a time that grows with the text alone, but for each character up to as long as the pattern is with all its
repetitions written out; and the interpreter stands still meanwhile. So that length is bounded, little text is looked at
in one go, and a pattern that is slow all the same is given up.
"""

import re
import time
from collections.abc import Callable

from pydantic_core import SchemaError, SchemaValidator, core_schema

from antwort.errors import FunctionError
from antwort.lazy_imports import compiled_on_use

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
