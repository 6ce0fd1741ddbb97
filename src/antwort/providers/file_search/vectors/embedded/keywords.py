"""Keyword search of a small collection of the embedded database: BM25 as its index of texts computes it, without one.

That index takes 32 MB and 10 ms to open, however little is in it: too much for each of a thousand small collections.
"""

import math
from collections import Counter
from typing import Any

import qdrant_edge as edge

_SATURATION, _LENGTH = 1.2, 0.75
"""The `k` and `b` of BM25, as the library has them."""
_ALL = 1_000_000


class KeywordSearch:
    """Compares texts by their words, which the library finds in them: stemmed, without stop words."""

    def __init__(self) -> None:
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

    def search(
        self, shard: edge.EdgeShard, where: edge.Filter, text: str, limit: int, fields: list[str], *, own: edge.Filter
    ) -> list[tuple[str, float, dict[str, Any]]]:
        """Return points that have a word of a text, best first.

        How rare a word is, `own` says: all of one's points, and none of others, whose words are not to be guessed.
        """
        wanted = self._model.embed_query(text).indices
        everything, _ = shard.scroll(edge.ScrollRequest(limit=_ALL, filter=own, with_payload=["text"]))
        texts = {point.id: str((point.payload or {}).get("text", "")) for point in everything}
        counts = {point: self._counts(text) for point, text in texts.items() if text}
        average = sum(map(Counter.total, counts.values())) / max(1, len(counts))
        rarity = {word: _rarity(len(counts), sum(word in one for one in counts.values())) for word in wanted}
        fitting, _ = shard.scroll(edge.ScrollRequest(limit=_ALL, filter=where, with_payload=fields))
        found = [
            (str(one.id), _score(counts[one.id], rarity, average), one.payload or {})
            for one in fitting
            if one.id in counts
        ]
        return sorted((one for one in found if one[1] > 0), key=lambda one: (-one[1], one[0]))[:limit]

    def _counts(self, text: str) -> Counter[int]:
        found = self._model.embed_document(text)
        return Counter({word: round(one / (2 - one)) for word, one in zip(found.indices, found.values, strict=True)})


def _rarity(texts: int, having: int) -> float:
    return math.log((texts - having + 0.5) / (having + 0.5) + 1)


def _score(counts: Counter[int], rarity: dict[int, float], average: float) -> float:
    length = _SATURATION * (1 - _LENGTH + _LENGTH * counts.total() / average) if average else 1.0
    return sum(rare * counts[word] * (_SATURATION + 1) / (counts[word] + length) for word, rare in rarity.items())
