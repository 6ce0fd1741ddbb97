"""Parting a text into windows by its words, for models whose tokens nobody here can count."""

import re
from collections.abc import Iterator

__all__ = ["BYTES_PER_TOKEN", "windows"]

BYTES_PER_TOKEN = 3
"""Bytes of UTF-8 that a token has, or more: four letters of English, one character of Chinese."""
_WORD = re.compile(r"\S+\s*|\s+")
_OVERLAP = 8
"""The part of a window that the next one repeats: an eighth."""


def windows(text: str, most: int) -> list[str]:
    """Part a text into overlapping windows of so many bytes at most; one that is not longer is left as it is."""
    if len(text) <= most and len(text.encode(errors="replace")) <= most:
        return [text]
    words = list(_words(text, max(1, most // _OVERLAP)))
    found: list[str] = []
    start = 0
    while start < len(words):
        end, size = start, 0
        while end < len(words) and (end == start or size + words[end][1] <= most):
            size += words[end][1]
            end += 1
        found.append("".join(word for word, _ in words[start:end]))
        if end == len(words):
            break
        start = _stepped_back(words, start, end, most // _OVERLAP)
    return found


def _words(text: str, most: int) -> Iterator[tuple[str, int]]:
    """Give the words of a text with their sizes; a long one in pieces."""
    for match in _WORD.finditer(text):
        word = match[0]
        if len(word) * 4 <= most:
            yield word, len(word.encode(errors="replace"))
            continue
        step = max(1, most // 4)
        for place in range(0, len(word), step):
            piece = word[place : place + step]
            yield piece, len(piece.encode(errors="replace"))


def _stepped_back(words: list[tuple[str, int]], start: int, end: int, overlap: int) -> int:
    """Return where the next window begins: a few words before the end of this one, and after its beginning."""
    size = 0
    while end - 1 > start and size + words[end - 1][1] <= overlap:
        end -= 1
        size += words[end][1]
    return end
