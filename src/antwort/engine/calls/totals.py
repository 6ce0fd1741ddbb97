"""How far a response has come: what its limits count, and what whoever continues it must know besides its items."""

from collections.abc import Iterable, Mapping

import msgspec

from antwort.storage.base import JournalEntry
from antwort.storage.call_record import CallRecord
from antwort.types import JSON
from antwort.wire.responses import NO_USAGE, Usage

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


class Totals:
    """Totals of one response. They change all the time, which structs are slow at."""

    __slots__ = ("made", "repetition", "summarised", "tool_calls", "turns", "usage", "without_tools")

    def __init__(self) -> None:
        self.turns = 0
        self.tool_calls = 0
        self.without_tools = False
        """The limit of calls is reached: the model is offered no functions any more."""
        self.usage: Usage = NO_USAGE
        self.summarised = 0
        """Tokens written in summaries, which are in `usage` and no part of the answer."""
        self.made: dict[tuple[str, str], int] = {}
        """How often each call was made, by name and arguments."""
        self.repetition = Repetition()
        """Whether the model makes the same calls again and again; whoever continues watches anew."""

    @property
    def written(self) -> int:
        """Tokens of the answer so far."""
        return self.usage.output_tokens - self.summarised

    def stored(self) -> JSON:
        """Return what is kept for whoever continues; `made` can be counted in the journal."""
        return {
            "turns": self.turns,
            "tool_calls": self.tool_calls,
            "without_tools": self.without_tools,
            "summarised": self.summarised,
            "usage": msgspec.to_builtins(self.usage),
        }

    @classmethod
    def restored(cls, stored: JSON, entries: Iterable[JournalEntry]) -> "Totals":
        """Return the totals as they were stored."""
        totals = cls()
        totals.turns = stored.get("turns", 0)
        totals.tool_calls = stored.get("tool_calls", 0)
        totals.without_tools = stored.get("without_tools", False)
        totals.summarised = stored.get("summarised", 0)
        totals.usage = msgspec.convert(stored.get("usage", {}), Usage)
        for entry in entries:
            if entry.call is not None and entry.direction == "output":
                key = entry.call.name, entry.call.arguments
                totals.made[key] = totals.made.get(key, 0) + 1
        return totals
