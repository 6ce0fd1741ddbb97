"""Masks secrets in text and in structured values, before they reach a log, the audit file or a trace.

Every pattern is linear in the length of the text: repetitions are possessive or separated by characters they exclude.
"""

import functools
import json
import math
import re
import traceback
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from urllib.parse import quote

from antwort.lazy_imports import compiled_on_use
from antwort.types import JSONValue

MASK = "***"

_LARGEST_INT = 4096
"""Bits of an integer that is written in full; Python refuses to print ones that are much larger."""

SHORTEST_VALUE = 6
"""Known values below this length would turn ordinary words into asterisks."""

LONGEST_TEXT = 100_000
"""Characters of a text that are looked at for the log: an error may carry a whole file."""
_MARGIN = 10_000
"""Characters before a cut that are left out: half of a secret is not known for one."""

_APART = "\0"
"""Stands between texts that are looked at together: nothing that begins in one of them is hidden by another."""

_PLAIN = (str, int, float)
_CONTAINERS = (Mapping, list, tuple, set, frozenset)
_DEEPEST_VALUE = 8
"""Values nested deeper, circular ones among them, are cut."""

# A name is secret-looking by its end: `client_secret` and `accessToken` are, `max_tokens` and `token_usage` are not.
_NAMES = (
    r"pass(?:word|wd|phrase)|pwd|secret|token|authorization|(?:api|access|private|secret|signing|encryption)[_-]?key"
)
_HINTS = ("pass", "pwd", "secret", "token", "key", "authorization")
_SECRET_KEY = compiled_on_use(rf"(?:{_NAMES}|cookie|credentials?)$", re.IGNORECASE)

_PAIR = compiled_on_use(
    rf"""
    (?P<key> {_NAMES} )
    (?P<sep> \\*+["']?+ \s*+ (?: => | [=:]{{1,2}}+ ) \s*+ )
    (?P<value>
        b?+ " (?: [^"\\]++ | \\. )*+ "?+           # quoted; to the end of a text that was cut
      | b?+ ' (?: [^'\\]++ | \\. )*+ '?+
      | \\++ ["'] [^"'\\]*+                        # quoted inside a quoted text
      | [\[{{] [^\[\]{{}}]*+ [\]}}]
      | (?! (?: null | none | true | false )\b )
        (?: (?: bearer | basic | digest | token )\s++ )?+ [^\s&"']++
    )
    """,
    re.IGNORECASE | re.VERBOSE | re.DOTALL,
)
_BEARER = compiled_on_use(
    # Prose such as "bearer token required" is not a credential.
    r"(?<!\w)(bearer\s++)(?!(?:tokens?|auth\w*+|credentials?|scheme|header|realm)(?![\w~+/-]))[\w.~+/=-]{6,}+",
    re.IGNORECASE | re.ASCII,
)
_API_KEY = compiled_on_use(r"(?<![A-Za-z0-9])(ak_[A-Za-z0-9]++_|sk-)[A-Za-z0-9_-]{8,}+")
_JWT = compiled_on_use(r"(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]++\.[A-Za-z0-9_-]++\.[A-Za-z0-9_-]*+")
_USERINFO = compiled_on_use(r"(://[^\s/:@\"'<>]*+:)[^\s/\"'<>]+@")


def redact(text: str) -> str:
    """Mask what looks like a secret: bearer tokens, API keys, JWTs, passwords in URLs, the values of secret names."""
    if text.isalnum() or (text.isidentifier() and "ak_" not in text):
        return text  # a single word: all that is masked has a mark of some kind in it
    return _masked(text)


def _masked(text: str) -> str:
    # Nearly every line is clean, and looking for a substring costs a fraction of a pattern.
    lowered = text.lower()
    if ":" in text or "=" in text:
        text = _redact_pairs(text, lowered)
    if "bearer" in lowered:
        text = _BEARER.sub(rf"\1{MASK}", text)
    if "ak_" in text or "sk-" in text:
        text = _API_KEY.sub(rf"\1{MASK}", text)
    if "eyJ" in text:
        text = _JWT.sub(MASK, text)
    return text


def _redact_pairs(text: str, lowered: str) -> str:
    """Mask what stands behind the colon of a user, or behind a secret name and a colon or an equals sign."""
    if "://" in text:
        text = _USERINFO.sub(rf"\1{MASK}@", text)
    for hint in _HINTS:
        if hint in lowered:
            return _PAIR.sub(_mask_pair, text)
    return text


@functools.lru_cache(maxsize=1024)  # the names of fields are few and come back with every event
def is_secret_key(name: str) -> bool:
    """Tell whether a field of that name holds a secret."""
    return _SECRET_KEY.search(name) is not None


