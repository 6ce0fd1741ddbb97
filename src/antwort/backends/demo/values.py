"""What a text gives (sums, numbers, names, places), and JSON values made of it that fit a JSON Schema."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from antwort.lazy_imports import imported_on_use
from antwort.types import JSON

if TYPE_CHECKING:
    import jsonschema_rs
else:  # the demo model is there in every server, and answers in few
    jsonschema_rs = imported_on_use("jsonschema_rs")

_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_SMALL_WORDS = frozenset(
    (  # noqa: SIM905 — words are read more easily as one text
        "about again all also am an and any are as at be but by call can could current did do does exactly for from "
        "get give has have hello hey hi how if in into is it its just know let like many me moment more much my need "
        "no not now of on one or please right run say so some tell that the then there these they this to try two use "
        "user want was we were what when where which who why will with would yes you your"
    ).split()
)
_SYNONYMS = dict.fromkeys(("clock", "date", "day", "hour", "today", "weekday"), "time")


def words(text: str) -> frozenset[str]:
    """Return what a text or an identifier is about: its words in lower case, without plurals and small words."""
    found = (word.lower() for word in _WORD.findall(text))
    single = (word[:-1] if len(word) > 3 and word.endswith("s") and word[-2] != "s" else word for word in found)
    return frozenset(_SYNONYMS.get(word, word) for word in single if len(word) > 1 and word not in _SMALL_WORDS)


# --- what a text gives -----------------------------------------------------------------------------------------------

_OPERATORS = {
    r"\s*%\s*of\s+": " / 100 * ",
    r"\bsquare root of (\d+(?:\.\d+)?)": r"sqrt(\1)",
    r"\s+squared\b": "**2",
    r"\s*\^\s*|\s+to the power of\s+": "**",
    r"\s+(?:times|multiplied by)\s+|(?<=\d)\s*[x×]\s*(?=\d)": " * ",  # noqa: RUF001 — as people write it
    r"\s+divided by\s+|\s*÷\s*": " / ",
    r"\s+plus\s+": " + ",
    r"\s+minus\s+": " - ",
    r"(?<=\d),(?=\d{3}(?!\d))": "",
}
_FUNCTION = r"(?:sqrt|abs|round|min|max|sum|mean|log10|log2|log|factorial|sin|cos|tan)\("
_SUM = re.compile(rf"(?<![\w./:])(?:-?[\d(]|{_FUNCTION})(?:{_FUNCTION}|\bpi\b|[\d.,\t +*/%()-])*")
_ASKS = re.compile(r"\b(?:what(?:'s| is| are)|how (?:much|many)|calculate|compute)\b|=", re.IGNORECASE)
_LONGEST_SUM, _MOST_PLACES = 200, 8
_NUMBER = re.compile(r"(?<![\w.-])-?\d{1,15}(?:\.\d{1,15})?(?![\w-]|\.\d)")
_QUOTED = re.compile(r"""["“„]([^"“”„\n]+)["“”]|(?<!\w)'([^'\n]+)'(?!\w)|`([^`\n]+)`""")
_NAME = re.compile(r"[A-Z][\w'-]*(?: [A-Z][\w'-]*)*")
_PLACES = re.compile(r"\b(?:in|at|near|for|from) ([A-Z][\w/-]*(?:(?: |, ?| and )[A-Z][\w/-]*)*)")
_SMALL_PLACE = re.compile(r"\b(?:in|at|near) ([a-z]+(?: [a-z]+)?)")
_AREAS = ("Europe", "America", "Asia", "Africa", "Australia", "Pacific", "Atlantic", "Indian")
_ZONES = {
    "Europe/Berlin": ("germany", "munich", "hamburg", "cologne"),
    "Europe/Paris": ("france",),
    "Europe/London": ("england", "uk"),
    "Asia/Kolkata": ("india", "mumbai", "delhi"),
    "Asia/Shanghai": ("china", "beijing"),
    "America/New_York": ("boston", "washington"),
    "America/Los_Angeles": ("california", "san_francisco"),
}
"""Zones of places that no zone is named by."""


