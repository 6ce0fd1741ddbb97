"""What there is of a response before it is made: nothing, unless readers know of it, or another process began it."""

from collections.abc import Mapping, Sequence

import msgspec

from antwort.engine.calls.answers import Answer


class Earlier(msgspec.Struct, frozen=True, eq=False):
    """What there is of a response before a loop makes it, or goes on with it."""

    sequence: int = 0
    """How many events readers were told."""
    positions: Sequence[int] = ()
    """Where the items that they were told of stand in the output; -1 for those that are no part of it."""
    resumed: bool = False
    """Whether it goes on, from what is stored."""
    answers: Mapping[str, Answer] = {}
    """What was said to calls that wait, by question."""


NOTHING = Earlier()
