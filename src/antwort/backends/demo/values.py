"""What a text gives (numbers, names, values of parameters), and JSON values made of it that fit a JSON Schema."""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from antwort.backends.demo.texts import program, sums, words, zone_of
from antwort.lazy_imports import imported_on_use
from antwort.types import JSON

if TYPE_CHECKING:
    import jsonschema_rs
else:  # the demo model is there in every server, and answers in few
    jsonschema_rs = imported_on_use("jsonschema_rs")

_NUMBER = re.compile(r"(?<![\w.-])-?\d{1,15}(?:\.\d{1,15})?(?![\w-]|\.\d)")
_QUOTED = re.compile(r"""["“„]([^"“”„\n]+)["“”]|(?<!\w)'([^'\n]+)'(?!\w)|`([^`\n]+)`""")
_NAME = re.compile(r"[A-Z][\w'-]*(?: [A-Z][\w'-]*)*")


@dataclass(slots=True)
class Facts:
    """What a text gives to fill parameters with. The topic, quoted texts and numbers are taken once, in order."""

    text: str
    topic: str = ""
    """What it is about, for the parameter that nothing else fits."""
    place: str = ""
    sum: str = ""
    program: str = ""
    known: frozenset[str] = frozenset()
    """Words that are no values: those by which a function was chosen."""
    parameters: tuple[str, ...] = ()
    """Names after which values may stand without a colon, as in `with key color and value blue`. If there is one, then
    only values that are given so count."""
    by_name: frozenset[str] = field(init=False)
    """The parameters whose values are given so."""
    quoted: list[str] = field(init=False)
    numbers: list[float] = field(init=False)
    names: list[str] = field(init=False)

    def __post_init__(self) -> None:
        self.quoted, self.numbers, self.names = [], [], []
        self.by_name = frozenset(name for name in self.parameters if self.named(name))
        if self.by_name:
            self.topic = self.place = self.sum = self.program = ""
            return
        self.quoted = [unquoted(match.group()) for match in _QUOTED.finditer(self.text)]
        self.numbers = [float(n) if "." in n else int(n) for n in _NUMBER.findall(self.text)]
        named = ((match.start(), match.group()) for match in _NAME.finditer(self.text))
        # The first word is written large whatever it is.
        self.names = [
            name
            for start, name in named
            if words(name) - self.known and (start or " " in name or name == self.text.strip(" .?!") or zone_of(name))
        ]

    def named(self, name: str) -> str:
        """Return the value that the text gives by a parameter's name, with its quotes: `city: Paris`, `days=3`."""
        if not name:
            return ""
        if not self.parameters:
            match = re.search(rf"""\b{_spelled(name)}\s*[:=]\s*["']?([^"',;?!\n]+)""", self.text, re.IGNORECASE)
            return match.group(1).strip().rstrip(".") if match else ""
        others = "|".join(map(_spelled, self.parameters))
        match = re.search(
            rf"""\b{_spelled(name)}(?:\s*[:=]|\s+(?:is|to|as|of)\b|(?=\s))\s*("[^"\n]+"|“[^”\n]+”|'[^'\n]+'|`[^`\n]+`|.+?)"""
            rf"(?=\s*[\s,;]\s*(?:and\s+|with\s+)?(?:the\s+)?(?:{others})\b|[.?!,;]?\s*$)",
            self.text,
            re.IGNORECASE | re.DOTALL,
        )
        return match.group(1).strip() if match else ""


def _spelled(name: str) -> str:
    return re.escape(name).replace("_", "[ _-]")