@functools.lru_cache(maxsize=1024)
def _has_secret_key(names: tuple[str, ...]) -> bool:
    return any(map(is_secret_key, names))


def written_forms(values: Iterable[str]) -> list[str]:
    """Return how secrets may be written, in a URL and in JSON too, the longest first, which must win.

    Values shorter than six characters are left out.
    """
    forms = {
        form
        for value in values
        if len(value) >= SHORTEST_VALUE
        for form in (value, json.dumps(value)[1:-1], quote(value, safe=""))
    }
    return sorted(forms, key=len, reverse=True)


class Redactor:
    """Masks what looks like a secret and, besides, known secret values wherever they occur.

    Known values shorter than six characters are not looked for.
    """

    __slots__ = ("_known", "_values")

    def __init__(self, known: Iterable[str] = ()) -> None:
        self._values: set[str] = set()
        self._known: re.Pattern[str] | None = None
        self.learn(known)

    def learn(self, known: Iterable[str]) -> None:
        """Mask further secret values from now on."""
        self._values.update(known)
        forms = written_forms(self._values)
        self._known = re.compile("|".join(map(re.escape, forms))) if forms else None

    def text(self, text: str) -> str:
        """Return the text with its secrets masked."""
        if self._known is not None:
            text = self._known.sub(MASK, text)
        return redact(text)

    def is_clean(self, texts: Iterable[str]) -> bool:
        """Tell at one look that none of several texts has a secret; False if one may have."""
        together = _APART.join(texts)
        if self._known is not None and self._known.search(together) is not None:
            return False
        return _masked(together) == together

    def excerpt(self, text: str, longest: int = LONGEST_TEXT) -> str:
        """Return the text with its secrets masked, and without its end if it is so long that this would take long."""
        if len(text) <= longest:
            return self.text(text)
        kept = self.text(text[:longest])[:-_MARGIN]
        return f"{kept} [… the rest of {len(text):,} characters is left out …]"

    def field(self, name: str, value: object) -> JSONValue:
        """Return a named value as JSON data, masked as a whole if the name is secret-looking."""
        return MASK if _hides(name, value) else self.value(value)

    def fields(self, fields: Mapping[str, object]) -> dict[str, JSONValue]:
        """Return named values as `field` does, without those that are None."""
        if _has_secret_key(tuple(fields)):
            return {name: self.field(name, value) for name, value in fields.items() if value is not None}
        return {name: self.value(value) for name, value in fields.items() if value is not None}

    def value(self, value: object) -> JSONValue:
        """Return any value as JSON data with its secrets masked; what JSON cannot hold becomes its `repr`."""
        if type(value) is str:  # nearly always
            return redact(value) if self._known is None else self.text(value)
        if type(value) is float and math.isfinite(value):  # how long something took
            return value
        try:
            return self._value(value, _DEEPEST_VALUE)
        except Exception as error:  # noqa: BLE001 — a stranger's container must not cost us the line
            return f"<{type(value).__qualname__} that raised {type(error).__qualname__}>"

    def _value(self, value: object, depth: int) -> JSONValue:
        if isinstance(value, _PLAIN) or not isinstance(value, _CONTAINERS):
            return self._scalar(value)
        if not depth:
            return "..."
        if isinstance(value, Mapping):
            return self._mapping(value, depth - 1)
        return [self._value(item, depth - 1) for item in value]

    def _scalar(self, value: object) -> JSONValue:
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, int) and value.bit_length() <= _LARGEST_INT:
            return int(value)
        if isinstance(value, float) and math.isfinite(value):
            return float(value)
        return self.text(str.__str__(value) if isinstance(value, str) else _repr(value))

    def _mapping(self, value: Mapping[object, object], depth: int) -> JSONValue:
        result: dict[str, JSONValue] = {}
        for key, item in value.items():
            name = self.text(key if isinstance(key, str) else _repr(key))
            result[name] = MASK if _hides(name, item) else self._value(item, depth)
        return result


def _hides(name: str, value: object) -> bool:
    """Tell whether a value is masked for its name; that something is missing, or is so or not so, is no secret."""
    return value is not None and not isinstance(value, bool) and is_secret_key(name)


def _mask_pair(match: re.Match[str]) -> str:
    key, separator, value = match.group("key", "sep", "value")
    prefix = key + separator
    if ":" in separator and key.lower() == "token" and value.isalpha() and len(value) < 20:
        return match[0]  # prose: "invalid token: expired"
    quoted = re.match(r"b?(\\*[\"'])", value)
    if quoted is None:
        return prefix + MASK
    opening = quoted[0]
    closing = quoted[1] if not opening.startswith("\\") and value.endswith(quoted[1]) else ""
    return f"{prefix}{opening}{MASK}{closing}"