def sums(text: str) -> list[str]:
    """Return the arithmetic in a text, also if it is written in words, in the notation of Python.

    Dashes and slashes alone mean many things, so they count only where the text asks for a result or is nothing else.
    """
    for pattern, sign in _OPERATORS.items():
        text = re.sub(pattern, sign, text, flags=re.IGNORECASE)
    found: list[str] = []
    for match in _SUM.finditer(text):
        run = match.group().rstrip(" \t.,+*/%(-")
        if not re.search(r"[*+/%(-]", run):
            continue
        try:
            tree = ast.parse(run[:_LONGEST_SUM], mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        sure = _ASKS.search(text) or run == text.strip(" ?.!=\n")
        for part in tree.elts if isinstance(tree, ast.Tuple) else [tree]:
            signs = {type(node.op) for node in ast.walk(part) if isinstance(node, ast.BinOp)}
            if isinstance(part, ast.Call) or (signs if sure else signs - {ast.Sub, ast.Div}):
                found.append(ast.get_source_segment(run, part) or run)
    return list(dict.fromkeys(found))


def places(text: str) -> list[str]:
    """Return the places that a text names after `in` and the like."""
    listed = (name for match in _PLACES.finditer(text) for name in re.split(r", ?| and ", match.group(1)))
    found = [name for name in dict.fromkeys(listed) if words(name)][:_MOST_PLACES]
    small = None if found else _SMALL_PLACE.search(text)
    if small and words(small.group(1)):
        found = [small.group(1) if zone_of(small.group(1)) else small.group(1).split()[0]]
    return found


def zone_of(place: str) -> str | None:
    """Return the time zone of a place: of one that zones are named by, and of a few others."""
    spelled = re.sub(r"[ ,]+", "_", place.strip())
    if not re.fullmatch(r"[\w/+-]{2,40}", spelled):
        return None
    known = [zone for zone, names in _ZONES.items() if spelled.lower() in names]
    for name in (*known, *(f"{area}/{spelled.title()}" for area in _AREAS), spelled, spelled.upper()):
        try:
            return ZoneInfo(name).key
        except (ZoneInfoNotFoundError, ValueError, OSError):
            continue
    return None


@dataclass(slots=True)
class Facts:
    """What a text gives to fill parameters with. Quoted texts and numbers are taken once, in order."""

    text: str
    topic: str = ""
    """What it is about, for the parameter that nothing else fits."""
    place: str = ""
    sum: str = ""
    known: frozenset[str] = frozenset()
    """Words that are no values: those by which a function was chosen."""
    quoted: list[str] = field(init=False)
    numbers: list[float] = field(init=False)
    names: list[str] = field(init=False)

    def __post_init__(self) -> None:
        self.quoted = [next(filter(None, match.groups())) for match in _QUOTED.finditer(self.text)]
        self.numbers = [float(n) if "." in n else int(n) for n in _NUMBER.findall(self.text)]
        named = ((match.start(), match.group()) for match in _NAME.finditer(self.text))
        # The first word is written large whatever it is.
        self.names = [
            name
            for start, name in named
            if words(name) - self.known and (start or " " in name or name == self.text.strip(" .?!") or zone_of(name))
        ]

    def named(self, name: str) -> str:
        """Return the value that the text gives by a parameter's name, as in `city: Paris` or `days=3`."""
        spelling = re.escape(name).replace("_", "[ _-]")
        match = re.search(rf"""\b{spelling}\s*[:=]\s*["']?([^"',;?!\n]+)""", self.text, re.IGNORECASE) if name else None
        return match.group(1).strip().rstrip(".") if match else ""


# --- values for a schema ---------------------------------------------------------------------------------------------

_NOTHING: Any = object()
_MOST_VALUES = 300
_DEEPEST = 25
_LEAF = frozenset({"type", "pattern", "format", "minLength", "maxLength", "minimum", "maximum", "multipleOf"})
_ROLES = {
    "sum": frozenset({"expression", "arithmetic", "formula", "equation"}),
    "zone": frozenset({"zone", "timezone", "tz", "iana"}),
    "place": frozenset({"city", "town", "place", "location", "country"}),
    "query": frozenset({"query", "querie", "search", "topic", "subject", "keyword"}),
    "code": frozenset({"code", "program", "script", "command"}),
    "key": frozenset({"key", "id"}),
    "text": frozenset(
        {"text", "message", "body", "content", "input", "prompt", "word", "question", "answer", "result", "value"}
    ),
}
_FORMATS = {
    "uri": (r"https?://[^\s<>\"')\]]*[^\s<>\"')\].,;:!?]", "https://example.com/"),
    "email": (r"[\w.+-]{1,64}@[\w-]{1,64}(?:\.[\w-]{1,64})+", "someone@example.com"),
    "date-time": (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:Z|[+-]\d\d:\d\d)", "2000-01-01T00:00:00Z"),
    "date": (r"\b\d{4}-\d\d-\d\d\b", "2000-01-01"),
}
"""What values of a format look like, and one that is made up."""


def role_of(name: str, schema: Any) -> str:
    """Return what a parameter is for, by its name, else by its description; nothing if neither tells."""
    described = str(schema.get("description") or "") if isinstance(schema, dict) else ""
    told = (role for found in (words(name), words(described)) for role, marks in _ROLES.items() if marks & found)
    return next(told, "")


def valid(schema: Any, value: Any) -> bool:
    """Tell whether a value is valid for a schema. Nothing is, if the schema itself is not."""
    try:
        return jsonschema_rs.validator_for(schema, retriever=_refuse, validate_formats=True).is_valid(value)
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError, OverflowError):
        return False


