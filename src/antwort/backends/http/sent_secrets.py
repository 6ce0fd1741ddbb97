"""The credentials that a model server is sent: what it says went wrong may repeat them, and clients are told that."""

import re
from collections.abc import Iterable, Mapping
from functools import cached_property
from urllib.parse import SplitResult, parse_qsl, unquote

from antwort.config.secrets import is_secret_name
from antwort.errors import APIError, BadRequestError
from antwort.observability.redaction import MASK, SHORTEST_VALUE, written_forms

_CUT = "…"
"""Stands where a text was cut off."""


class SentSecrets:
    """Masks them in errors, also where a server has broken them by blanks, or where one was cut off."""

    def __init__(self, values: Iterable[str]) -> None:
        self._forms = written_forms(map(str.strip, values))

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        return re.compile("|".join(r"\s*".join(map(re.escape, "".join(form.split()))) for form in self._forms))

    def mask(self, error: APIError) -> None:
        """Mask them in whatever of an error a client is told."""
        if self._forms:
            error.message = self._masked(error.message)
            error.args = (error.message,)
            error.param = error.param and self._masked(error.param)
            if isinstance(error, BadRequestError):  # else the code is ours
                error.code = error.code and self._masked(error.code)

    def are_in(self, text: str) -> bool:
        """Tell whether one of them is in a text."""
        return bool(self._forms) and self._pattern.search(text) is not None

    def _masked(self, text: str) -> str:
        before, cut, behind = self._pattern.sub(MASK, text).rpartition(_CUT)
        return f"{self._without_begun(before)}{cut}{behind}" if cut else behind

    def _without_begun(self, text: str) -> str:
        """Mask one that begins at the end of a text, and of which the rest was cut off."""
        for form in self._forms:
            for size in range(len(form) - 1, SHORTEST_VALUE - 1, -1):
                if text.endswith(form[:size]):
                    return text[:-size] + MASK
        return text


def sent_secrets(backend: str, headers: Mapping[str, str], parts: SplitResult) -> SentSecrets:
    """Return those in the headers of every request and in the URL of a server."""
    values = [value for name, value in headers.items() if is_secret_name(name)]
    values += [value.partition(" ")[2] for value in values]  # without `Bearer`
    values += [unquote(parts.password or "")]
    values += [value for name, value in parse_qsl(parts.query) if is_secret_name(name)]
    # Servers that want no key are often given their name as one, and our own words have that in them.
    return SentSecrets(value for value in values if value not in backend)
