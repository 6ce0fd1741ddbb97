"""What a message asks for, as calls of the functions that are offered.

Functions are known only by what their definitions say. A message is read part by part; of each part the first reading
that leads to a call counts: a function named outright, a search, arithmetic, the time, words shared with a definition,
and at last a question that a search may answer.
"""

import itertools
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from antwort.backends.demo.arguments import ROLES, fill_arguments, roles_of
from antwort.backends.demo.expressions import expressions
from antwort.backends.demo.facts import Facts
from antwort.backends.demo.places import places
from antwort.backends.demo.words import Tool, significant, words
from antwort.types import JSON

__all__ = ["Call", "Plan", "insisted", "plan", "takes"]


_LONGEST = 4000
_MOST_CALLS = 8
_MOST_PARTS = 30

_VERBS = r"(?:call|use|run|invoke|execute|try|rufe?|benutze?|nutze?|verwende?)"
_JSON_FOLLOWS = re.compile(r"[`'\"]?\s*(?:with|using|mit|on|:)?\s*(?:the )?(?:arguments?|parameters?)?\s*:?\s*(?=\{)")
_BREAK = re.compile(r"(?<=[?!;])\s+|(?<=[^\W\d])\.\s+|\n+|,\s+|\s+(?:and|then|und|dann)\s+", re.IGNORECASE)
_TIME = re.compile(
    r"\b(?:what|which|current|local|exact) (?:is the )?(?:time|date|day)\b|\btime is it\b|\btoday'?s date\b"
    r"|\b(?:time|date|clock)(?: is it| now| right now| today)?(?: in | at |\s*[?.!]*$)|\bthe (?:time|date)[?.!]*$"
    r"|\bwie spät\b|\buhrzeit\b|\bwie ?viel uhr\b|\bwelche[rsn]? (?:tag|datum)\b|\bdatum\b",
    re.IGNORECASE,
)
_TIME_WORDS = frozenset({"time", "date", "clock", "datetime", "uhrzeit", "zeit", "datum"})
_SEARCH = re.compile(
    r"\b(?:search|look(?:ing)? (?:up|for)|find(?: out)?|google|research|suche?|finde|recherchiere?)\b\s*(.+)",
    re.IGNORECASE | re.DOTALL,
)
_SEARCH_WHERE = re.compile(
    r"^(?:(?:(?:on|in|through|across|the|my|our|your|all|im|in den|meine[nr]?)\s+)*"
    r"(?:web|internet|net|online|files?|documents?|docs|notes|knowledge base|library|netz|dateien|dokumente[n]?)\b\s*)?"
    r"(?:(?:for|about|on|nach|über|out|up|me)\s+)*",
    re.IGNORECASE,
)
_QUESTION = re.compile(
    r"^(?:please |bitte )?(?:(?:who|what|where|was|wer|wo)(?:'s| is| are| was| were| ist| sind| war| waren)\b"
    r"|(?:tell me |explain )?(?:about)|tell me|explain|(?=when|where|which|why|how|who|what|wann|warum|wie))\s*(.+)",
    re.IGNORECASE | re.DOTALL,
)
_POLITE = re.compile(r"\s+(?:please|for me|bitte|für mich)$", re.IGNORECASE)
_EDGES = " \t\n?!.,;:\"'“”„`"
_PERSONAL = re.compile(r"\b(?:you|your|yourself|i|my|me|mine|du|dein\w*|ich|mein\w*)\b", re.IGNORECASE)
_FILLER = re.compile(
    r"^(?:(?:for|of|about|the|with|in|on|to|that|a|an|me|von|für|mit|über|das|die|der)\b|[\s:,`'\"])+",
    re.IGNORECASE,
)
_OPERATOR_WORDS = {
    "plus": "add sum plus addition",
    "minus": "subtract minus difference subtraction",
    "times": "multiply times product multiplication",
    "over": "divide quotient division",
    "power": "power exponent",
}


@dataclass(frozen=True, slots=True)
class Call:
    """A call to make."""

    name: str
    arguments: JSON


@dataclass(frozen=True, slots=True)
class Plan:
    """What a message leads to: calls, and what kept functions that it names from being called."""

    calls: tuple[Call, ...] = ()
    obstacles: tuple[str, ...] = ()


Reading = Callable[[str, Sequence[Tool]], Plan | None]


def plan(text: str, tools: Sequence[Tool]) -> Plan:
    """Return the calls a message asks for, at most eight, each once."""
    if not tools:
        return Plan()
    calls, rest = _dictated(text[:_LONGEST], tools)
    obstacles: list[str] = []
    for part in _parts(rest, tools):
        for reading in (_mentioned, *_UNPROMPTED, _resembling, _asked):
            found = reading(part, tools)
            if found is not None:
                calls.extend(found.calls)
                obstacles.extend(found.obstacles)
                break
    unique = {json.dumps([call.name, call.arguments], sort_keys=True): call for call in calls}
    return Plan(tuple(unique.values())[:_MOST_CALLS], tuple(obstacles))


