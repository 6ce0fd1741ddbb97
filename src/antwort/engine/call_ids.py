"""The ids by which calls and their outputs find each other."""

from collections.abc import Callable, Iterable
from typing import Any

from antwort.types import JSON
from antwort.wire.ids import new_id

__all__ = ["CallIds"]


class CallIds:
    """Makes the ids of a response's calls unique among themselves and what the model has read before.

    Model servers give the same id to parallel calls, or number those of each turn anew. `items` gives what came before;
    it is asked with the first call.
    """

    def __init__(self, items: Callable[[], Iterable[JSON]] | None = None) -> None:
        self._items = items
        self._taken: set[Any] = set()

    def unique(self, call_id: str) -> str:
        """Return the id if no other call has it, else a new one."""
        if self._items is not None:
            self._taken.update(item["call_id"] for item in self._items() if "call_id" in item)
            self._items = None
        if call_id in self._taken:
            return self.new()
        self._taken.add(call_id)
        return call_id

    def new(self) -> str:
        """Return an id for a call that came without one."""
        return new_id("call")
