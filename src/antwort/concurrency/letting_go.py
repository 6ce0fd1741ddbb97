"""Giving back the memory of something large, bit by bit: to free millions of values at once holds everybody up."""

import asyncio
import sys
from typing import Any

from antwort.concurrency.turns import Turns

MANY = 100_000
"""Values from which on it takes longer to free them than others should wait."""
_STEP = 10_000
_LOOKS, _PAUSE = 10, 0.005
"""How often, and after how many seconds, to look again: a thread that has written it may not have left it yet."""


def is_many(value: Any) -> bool:
    """Tell whether something has so many parts that it takes long to free them."""
    return type(value) in {list, dict} and len(value) >= MANY


async def let_go(held: list[Any]) -> None:
    """Free what is in a list, which is empty then. Whatever somebody else has, too, is left alone.

    Nobody may have a name for it any more: whether somebody else has it is told by the count of its references.
    """
    turns = Turns()
    while held:
        value = held.pop()
        looks = _LOOKS
        while sys.getrefcount(value) > 2 and looks:  # this name, and the argument
            looks -= 1
            await asyncio.sleep(_PAUSE)
        while value and looks:
            if type(value) is list:
                del value[-_STEP:]
            else:
                for _ in range(min(_STEP, len(value))):
                    value.popitem()
            await turns.give()
