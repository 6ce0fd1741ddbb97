"""What comes of a program, whichever interpreter it runs in."""

import msgspec

from antwort.providers.programs.values import joined

LOST = "What this program has defined is lost; what was defined before is there."
SLEEP_IN_ALL = 300.0
"""Seconds that a program may sleep in all."""


class ProgramOutcome(msgspec.Struct, frozen=True):
    """What came of a program."""

    output: str
    failed: bool = False


_LEFT_OUT = "\n(What it has printed further is left out.)\n"


class Printed:
    """What a program prints, up to a limit, which holds together with its last value."""

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
            self._parts.append(_LEFT_OUT)

    def with_value(self, text: str) -> str:
        """Return what is kept of it, and of the value that comes last."""
        if self._room <= 0:
            return joined(self.text, "")
        return joined(self.text, text if len(text) <= self._room else text[: self._room] + _LEFT_OUT.rstrip())
