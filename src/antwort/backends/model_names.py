"""Names of models: the same model is written with and without a tag or a prefix, and lists may have patterns."""

import re
from collections.abc import Iterable, Iterator

_LATEST = ":latest"
"""The tag that a name without one stands for."""


def is_pattern(name: str) -> bool:
    """Tell whether a name in a list stands for many: `openai/*`."""
    return "*" in name


class ModelNames:
    """A list of names of models, and what else each of them is called.

    What is needed to find other spellings is made at the first name that is not in the list as it is.
    """

    __slots__ = ("_bare", "_names", "_patterns", "_plain")

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._names = frozenset(names)
        self._plain: dict[str, str] | None = None
        self._bare: dict[str, str | None] = {}
        self._patterns: list[tuple[str, re.Pattern[str]]] = []

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._names))

    def find(self, name: str) -> str | None:
        """Return what a model is to be asked by that the list has in any way; None if it does not."""
        return name if name in self._names else self.same(name) or self.matching(name)

    def same(self, name: str) -> str | None:
        """Return what a model is to be asked by that is in the list with another tag or prefix; None if it is not.

        `llama3.2` is `llama3.2:latest`, and `models/x` is `x`. A tag that is added to a name of the list, as for a
        variant of a model or the host that runs it, is for the server to know: such a name stays as it is.
        """
        return self._respelled(name) or (name if self._variant_of(name) is not None else None)

    def listed(self, name: str) -> str | None:
        """Return the name in the list of a model that has another tag or prefix there; None if it has none."""
        return self._respelled(name) or self._variant_of(name)

    def _respelled(self, name: str) -> str | None:
        plain = self._read()
        short = name.removesuffix(_LATEST)
        found = plain.get(short) or self._bare.get(short)
        return found or next((plain[rest] for rest in _without_prefixes(short) if rest in plain), None)

    def _variant_of(self, name: str) -> str | None:
        path, slash, last = name.rpartition("/")
        base, colon, _ = last.partition(":")
        base = path + slash + base
        return base if colon and base in self._names else None

    def matching(self, name: str) -> str | None:
        """Return a name that fits a pattern of the list; None if it fits none."""
        self._read()
        return name if any(pattern.fullmatch(name) for _, pattern in self._patterns) else None

    def _read(self) -> dict[str, str]:
        """Return the names without the tag that goes without saying."""
        if self._plain is None:
            names = sorted(name for name in self._names if not is_pattern(name))
            plain = {name.removesuffix(_LATEST): name for name in names}
            for short, name in plain.items():
                for rest in _without_prefixes(short):  # two models that are called so are neither
                    self._bare[rest] = None if rest in self._bare else name
            written = (name for name in self._names if is_pattern(name))
            self._patterns = [(name, re.compile(".*".join(map(re.escape, name.split("*"))))) for name in written]
            self._plain = plain
        return self._plain


def _without_prefixes(name: str) -> Iterator[str]:
    """Yield a name without its first steps, from the longest on."""
    while "/" in name:
        name = name.partition("/")[2]
        if name:
            yield name
