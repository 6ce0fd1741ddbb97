"""Scores between 0 and 1, and one order out of two."""

import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from antwort.providers.file_search.vectors.base import Hit, Query

K = TypeVar("K", bound=Hashable)

_RANK_CONSTANT = 60
"""The `k` of reciprocal rank fusion: how little the first ranks stand out."""
FEWEST = 40
"""Hits of each search that are joined, at least."""


def cosine_score(cosine: float) -> float:
    """Map a cosine to a score: itself, with 0 for what points elsewhere."""
    return 0.0 if math.isnan(cosine) else min(1.0, max(0.0, cosine))


def saturated(raw: float, half: float) -> float:
    """Map a score without an upper end to one below 1, in the same order; `half` becomes 0.5."""
    return raw / (raw + half) if raw > 0 else 0.0


def candidates(query: Query) -> int:
    """Return how many hits each of two searches must bring to be joined."""
    return max(FEWEST, 4 * query.limit)


def joint_scores(
    by_vector: Sequence[K], by_keyword: Sequence[K], weights: tuple[float, float] | None
) -> dict[K, float]:
    """Join two orders by their ranks. What leads both scores 1; what leads one, the weight of that one."""
    heaviest = max(weights) if weights is not None else 0.0
    heavy = (1.0, 1.0) if weights is None or heaviest <= 0 else (weights[0] / heaviest, weights[1] / heaviest)
    most = sum(heavy) / (_RANK_CONSTANT + 1)
    scores: dict[K, float] = {}
    for weight, ranked in zip(heavy, (by_vector, by_keyword), strict=True):
        if weight <= 0:
            continue
        for rank, key in enumerate(ranked, start=1):
            scores[key] = scores.get(key, 0.0) + weight / (_RANK_CONSTANT + rank)
    return {key: min(1.0, score / most) for key, score in scores.items()}


def fused(by_vector: Sequence[Hit], by_keyword: Sequence[Hit], weights: tuple[float, float] | None) -> list[Hit]:
    """Join what two searches of one collection found."""
    scores = joint_scores([hit.id for hit in by_vector], [hit.id for hit in by_keyword], weights)
    hits = {hit.id: hit for hit in (*by_keyword, *by_vector)}
    return [replace(hits[key], score=score) for key, score in scores.items()]


def finish(hits: Iterable[Hit], query: Query) -> list[Hit]:
    """Put hits in order and drop what the query does not want."""
    least = query.threshold if query.threshold is not None else 0.0
    found = sorted((hit for hit in hits if hit.score >= least), key=lambda hit: (-hit.score, hit.id))
    return found[: query.limit]