def insisted(text: str, tools: Sequence[Tool]) -> Call:
    """Return a call although the message asks for none: of the tool nearest to it that can be filled, or of the first.

    What the message does not give is made up for the first.
    """
    text = text[:_LONGEST]
    ranked = sorted(tools, key=lambda tool: -_likeness(text, tool))
    for tool in ranked:
        filled = fill_arguments(tool, _facts(text, tool))
        if filled.arguments is not None:
            return Call(tool.name, filled.arguments)
    filled = fill_arguments(ranked[0], _facts(text, ranked[0]), insist=True)
    return Call(ranked[0].name, filled.arguments or {})


def takes(tool: Tool, role: str) -> bool:
    """Tell whether a tool has a parameter for a role, or speaks of it where it has one parameter only."""
    texts = {name: part for name, part in tool.properties.items() if _is_text(part)}
    if any(role in roles_of(name, part) for name, part in texts.items()):
        return True
    return len(texts) == 1 and bool(ROLES[role] & (tool.name_words | tool.description_words))


# --- parts -----------------------------------------------------------------------------------------------------------


def _dictated(text: str, tools: Sequence[Tool]) -> tuple[list[Call], str]:
    """Return the calls whose arguments the message spells out as JSON, and the message without them."""
    calls: list[Call] = []
    names = {tool.name.lower(): tool.name for tool in tools}
    pattern = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    rest, at = "", 0
    for match in re.finditer(rf"(?:\b{_VERBS}\s+)?[`'\"]?(?<![\w-])({pattern})(?![\w-])", text, re.IGNORECASE):
        name = names.get(match.group(1).lower())
        follows = _JSON_FOLLOWS.match(text, match.end())
        if match.start() < at or name is None or follows is None:
            continue
        try:
            arguments, end = json.JSONDecoder().raw_decode(text, follows.end())
            json.dumps(arguments, allow_nan=False)
        except (ValueError, RecursionError):  # not JSON, or numbers that JSON cannot hold
            continue
        calls.append(Call(name, arguments))
        rest += text[at : match.start()]
        at = end
    return calls, rest + text[at:]


def _parts(text: str, tools: Sequence[Tool]) -> Iterator[str]:
    """Yield the parts of a message that each ask for something; what asks for nothing belongs to the part before."""
    breaks = [match.span() for match in itertools.islice(_BREAK.finditer(text), _MOST_PARTS)]
    start = 0
    for (end, begin), (until, _) in itertools.pairwise([*breaks, (len(text), len(text))]):
        following = text[begin:until]
        if any(reading(following, tools) is not None for reading in (_mentioned, *_UNPROMPTED)):
            yield text[start:end]
            start = begin
    yield text[start:]


# --- readings --------------------------------------------------------------------------------------------------------


def _mentioned(part: str, tools: Sequence[Tool]) -> Plan | None:
    """Read `use <tool> …`."""
    for tool in sorted(tools, key=lambda tool: -len(tool.name)):
        spelling = re.escape(tool.name).replace("_", "[ _-]")
        pattern = rf"\b{_VERBS}\s+(?:the\s+)?[`'\"]?{spelling}(?![\w-])[`'\"]?(.*)"
        match = re.search(pattern, part, re.IGNORECASE | re.DOTALL)
        if match is None:
            continue
        filled = fill_arguments(tool, _facts(match.group(1), tool))
        if filled.arguments is not None:
            return Plan((Call(tool.name, filled.arguments),))
        lacking = ", ".join(f"`{name}`" for name in filled.missing) or "arguments that fit"
        return Plan(obstacles=(f"I would call {tool.name}, but I did not find {lacking} in your message.",))
    return None


def _searched(part: str, tools: Sequence[Tool]) -> Plan | None:
    """Read `search for …`."""
    return _search(part, _sought(part), tools)


def _asked(part: str, tools: Sequence[Tool]) -> Plan | None:
    """Read a question about the world as a search."""
    match = _QUESTION.match(part.strip())
    if match is None or _PERSONAL.search(match.group(1)) or len(words(part)) < 3:
        return None
    return _search(part, match.group(1), tools)


def _sought(text: str) -> str:
    """Return what follows a verb of searching, without where to search."""
    match = _SEARCH.search(text)
    return "" if match is None else _SEARCH_WHERE.sub("", match.group(1), count=1).strip(_EDGES)