def unquoted(text: str) -> str:
    """Return a text without the quotes around it, if it is quoted as a whole."""
    match = _QUOTED.fullmatch(text.strip(" .,"))
    return next(filter(None, match.groups())) if match else text


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
_NO_KEYS = frozenset({"all", "everything", "it", "that", "them", "this"})
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
        found = (
            _any_json(self._facts.named(name))
            if self._facts.by_name and not option.keys() & {"type", "properties", "const", "enum"}
            else self._typed(option, name, required=required, depth=depth - 1)
            for option in options
        )
        otherwise = None if required and any(option.get("type") == "null" for option in options) else _NOTHING
        return next((value for value in found if value is not _NOTHING), otherwise)

    def _typed(self, schema: JSON, name: str, *, required: bool, depth: int) -> Any:
        if "const" in schema or isinstance(schema.get("enum"), list):
            return self._choice([schema["const"]] if "const" in schema else schema["enum"], name, required=required)
        match schema.get("type") or ("object" if "properties" in schema else "string"):
            case "object" if required:
                return self._object(schema, depth)
            case "array" if required:
                return self._array(schema, name, depth)
            case "boolean":
                return self._truth(name, required=required)
            case "string" | "integer" | "number" as kind:
                found = self._texts if kind == "string" else self._numbers
                return _first_valid(schema, found(schema, name, required=required))
        return _NOTHING

    def _truth(self, name: str, *, required: bool) -> Any:
        text = self._facts.named(name).lower()
        return text in {"yes", "true", "on"} if text or (required and self._insist) else _NOTHING

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

    def _choice(self, options: list[Any], name: str, *, required: bool) -> Any:
        said = (self._facts.named(name) if self._facts.by_name else self._facts.text).lower()
        mentioned = [o for o in options if isinstance(o, str) and re.search(rf"\b{re.escape(o.lower())}\b", said)]
        made_up = options if required and (self._insist or len(options) == 1 or None in options) else []
        return mentioned[0] if mentioned else None if None in made_up else next(iter(made_up), _NOTHING)

    def _texts(self, schema: JSON, name: str, *, required: bool) -> Iterator[str]:
        """Yield texts for a string, the best first."""
        facts, role = self._facts, role_of(name, schema)
        pattern, sample = _FORMATS.get(str(schema.get("format")), ("", ""))
        yield _as_role(facts.named(name), role) if facts.by_name else facts.named(name)
        if pattern and (match := re.search(pattern, facts.text)):
            yield match.group()
        found = {"zone": zone_of(facts.place) or "", "place": facts.place, "sum": facts.sum, "code": facts.program}
        yield found.get(role, "")
        if required:
            yield from self._guesses(schema, role, sample, is_plain=not pattern)

    def _guesses(self, schema: JSON, role: str, sample: str, *, is_plain: bool) -> Iterator[str]:
        """Yield what a required text may be, though the message does not say so."""
        facts = self._facts
        # A program or a key is what it is: words of the message are none, unless it was asked for just that.
        guessed = role not in {"code", "sum"} and (self._free or role != "key")
        if facts.quoted and is_plain and guessed:
            yield facts.quoted.pop(0)
        topic = self._topic(role)
        if role in ({"query", "text"} if self._free else {"query"}):
            yield topic
        elif guessed and role not in {"sum", "zone", "text", "key"}:
            yield from facts.names[:9]
        if self._insist or (self._free and role not in {"sum", "zone", "place", "code"}):
            yield topic
        if self._insist:
            least = schema.get("minLength")
            yield from (sample, *facts.text.split()[:9], "a" * (min(least, 999) if isinstance(least, int) else 1))

    def _topic(self, role: str) -> str:
        """Take the topic, which is for one parameter only, and for a key only if it is one word."""
        topic = self._facts.topic
        if self._insist:
            return topic
        if not self._free and role != "query":
            return ""
        self._facts.topic = ""
        if role == "text":
            return topic
        topic = topic.rstrip("?!.,;:")
        return "" if role == "key" and (" " in topic or topic.lower() in _NO_KEYS) else topic

    def _numbers(self, schema: JSON, name: str, *, required: bool) -> Iterator[float]:
        """Yield numbers, the best first."""
        yield from Facts(self._facts.named(name)).numbers
        while required and self._facts.numbers:
            yield self._facts.numbers.pop(0)
        if required and self._insist:
            yield from (n for n in (0, 1, *map(schema.get, ("minimum", "maximum"))) if isinstance(n, int | float))


def _as_role(given: str, role: str) -> str:
    """Return a value as a parameter takes it: what is quoted without its quotes, and what is not only if it is one."""
    if _QUOTED.fullmatch(given):
        return unquoted(given)
    match role:
        case "key":
            return "" if len(given.split()) > 1 else given
        case "zone":
            return zone_of(given) or ""
        case "code":
            return program(f"run {given}")
        case "sum":
            return next(iter(sums(given)), "")
    return given


def _any_json(given: str) -> Any:
    """Return a value that may be of any type: JSON if it is some, else a text."""
    try:
        return json.loads(given) if given else _NOTHING
    except (ValueError, RecursionError):
        return _as_role(given, "")


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


def _first_valid(schema: JSON, values: Iterable[Any]) -> Any:
    """Return the first value that the schema of a text or a number allows."""
    leaf = {key: part for key, part in schema.items() if key in _LEAF}
    return next((value for value in values if value != "" and valid(leaf, value)), _NOTHING)
