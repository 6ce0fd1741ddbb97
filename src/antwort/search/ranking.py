"""Scores between 0 and 1, how much of a query's words texts have, and one order out of two."""

import math
import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TypeVar

from antwort.search.vectors import Hit, Query

K = TypeVar("K", bound=Hashable)

_RANK_CONSTANT = 10
"""The `k` of reciprocal rank fusion: how little the first ranks stand out. What stands last is there by chance."""
FEWEST = 40
"""Hits of each search that are joined, at least."""
_WORDS = 0.6
"""How much of a score words have, where nobody says. This and the next were chosen with the questions of
`benchmarks/questions`, and hold for those of `benchmarks/faqs.py`."""
_TRUST = 1.5
"""The power of a text's share of the query's words by which its score by words counts."""
_WORD = re.compile(r"\w+")
_ENDING = re.compile(r"(?:ing|ed|es|s|e)$")
_LONG = 4
"""Letters from which on a word may have an ending."""
_MOST_WORDS = 64
"""Words of a query that are looked for."""


def cosine_score(cosine: float) -> float:
    """Map a cosine to a score: itself, with 0 for what points elsewhere."""
    return 0.0 if math.isnan(cosine) else min(1.0, max(0.0, cosine))


def saturated(raw: float, half: float) -> float:
    """Map a score without an upper end to one below 1, in the same order; `half` becomes 0.5."""
    return raw / (raw + half) if raw > 0 else 0.0


def candidates(query: Query) -> int:
    """Return how many hits each of two searches must bring to be joined."""
    return max(FEWEST, query.limit)


def joint_scores(
    by_vector: Mapping[K, str], by_keyword: Mapping[K, str], weights: tuple[float, float] | None, query: str
) -> dict[K, float]:
    """Join two orders by their ranks; each gives the texts of what it found, best first.

    A rank by words counts as much as the text has of the query's words, squared: a question in words of its own finds
    many texts by one word or two, and these say little. What leads both, and has all the words, scores 1.
    """
    heaviest = max(weights) if weights is not None else 0.0
    heavy = (1.0, 1.0) if weights is None or heaviest <= 0 else (weights[0] / heaviest, weights[1] / heaviest)
    most = sum(heavy) / (_RANK_CONSTANT + 1)
    trust = _trust(by_vector, by_keyword, query) if min(heavy) > 0 else {}
    scores: dict[K, float] = {}
    if heavy[0] > 0:
        scores = {key: heavy[0] / (_RANK_CONSTANT + rank) for rank, key in enumerate(by_vector, start=1)}
    if heavy[1] > 0:
        for rank, key in enumerate(by_keyword, start=1):
            scores[key] = scores.get(key, 0.0) + heavy[1] * trust.get(key, 1.0) / (_RANK_CONSTANT + rank)
    return {key: min(1.0, score / most) for key, score in scores.items()}


def _trust(by_vector: Mapping[K, str], by_keyword: Mapping[K, str], query: str, power: float = 2.0) -> dict[K, float]:
    texts = {**by_vector, **by_keyword}
    shares = word_shares(query, list(texts.values()))
    return {key: share**power for key, share in zip(texts, shares, strict=True)}


def balanced_scores(by_vector: Mapping[K, Hit], by_keyword: Mapping[K, Hit], query: str) -> dict[K, float]:
    """Join what two searches have found by their scores, each measured by its best; what leads both scores 1.

    By meaning the last of those that are looked at counts nothing, as everything is a little like a query. By words a
    text counts as far as it has those of the query: a question in words of its own finds many by one word or two.
    """
    near = sorted((hit.score for hit in by_vector.values()), reverse=True)
    nearest, least = (near[0], near[:FEWEST][-1]) if near else (0.0, 0.0)
    raw = {key: _unsaturated(hit.score) for key, hit in by_keyword.items()}
    most = max(raw.values(), default=0.0)
    texts = [{key: hit.text for key, hit in found.items()} for found in (by_vector, by_keyword)]
    trust = _trust(texts[0], texts[1], query, _TRUST)
    scores = {key: (1 - _WORDS) * _share(hit.score - least, nearest - least) for key, hit in by_vector.items()}
    for key, score in raw.items():
        scores[key] = scores.get(key, 0.0) + _WORDS * trust[key] * _share(score, most)
    return scores


