"""Texts as traces show them: without secrets, and no longer than is asked for."""

from typing import Any

from msgspec import Struct

from antwort.observability import MASK, Redactor, is_secret_key

LONGEST = 2_000
"""Characters of a text, if nobody asks for more."""
_LONGEST_SECRET = 2_000
"""Characters of the longest secret that is known for one at the end of what is shown."""
MOST_TEXT = 2_000_000
"""Characters of all texts of a trace together; when they are told, each further one is short."""
_SHORT = 100
_DEEPEST = 100
"""How deep values within each other are shown: how deep they are is the client's to choose."""


class Texts(Struct):
    """Shows texts: without secrets, each as long as it may be, and all together, too."""

    redactor: Redactor
    longest: int
    left: int = MOST_TEXT
    """Characters that all texts together may still have; those that come when none are left are short."""

    def text(self, text: str) -> str:
        """Return a text as it is shown."""
        longest = min(self.longest, max(self.left, _SHORT))
        self.left -= min(len(text), longest)
        left_out = len(text) - longest
        if left_out <= 0:
            return self.redactor.text(text)
        # Half of a secret is not known for one: what is cut off is looked at as well, as far as one may reach.
        shown = self.redactor.text(text[: longest + 2 * _LONGEST_SECRET])
        sure = len(shown) - (_LONGEST_SECRET if left_out > 2 * _LONGEST_SECRET else 0)
        return f"{shown[: min(longest, max(0, sure))]}… ({left_out:,} characters more)"

    def shown(self, value: Any, depth: int = _DEEPEST) -> Any:
        """Return a JSON value with its texts as they are shown; what is nested too deep is left out."""
        if isinstance(value, str):
            return self.text(value)
        if not depth:
            return "…"
        if isinstance(value, dict):
            return {
                name: MASK if isinstance(each, str) and is_secret_key(name) else self.shown(each, depth - 1)
                for name, each in value.items()
            }
        return [self.shown(each, depth - 1) for each in value] if isinstance(value, list) else value
