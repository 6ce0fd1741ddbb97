"""Values of several parameters of a test, each with each other where there is time for it."""

import itertools
import os
from collections.abc import Sequence
from typing import Any

__all__ = ["crossed"]


def crossed(*columns: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Return rows of values: all there are with the large counts, else as few as have each value of each column."""
    if os.environ.get("ANTWORT_TEST_FULL"):
        return list(itertools.product(*columns))
    return [tuple(column[row % len(column)] for column in columns) for row in range(max(map(len, columns)))]
