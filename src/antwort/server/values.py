"""JSON has a largest number of values: each takes time to be read and to be written again, however short it is."""

from antwort.errors import BadRequestError

__all__ = ["Values", "check_values"]

_MARKS = (b",", b"{", b"[")
_PORTION = 64 * 1024
"""Bytes that are looked at in one step."""


class Values:
    """Counts the values of a JSON text as its pieces come, without reading them: by what begins and parts them.

    What stands within strings does not count: a long text may have any number of commas.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._count = 0
        self._within = False
        self._escaped = False

    def take(self, piece: bytes) -> None:
        """Count the next piece; BadRequestError if it has one value too many."""
        if self._escaped and piece:
            piece = piece[1:]
            self._escaped = False
        if b"\\" in piece:
            piece = piece.replace(rb"\\", b"")
            self._escaped = piece.endswith(b"\\")
            piece = piece.replace(rb"\"", b"")
        parts = piece.split(b'"')
        outside = b"".join(parts[self._within :: 2])
        self._within ^= len(parts) % 2 == 0
        self._count += sum(map(outside.count, _MARKS))
        if self._count > self._limit:
            raise BadRequestError(
                f"The request has more than {self._limit:,} JSON values (server.max_values).", code="too_many_values"
            )


def check_values(text: str, limit: int) -> None:
    """Count the values of a whole JSON text; BadRequestError if there are too many."""
    if len(text) <= limit:  # each takes a character
        return
    values = Values(limit)
    for start in range(0, len(text), _PORTION):
        values.take(text[start : start + _PORTION].encode(errors="replace"))
