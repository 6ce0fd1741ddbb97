"""How much of a query's words texts have: what tells a match from a few words that happen to be there."""

import math
import re
from collections.abc import Sequence

_WORD = re.compile(r"\w+")
_ENDING = re.compile(r"(?:ing|ed|es|s|e)$")
_LONG = 4
"""Letters from which on a word may have an ending."""
_MOST_WORDS = 64
"""Words of a query that are looked for."""


def word_shares(query: str, texts: Sequence[str]) -> list[float]:
    """Return which share of a query's words each text has, 0 to 1. A word that is rare among the texts counts more.

    If none of them is recognised anywhere, as in languages that do not part words, each text has all.
    """
    stems = _stems(query)
    had = [_had(stems, text.casefold()) for text in texts]
    rarity = [_rarity(len(texts), sum(column)) for column in zip(*had, strict=True)]
    if not any(map(any, had)):
        return [1.0] * len(texts)
    whole = sum(rarity)
    return [sum(rare for rare, there in zip(rarity, one, strict=True) if there) / whole for one in had]


def _stems(query: str) -> list[str]:
    words = (word if len(word) < _LONG else _ENDING.sub("", word) for word in _WORD.findall(query.casefold()))
    return list(dict.fromkeys(words))[:_MOST_WORDS]


def _had(stems: Sequence[str], text: str) -> list[bool]:
    """Tell which stems a text has at the beginning of a word; that they are in it at all is quicker to see."""
    return [stem in text and re.search(rf"\b{re.escape(stem)}", text) is not None for stem in stems]


def _rarity(texts: int, having: int) -> float:
    return math.log((texts - having + 0.5) / (having + 0.5) + 1)
