"""Tokens, as near as one comes without a model's own dictionary: every character of a text is in exactly one."""

from array import array
from bisect import bisect_left

from antwort.lazy_imports import compiled_on_use

_TOKEN = compiled_on_use(
    r"[^\S\n]*(?:"
    r"[A-Za-z]{1,8}|"
    r"\d{1,3}|"
    r"[^\W\d_A-Za-z\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]{1,4}|"  # other alphabets are cut into smaller parts
    r"[^\s])"
    r"|\s{1,64}"
)


class TokenRuler:
    """Where the tokens of a text begin."""

    def __init__(self, text: str) -> None:
        self._starts = array("L", (match.start() for match in _TOKEN.finditer(text)))
        self._length = len(text)

    def count(self, start: int, end: int) -> int:
        """Count the tokens that begin in a range."""
        return bisect_left(self._starts, end) - bisect_left(self._starts, start)

    def after(self, start: int, count: int) -> int:
        """Return where a range ends that begins somewhere and has at most so many tokens."""
        number = bisect_left(self._starts, start) + count
        return self._starts[number] if number < len(self._starts) else self._length