def _repr(value: object) -> str:
    try:
        return repr(value)
    except Exception as error:  # noqa: BLE001 — whatever a stranger's repr raises, the line must be written
        return f"<{type(value).__qualname__} whose repr raised {type(error).__qualname__}>"


# --- exceptions as text: a stranger's may be of any length, and whoever writes them must not take long ---------------


_WRITTEN = 10
"""Exceptions that are written of one: what it comes from, and what is in it."""
_MEMBERS = 5
"""Exceptions that are written of one group."""
_DEEPEST = 5
"""How many groups within each other are opened."""
_NOTES = 5
_LONGEST = 12_000
"""Characters of one exception that are written whole; of a longer text, the beginning."""

_CAUSED = "The above exception was the direct cause of the following exception:"
_MET = "During handling of the above exception, another exception occurred:"
_NO_TEXT = "<its text cannot be told>"


def text_of(error: BaseException) -> str | None:
    """Return what an exception says, for which it is asked once; None if it cannot tell."""
    try:
        return str.__str__(str(error))
    except BaseException:  # noqa: BLE001 - a stranger's __str__ may fail as well, or want to end the process
        return None


def trace_of(error: BaseException, redactor: Redactor) -> str:
    """Return the traceback of an exception as Python writes it, with as much as nobody has to wait for.

    That is a number of the exceptions it comes from and of those in it, and the beginning of each text, in which the
    secrets are masked: in a text that is cut, nobody can tell one afterwards.
    """
    return "\n".join(_Trace(redactor).lines(error))


@dataclass(slots=True)
class _Trace:
    redactor: Redactor
    seen: set[int] = field(default_factory=set)

    def lines(self, error: BaseException, depth: int = 0) -> list[str]:
        """Return the lines of an exception behind those of what it comes from."""
        blocks: list[list[str]] = []
        one: BaseException | None = error
        while one is not None:
            if len(self.seen) == _WRITTEN:
                blocks[-1][:0] = ["[… what it comes from is left out …]", ""]
                break
            self.seen.add(id(one))
            block = self._own_lines(one, depth)
            cause, link = one.__cause__, _CAUSED
            if cause is None and not one.__suppress_context__:
                cause, link = one.__context__, _MET
            one = None if cause is None or id(cause) in self.seen else cause
            if one is not None and len(self.seen) < _WRITTEN:
                block[:0] = ["", link, ""]
            blocks.append(block)
        return [line for block in reversed(blocks) for line in block]

    def _own_lines(self, error: BaseException, depth: int) -> list[str]:
        lines = []
        if error.__traceback__ is not None:
            places = "".join(traceback.format_tb(error.__traceback__))
            lines += ["Traceback (most recent call last):", places.rstrip("\n")]
        kind = type(error)
        name = kind.__qualname__
        if kind.__module__ not in {"builtins", "__main__"}:
            name = f"{kind.__module__}.{name}"
        text = self._text(error)
        lines.append(f"{name}: {text}" if text else name)
        lines += self._notes(error)
        if isinstance(error, BaseExceptionGroup):
            lines += self._members(error, depth)
        return lines

    def _text(self, error: BaseException) -> str:
        # To ask for the text of one that was made with a long one may take as long as to write it.
        long = next((part for part in error.args if isinstance(part, str | bytes) and len(part) > LONGEST_TEXT), None)
        if isinstance(long, bytes):
            text: str | None = repr(long[:LONGEST_TEXT])
        else:
            text = text_of(error) if long is None else str.__str__(long)
        return _NO_TEXT if text is None else self.redactor.excerpt(text, _LONGEST)

    def _notes(self, error: BaseException) -> list[str]:
        notes = getattr(error, "__notes__", None)
        if not isinstance(notes, list):
            return []
        lines = [self.redactor.excerpt(note, _LONGEST) for note in notes[:_NOTES] if isinstance(note, str)]
        return [*lines, f"[… {len(notes) - _NOTES:,} more notes …]"] if len(notes) > _NOTES else lines

    def _members(self, group: BaseExceptionGroup[BaseException], depth: int) -> list[str]:
        lines = []
        written = 0
        for n, one in enumerate(group.exceptions[: _MEMBERS if depth < _DEEPEST else 0], start=1):
            if len(self.seen) < _WRITTEN and id(one) not in self.seen:
                lines += [
                    f"  +---- {n} ----",
                    *(f"  | {line}" for part in self.lines(one, depth + 1) for line in part.split("\n")),
                ]
                written += 1
        if left := len(group.exceptions) - written:
            lines.append(f"  +---- {left:,} of {len(group.exceptions):,} exceptions are left out ----")
        return lines
