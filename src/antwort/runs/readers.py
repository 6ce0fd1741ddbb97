"""Who reads the events of which run: readers wait for news here, and runs learn whether anybody reads."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Readers:
    """The readers of all runs, by response id."""

    def __init__(self) -> None:
        self._news: dict[str, asyncio.Event] = {}
        self._reading: Counter[str] = Counter()
        self._elsewhere: Counter[str] = Counter()
        """Readers in other workers, of runs that are told."""
        self._told: dict[str, Callable[[bool], None]] = {}

    @property
    def none(self) -> bool:
        """Tell whether nobody reads, and no run is told of it."""
        return not (self._news or self._reading or self._told)

    @contextmanager
    def reading(self, response_id: str) -> Iterator[None]:
        """Read a run, as long as the block lasts."""
        self._reading[response_id] += 1
        self._tell(response_id)
        try:
            yield
        finally:
            self._reading[response_id] -= 1
            if not self._reading[response_id]:
                del self._reading[response_id]
                self._news.pop(response_id, None)
                self._tell(response_id)

    @contextmanager
    def told(self, response_id: str, tell: Callable[[bool], None]) -> Iterator[None]:
        """Call something with whether a run has readers, now and whenever that changes, as long as the block lasts."""
        self._told[response_id] = tell
        self._tell(response_id)
        try:
            yield
        finally:
            del self._told[response_id]
            self._elsewhere.pop(response_id, None)

    def come_elsewhere(self, response_id: str) -> None:
        """Take note that somebody reads a run in another worker; one who dies there is taken for a reader for ever."""
        if response_id in self._told:
            self._elsewhere[response_id] += 1
            self._tell(response_id)

    def leave_elsewhere(self, response_id: str) -> None:
        """Take note that such a reader has left."""
        if response_id in self._elsewhere:
            self._elsewhere[response_id] -= 1
            if not self._elsewhere[response_id]:
                del self._elsewhere[response_id]
            self._tell(response_id)

    def news(self, response_id: str) -> asyncio.Event:
        """Return what is set when there is something new about a run after this."""
        return self._news.setdefault(response_id, asyncio.Event())

    def wake(self, response_id: str) -> None:
        """Tell the readers of a run that there is something new."""
        news = self._news.pop(response_id, None)
        if news is not None:
            news.set()

    def wake_all(self) -> None:
        """Tell all readers so."""
        for response_id in list(self._news):
            self.wake(response_id)

    def _tell(self, response_id: str) -> None:
        tell = self._told.get(response_id)
        if tell is not None:
            tell(response_id in self._reading or response_id in self._elsewhere)
