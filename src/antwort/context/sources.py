"""What an answer may cite: sources, and the numbers under which a model reads them."""

from collections.abc import Mapping
from threading import Lock

from msgspec import Struct, field


class Source(Struct, frozen=True):
    """Something a function found or made and an answer may cite: a page by its URL, or a file by its id."""

    title: str
    url: str | None = None
    file_id: str | None = None
    container_id: str | None = None
    """Where the file is, if code in a container has made it."""
    other_urls: tuple[str, ...] = ()
    """Further URLs that stand for the same."""


class _Numbers(Struct, eq=False):
    """Which source has which number. Functions in worker threads ask too, so one at a time."""

    sources: dict[int, Source] = {}
    _of: dict[Source, int] = {}
    _last: int = 0
    _lock: Lock = field(default_factory=Lock)

    def number(self, source: Source) -> int:
        """Return the number of a source; a new one gets the next."""
        with self._lock:
            known = self._of.get(source)
            return self._put(self._last + 1, source) if known is None else known

    def restore(self, numbered: Mapping[int, Source]) -> None:
        """Put sources under numbers they had before."""
        with self._lock:
            for number, source in numbered.items():
                self._put(number, source)

    def _put(self, number: int, source: Source) -> int:
        before = self.sources.get(number)
        if before is not None and self._of.get(before) == number:
            del self._of[before]  # its number means another one now
        self.sources[number], self._of[source] = source, number
        self._last = max(self._last, number)
        return number


class Sources(Struct, eq=False):
    """What an answer may cite, numbered from 1 in the order it was found; the same source keeps its number.

    A response that continues others starts with theirs, and goes on from their last number: the model still reads it.
    """

    _numbers: _Numbers = field(default_factory=_Numbers)
    _noted: dict[int, Source] = {}

    def add(self, source: Source) -> int:
        """Return the number under which a function shows a source to the model, as in `[3]`."""
        source = _storable(source)
        number = self._numbers.number(source)
        self._noted[number] = source
        return number

    def numbered(self) -> dict[int, Source]:
        """Return all sources by number."""
        return dict(self._numbers.sources)

    def __bool__(self) -> bool:
        """Tell whether there is anything to cite."""
        return bool(self._numbers.sources)

    def noting(self) -> "Sources":
        """Return the same sources for one call, whose `noted` are those that were added there."""
        return Sources(self._numbers)

    def noted(self) -> dict[int, Source]:
        """Return the sources that were added here, by number, whether they were known before or not."""
        return dict(self._noted)

    def restore(self, numbered: Mapping[int, Source]) -> None:
        """Put sources back under the numbers that they had; what had one of these before has none any more."""
        self._numbers.restore(numbered)


def _storable(source: Source) -> Source:
    """Return a source of texts that can be encoded: it is kept with the call that noted it."""
    url, file_id, container_id = (
        None if value is None else _text(value) for value in (source.url, source.file_id, source.container_id)
    )
    return Source(_text(source.title), url, file_id, container_id, tuple(map(_text, source.other_urls)))


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"The title, the URL and the ids of a source are texts, not {type(value).__name__}.")
    return value.encode(errors="replace").decode()  # a lone surrogate can neither be stored nor sent
