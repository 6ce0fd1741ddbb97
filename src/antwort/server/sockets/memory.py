"""What a WebSocket connection remembers of responses that are kept nowhere else."""

from collections.abc import Mapping, Sequence

import msgspec

from antwort.storage.base import JournalEntry

PRICE = 1024
"""Bytes that a response counts for besides its items."""
LANES = 64
"""Responses that are remembered at most."""

_encode = msgspec.json.Encoder().encode


class _Remembered(msgspec.Struct, frozen=True):
    """A response with all that came before it."""

    lane: str | None
    entries: Sequence[JournalEntry]
    size: int


class Memory:
    """The latest response of each lane, as long as they take no more than `limit` bytes; the oldest goes first.

    It belongs to one connection, so what is in it can be continued there and nowhere else.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._windows: dict[str, _Remembered] = {}
        self._size = 0

    def recall(self) -> Mapping[str, Sequence[JournalEntry]]:
        """Return the entries of each response that is remembered, by its id."""
        return {response_id: window.entries for response_id, window in self._windows.items()}

    def remember(
        self, lane: str | None, response_id: str, entries: Sequence[JournalEntry], *, previous: str | None
    ) -> None:
        """Keep a response in place of the one before it in its lane; `previous` is the one that it continues."""
        known = self._windows.get(previous) if previous is not None else None
        # What was measured once is not measured again: a long conversation would cost more with each turn.
        begin, size = (0, 0) if known is None else (len(known.entries), known.size)
        size += sum(_size(entry) for entry in entries[begin:])
        self.leave(lane)
        self._windows[response_id] = _Remembered(lane, entries, size)
        self._size += size + PRICE
        while self._size > self._limit or len(self._windows) > LANES:
            self.forget(next(iter(self._windows)))

    def leave(self, lane: str | None) -> None:
        """Forget the latest response of a lane: there is a newer one."""
        for response_id in [name for name, window in self._windows.items() if window.lane == lane]:
            self.forget(response_id)

    def forget(self, response_id: str | None) -> None:
        """Forget a response, if it is known."""
        window = self._windows.pop(response_id, None) if response_id is not None else None
        if window is not None:
            self._size -= window.size + PRICE


def _size(entry: JournalEntry) -> int:
    return len(_encode(entry.item)) + (0 if entry.call is None else len(_encode(entry.call)))
