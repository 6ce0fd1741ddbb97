"""Dropping the oldest part of a window that is too long, so that what remains still makes sense."""

from collections.abc import Callable, Sequence
from typing import Any

from antwort.engine.window import CALLS, INSTRUCTING, OUTPUTS, is_summary
from antwort.types import JSON

__all__ = ["shortened"]


def shortened(items: Sequence[JSON], fits: Callable[[Sequence[JSON]], bool]) -> list[JSON] | None:
    """Drop as few of the oldest items as are needed; None if nothing is left to drop.

    Instructions (messages of the system and the developer) and summaries stay, and so do the user's last message and
    what the model has read last. A call is dropped with its output, never alone.
    """
    units = _units(items)
    droppable = [number for number, unit in enumerate(units) if unit.droppable]
    if not droppable:
        return None

    def without(count: int) -> list[JSON]:
        dropped = set(droppable[:count])
        kept = sorted(index for number, unit in enumerate(units) if number not in dropped for index in unit.indexes)
        return [items[index] for index in kept]

    low, high = 1, len(droppable)
    while low < high:  # by bisection: to measure a window costs as much as the window is long
        middle = (low + high) // 2
        if fits(without(middle)):
            high = middle
        else:
            low = middle + 1
    return without(low)


class _Unit:
    """Items that stay or go together."""

    __slots__ = ("droppable", "indexes")

    def __init__(self, index: int, *, droppable: bool = True) -> None:
        self.indexes = [index]
        self.droppable = droppable


def _units(items: Sequence[JSON]) -> list[_Unit]:
    """Put calls together with their outputs, and thoughts with what they led to."""
    units: list[_Unit] = []
    by_call: dict[Any, _Unit] = {}
    thoughts: list[int] = []
    calls: _Unit | None = None
    for index, item in enumerate(items):
        kind = item.get("type") or "message"
        if kind == "reasoning":
            thoughts.append(index)
            continue
        if kind in OUTPUTS and item.get("call_id") in by_call:
            by_call[item["call_id"]].indexes.append(index)
            continue
        if kind in CALLS and calls is not None:
            calls.indexes.append(index)  # parallel calls
        else:
            units.append(_Unit(index, droppable=item.get("role") not in INSTRUCTING and not is_summary(item)))
        unit = units[-1]
        calls = unit if kind in CALLS else None
        if kind in CALLS:
            by_call[item.get("call_id")] = unit
        unit.indexes += thoughts
        thoughts = []
    if thoughts:
        units.append(_Unit(thoughts[0]))
        units[-1].indexes = thoughts
    _hold(units, items)
    return units


def _hold(units: list[_Unit], items: Sequence[JSON]) -> None:
    """Mark the user's last message, and the last unit, as not to be dropped."""
    if units:
        units[-1].droppable = False
    for unit in reversed(units):
        if any(items[index].get("role") == "user" for index in unit.indexes):
            unit.droppable = False
            break
