"""Windows that begin with what is the same from request to request: what is made of that is made once."""

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

import msgspec

from antwort.types import JSON
from antwort.wire.client_tools import CALLS, OUTPUTS

_OTHERS = frozenset({"user", "system", "developer"})

Shaped = Callable[[Sequence[JSON]], Sequence[JSON]]
"""Makes of items what a model server is sent of them."""


class Passage:
    """Items that mean the same whatever follows, as long as that opens. Nobody changes them.

    What a backend makes of them is kept with them. A passage that was extended is encoded as far as it is new.
    """

    __slots__ = ("_before", "_encoded", "items")

    def __init__(self, items: Sequence[JSON], before: "Passage | None" = None) -> None:
        self.items = items
        self._before = before  # of which something is made
        self._encoded: dict[Hashable, msgspec.Raw] = {}

    def extended(self, items: Sequence[JSON]) -> "Passage":
        """Return a passage with more items, which stand alone."""
        return Passage([*self.items, *items], self if self._encoded else self._before)

    def unmade(self) -> Sequence[JSON]:
        """Return the items of which nothing is made yet."""
        if self._encoded:
            return ()
        return self.items if self._before is None else self.items[len(self._before.items) :]

    def encoded(self, shape: Hashable, shaped: Shaped) -> msgspec.Raw:
        """Return what, put into a JSON list, is what a function makes of the items; `shape` names the function."""
        found = self._encoded.get(shape)
        if found is None:
            found = self._encoded[shape] = self._encode(shape, shaped)
            self._before = None  # it holds as much once more
        return found

    def _encode(self, shape: Hashable, shaped: Shaped) -> msgspec.Raw:
        before, new = self._before, self.items
        parts: list[bytes | memoryview] = []
        if before is not None and shape in before._encoded:
            parts.append(memoryview(before._encoded[shape]))
            new = new[len(before.items) :]
        parts += map(msgspec.json.encode, shaped(new))
        return msgspec.Raw(b",".join(parts))


class Window(list[JSON]):
    """Items in order, as any list of them, that begin with a passage; `rest` is behind it. Nobody changes it."""

    def __init__(self, passage: Passage, rest: Iterable[JSON]) -> None:
        super().__init__(passage.items)
        self.passage = passage
        self += rest

    @property
    def rest(self) -> list[JSON]:
        """The items behind the passage."""
        return self[len(self.passage.items) :]

    def extended(self, items: Iterable[JSON]) -> "Window":
        """Return a window with more items at its end."""
        return Window(self.passage, [*self.rest, *items])


def unmade(items: Sequence[JSON]) -> Sequence[JSON]:
    """Return those of a turn's items of which nothing is made yet."""
    return [*items.passage.unmade(), *items.rest] if isinstance(items, Window) else items


def shaped_items(items: Sequence[JSON], shape: Hashable, shaped: Shaped) -> list[Any]:
    """Return a turn's items as a dialect wants them, by a function; those of a passage come encoded, in one element."""
    if not isinstance(items, Window):
        return [*shaped(items)]
    return [items.passage.encoded(shape, shaped), *shaped(items.rest)]


def opens(item: JSON) -> bool:
    """Tell whether an item ends whatever the model was saying before it: a message that is not the model's."""
    return (item.get("type") or "message") == "message" and item.get("role") in _OTHERS


def stand_alone(items: Sequence[JSON]) -> bool:
    """Tell whether items mean the same whatever is before them, and behind them if that opens.

    They begin with a message that is not the model's, and each call has one output, and each output one call before it.
    """
    if not items or not opens(items[0]):
        return False
    waiting: set[object] = set()
    for item in items:
        kind, call_id = item.get("type"), item.get("call_id")
        if kind in CALLS:
            if call_id in waiting:
                return False
            waiting.add(call_id)
        elif kind in OUTPUTS:
            if call_id not in waiting:
                return False
            waiting.remove(call_id)
    return not waiting
