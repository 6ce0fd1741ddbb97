"""A model that is stuck: it makes the same call turn after turn, and gets the same each time."""

from collections.abc import Mapping

import msgspec

from antwort.storage.call_record import CallRecord

_PATIENCE = 3
"""Turns in which a model may make the same call and get the same."""


class Repetition(msgspec.Struct, eq=False):
    """Watches the calls of one response.

    A function that was called in vain is withheld for a turn, so that the model does something else. If it then makes
    that call again, and gets the same, it is stuck.
    """

    withheld: frozenset[str] = frozenset()
    is_stuck: bool = False
    _seen: dict[tuple[str, str], tuple[int, int]] = {}
    """By name and arguments: what came of the call last, as a hash, and in how many turns in a row."""

    def note_turn(self, calls: Mapping[tuple[str, str], CallRecord]) -> None:
        """Take the calls of a turn, with what came of them, by name and arguments."""
        seen, again = self._seen, []
        for key, call in calls.items():
            output = hash(call.output)
            if key not in seen:
                seen[key] = output, 1
                continue
            before, turns = seen[key]
            if turns >= _PATIENCE and (output == before or key[0] in self.withheld):
                self.is_stuck = True
                return
            turns = turns + 1 if output == before else 1
            seen[key] = output, turns
            if turns >= _PATIENCE:
                again.append(key[0])
        if again or self.withheld:
            self.withheld = frozenset(again)