def _refuse(uri: str) -> Any:
    raise ValueError(f"the reference {uri} points outside the schema")


class Filling:
    """One attempt to fill a schema with what a text plainly gives.

    To be free is to take the rest of the text for what it does not give, to insist is to make that up.
    Of objects only what is required is filled, and what the text names. Values are bounded in number and depth, since
    schemas may refer to themselves.
    """

    def __init__(self, schema: JSON, facts: Facts, *, free: bool = False, insist: bool = False) -> None:
        self._root = schema
        self._facts = facts
        self._free = free or insist
        self._insist = insist
        self._left = _MOST_VALUES
        self.missing: list[str] = []
        """Names of what is required and was not found."""

    def value(self) -> Any:
        """Return a value that is valid for the schema; None if there is none to be found."""
        value = self._value(self._root, "", required=True, depth=_DEEPEST)
        return None if value is _NOTHING or not valid(self._root, value) else value

    def _value(self, schema: Any, name: str, *, required: bool, depth: int) -> Any:
        self._left -= 1
        if depth <= 0 or self._left < 0:
            return _NOTHING
        options = _options(schema, self._root)
        found = (self._typed(option, name, required=required, depth=depth - 1) for option in options)
        otherwise = None if required and any(option.get("type") == "null" for option in options) else _NOTHING
        return next((value for value in found if value is not _NOTHING), otherwise)

    def _typed(self, schema: JSON, name: str, *, required: bool, depth: int) -> Any:
        if "const" in schema or isinstance(schema.get("enum"), list):
            return self._choice([schema["const"]] if "const" in schema else schema["enum"], required=required)
        match schema.get("type") or ("object" if "properties" in schema else "string"):
            case "object" if required:
                return self._object(schema, depth)
            case "array" if required:
                return self._array(schema, name, depth)
            case "boolean":
                said = self._facts.named(name).lower()
                return said in {"yes", "true", "on"} if said or (required and self._insist) else _NOTHING
            case "string" | "integer" | "number" as kind:
                leaf = {key: part for key, part in schema.items() if key in _LEAF}
                found = self._texts if kind == "string" else self._numbers
                given = (
                    value for value in found(schema, name, required=required) if value != "" and valid(leaf, value)
                )
                return next((value for value in given if value != "" and valid(leaf, value)), _NOTHING)
        return _NOTHING

    def _object(self, schema: JSON, depth: int) -> Any:
        properties, required = schema.get("properties"), schema.get("required")
        properties = properties if isinstance(properties, dict) else {}
        needed = [str(key) for key in required] if isinstance(required, list) else []
        result: JSON = {}
        for key in dict.fromkeys((*properties, *needed)):
            value = self._value(properties.get(key, {}), key, required=key in needed, depth=depth - 1)
            if value is not _NOTHING:
                result[key] = value
        self.missing += [key for key in needed if key not in result]
        return result if result.keys() >= set(needed) else _NOTHING

    def _array(self, schema: JSON, name: str, depth: int) -> Any:
        items, least = schema.get("items", {}), schema.get("minItems")
        said: list[Any] = self._facts.quoted or self._facts.numbers
        values = [value for value in said if isinstance(items, dict) and "type" in items and valid(items, value)]
        for _ in range(max(1, least if isinstance(least, int) else 0) - len(values)):
            value = self._value(items, name, required=True, depth=depth - 1)
            if value is _NOTHING:
                break
            values.append(value)
        return values if values or self._insist else _NOTHING

    def _choice(self, options: list[Any], *, required: bool) -> Any:
        said = self._facts.text.lower()
        mentioned = [o for o in options if isinstance(o, str) and re.search(rf"\b{re.escape(o.lower())}\b", said)]
        made_up = options if required and (self._insist or len(options) == 1 or None in options) else []
        return mentioned[0] if mentioned else None if None in made_up else next(iter(made_up), _NOTHING)

    def _texts(self, schema: JSON, name: str, *, required: bool) -> Iterator[str]:
        """Yield texts for a string, the best first."""
        facts, role = self._facts, role_of(name, schema)
        pattern, sample = _FORMATS.get(str(schema.get("format")), ("", ""))
        yield facts.named(name)
        if pattern and (match := re.search(pattern, facts.text)):
            yield match.group()
        yield {"zone": zone_of(facts.place) or "", "place": facts.place, "sum": facts.sum}.get(role, "")
        if not required:
            return
        # A program or a key is what it is: words of the message are none, unless it was asked for just that.
        guessed = self._free or role not in {"code", "key"}
        if facts.quoted and not pattern and guessed:
            yield facts.quoted.pop(0)
        if role in ({"query", "text"} if self._free else {"query"}):
            yield facts.topic
        elif guessed and role not in {"sum", "zone", "text"}:
            yield from facts.names[:9]
        if self._insist or (self._free and role not in {"sum", "zone", "place"}):
            yield facts.topic
        if self._insist:
            least = schema.get("minLength")
            yield from (sample, *facts.text.split()[:9], "a" * (min(least, 999) if isinstance(least, int) else 1))

    def _numbers(self, schema: JSON, name: str, *, required: bool) -> Iterator[float]:
        """Yield numbers, the best first."""
        yield from Facts(self._facts.named(name)).numbers
        while required and self._facts.numbers:
            yield self._facts.numbers.pop(0)
        if required and self._insist:
            yield from (n for n in (0, 1, *map(schema.get, ("minimum", "maximum"))) if isinstance(n, int | float))


def _options(schema: Any, root: JSON, depth: int = _DEEPEST) -> list[JSON]:
    """Follow references inside the root schema, and return the schemas of which one must be filled."""
    if not isinstance(schema, dict) or depth == 0:
        return [{}]
    if isinstance(schema.get("$ref"), str):
        target: Any = root
        for step in schema["$ref"].removeprefix("#").split("/")[1:]:
            target = target.get(step) if isinstance(target, dict) else None
        return _options(target, root, depth - 1)
    for key in ("anyOf", "oneOf"):
        if isinstance(schema.get(key), list):
            return [option for part in schema[key][:_DEEPEST] for option in _options(part, root, depth // 2)]
    kinds = schema.get("type")
    return [{**schema, "type": kind} for kind in kinds] if isinstance(kinds, list) else [schema]