def _search(part: str, query: str, tools: Sequence[Tool]) -> Plan | None:
    quoted = Facts(query).take_quoted()
    query = quoted or _POLITE.sub("", query.strip(_EDGES)).strip(_EDGES)
    if not query:
        return None
    fitting = [tool for tool in tools if takes(tool, "query")]
    ranked = sorted(fitting, key=lambda tool: -_likeness(part, tool))
    return _first(ranked, query, query, {"query": query})


def _calculated(part: str, tools: Sequence[Tool]) -> Plan | None:
    """Read arithmetic, for a function that takes an expression or one that is named like the operation."""
    found = expressions(part)
    calls: list[Call] = []
    for expression in found:
        fitting = [tool for tool in tools if takes(tool, "expression")]
        reading = _first(fitting, expression.text, expression.text, {"expression": expression.text})
        if reading is None and len(expression.operators) == 1:
            meant = frozenset(_OPERATOR_WORDS.get(expression.operators[0], "").split())
            alike = [tool for tool in tools if meant & tool.name_words]
            reading = _first(alike, re.sub(r"[^\d.]+", " ", expression.text))
        if reading is not None:
            calls.extend(reading.calls)
    return Plan(tuple(calls)) if calls else None


def _timed(part: str, tools: Sequence[Tool]) -> Plan | None:
    """Read a question for the time, here or in some places."""
    if _TIME.search(part) is None:
        return None
    fitting = [tool for tool in tools if _TIME_WORDS & (tool.name_words | tool.description_words)]
    fitting.sort(key=lambda tool: (not takes(tool, "zone"), not _TIME_WORDS & tool.name_words))
    named = places(part)
    if not named:
        return _first(fitting, "")
    calls: list[Call] = []
    for place in named:
        roles = {"place": place.name} | ({"zone": place.zone} if place.zone else {})
        able = [tool for tool in fitting if any(takes(tool, role) for role in roles)]
        reading = _first(able, place.name, "", roles)
        if reading is not None:
            calls.extend(reading.calls)
    return Plan(tuple(calls)) if calls else None


def _resembling(part: str, tools: Sequence[Tool]) -> Plan | None:
    """Read a message that shares words with what a function is called or described by."""
    for tool in sorted(tools, key=lambda tool: -_likeness(part, tool)):
        if _likeness(part, tool) < 2:
            return None
        named = [place.name for place in places(part)]
        filled = [
            fill_arguments(tool, _facts(part, tool, place)).arguments
            for place in (named if named and takes(tool, "place") else [None])
        ]
        calls = tuple(Call(tool.name, arguments) for arguments in filled if arguments is not None)
        # Without arguments, one shared word is too little, and a place that it does not know too much.
        certain = tool.name_words.issubset(words(part)) and not (named and takes(tool, "zone"))
        if calls and (calls[0].arguments or certain):
            return Plan(calls)
    return None


_UNPROMPTED: tuple[Reading, ...] = (_searched, _calculated, _timed)
"""Readings that need no word of a definition."""


def _first(
    tools: Sequence[Tool], text: str, main: str = "", roles: Mapping[str, str] = MappingProxyType({})
) -> Plan | None:
    """Call the first tool that can be filled."""
    for tool in tools:
        filled = fill_arguments(tool, Facts(text, main, roles))
        if filled.arguments is not None:
            return Plan((Call(tool.name, filled.arguments),))
    return None


def _likeness(text: str, tool: Tool) -> int:
    """Count shared words: three for one in the name, one for one in the description or a place for a place."""
    said = significant(words(text))
    placed = takes(tool, "place") and bool(places(text))
    return 3 * len(said & tool.name_words) + len(said & (tool.description_words - tool.name_words)) + placed


def _facts(text: str, tool: Tool, place: str | None = None) -> Facts:
    """Gather all that a message gives for a tool; what follows the tool's own words is its main value."""
    spoken = tool.name_words | tool.description_words
    matches = [match for match in re.finditer(r"\w+", text) if significant(words(match.group())) & spoken]
    rest = text[matches[0].end() :] if matches else text
    main = _FILLER.sub("", rest, count=1).strip(_EDGES)
    found = expressions(text)
    named = places(text)
    zone = next((place.zone for place in named if place.zone), None)
    roles: Mapping[str, str | None] = {
        "expression": found[0].text if found else None,
        "query": _sought(rest) or main,
        "place": place or (named[0].name if named else None),
        "zone": zone,
    }
    return Facts(text, main, {role: value for role, value in roles.items() if value})


def _is_text(schema: Mapping[str, Any]) -> bool:
    """Tell whether a parameter takes a text, or texts."""
    return '"string"' in json.dumps(schema, default=str)
