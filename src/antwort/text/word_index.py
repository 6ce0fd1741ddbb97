"""An index of short texts by their words: made in a moment, kept in memory, searched in the order of relevance."""

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import nsmallest
from typing import NamedTuple

_SATURATION, _LENGTHS = 1.2, 0.6
"""The `k1` and `b` of BM25: how soon a word that comes again counts no more, and how much long texts are held back."""
_ALIKE = 0.35
"""What a word counts that means about the same as one of the query."""
_LONG = 4
"""Letters from which on a word may have an ending."""
_MOST_WORDS = 64
"""Words of a query that are looked for."""
_WORD = re.compile(r"[^\W\d_]+|\d+")
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_UNPARTED = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_ENDING = re.compile(r"(?:ing|ed|es|s|e)$")
_GROUPS = (
    "get fetch read retrieve load download show view look",
    "list enumerate all browse index",
    "find search query lookup seek discover look",
    "create add new make insert register post open generate",
    "update edit change modify set patch rename adjust",
    "delete remove erase drop clear discard purge",
    "send deliver dispatch submit notify publish push",
    "cancel abort stop terminate end close revoke",
    "start begin launch run execute trigger invoke",
    "mail email message letter",
    "buy purchase order shop",
    "invoice bill receipt",
    "pay payment charge transfer refund money",
    "customer client buyer",
    "person people user member contact employee",
    "file document attachment",
    "folder directory path",
    "picture image photo",
    "calendar meeting appointment event schedule booking reservation",
    "ticket issue bug task todo",
    "price cost rate quote fee",
    "weather forecast temperature rain climate",
    "translate translation language",
    "summary summarise summarize digest shorten",
    "convert transform exchange",
    "count number amount total sum statistics",
    "car vehicle auto",
    "place location city address where",
    "time date day clock when today",
)
"""Words that mean about the same in names of functions."""
_SAYING_NOTHING = (
    "a an and any are as at be by can do does for from have how i if in into is it its me my of on one or our please "
    "some so that the their there these this to us was we what which will with would you your"
)
"""Words that say nothing of what is meant."""


class Text(NamedTuple):
    """A part of what is indexed, such as its name, and how much its words count."""

    text: str
    weight: float = 1.0


class _Entry(NamedTuple):
    counts: Mapping[str, float]
    length: float


class WordIndex:
    """What there is to be found: for each entry its words, with how much they count."""

    def __init__(self, entries: Iterable[Iterable[Text]]) -> None:
        self._entries = [*map(_counted, entries)]
        self._having: defaultdict[str, list[int]] = defaultdict(list)
        for number, entry in enumerate(self._entries):
            for word in entry.counts:
                self._having[word].append(number)

    def __len__(self) -> int:
        return len(self._entries)


def best(indexes: Sequence[WordIndex], query: str, most: int, *, least: float = 0.0) -> list[tuple[int, int]]:
    """Return what fits a query best: the numbers of the indexes and of their entries, in a stable order.

    Several indexes are searched as if they were one. What scores less than that part of the best is left out.
    """
    words = _query(query)
    total = sum(map(len, indexes))
    if not words or not total:
        return []
    mean = sum(entry.length for index in indexes for entry in index._entries) / total or 1.0
    scores: defaultdict[tuple[int, int], float] = defaultdict(float)
    for word, counts in words.items():
        having = [index._having.get(word, ()) for index in indexes]
        found = sum(map(len, having))
        if not found:
            continue
        rare = math.log(1 + (total - found + 0.5) / (found + 0.5)) * counts
        for place, numbers in enumerate(having):
            entries = indexes[place]._entries
            for number in numbers:
                entry = entries[number]
                times = entry.counts[word]
                room = _SATURATION * (1 - _LENGTHS + _LENGTHS * entry.length / mean)
                scores[place, number] += rare * times * (_SATURATION + 1) / (times + room)
    ranked = nsmallest(most, scores, key=lambda key: (-scores[key], key))
    return [key for key in ranked if scores[key] >= least * scores[ranked[0]]]


def words_of(text: str) -> Iterator[str]:
    """Yield the words of a text without their endings; those within names such as `listOpen_orders` too.

    What is written without blanks, such as Chinese, is cut into pairs of characters.
    """
    for word in _WORD.findall(text):
        if _UNPARTED.match(word):
            yield from (word[at : at + 2] for at in range(max(1, len(word) - 1)))
        else:
            yield from (_stem(part.casefold()) for part in _CAMEL.split(word))


def _stem(word: str) -> str:
    return word if len(word) < _LONG else _ENDING.sub("", word)


def _counted(texts: Iterable[Text]) -> _Entry:
    counts: defaultdict[str, float] = defaultdict(float)
    length = 0.0
    for text, weight in texts:
        for word in words_of(text):
            counts[word] += weight
            length += 1
    return _Entry(counts, length)


def _query(query: str) -> dict[str, float]:
    """Return the words of a query, and those that mean about the same, with how much they count."""
    given = [*dict.fromkeys(words_of(query))][:_MOST_WORDS]
    words = [word for word in given if word not in _FILLING] or given
    found: dict[str, float] = {}
    for word in words:
        for alike in _LIKE.get(word, ()):
            found[alike] = _ALIKE
    return found | dict.fromkeys(words, 1.0)


def _alike() -> dict[str, frozenset[str]]:
    found: dict[str, frozenset[str]] = {}
    for group in _GROUPS:
        stems = frozenset(map(_stem, group.split()))
        for stem in stems:
            found[stem] = found.get(stem, frozenset()) | stems
    return found


_LIKE = _alike()
_FILLING = frozenset(map(_stem, _SAYING_NOTHING.split()))
