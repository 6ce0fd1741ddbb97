"""Regular expressions of operators: such that no text can hold anybody up, and that it is known how long they reach."""

import re

_TOKEN = re.compile(
    r"(?P<escape>\\.)|(?P<class>\[\^?\]?(?:\\.|[^\]\\])*\])|(?P<open>\((?:\?:)?)|(?P<special>\(\?)|(?P<close>\))"
    r"|(?P<times>\{(?=[\d,])(?P<least>\d*)(?:(?P<to>,)(?P<most>\d*))?\}|[?*+])|(?P<or>\|)|(?P<other>.)",
    re.DOTALL,
)
_WAYS = 1000
"""In so many ways an expression may match at one place, at worst."""
_LONGEST = 1000
"""Characters that a match may have."""
_NOT_ESCAPED = re.compile(r"\\[1-9gkGAzZ]")


class _Group:
    """What was read of a group: how long its matches are at most, and in how many ways there may be one."""

    def __init__(self) -> None:
        self.branches: list[int] = []
        self.length = 0
        self.ways = 1
        self.last = 0
        """The length of what a repetition would repeat."""
        self.last_ways = 1
        self.is_repeated = False

    def add(self, length: int, ways: int = 1) -> None:
        self.length += length
        self.ways *= ways
        self.last, self.last_ways, self.is_repeated = length, ways, False

    @property
    def longest(self) -> int:
        return max([*self.branches, self.length])


class Expression:
    """A regular expression; a ValueError says what is wrong with one.

    Python's take a time that can grow with a power of the text, and nobody else runs meanwhile. So every repetition has
    an end, what varies is not repeated as a group, and all that together can be tried in so many ways only.
    """

    def __init__(self, pattern: str) -> None:
        try:
            self.compiled = re.compile(pattern)
        except re.error as error:
            raise ValueError(f"it is no regular expression: {error}") from None
        if self.compiled.match(""):
            raise ValueError("it matches nothing, which is everywhere")
        measured = self._measured(pattern)
        self.longest = measured.longest
        """Characters of the longest match."""
        self.ways = measured.ways * (len(measured.branches) + 1)
        """In how many ways it may match at one place: as many are tried where it does not."""

    def _measured(self, pattern: str) -> _Group:
        parts = [_Group()]
        for found in _TOKEN.finditer(pattern):
            part, text = parts[-1], found[0]
            if found["special"] or (found["open"] and pattern[found.end() : found.end() + 1] == "?"):
                raise ValueError("of groups that begin with '(?', it may have '(?:' only")
            if found["open"]:
                parts.append(_Group())
            elif found["close"]:
                inner = parts.pop()
                parts[-1].add(inner.longest, inner.ways * (len(inner.branches) + 1))
            elif found["or"]:
                part.branches.append(part.length)
                part.length = 0
            elif found["times"]:
                self._repeat(part, found)
            elif _NOT_ESCAPED.match(text):
                raise ValueError(f"it may not have '{text}'")
            else:
                part.add(0 if text in {"^", "$", r"\b", r"\B"} else 1)
        whole = parts[0]
        if whole.ways * (len(whole.branches) + 1) > _WAYS:
            raise ValueError(f"it can match in more than {_WAYS:,} ways at one place; give its repetitions less room")
        if whole.longest > _LONGEST:
            raise ValueError(f"a match can have more than {_LONGEST:,} characters")
        return whole

    @staticmethod
    def _repeat(part: _Group, found: "re.Match[str]") -> None:
        text = found["times"]
        if text in {"*", "+"} or (found["to"] and not found["most"]):
            raise ValueError(f"'{text}' has no end; say how often at most, as in {{1,40}}")
        least = 0 if text == "?" else int(found["least"] or 0)
        most = 1 if text == "?" else int(found["most"] or found["least"])
        if part.is_repeated and text == "?":
            return  # as few as possible: that changes the order only
        if most > 1 and part.last_ways > 1:
            raise ValueError("a group that can match in several ways may not be repeated")
        part.length += part.last * (most - 1)
        part.ways *= most - least + 1
        part.last, part.last_ways, part.is_repeated = part.last * most, most - least + 1, True
