"""Bodies that are passed on as they were written: read to be checked, by the most tolerant of all readers.

Who reads them behind us is not known. Some take names in any case, some the first of two values with one name and some
the last, and each has its own names for an image. So what is looked at is not a structure but every text in it.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum, auto
from typing import Any

import msgspec

from antwort.errors import BadRequestError
from antwort.lazy_imports import compiled_on_use
from antwort.web.bodies import check_values
from antwort.wire.field_errors import no_json

Fields = dict[str, msgspec.Raw]
Link = tuple[str, str]
"""Where a URL stands, and the URL."""


class Naming(Enum):
    """What the name of a value says about it."""

    LINK = auto()
    """Its texts are URLs, whatever they look like: `image_url`, `uri`."""
    MEDIA = auto()
    """Its texts are URLs, names of files, or the data itself: `image`, `audio`, `file_data`."""
    OTHER = auto()
    """Nobody knows: a text that looks like a URL may be one."""
    TEXT = auto()
    """Its texts are for the model or for people, and no URL that somebody fetches, even if they look like one."""
    OPAQUE = auto()
    """Nothing in it is fetched, and what its names mean is up to the client: schemas, arguments, metadata."""


_FETCHED = frozenset({Naming.LINK, Naming.MEDIA})
_LINK = compiled_on_use(r"(?:url|uri|href|src)s?\Z")
_MEDIA = compiled_on_use(r"image|img|picture|video|audio|sound|media|file|attachment")
_TEXTS = frozenset(
    {
        "content",
        "description",
        "file_name",
        "filename",
        "id",
        "input",
        "instruction",
        "instructions",
        "name",
        "output",
        "prompt",
        "query",
        "reasoning",
        "reasoning_content",
        "refusal",
        "role",
        "stop",
        "suffix",
        "text",
        "texts",
        "thinking",
        "title",
        "tool_call_id",
        "type",
        "user",
    }
)
_OPAQUE = frozenset(
    {
        "annotations",
        "arguments",
        "citations",
        "function",
        "function_call",
        "functions",
        "guided_json",
        "input_schema",
        "json_schema",
        "metadata",
        "output_schema",
        "parameters",
        "schema",
        "structured_outputs",
    }
)
_DATA = "data:"
_SCHEME = compiled_on_use(r"[\x00-\x20]*[a-z][a-z0-9+.-]*:", re.IGNORECASE)
_ADDRESS = compiled_on_use(r"[\x00-\x20]*(?:[a-z][a-z0-9+.-]*:[/\\]|(?:https?|ftps?|file|gopher):\S)", re.IGNORECASE)
_PATH = compiled_on_use(r"[\x00-\x20]*(?:[.~\\]|/(?!/|9j/))")
"""A file of the model server's. Data in base64 can begin with a slash too: `/9j/` is a JPEG, `//` is sound."""
_LONGEST_PATH = 1024


class Forwarded(msgspec.Struct, frozen=True):
    """A body that was read."""

    fields: Fields
    """As they were written."""
    links: list[Link]
    """What somebody who reads it could take for something to fetch."""


