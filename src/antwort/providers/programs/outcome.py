"""What comes of a program, whichever interpreter it runs in."""

import msgspec

LOST = "What this program has defined is lost; what was defined before is there."
SLEEP_IN_ALL = 300.0
"""Seconds that a program may sleep in all."""


class Outcome(msgspec.Struct, frozen=True):
    """What came of a program."""

    output: str
    failed: bool = False


class Printed:
    """What a program prints, up to a limit."""

    def __init__(self, most: int) -> None:
        self._room = most
        self._parts: list[str] = []

    @property
    def text(self) -> str:
        """What is kept of it."""
        return "".join(self._parts)

    def add(self, text: str) -> None:
        """Take what it prints next."""
        if self._room <= 0:
            return
        self._parts.append(text[: self._room])
        self._room -= len(text)
        if self._room <= 0:
            self._parts.append("\n(What it has printed further is left out.)\n")
