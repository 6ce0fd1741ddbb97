"""Thoughts in the dialects that have no plain field of their own for them."""

from enum import Enum, auto
from typing import Any

OPEN, CLOSE = "<think>", "</think>"
MOST_BLANKS = 1024
"""Characters before an opening tag; after so many the answer has begun, and is not held back any longer."""


class _AnswerPart(Enum):
    """Where in an answer we are."""

    START = auto()
    THOUGHTS = auto()
    BETWEEN = auto()
    ANSWER = auto()


# To look up a member of an enum takes some hundred nanoseconds in Python 3.11.
_START, _THOUGHTS, _BETWEEN, _ANSWER = _AnswerPart


class ThinkTags:
    """Parts `<think>…</think>` at the very start of an answer from the answer itself, however it was split.

    What may still become a tag is held back until it is clear; blanks around the tags belong to neither side.
    """

    __slots__ = ("_held", "_place", "_thought")

    def __init__(self) -> None:
        self._place = _START
        self._held = ""
        self._thought = False

    @property
    def passed(self) -> bool:
        """Tell that the answer itself has begun: the rest of it need not be looked at."""
        return self._place is _ANSWER

    @property
    def undecided(self) -> bool:
        """Tell that it is not clear yet whether there will be a tag."""
        return self._place is _START

    def take(self, text: str) -> tuple[str, str]:
        """Take a piece and return what it adds to the thoughts and to the answer."""
        text, self._held = self._held + text, ""
        thought = ""
        if self._place is _START:
            bare = text.lstrip()
            if bare != OPEN and OPEN.startswith(bare) and len(text) <= MOST_BLANKS:
                self._held = text
                return "", ""
            if not bare.startswith(OPEN):
                self._place = _ANSWER
                return "", text
            self._place = _THOUGHTS
            text = bare[len(OPEN) :]
        if self._place is _THOUGHTS:
            thought, text = self._think(text if self._thought else text.lstrip())
        if self._place is _BETWEEN:
            text = text.lstrip()
            if text:
                self._place = _ANSWER
        return thought, text

    def end(self) -> tuple[str, str]:
        """Return what was held back: it did not become a tag."""
        held, self._held = self._held, ""
        return (held, "") if self._place is _THOUGHTS else ("", held)

    def _think(self, text: str) -> tuple[str, str]:
        """Return the thoughts up to the closing tag, and what follows it."""
        thought, closed, rest = text.partition(CLOSE)
        if closed:
            self._place = _BETWEEN
            return thought, rest
        keep = next((size for size in range(len(CLOSE) - 1, 0, -1) if text.endswith(CLOSE[:size])), 0)
        if keep:
            thought, self._held = text[:-keep], text[-keep:]
        self._thought = self._thought or bool(thought)
        return thought, ""


def may_be_tagged(text: str) -> bool:
    """Tell whether an answer that begins with a text may begin with a tag."""
    first = text[0]
    return first == "<" or first.isspace()


def texts_in_parts(parts: list[Any]) -> tuple[str, str]:
    """Return the thoughts and the text of content that is a list of parts."""
    thoughts, texts = [], []
    for part in parts:
        if isinstance(part, str):
            texts.append(part)
        elif isinstance(part, dict):
            thoughts.append(_text(part.get("thinking")))
            texts.append(_text(part.get("text")))
    return "".join(thoughts), "".join(texts)


def text_in_details(details: Any) -> str:
    """Return the text of `reasoning_details`, or of a `reasoning` that is not a plain string."""
    if isinstance(details, dict):
        details = [details]
    if not isinstance(details, list):
        return ""
    return "".join(_text(entry.get("text") or entry.get("summary")) for entry in details if isinstance(entry, dict))


def _text(value: Any) -> str:
    if isinstance(value, list):
        return "".join(_text(entry.get("text")) for entry in value if isinstance(entry, dict))
    return value if isinstance(value, str) else ""
