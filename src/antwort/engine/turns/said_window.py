"""The window of a response while it is made: as it was planned, with what was said since."""

import msgspec

from antwort.backends.passages import Window
from antwort.engine.history import model_items, settled
from antwort.engine.journal import Journal
from antwort.engine.plan import Plan
from antwort.engine.window import Seals
from antwort.types import JSON


class SaidWindow(msgspec.Struct, eq=False):
    """What the model reads in the next turn."""

    _plan: Plan
    _journal: Journal
    _seals: Seals
    compacted: bool = False
    """Whether a summary stands for some of it."""

    def items(self) -> list[JSON]:
        """Return what the model reads."""
        window, entries = self._plan.window, self._journal.said()
        if not entries:
            return window
        said = model_items(entries)
        if self._plan.is_pending():
            return self._seals.opened(settled([*window, *said]))
        if self.compacted:
            return self._seals.opened([*window, *said])
        said = self._seals.opened(said)  # what is in the window needs no opening
        return window.extended(said) if isinstance(window, Window) else [*window, *said]
