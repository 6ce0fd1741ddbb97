"""A text that comes in pieces."""

from collections.abc import Sequence

_LOOSE = 4096
"""Pieces that are kept as they are: a short one takes many times its length."""


class Pieces:
    """Collects the pieces of a text. It costs no more than the text is long, however small they are."""

    __slots__ = ("_joined", "_loose")

    def __init__(self) -> None:
        self._joined: list[str] = []
        self._loose: list[str] = []

    def __bool__(self) -> bool:
        """Tell whether there are any."""
        return bool(self._loose or self._joined)

    def add(self, piece: str) -> None:
        """Take a piece."""
        self._loose.append(piece)
        if len(self._loose) > _LOOSE:
            self._join()

    def add_all(self, pieces: Sequence[str]) -> None:
        """Take pieces that came together."""
        self._loose += pieces
        if len(self._loose) > _LOOSE:
            self._join()

    def text(self) -> str:
        """Return the text so far; from then on it is one piece."""
        if self._joined:
            self._join()
            self._joined = ["".join(self._joined)]
            return self._joined[0]
        return "".join(self._loose)

    def _join(self) -> None:
        self._joined.append("".join(self._loose))
        self._loose = []
