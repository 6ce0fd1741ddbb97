"""What is wrong with a field of a request, in the words and codes of OpenAI: the same on every endpoint."""

import contextlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

import msgspec
from msgspec import inspect

from antwort.errors import BadRequestError, did_you_mean
from antwort.lazy_imports import compiled_on_use

UNKNOWN_PARAMETER = "unknown_parameter"
"""The code of an error about a field that no request has."""
_NAMES = {
    "str": "a string",
    "int": "an integer",
    "float": "a decimal",
    "bool": "a boolean",
    "array": "an array",
    "object": "an object",
    "null": "null",
}
"""What the types of JSON are called, by what msgspec calls them."""
_PLACE = compiled_on_use(r" - at (?P<key>`key` in )?`\$\.?(?P<path>.*)`$")
_FIELD = compiled_on_use(r"^Object (?P<fault>missing required|contains unknown) field `(?P<name>.*)`$")
_TYPE = compiled_on_use(r"^Expected `(?P<expected>[^`]*)`, got `(?P<got>[^`]*)`$")
_LIMIT = compiled_on_use(r"^Expected `(?P<kind>\w+)`(?P<size> of length)? (?P<sign><=|>=|<|>) (?P<bound>\S+)$")
_PATTERN = compiled_on_use(r"^Expected `str` matching regex '(?P<pattern>.*)'$")
_VALUE = compiled_on_use(r"^Invalid (?:enum )?value (?P<value>.*)$")
_TRUNCATED = "Input data was truncated"
_LONGEST_ESCAPE = len(r"\ud83d\ude00")
_STEP = compiled_on_use(r"\[(\d+)\]|([^.\[\]]+)")

Kind = Literal["integer", "decimal", "string", "array", "object"]
"""What can be too small or too large."""
_KINDS: dict[str, Kind] = {"int": "integer", "float": "decimal", "str": "string", "array": "array", "object": "object"}


def unknown_parameter(param: str, known: Iterable[str] = (), cure: str = "") -> BadRequestError:
    """Return the error for a field, or a parameter of the query, that nobody knows: with one that was meant, a cure."""
    hint = did_you_mean(param.rpartition(".")[2], known) or "."
    message = f"Unknown parameter: '{param}'{hint}{cure and f' {cure}'}"
    return BadRequestError(message, param=param, code=UNKNOWN_PARAMETER)


def misplaced_parameter(name: str) -> BadRequestError:
    """Return the error for a field of the API that is among those of the model server's own."""
    message = f"'{name}' is a field of the request: it stands beside 'extra_body', not in it."
    return BadRequestError(message, param=f"extra_body.{name}", code=UNKNOWN_PARAMETER)


def missing_parameter(param: str) -> BadRequestError:
    """Return the error for a field that must be there."""
    return BadRequestError(f"Missing required parameter: '{param}'.", param=param, code="missing_required_parameter")


def wrong_type(param: str, expected: str, value: Any) -> BadRequestError:
    """Return the error for a value of the wrong type; `expected` says of which it must be, as in `a string`."""
    return BadRequestError(
        f"Invalid type for '{param}': expected {expected}, but got {type_name(value)} instead.",
        param=param,
        code="invalid_type",
    )


def unsupported_value(param: str, value: Any, supported: Iterable[str]) -> BadRequestError:
    """Return the error for a value that is none of those there are."""
    names = [f"'{name}'" for name in supported]
    ending = f" Supported values are: {listed(names, 'and')}." if len(names) > 1 else ""
    ending = f" Value must be {names[0]}." if len(names) == 1 else ending
    return BadRequestError(f"Invalid value for '{param}': '{value}'.{ending}", param=param, code="invalid_value")


def wrong_prefix(param: str, value: str, prefix: str) -> BadRequestError:
    """Return the error for an id that is not one of what it should name."""
    return BadRequestError(
        f"Invalid '{param}': '{value}'. Expected an ID that begins with '{prefix}'.", param=param, code="invalid_value"
    )


def wrong_pattern(param: str, pattern: str) -> BadRequestError:
    """Return the error for a text with characters that it may not have."""
    return BadRequestError(
        f"Invalid '{param}': string does not match pattern. Expected a string that matches the pattern '{pattern}'.",
        param=param,
        code="invalid_value",
    )


