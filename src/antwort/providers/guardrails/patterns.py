"""Secrets and personal data, found in texts by what they look like and, where they have some, by their check digits."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from antwort.providers.guardrails.expressions import Expression
from antwort.providers.guardrails.settings import PatternSettings

_STEP = 50_000
"""Characters that are searched at once: nobody else runs meanwhile."""
_LEAST_STEP = 1000
_DEAR = 50
"""In so many ways an expression may match that takes as long as all patterns from here."""
_OVERLAP = 1000
HOLDS = 64
"""Characters by which all of these are recognised, but for the operator's own; what goes on behind them is seen by its
having no end yet."""


class FoundSecret(NamedTuple):
    """A place in a text that has something."""

    start: int
    end: int
    kind: str


_Places = Iterator[tuple[int, int]]

# --- what has a form of its own --------------------------------------------------------------------------------------


_API_KEY = re.compile(
    r"(?<![A-Za-z0-9])(?:"
    r"sk-[A-Za-z0-9_-]{20,}"  # OpenAI, Anthropic and many that do as they do
    r"|(?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Z0-9])"  # Amazon
    r"|gh[pousr]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{22,}"
    r"|glpat-[A-Za-z0-9_-]{20,}"
    r"|xox[abeoprs]-[A-Za-z0-9-]{10,}"  # Slack
    r"|[rsp]k_(?:live|test)_[A-Za-z0-9]{10,}"  # Stripe
    r"|AIza[A-Za-z0-9_-]{35}"  # Google
    r"|hf_[A-Za-z0-9]{30,}|npm_[A-Za-z0-9]{36}|pypi-[A-Za-z0-9_-]{40,}"
    r"|SG\.[A-Za-z0-9_-]{16,32}\.[A-Za-z0-9_-]{16,}"  # SendGrid
    r"|ak_[A-Za-z0-9_-]{24,}"  # this server's own
    r")"
)
_TOKEN = re.compile(
    r"(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)?"
    r"|(?<![A-Za-z])[Bb]earer[ \t]{1,5}(?P<inner>[A-Za-z0-9._~+/-]{20,}={0,2})"
)
_PASSWORD = re.compile(r"(?<![a-z0-9])[a-z][a-z0-9+.-]{1,20}://[^\s/:@]{0,100}:(?P<inner>[^\s/@]{1,200})@")
_EMAIL = re.compile(r"(?<![\w.+-])[\w.+-]+@(?:[A-Za-z0-9-]+\.)+[A-Za-z]{2,24}(?![\w-])")
_PHONE = re.compile(
    r"(?<![\w+])(?<!\d )(?:\+|00)[1-9](?:[ ()./-]{0,3}\d){6,14}(?!\d)"
    r"|(?<![\w+.-])\(?\d{3}\)?[ .-]\d{3}[ .-]\d{4}(?![\w-])"
    r"|(?<![\w+.-])(?<!\d )0[1-9]\d{1,4}[ /-]\d{3,8}(?:[ -]\d{1,6}){0,2}(?![\w-])"
)
_PRIVATE = "PRIVATE KEY-----"
_BEGIN = re.compile(r"-----BEGIN (?:[A-Z0-9]{1,12} ){0,2}PRIVATE KEY-----")
_END = re.compile(r"-----END (?:[A-Z0-9]{1,12} ){0,2}PRIVATE KEY-----")
_IBAN = re.compile(r"(?<![A-Za-z0-9])[A-Z]{2}\d{2}(?=(?: ?[A-Z0-9]){11})")
_CARD = re.compile(r"(?<![\d.])\d(?:[ -]?\d){12,}(?!\d)")


def _matching(pattern: re.Pattern[str], ways: int = 1) -> "Callable[[str], _Places]":
    """Return what gives the places of a pattern, or of the part of it that counts.

    The more ways it can match in at one place, the less is searched at once.
    """
    group = "inner" if "inner" in pattern.groupindex else 0
    step = max(_LEAST_STEP, _STEP // ways)

    def places(text: str) -> _Places:
        done = 0
        for start in range(0, len(text), step):
            end = min(len(text), start + step + _OVERLAP)
            for found in pattern.finditer(text, max(start, done), end):
                if found.start() >= start + step:
                    break
                match = found
                if found.end() == end < len(text):  # it may go on
                    match = pattern.match(text, found.start()) or found
                done = match.end()
                yield match.span(group if group and match[group] is not None else 0)

    return places


def _private_keys(text: str) -> _Places:
    """Give whole keys; one that does not end goes on to the end of the text."""
    if _PRIVATE not in text:
        return
    done = 0
    for match in _BEGIN.finditer(text):
        if match.start() >= done:
            end = _END.search(text, match.end())
            done = len(text) if end is None else end.end()
            yield match.start(), done


# --- what has check digits -------------------------------------------------------------------------------------------


_IBAN_LENGTHS = {
    code: length
    for length, codes in {
        15: "NO",
        16: "BE",
        18: "DK FI FO GL NL SD",
        19: "MK SI",
        20: "AT BA EE KZ LT LU MN XK",
        21: "CH HR LI LV",
        22: "BG BH CR DE GB GE IE ME RS VA",
        23: "AE GI IL IQ OM SO TL",
        24: "AD CZ ES MD PK RO SA SE SK TN VG",
        25: "LY PT ST",
        26: "IS TR",
        27: "BI DJ FR GR IT MC MR SM",
        28: "AL AZ BY CY DO GT HU LB NI PL SV",
        29: "BR EG PS QA UA",
        30: "JO KW MU",
        31: "MT SC",
        32: "LC",
        33: "RU",
    }.items()
    for code in codes.split()
}
_CARD_LENGTHS = range(19, 12, -1)
_ISSUED = re.compile(
    r"4\d{12}(?:\d{3}){0,2}"  # Visa
    r"|5[1-5]\d{14}|2(?:22[1-9]|2[3-9]\d|[3-6]\d\d|7[01]\d|720)\d{12}"  # Mastercard
    r"|3[47]\d{13}"  # American Express
    r"|3(?:0[0-5]|[68]\d)\d{11}|35\d{14}"  # Diners Club, JCB
    r"|6(?:011|4[4-9]\d|5\d\d)\d{12}|62\d{14,17}"  # Discover, UnionPay
    r"|(?:5[06-9]|6[0-9])\d{11,17}"  # Maestro
)


def _ibans(text: str) -> _Places:
    for start, _ in _matching(_IBAN)(text):
        length, letters, end = _IBAN_LENGTHS.get(text[start : start + 2], 0), "", start
        while end < len(text) and len(letters) < length:
            if text[end] != " ":
                letters += text[end]
            end += 1
        is_over = end >= len(text) or not text[end].isalnum()
        if length and len(letters) == length and is_over and _is_iban(letters):
            yield start, end


def _is_iban(letters: str) -> bool:
    """Tell whether the check digits are right (ISO 7064, modulo 97)."""
    if not (letters.isascii() and letters.isalnum()):
        return False
    return int("".join(str(int(letter, 36)) for letter in letters[4:] + letters[:4])) % 97 == 1


def _cards(text: str) -> _Places:
    """Give the numbers of cards in runs of digits, which may have other numbers beside them."""
    for run_start, run_end in _matching(_CARD)(text):
        digits = [place for place in range(run_start, run_end) if text[place].isdigit()]
        at = 0
        while at < len(digits):
            end = _card_end(text, digits, at)
            if end:
                yield digits[at], digits[end - 1] + 1
                at = end
                continue
            at += 1
            while at < len(digits) and digits[at] == digits[at - 1] + 1:  # a number begins behind a blank
                at += 1


def _card_end(text: str, digits: Sequence[int], at: int) -> int:
    """Return behind which digit the number of a card ends that begins at one; 0 if none does."""
    for length in _CARD_LENGTHS:
        end = at + length
        if end > len(digits) or _in_a_word(text, digits[at], digits[end - 1] + 1):
            continue
        number = "".join(text[place] for place in digits[at:end])
        if _ISSUED.fullmatch(number) and _is_luhn(number):
            return end
    return 0


def _in_a_word(text: str, start: int, end: int) -> bool:
    """Tell whether digits go on, or are in a Latin word: hashes and ids have some whose check digit is right."""
    before, after = text[start - 1 : start], text[end : end + 1]
    is_escape = text[start - 2 : start - 1] == "\\"  # as of the line that ends before it, in JSON
    return (after.isascii() and after.isalnum()) or (before.isascii() and before.isalpha() and not is_escape)


def _is_luhn(number: str) -> bool:
    """Tell whether the check digit is right (ISO/IEC 7812)."""
    digits = [int(digit) for digit in reversed(number)]
    doubled = [sum(divmod(2 * digit, 10)) for digit in digits[1::2]]
    return (sum(digits[::2]) + sum(doubled)) % 10 == 0


# --- all of them -----------------------------------------------------------------------------------------------------


_FINDERS: Mapping[str, Callable[[str], _Places]] = {
    "private_key": _private_keys,
    "token": _matching(_TOKEN),
    "api_key": _matching(_API_KEY),
    "password": _matching(_PASSWORD),
    "iban": _ibans,
    "credit_card": _cards,
    "email": _matching(_EMAIL),
    "phone": _matching(_PHONE),
}


class Patterns:
    """Finds what the settings ask for."""

    def __init__(self, settings: PatternSettings) -> None:
        own = {name: Expression(one.pattern) for name, one in settings.own.items()}
        self.actions = {kind: getattr(settings, kind) for kind in _FINDERS}
        self.actions |= {name: one.action for name, one in settings.own.items()}
        finders = {**_FINDERS, **{name: _matching(one.compiled, one.ways) for name, one in own.items()}}
        self._finders = [(kind, places) for kind, places in finders.items() if self.actions[kind] != "allow"]
        self.holds = max([HOLDS, *(one.longest for one in own.values())])
        """Characters that have to be seen to recognise one."""
        self.cost = 1 + sum(one.ways for one in own.values()) // _DEAR
        """How many times as long as without expressions of operators a search may take."""

    def find(self, text: str) -> list[FoundSecret]:
        """Return all places, in order; of those that lie upon each other, the one that begins first."""
        found = [FoundSecret(*place, kind) for kind, places in self._finders for place in places(text)]
        kept: list[FoundSecret] = []
        for one in sorted(found, key=lambda place: (place.start, -place.end)):
            if not kept or one.start >= kept[-1].end:
                kept.append(one)
            elif one.end > kept[-1].end:
                kept[-1] = kept[-1]._replace(end=one.end)
        return kept