def _share(part: float, whole: float) -> float:
    """Return a part of a whole; where all are alike, each is the best."""
    return max(0.0, part / whole) if whole > 0 else 1.0


def _unsaturated(score: float) -> float:
    """Return a score as it was before `saturated`, but for a factor."""
    return score / max(1e-9, 1 - score)


def fused(
    by_vector: Sequence[Hit], by_keyword: Sequence[Hit], weights: tuple[float, float] | None, query: str = ""
) -> list[Hit]:
    """Join what two searches of one collection found: by their ranks if somebody has weighed these, else by scores."""
    near, worded = ({hit.id: hit for hit in hits} for hits in (by_vector, by_keyword))
    hits = worded | near
    like = likenesses({hit.id: hit.score for hit in by_vector}, hits)
    if weights is None or max(weights) <= 0:
        scores = balanced_scores(near, worded, query)
    else:
        texts = [{key: hit.text for key, hit in found.items()} for found in (near, worded)]
        scores = joint_scores(texts[0], texts[1], weights, query)
    return [_with_scores(hits[key], score, like[key]) for key, score in scores.items()]


def _with_scores(hit: Hit, score: float, likeness: float) -> Hit:
    """Return a hit with other scores; `replace` takes four times as long, and there are hundreds."""
    return Hit(hit.id, score, hit.text, hit.file_id, hit.filename, hit.index, hit.attributes, likeness)


def likenesses(near: Mapping[K, float], found: Iterable[K]) -> dict[K, float]:
    """Return how like the query each is of what was found, by the scores of what a search by vectors has found.

    What was found by words alone is not more like it than the last of those, and counts as much.
    """
    least = min(near.values(), default=0.0)
    return {key: near.get(key, least) for key in found}


def finish(hits: Iterable[Hit], query: Query) -> list[Hit]:
    """Put hits in order and drop what the query does not want."""
    least, like = query.threshold or 0.0, query.least_likeness or 0.0
    wanted = [hit for hit in hits if hit.score >= least and (hit.likeness is None or hit.likeness >= like)]
    return sorted(wanted, key=lambda hit: (-hit.score, hit.id))[: query.limit]


# --- words -----------------------------------------------------------------------------------------------------------


def word_shares(query: str, texts: Sequence[str]) -> list[float]:
    """Return which share of a query's words each text has, 0 to 1. A word that is rare among the texts counts more.

    If none of them is recognised anywhere, as in languages that do not part words, each text has all.
    """
    stems = _stems(query)
    had = [[_begins_word(stem, text) for stem in stems] for text in map(str.casefold, texts)]
    rarity = [_rarity(len(texts), sum(column)) for column in zip(*had, strict=True)]
    if not any(map(any, had)):
        return [1.0] * len(texts)
    whole = sum(rarity)
    return [sum(rare for rare, there in zip(rarity, one, strict=True) if there) / whole for one in had]


def _stems(query: str) -> list[str]:
    words = (word if len(word) < _LONG else _ENDING.sub("", word) for word in _WORD.findall(query.casefold()))
    return list(dict.fromkeys(words))[:_MOST_WORDS]


def _begins_word(stem: str, text: str) -> bool:
    """Tell whether a word of a text begins with a stem; an expression would take three times as long."""
    at = text.find(stem)
    while at > 0 and (text[at - 1].isalnum() or text[at - 1] == "_"):
        at = text.find(stem, at + 1)
    return at >= 0


def _rarity(texts: int, having: int) -> float:
    return math.log((texts - having + 0.5) / (having + 0.5) + 1)
