"""Functions that a model is offered only once it has found them: what there is of them, and how they are searched."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain, islice
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

from antwort.functions import Effect, FunctionSpec, Scope
from antwort.lazy_imports import imported_on_use
from antwort.text.foreign_text import one_line
from antwort.types import JSON

if TYPE_CHECKING:
    from antwort.text import word_index
else:  # few servers have so many functions
    word_index = imported_on_use("antwort.text.word_index")

Key: TypeAlias = tuple[str | None, str]
"""A function as items name it: its namespace, or the label of its server, if it has one, and its own name."""

_NAME, _GROUP, _DESCRIPTION, _PARAMETER = 3.0, 1.5, 1.0, 0.7
"""How much words count that stand there."""
_LONGEST_TEXT = 2_000
"""Characters of a description that are searched."""
_MOST_PARAMETERS = 50
_LEAST = 0.25
"""The part of the best score that what else is found has at least."""
_QUERY = 1_000
"""Characters of a query that are read."""
_WRITTEN = re.compile(r"[\w.-]+")
_LONGEST_LIST = 1_500
"""Bytes that a model reads of what there is to be found."""
_LONGEST_ABOUT = 160
NO_GROUPS: Mapping[str, int] = MappingProxyType({})
NOTHING_SAID: Mapping[str, str] = MappingProxyType({})


class Deferral(Struct, frozen=True, dict=True):
    """Which functions are deferred that nobody says so of, and how they are found."""

    above: int | None
    """How many there may be of those; of more than that all are deferred, and none if there is no such number."""
    most: int
    """How many are found at once."""
    make_spec: Callable[[], FunctionSpec]

    @cached_property
    def spec(self) -> FunctionSpec:
        """The function that finds them: many servers have nothing to be found."""
        return self.make_spec()

    def is_exceeded(self, count: int) -> bool:
        """Tell whether so many are more than a model is offered at once."""
        return self.above is not None and count > self.above


def deferred_names(specs: Mapping[str, FunctionSpec], above: int | None) -> list[str]:
    """Return the names of the functions that are found first, among those that a model is offered unasked.

    If there are more than so many, that is all of them. What belongs to the run, or stands for a tool of the API, is
    offered at once, however many there are.
    """
    usual = [name for name, spec in specs.items() if spec.offer == "always" and _is_plain(spec)]
    found = [name for name, spec in specs.items() if spec.offer == "deferred"]
    return found + usual if above is not None and len(usual) > above else found


def _is_plain(spec: FunctionSpec) -> bool:
    is_of_run = spec.scope in {Scope.AGENT, Scope.USER} or spec.effect is not Effect.NONE
    return not (is_of_run or spec.hosted is not None or spec.reads_references or spec.calls_functions)


class DeferredFunction(Struct, frozen=True, eq=False):
    """A function that is found, and offered then."""

    name: str
    """By which models know it."""
    group: str | None
    """Its namespace, or the label of its server."""
    own_name: str
    """By which clients know it."""
    tool: JSON
    """The tool that it is, as items show it."""
    is_of_server: bool = False
    """Whether the group is that of a server."""

    @property
    def key(self) -> Key:
        """How items name it."""
        return self.group, self.own_name


class DeferredFunctions:
    """Functions that came together. What takes time is done when somebody searches, and is kept with them."""

    def __init__(
        self,
        names: Iterable[str],
        make: Callable[[], Iterable[DeferredFunction]],
        *,
        groups: Mapping[str, int] = NO_GROUPS,
        about: Mapping[str, str] = NOTHING_SAID,
        by_client: bool = False,
    ) -> None:
        self._make = make
        self.names = frozenset(names)
        """By which models know them."""
        self.groups = groups
        """How many there are of each group."""
        self.about = about
        """What is said of groups."""
        self.by_client = by_client
        """Whether the client searches them."""

    @cached_property
    def functions(self) -> Sequence[DeferredFunction]:
        """The functions, in their order."""
        return tuple(self._make())

    @cached_property
    def by_key(self) -> Mapping[Key, str]:
        """The models' names of them, by how items name them."""
        return {function.key: function.name for function in self.functions}

    @cached_property
    def by_name(self) -> Mapping[str, DeferredFunction]:
        """The functions, by the names by which models know them."""
        return {function.name: function for function in self.functions}

    @cached_property
    def index(self) -> "word_index.WordIndex":
        """Their words."""
        return word_index.WordIndex(map(self._texts, self.functions))

    @cached_property
    def loose(self) -> Sequence[str]:
        """The names of those without a group."""
        if sum(self.groups.values()) == len(self.names):
            return ()
        return [function.name for function in self.functions if function.group is None]

    def _texts(self, function: DeferredFunction) -> "Iterator[word_index.Text]":
        yield word_index.Text(function.own_name, _NAME)
        if function.group is not None:
            yield word_index.Text(function.group, _GROUP)
        yield word_index.Text(str(function.tool.get("description") or "")[:_LONGEST_TEXT], _DESCRIPTION)
        parameters = function.tool.get("parameters")
        properties = parameters.get("properties") if isinstance(parameters, dict) else None
        for name, part in islice(properties.items() if isinstance(properties, dict) else (), _MOST_PARAMETERS):
            yield word_index.Text(name, _PARAMETER)
            if isinstance(part, dict) and isinstance(said := part.get("description"), str):
                yield word_index.Text(said[:_LONGEST_TEXT], _PARAMETER)


def found(deferred: Sequence[DeferredFunctions], query: str, most: int) -> list[DeferredFunction]:
    """Return the functions that fit a query best: those that it names, then by the words that they share with it."""
    query = query[:_QUERY]
    written = dict.fromkeys(_WRITTEN.findall(query))
    named = [functions.by_name[name] for name in written for functions in deferred if name in functions.names]
    if named and len(named) == len(written):  # it says nothing else
        return named[:most]
    ranked = word_index.best([functions.index for functions in deferred], query, most, least=_LEAST)
    fitting = [deferred[place].functions[number] for place, number in ranked]
    return [*dict.fromkeys([*named, *fitting])][:most]


def listed(deferred: Sequence[DeferredFunctions]) -> str:
    """Return what a model reads of what there is to be found: groups with what is said of them, and names."""
    lines = [
        _group(name, count, functions.about.get(name, ""))
        for functions in deferred
        for name, count in functions.groups.items()
    ]
    room, kept = _LONGEST_LIST, list[str]()
    for line in lines:
        room -= len(line.encode()) + 1
        if room < 0:
            break
        kept.append(line)
    if left := len(lines) - len(kept):
        kept.append(f"- {left} further groups")
    if loose := [*chain.from_iterable(functions.loose for functions in deferred)]:
        kept.append(_names(loose, max(room, 0)))
    return "\n".join(kept)


def _group(name: str, count: int, about: str) -> str:
    said = one_line(about)[:_LONGEST_ABOUT]
    return f"- {one_line(name)} ({count}): {said}" if said else f"- {one_line(name)} ({count})"


def _names(names: Sequence[str], room: int) -> str:
    """Return a line with names, as many as there is room for."""
    shown: list[str] = []
    for name in names:
        room -= len(name) + 2
        if room < 0:
            break
        shown.append(name)
    left = len(names) - len(shown)
    if not shown:
        return f"- {left} functions"
    return "- " + ", ".join(shown) + (f", and {left} more" if left else "")
