"""Keyword search of a small collection of the embedded database: BM25 as its index of texts computes it, without one.

That index takes 32 MB and 10 ms to open, however little is in it: too much for each of a thousand small collections.
Finding the words of all texts is what takes long, so they are kept until the collection is written to.
"""

import math
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import qdrant_edge as edge

_SATURATION, _LENGTH = 1.2, 0.75
"""The `k` and `b` of BM25, as the library has them."""
_ALL = 1_000_000
_KEPT = 2_000_000
"""Characters of the texts whose words are kept: they take about ten times as many bytes."""

STEMMED = "stemmed"
"""Where a point says in which language its words are, if that is none of those that are read as English."""
LANGUAGES: Mapping[str, str] = {
    "ar": "Arabic",
    "da": "Danish",
    "de": "German",
    "el": "Greek",
    "es": "Spanish",
    "fi": "Finnish",
    "fr": "French",
    "hu": "Hungarian",
    "it": "Italian",
    "ja": "Japanese",
    "nl": "Dutch",
    "no": "Norwegian",
    "pt": "Portuguese",
    "ro": "Romanian",
    "ru": "Russian",
    "sv": "Swedish",
    "tr": "Turkish",
    "zh": "Chinese",
}
"""Languages whose words are known, by their codes, as the library names them."""
_UNPARTED = frozenset({"ja", "zh"})
"""Those that are written without spaces, and have no endings."""

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
    languages: Mapping[str, frozenset[str]]
    """The points of each language; that of English is empty."""
    average: float
    size: int
    """Characters of the texts."""


class KeywordSearch:
    """Compares texts by their words, which the library finds in them: stemmed by their language, without stop words."""

    def __init__(self, *, kept: int = _KEPT) -> None:
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
        for language, points in words.languages.items():
            for word in _model(language).embed_query(text).indices:
                having = words.where.get(word, {})
                rarity = _rarity(len(words.lengths), len(having))
                for point, count in having.items():
                    if point in points:
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
        everything, _ = shard.scroll(edge.ScrollRequest(limit=_ALL, filter=own, with_payload=["text", STEMMED]))
        where: defaultdict[int, dict[str, int]] = defaultdict(dict)
        lengths: dict[str, int] = {}
        languages: defaultdict[str, set[str]] = defaultdict(set)
        size = 0
        for point in everything:
            payload = point.payload or {}
            if text := str(payload.get("text", "")):
                id_, language = str(point.id), str(payload.get(STEMMED, ""))
                counts = _counts(text, language)
                lengths[id_] = counts.total()
                languages[language].add(id_)
                size += len(text)
                for word, count in counts.items():
                    where[word][id_] = count
        parted = {language: frozenset(ids) for language, ids in languages.items()}
        return _Words(where, lengths, parted, sum(lengths.values()) / max(1, len(lengths)), size)


def stemmed_as(attributes: Mapping[str, Any]) -> str:
    """Return the language that the words of a text are read in, by its attribute `language`; empty for English.

    A code may be followed by a region, as in `pt-BR`; the English name of a language does as well.
    """
    said = str(attributes.get("language", "")).lower()
    named = next((code for code, name in LANGUAGES.items() if name.lower() == said), said)
    code = named.replace("_", "-").partition("-")[0]
    return code if code in LANGUAGES else ""


def text_field(language: str) -> str:
    """Return where a text of a language is once more, with an index that stems it so; that of English has them all."""
    return f"text_{language}" if language else "text"


def language_of_field(field: str) -> str | None:
    """Return of which language the texts of a field are; None if it has no texts."""
    return next((one for one in ("", *LANGUAGES) if text_field(one) == field), None)


def text_index(language: str) -> edge.TextIndexParams:
    """Return the index of texts of a language."""
    name = LANGUAGES.get(language, "English")
    return edge.TextIndexParams(
        tokenizer=_tokenizer(language),
        lowercase=True,
        stopwords=getattr(edge.Language, name),
        stemmer=_stemmer(language),
        scoring=True,
    )


def rarest(texts: int) -> float:
    """Return what a word counts that one of so many texts has."""
    return _rarity(texts, 1)


@cache
def _model(language: str) -> edge.Bm25:
    return edge.Bm25(
        edge.Bm25Config(
            k=1.0,  # so that a weight is 2n / (n + 1) of a word that is there n times
            b=0.0,
            tokenizer=_tokenizer(language),
            lowercase=True,
            stopwords=getattr(edge.Language, LANGUAGES.get(language, "English")),
            stemmer=_stemmer(language),
        )
    )


def _tokenizer(language: str) -> edge.TokenizerType:
    return edge.TokenizerType.Multilingual if language in _UNPARTED else edge.TokenizerType.Word


def _stemmer(language: str) -> edge.SnowballParams | None:
    if language in _UNPARTED:
        return None
    return edge.SnowballParams(getattr(edge.SnowballLanguage, LANGUAGES.get(language, "English")))


def _counts(text: str, language: str) -> Counter[int]:
    found = _model(language).embed_document(text)
    return Counter({word: round(one / (2 - one)) for word, one in zip(found.indices, found.values, strict=True)})


def _rarity(texts: int, having: int) -> float:
    return math.log((texts - having + 0.5) / (having + 0.5) + 1)


def _weight(count: int, length: int, average: float) -> float:
    room = _SATURATION * (1 - _LENGTH + _LENGTH * length / average) if average else 1.0
    return count * (_SATURATION + 1) / (count + room)
