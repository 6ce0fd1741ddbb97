"""Values that a text gives: what is quoted, numbers, names, dates, addresses, and `name: value` pairs."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from antwort.backends.demo.words import significant, words

__all__ = ["Facts", "Number"]

Number = int | float

_LONGEST = 20_000
_NUMBER = r"-?\d{1,40}(?:\.\d{1,40})?"
_NUMBERS = re.compile(rf"(?<![\w.-]){_NUMBER}(?![\w-]|\.\d)")
_QUOTED = re.compile(r"""["“„«]([^"“”„«»\n]+)["“”»]|(?<!\w)'([^'\n]+)'(?!\w)|`([^`\n]+)`""")
_NAMES = re.compile(r"[A-ZÄÖÜ][\w'’-]+(?: +[A-ZÄÖÜ][\w'’-]+)*")  # noqa: RUF001 — an apostrophe as people write it
_VALUE = r"""\s*[:=]\s*(?:"([^"\n]*)"|'([^'\n]*)'|([^,;\n]+?)(?=\s*(?:[,;\n?!]|\.\s|\.?$|\s(?:and|und)\s)))"""
_FORMATS = {
    "uri": re.compile(r"https?://[^\s<>\"')\]]*[^\s<>\"')\].,;:!?]"),
    "email": re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+"),
    "date-time": re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:\d\d)?"),
    "date": re.compile(r"\b\d{4}-\d\d-\d\d\b"),
    "time": re.compile(r"\b\d\d:\d\d(?::\d\d)?\b"),
    "uuid": re.compile(r"\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b"),
}
_FORMAT_WORDS = {"url": "uri", "uri": "uri", "link": "uri", "email": "email", "mail": "email", "date": "date"}


@dataclass(slots=True)
class Facts:
    """What a text gives to fill parameters with. Quotes and numbers are taken once, in order."""

    text: str
    main: str = ""
    """What the text is about, for the parameter that nothing else fits."""
    roles: Mapping[str, str] = field(default_factory=dict)
    """Values by what they are: `expression`, `zone`, `place`, `query`."""
    quoted: list[str] = field(init=False)
    numbers: list[Number] = field(init=False)
    names: list[str] = field(init=False)
    _spoken: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.text = self.text[:_LONGEST]
        self.quoted = [next(filter(None, match.groups())) for match in _QUOTED.finditer(self.text)]
        self.numbers = [_number(match.group()) for match in _NUMBERS.finditer(self.text)]
        self._spoken = f" {' '.join(words(self.text))} "
        self.names = [name for name in _NAMES.findall(self.text) if significant(words(name))]

    def named(self, name: str) -> str | None:
        """Return the value that the text gives by a parameter's name, as in `city: Paris` or `days=3`."""
        spelling = r"[ _-]?".join(re.escape(word) for word in re.split(r"[ _-]+", name) if word)
        match = re.search(rf"\b{spelling}{_VALUE}", self.text, re.IGNORECASE) if spelling else None
        return None if match is None else next((group for group in match.groups() if group is not None), None)

    def formatted(self, name: str, wanted: str | None) -> str | None:
        """Return a value of a format, asked for by the schema or by a parameter's name."""
        for kind in (wanted, *(_FORMAT_WORDS.get(word) for word in words(name))):
            match = _FORMATS[kind].search(self.text) if kind in _FORMATS else None
            if match is not None:
                return match.group()
        return None

    def mentions(self, phrase: str) -> bool:
        """Tell whether the text has a word or phrase, spelled with spaces, hyphens or underscores."""
        wanted = " ".join(words(phrase))
        return bool(wanted) and f" {wanted} " in self._spoken

    def take_quoted(self) -> str | None:
        """Return the next quoted text."""
        return self.quoted.pop(0) if self.quoted else None

    def take_number(self, *, whole: bool) -> Number | None:
        """Return the next number, a whole one if asked for."""
        for position, number in enumerate(self.numbers):
            if not whole or number == int(number):
                del self.numbers[position]
                return int(number) if whole else number
        return None

    def counted(self, names: Iterable[str]) -> Number | None:
        """Return the number beside one of some words, as in `3 days` or `days 3`, and take it."""
        for name in names:
            word = re.escape(name)
            pattern = rf"(?<![\w.-])({_NUMBER})[ -]?{word}s?\b|\b{word}s?\s*(?:[:=]|is|of|to)?\s*({_NUMBER})(?!\w)"
            match = re.search(pattern, self.text, re.IGNORECASE)
            if match is not None:
                number = _number(match.group(1) or match.group(2))
                if number in self.numbers:
                    self.numbers.remove(number)
                return number
        return None


def _number(text: str) -> Number:
    """Read a number; a whole one too long for any parameter as a float."""
    return float(text) if "." in text or len(text) > 18 else int(text)
