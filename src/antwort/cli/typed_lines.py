"""What somebody types or pastes into a chat: a line, or all lines of a paste."""

import contextlib
import os
import select
import sys
from types import ModuleType

_PASTED = 0.03
"""Seconds within which the next line of a paste is there, where the terminal does not mark its end."""


class TypedLines:
    """Reads questions from the terminal. EOFError is the end, as it is of `input`.

    A terminal that marks pastes has them edited as one text; elsewhere lines that come at once are taken for one.
    """

    def __init__(self) -> None:
        self._marked = _marks_pastes(_editing())
        self._ended = False

    def read(self, prompt: str) -> str:
        """Return the next question."""
        if self._ended:
            raise EOFError
        lines = [input(prompt)]
        while not self._marked and select.select([sys.stdin], [], [], _PASTED)[0]:
            try:
                lines.append(input())
            except EOFError:
                self._ended = True  # it is the end behind these lines
                break
        return "\n".join(lines)


def _editing() -> ModuleType | None:
    """Give `input` its history and editing, where there is a library for it."""
    with contextlib.suppress(ImportError):
        import readline

        return readline
    return None


def _marks_pastes(readline: ModuleType | None) -> bool:
    """Have pastes marked, and tell whether they will be: GNU Readline can do it, on terminals that can."""
    if readline is None or "libedit" in (readline.__doc__ or "") or os.environ.get("TERM", "dumb") == "dumb":
        return False
    readline.parse_and_bind("set enable-bracketed-paste on")
    return True