def beyond_limit(param: str, kind: Kind, *, above: bool, bound: Any, given: Any) -> BadRequestError:
    """Return the error for a number, or a length, that is too large or too small; `given` is that."""
    if kind in ("integer", "decimal"):
        code = f"{kind}_above_max_value" if above else f"{kind}_below_min_value"
        said = f"{kind} {'above maximum' if above else 'below minimum'} value. Expected a value "
        said += f"{'<=' if above else '>='} {bound}, but got {given} instead."
    elif kind == "object":
        code = "object_above_max_properties" if above else "object_below_min_properties"
        said = f"too {'many' if above else 'few'} properties. Expected an object with "
        said += f"{'at most' if above else 'at least'} {bound} properties, but got {given} instead."
    elif kind == "array" and given == 0:
        code, said = "empty_array", f"empty array. Expected an array with minimum length {bound}, but got an empty one."
    else:
        code = f"{kind}_above_max_length" if above else f"{kind}_below_min_length"
        said = f"{kind} too {'long' if above else 'short'}. Expected {_NAMES['str' if kind == 'string' else 'array']} "
        said += f"with {'maximum' if above else 'minimum'} length {bound}, but got one with length {given} instead."
    return BadRequestError(f"Invalid '{param}': {said}", param=param, code=code)


def long_name(param: str, bound: int, name: str) -> BadRequestError:
    """Return the error for the name of a property that is too long."""
    return BadRequestError(
        f"Invalid '{param}': property name too long. Expected a name with maximum length {bound}, but got one with "
        f"length {len(name)} instead.",
        param=param,
        code="property_name_above_max_length",
    )


def type_name(value: Any) -> str:
    """Return what a value of JSON is, as in `an integer`."""
    for kind, name in ((bool, "bool"), (int, "int"), (float, "float"), (str, "str"), (dict, "object"), (list, "array")):
        if isinstance(value, kind):
            return _NAMES[name]
    return "null"


def listed(names: Sequence[str], last: str) -> str:
    """Join names as a sentence does."""
    if len(names) < 3:
        return f" {last} ".join(names)
    return f"{', '.join(names[:-1])}, {last} {names[-1]}"


def read_type(value: Mapping[str, Any], param: str) -> str:
    """Return the `type` of an object of a request; BadRequestError names it if it is missing or is not a string."""
    kind = value.get("type")
    if isinstance(kind, str):
        return kind
    raise missing_parameter(f"{param}.type") if kind is None else wrong_type(f"{param}.type", "a string", kind)


# --- what msgspec says ------------------------------------------------------------------------------------------------


def no_json(body: bytes | bytearray | str, error: Exception, what: str = "The body") -> BadRequestError:
    """Return the error for a text that msgspec cannot read; `what` is where that came."""
    return BadRequestError(f"{what} is not valid JSON: {_fault(body, error)}.", code="invalid_json")


