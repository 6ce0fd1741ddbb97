"""Words of a text and of a tool definition, made comparable."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from antwort.types import JSON

__all__ = ["Tool", "clean", "offered", "sentences", "shortened", "significant", "words"]


_WORD = re.compile(r"[A-ZÄÖÜ]?[a-zäöüß]+|[A-ZÄÖÜ]+(?![a-zäöüß])|\d+")
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=\S)")
_EMPTY_WORDS = frozenset(
    (  # noqa: SIM905 — words are read more easily as one text
        "a about above after all also am an and any are as at be been but by call can could current did do does each "
        "for from get give given has have hello hey hi how i if in into is it its just know let like list make many me "
        "more much my no not now of on one or our out over please run say set show so some such tell thank thanks that "
        "the their them then there these they this to too try two up use user want was we were what when where which "
        "who whose why will with would yes you your "
        "auf aus bei bitte das dem den der die du ein eine einen er es für hallo ich im ist ja kann mein mir mit nach "
        "nein nicht oder sie sind um und uns viel von war wer wie wir wo zu zum zur"
    ).split()
)


def clean(text: str) -> str:
    """Return text that can be encoded: a lone surrogate becomes a question mark."""
    return text if text.isascii() else text.encode(errors="replace").decode()


def words(text: str) -> tuple[str, ...]:
    """Return the words of a text or of an identifier in any style, in lower case and without a plural's `s`."""
    return tuple(_singular(word.lower()) for word in _WORD.findall(text))


def significant(found: Iterable[str]) -> frozenset[str]:
    """Return the words that tell what a text is about."""
    return frozenset(word for word in found if len(word) > 1 and not word.isdigit() and word not in _EMPTY_WORDS)


def sentences(text: str) -> list[str]:
    """Return the sentences of a text, each on one line."""
    paragraphs = (" ".join(paragraph.split()) for paragraph in text.split("\n\n"))
    return [sentence for paragraph in paragraphs for sentence in _SENTENCE.split(paragraph) if sentence]


def shortened(text: str, limit: int) -> str:
    """Return a text on one line, cut at a word where it is too long."""
    line = " ".join(text.split())
    if len(line) <= limit:
        return line
    cut = line[:limit].rsplit(" ", 1)[0]
    return f"{cut.rstrip(' .,;:')} …"


def _singular(word: str) -> str:
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word


@dataclass(frozen=True, slots=True)
class Tool:
    """An offered function and the words that describe it."""

    name: str
    description: str
    parameters: JSON
    name_words: frozenset[str]
    description_words: frozenset[str]

    @classmethod
    def of(cls, definition: Mapping[str, Any]) -> "Tool":
        """Read a function definition in the Responses shape."""
        name = str(definition["name"])
        description = str(definition.get("description") or "")
        parameters = definition.get("parameters")
        return cls(
            name,
            description,
            parameters if isinstance(parameters, dict) else {},
            frozenset(words(name)),
            frozenset(words(description)),
        )

    @property
    def properties(self) -> dict[str, JSON]:
        """The parameters by name, those that are not objects left out."""
        properties = self.parameters.get("properties")
        if not isinstance(properties, dict):
            return {}
        return {str(name): part for name, part in properties.items() if isinstance(part, dict)}


def offered(definitions: Iterable[Mapping[str, Any]]) -> tuple[Tool, ...]:
    """Return the functions among tool definitions."""
    return tuple(
        Tool.of(definition)
        for definition in definitions
        if definition.get("type", "function") == "function" and isinstance(definition.get("name"), str)
    )
