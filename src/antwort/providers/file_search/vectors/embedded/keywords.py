"""Keyword search of a small collection of the embedded database: BM25 as its index of texts computes it, without one.

That index takes 32 MB and 10 ms to open, however little is in it: too much for each of a thousand small collections.
Finding the words of all texts is what takes long, so they are kept until the collection is written to.
"""

import math
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import qdrant_edge as edge

_SATURATION, _LENGTH = 1.2, 0.75
"""The `k` and `b` of BM25, as the library has them."""
_ALL = 1_000_000
_KEPT = 2_000_000
"""Characters of the texts whose words are kept: they take about ten times as many bytes."""

Scored = list[tuple[str, float]]
"""Ids of points, each with its score, best first."""


@dataclass(frozen=True, slots=True)
class KeywordScope:
    """Some points of a collection, with a name that no others of it have."""

    collection: str
    name: str
    condition: edge.Filter


@dataclass(frozen=True, slots=True)
class _Words:
    """The words of some texts."""

    where: Mapping[int, Mapping[str, int]]
    """How often each word is in which points."""
    lengths: Mapping[str, int]
    """How many words each point has."""
    average: float
    size: int
    """Characters of the texts."""


class KeywordSearch:
    """Compares texts by their words, which the library finds in them: stemmed, without stop words."""

    def __init__(self, *, kept: int = _KEPT) -> None:
        self._model = edge.Bm25(
            edge.Bm25Config(
                k=1.0,  # so that a weight is 2n / (n + 1) of a word that is there n times
                b=0.0,
                tokenizer=edge.TokenizerType.Word,
                lowercase=True,
                stopwords=edge.Language.English,
                stemmer=edge.SnowballParams(edge.SnowballLanguage.English),
            )
        )
        self._kept = kept
        self._known: OrderedDict[tuple[str, str], _Words] = OrderedDict()

    @property
    def collections(self) -> list[str]:
        """Those whose words are known; those that were not searched for longest come first."""
        return [name for name, _ in self._known]

    def forget(self, name: str) -> None:
        """Let go of what is known of a collection, since it has changed."""
        for key in [key for key in self._known if key[0] == name]:
            del self._known[key]

    def search(
        self, shard: edge.EdgeShard, own: KeywordScope, where: edge.Filter | None, text: str, limit: int
    ) -> Scored:
        """Return points that have a word of a text, of those of `own` that fit `where`, or of all of them.

        How rare a word is, `own` says: all of one's points, and none of others, whose words are not to be guessed.
        """
        words = self._words(shard, own)
        scores: defaultdict[str, float] = defaultdict(float)
        for word in self._model.embed_query(text).indices:
            having = words.where.get(word, {})
            rarity = _rarity(len(words.lengths), len(having))
            for point, count in having.items():
                scores[point] += rarity * _weight(count, words.lengths[point], words.average)
        found = list(scores.items())
        if found and where is not None:
            some, _ = shard.scroll(edge.ScrollRequest(limit=_ALL, filter=where, with_payload=False))
            fitting = {str(point.id) for point in some}
            found = [one for one in found if one[0] in fitting]
        return sorted(found, key=lambda one: (-one[1], one[0]))[:limit]

    def _words(self, shard: edge.EdgeShard, own: KeywordScope) -> _Words:
        key = own.collection, own.name
        found = self._known.pop(key, None) or self._read(shard, own.condition)
        self._known[key] = found  # behind all others: it was used last
        while len(self._known) > 1 and sum(one.size for one in self._known.values()) > self._kept:
            self._known.popitem(last=False)
        return found

    def _read(self, shard: edge.EdgeShard, own: edge.Filter) -> _Words:
        everything, _ = shard.scroll(edge.ScrollRequest(limit=_ALL, filter=own, with_payload=["text"]))
        where: defaultdict[int, dict[str, int]] = defaultdict(dict)
        lengths: dict[str, int] = {}
        size = 0
        for point in everything:
            if text := str((point.payload or {}).get("text", "")):
                id_, counts = str(point.id), self._counts(text)
                lengths[id_] = counts.total()
                size += len(text)
                for word, count in counts.items():
                    where[word][id_] = count
        return _Words(where, lengths, sum(lengths.values()) / max(1, len(lengths)), size)

    def _counts(self, text: str) -> Counter[int]:
        found = self._model.embed_document(text)
        return Counter({word: round(one / (2 - one)) for word, one in zip(found.indices, found.values, strict=True)})


def _rarity(texts: int, having: int) -> float:
    return math.log((texts - having + 0.5) / (having + 0.5) + 1)


def _weight(count: int, length: int, average: float) -> float:
    room = _SATURATION * (1 - _LENGTH + _LENGTH * length / average) if average else 1.0
    return count * (_SATURATION + 1) / (count + room)