def _fault(body: bytes | bytearray | str, error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if str(error) != _TRUNCATED:
        return str(error)
    text = body.encode(errors="replace") if isinstance(body, str) else bytes(body)
    if text.rstrip().endswith((b"}", b"]")):
        # Near the end msgspec takes half an escape, such as one surrogate of two, for a text that was cut off.
        try:
            msgspec.json.decode(text + b" " * _LONGEST_ESCAPE)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as found:
            if str(found) != _TRUNCATED:
                return _fault(body, found)
    return "it is not complete, it ends too early" if text else "it is empty"


def read_document(body: bytes | bytearray | str) -> Any:
    """Return a body that does not fit, to say what is wrong with it; BadRequestError if it is no JSON beyond that."""
    try:
        return msgspec.json.decode(body)
    except msgspec.ValidationError:  # a number that is too large for any type
        return None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise no_json(body, error) from None


def field_error(message: str, kind: Any, read: Callable[[], Any], within: str = "") -> BadRequestError:
    """Return what msgspec complains of in a document that is no `kind`.

    `read` gives the document, if it has to be looked at, or raises what is wrong with the whole of it, which is the
    error then; `within` is where in the request that is.
    """
    place = _PLACE.search(message)
    path, reason = (place["path"], message[: place.start()]) if place else ("", message)
    if found := _FIELD.match(reason):
        param = _joined(_joined(within, path), found["name"])
        if found["fault"] == "missing required":
            return missing_parameter(param)
        return unknown_parameter(param, _fields_at(kind, path))
    document = read()
    if path.endswith("[...]"):
        path = _culprit(path.removesuffix("[...]"), document)
    param, value = _joined(within, path), _value_at(document, path)
    if not param:
        return BadRequestError(f"The body must be a JSON object: {reason}.", code="invalid_type")
    if _VALUE.match(reason):
        return unsupported_value(param, value, _supported_at(kind, path))
    return _value_error(param, reason, value, is_key=bool(place and place["key"]))


def _value_error(param: str, reason: str, value: Any, *, is_key: bool) -> BadRequestError:
    if found := _TYPE.match(reason):
        names = [_NAMES.get(name, name) for name in found["expected"].split(" | ") if name != "null"]
        expected = names[0] if len(names) == 1 else f"one of {listed(names, 'or')}"
        return wrong_type(param, expected, value)
    if found := _LIMIT.match(reason):
        return _limit_error(param, found, value, is_key=is_key)
    if found := _PATTERN.match(reason):
        return wrong_pattern(param, found["pattern"])
    return BadRequestError(f"Invalid value for '{param}': {reason}.", param=param, code="invalid_value")


def _limit_error(param: str, found: re.Match[str], value: Any, *, is_key: bool) -> BadRequestError:
    bound = found["bound"].removesuffix(".0")
    if is_key:
        names = [name for name in value or () if len(name) > int(bound)]
        return long_name(param, int(bound), names[0] if names else "")
    given = len(value) if found["size"] and value is not None else value
    return beyond_limit(param, _KINDS[found["kind"]], above=found["sign"][0] == "<", bound=bound, given=given)


def _joined(outer: str, inner: str) -> str:
    if not outer or not inner:
        return outer or inner
    return f"{outer}{inner}" if inner.startswith("[") else f"{outer}.{inner}"


def _steps(path: str) -> list[int | str]:
    return [int(index) if index else name for index, name in _STEP.findall(path)]


def _value_at(document: Any, path: str) -> Any:
    with contextlib.suppress(LookupError, TypeError):
        for step in _steps(path):
            document = document[step]
        return document
    return None


def _culprit(path: str, document: Any) -> str:
    """Return the path to the entry of an object of texts that is none, or is too long: msgspec does not name it."""
    entries = _value_at(document, path)
    for name, value in entries.items() if isinstance(entries, dict) else ():
        if value is not None and (not isinstance(value, str) or len(value) > _LONGEST_VALUE):
            return f"{path}.{name}"
    return path


_LONGEST_VALUE = 512
"""Characters of a value of metadata."""


def _types_at(kind: Any, path: str) -> list[inspect.Type]:
    """Return the types that a value may have at a place."""
    found = _alternatives(inspect.type_info(kind))
    for step in _steps(path):
        inner: list[inspect.Type] = []
        for one in found:
            if isinstance(step, int) and isinstance(one, inspect.ListType):
                inner += _alternatives(one.item_type)
            elif isinstance(one, inspect.StructType):
                inner += [t for f in one.fields if f.encode_name == step for t in _alternatives(f.type)]
                if one.tag_field == step:
                    inner.append(inspect.LiteralType((one.tag,)))
        found = inner
    return found


def _alternatives(kind: inspect.Type) -> list[inspect.Type]:
    if isinstance(kind, inspect.Metadata):
        return _alternatives(kind.type)
    if isinstance(kind, inspect.UnionType):
        return [one for part in kind.types for one in _alternatives(part)]
    return [kind]


def _fields_at(kind: Any, path: str) -> Iterable[str]:
    if not path:
        return tuple(kind.__struct_fields__)
    structs = (one for one in _types_at(kind, path) if isinstance(one, inspect.StructType))
    return [field.encode_name for one in structs for field in one.fields]


def _supported_at(kind: Any, path: str) -> list[str]:
    literals = (one for one in _types_at(kind, path) if isinstance(one, inspect.LiteralType))
    return sorted({str(value) for one in literals for value in one.values})


def check_shape(value: Any, shape: type[msgspec.Struct], param: str) -> None:
    """Raise BadRequestError with the field of a value that does not fit; `param` is where the value is."""
    try:
        msgspec.convert(value, shape)
    except msgspec.ValidationError as error:
        raise field_error(str(error), shape, lambda: value, param) from None
