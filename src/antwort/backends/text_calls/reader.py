"""Reads calls out of a text while it comes: what cannot be one flows on, what may become one is held back."""

import re
from collections.abc import Sequence

from antwort.backends.text_calls.formats import BEGINNINGS, Offered, TextCall, read_block
from antwort.lazy_imports import compiled_on_use
from antwort.types import JSON

Piece = str | TextCall

RESPONSE = "<tool_response"
"""What results begin with; a model that writes it itself makes results up."""

_MARKS = (RESPONSE, "</tool_response")
"""Marks of the format that models write where they mean nothing."""

_EAGER = 2048
"""Characters held back up to which each new piece is looked at at once."""

_mark = compiled_on_use(r"</?tool_response[^<>]{0,80}>")
_begun_mark = compiled_on_use(r"</?tool_response[^<>]{0,80}")
_blank = compiled_on_use(r"\s*")
_between = compiled_on_use(r"[\s,;]*")
_boundary = compiled_on_use(rf"[\s{re.escape(BEGINNINGS)}]")


class CallReader:
    """Parts the calls of some functions in a text from the text around them, however it was split.

    Blanks around calls belong to nobody. What follows a call and pretends to be its result is left out, and so is
    whatever follows the first call if there may not be `several`. Of a result without a call the marks are left out.
    """

    _offered: Offered | None = None
    """The tools by name; made when it is needed, as most texts have no calls and requests may have many tools."""
    _held = ""
    _size = 0
    _fresh = True
    """Nothing was said on this line yet."""
    _after_call = False
    _called = False
    _stopped = False
    has_dropped = False
    """Whether marks were left out that are neither calls nor text."""

    def __init__(self, tools: Sequence[JSON], *, several: bool = True) -> None:
        self._tools = tools
        self._several = several
        self._late: list[str] = []
        """Pieces behind what is held back, not looked at yet."""

    def take(self, text: str) -> list[Piece]:
        """Take a piece, and return what is decided by it, in order."""
        self._late.append(text)
        self._size += len(text)
        # To look at all that is held with each new piece would take time by the square of its length.
        if len(self._held) > _EAGER and self._size < len(self._held) // 8:
            return []
        return self._read(ended=False)

    def end(self) -> list[Piece]:
        """Return what was held back: nothing follows."""
        return self._read(ended=True)

    def _read(self, *, ended: bool) -> list[Piece]:
        text = self._held + "".join(self._late)
        self._late, self._size, self._held = [], 0, ""
        pieces: list[Piece] = []
        place = 0
        while place < len(text) and not self._stopped:
            end = self._step(text, place, pieces, ended=ended)
            if end is None:
                self._held = text[place:]
                break
            place = end
        return _joined(pieces)

    def _step(self, text: str, place: int, pieces: list[Piece], *, ended: bool) -> int | None:
        """Read on from a place; return how far, None if it is not clear yet."""
        found = (_between if self._after_call else _blank).match(text, place)
        begin = place if found is None else found.end()
        if begin == len(text):
            return self._end_blank(text, place, pieces) if ended else None
        fresh = self._fresh or "\n" in text[place:begin]
        end = begin + 1
        if text[begin] in BEGINNINGS:
            if self._called and _may_be_response(text, begin, ended=ended):
                self._stopped = text.startswith(RESPONSE, begin)
                return len(text) if self._stopped else None
            if text[begin] == "<" and (mark := self._mark(text, begin, ended=ended)) != begin:
                return mark
            block = read_block(text, begin, self._parameters(), fresh=fresh, ended=ended)
            if block is None:
                return None
            end = block.end
            if block.calls:
                self._note_calls(block.calls, pieces)
                return end
        return self._take_text(text, place, begin, end, pieces)

    def _take_text(self, text: str, place: int, begin: int, end: int, pieces: list[Piece]) -> int:
        """Take what is no call, up to where one may begin; a blank between a call and it is left out."""
        boundary = _boundary.search(text, end)
        end = len(text) if boundary is None else boundary.start()
        blank_before = self._after_call and not text[place:begin].strip()
        pieces.append(text[begin if blank_before else place : end])
        self._fresh = self._after_call = False
        return end

    def _mark(self, text: str, begin: int, *, ended: bool) -> int | None:
        """Return the end of a mark that is left out, the beginning if there is none, None if that is not clear yet."""
        found = _mark.match(text, begin)
        if found is not None:
            self.has_dropped = self._fresh = True
            return found.end()
        rest = text[begin:]
        begun = any(mark.startswith(rest) for mark in _MARKS) or _begun_mark.fullmatch(rest) is not None
        return None if begun and not ended else begin

    def _parameters(self) -> Offered:
        """Return the parameters of what is offered, by name."""
        if self._offered is None:
            self._offered = {str(tool["name"]): tool.get("parameters") or {} for tool in self._tools}
        return self._offered

    def _end_blank(self, text: str, place: int, pieces: list[Piece]) -> int:
        if not self._after_call:
            pieces.append(text[place:])
        return len(text)

    def _note_calls(self, calls: tuple[TextCall, ...], pieces: list[Piece]) -> None:
        self._called = self._after_call = self._fresh = True
        self._stopped = not self._several
        pieces += calls if self._several else calls[:1]


def _may_be_response(text: str, begin: int, *, ended: bool) -> bool:
    """Tell whether the mark of a call's result stands here, or may still come."""
    return text.startswith(RESPONSE, begin) or (not ended and RESPONSE.startswith(text[begin:]))


def _joined(pieces: list[Piece]) -> list[Piece]:
    """Put texts together that follow each other."""
    joined: list[Piece] = []
    for piece in pieces:
        if joined and isinstance(piece, str) and isinstance(joined[-1], str):
            joined[-1] += piece
        else:
            joined.append(piece)
    return joined