class _Name:
    """A name that equals no other, so that a dictionary has all of them."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


def _named(kind: type, text: Any) -> Any:
    return kind(text)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise _twice(name for name, _ in pairs)
    return found


def _number(_: str) -> None:
    """Leave numbers out: none is looked at, and some are larger than Python reads."""


_decode_fields = msgspec.json.Decoder(dict[_Name, msgspec.Raw], dec_hook=_named).decode
_decode_value = json.JSONDecoder(
    object_pairs_hook=_unique, parse_int=_number, parse_float=_number, parse_constant=_number, strict=False
).decode


def read_forwarded(body: bytes | bytearray, max_values: int) -> Forwarded:
    """Read a JSON object; BadRequestError if it is none, names something twice, or has too many values in objects.

    Lists without objects, such as the tokens of texts to embed, are not read, and have any number of values.
    """
    try:
        named = _decode_fields(body)
    except msgspec.ValidationError as error:
        raise BadRequestError(f"The body must be a JSON object: {error}.", code="invalid_type") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise no_json(body, error) from None
    fields = {name.text: raw for name, raw in named.items()}
    # Whoever takes names in any case takes `Model` for another `model`, and this server has looked at one of them.
    if len({name.casefold() for name in fields}) < len(named):
        raise _twice(name.text for name in named)
    namings = _top_namings(fields)
    values = {
        name: _read(name, bytes(raw), max_values)
        for name, raw in fields.items()
        if namings[name] in _FETCHED or (namings[name] is not Naming.OPAQUE and _has_objects(bytes(raw)))
    }
    return Forwarded(fields, list(body_links(values, namings)))


def _has_objects(raw: bytes) -> bool:
    """Tell whether there are objects in a value; braces in its texts are none."""
    if b"{" not in raw:
        return False
    outside = raw.replace(rb"\\", b"").replace(rb"\"", b"").split(b'"')[::2]
    return b"{" in b"".join(outside)


def _read(name: str, raw: bytes, max_values: int) -> Any:
    try:
        text = raw.decode()
        check_values(text, max_values)
        return _decode_value(text)
    except (ValueError, RecursionError) as error:
        raise BadRequestError(f"The body is not valid JSON: {error}.", param=name, code="invalid_json") from None


def _twice(names: Iterable[str]) -> BadRequestError:
    seen: set[str] = set()
    for name in names:
        if (folded := name.casefold()) in seen:
            break
        seen.add(folded)
    return BadRequestError(
        f"The name '{name[:100]}' stands twice in one object. Leave one of them out.",
        param=name[:100],
        code="duplicate_name",
    )


def _naming(name: str) -> Naming:
    folded = name.casefold()
    if folded in _TEXTS:
        return Naming.TEXT
    if folded in _OPAQUE:
        return Naming.OPAQUE
    if _LINK.search(folded):
        return Naming.LINK
    return Naming.MEDIA if _MEDIA.search(folded) else Naming.OTHER


def _top_namings(fields: Fields) -> dict[str, Naming]:
    """Tell what the names of a request's fields say; there, unknown ones are settings, and no parts of a message."""
    namings = {name: _naming(name) for name in fields}
    # Embedding servers for images take their URLs as plain texts, if the request says that they are images.
    modal = any(name.casefold() == "modality" and bytes(raw) != b'"text"' for name, raw in fields.items())
    for name, naming in namings.items():
        if modal and name.casefold() == "input":
            namings[name] = Naming.MEDIA
        elif naming is Naming.OTHER:
            namings[name] = Naming.TEXT
    return namings


def body_links(fields: Mapping[str, Any], namings: Mapping[str, Naming]) -> Iterator[Link]:
    """Give what could be fetched of the fields of a request, in their order."""
    known: dict[str, Naming] = {}
    left = [(name, fields[name], namings[name]) for name in reversed(list(fields))]
    while left:  # not by recursion: how deep it goes is the client's to choose
        where, value, naming = left.pop()
        if isinstance(value, str):
            if _is_link(value, naming):
                yield where, value
        elif isinstance(value, list):
            left += [(f"{where}[{index}]", value[index], naming) for index in reversed(range(len(value)))]
        elif isinstance(value, dict):
            left += reversed(_members(value, where, naming, known))


def _members(
    value: dict[str, Any], where: str, naming: Naming, known: dict[str, Naming]
) -> list[tuple[str, Any, Naming]]:
    """Return what is to be looked at of an object; the texts of ordinary messages are left out at once."""
    is_media = any(
        len(name) == len("type") and isinstance(kind, str) and name.casefold() == "type" and _MEDIA.search(kind.lower())
        for name, kind in value.items()
    )
    members: list[tuple[str, Any, Naming]] = []
    for name, member in value.items():
        own = known.get(name)
        if own is None:
            own = known[name] = _naming(name)
        if own is Naming.TEXT and is_media:
            own = Naming.OTHER
        elif own is Naming.OTHER and naming in _FETCHED:
            own = Naming.MEDIA
        if own is Naming.OPAQUE or (own is Naming.TEXT and isinstance(member, str)):
            continue
        # `image_url` and `image_url.url` are one place for those who know the API.
        members.append((where if naming is Naming.LINK else f"{where}.{name}", member, own))
    return members


def _is_link(text: str, naming: Naming) -> bool:
    if naming is Naming.TEXT or text[: len(_DATA)].lower() == _DATA:
        return False
    if naming is Naming.LINK:
        return True
    if naming is Naming.MEDIA:
        return bool(_SCHEME.match(text) or (len(text) < _LONGEST_PATH and _PATH.match(text)))
    return bool(_ADDRESS.match(text))
