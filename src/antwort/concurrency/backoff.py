"""Pauses between tries, each twice the last: whoever is away for long is asked seldom, and not by all at once."""

import random
from collections.abc import Callable, Iterator
from itertools import count

from msgspec import Struct

_MOST_DOUBLINGS = 64
"""After which any pause has reached the longest: a larger power of two might be no float any more."""


class Backoff(Struct, frozen=True):
    """How long to wait before the next try, in seconds.

    The pause after the first try has the length `first`; it doubles with each further try up to `longest`. Where many
    clients wait for the same server, a share of each pause is left to chance, so that they do not all come back at one
    moment: 0 is none of it, 1 all of it ("full jitter").
    """

    first: float
    longest: float
    random_share: float = 0.0
    jitter: Callable[[float, float], float] = random.uniform
    """Draws a number between two others."""

    def bound(self, tries: int) -> float:
        """Return the longest that the next pause can be, after so many tries that had one."""
        return min(self.longest, self.first * 2.0 ** min(tries, _MOST_DOUBLINGS))

    def pause(self, tries: int) -> float:
        """Return the next pause, after so many tries that had one."""
        bound = self.bound(tries)
        return self.jitter(bound * (1.0 - self.random_share), bound) if self.random_share else bound

    def pauses(self) -> Iterator[float]:
        """Give one pause after the other, without end."""
        return map(self.pause, count())
