"""What pydantic finds wrong with a field, in the words and codes that every endpoint has."""

from collections.abc import Iterable
from typing import Any

from pydantic_core import ErrorDetails

from antwort.errors import BadRequestError
from antwort.wire.field_errors import (
    Kind,
    beyond_limit,
    long_name,
    missing_parameter,
    unknown_parameter,
    wrong_pattern,
    wrong_type,
)

_EXPECTED = {
    "string_type": "a string",
    "int_type": "an integer",
    "int_parsing": "an integer",
    "int_from_float": "an integer",
    "float_type": "a decimal",
    "float_parsing": "a decimal",
    "bool_type": "a boolean",
    "bool_parsing": "a boolean",
    "list_type": "an array",
    "dict_type": "an object",
    "model_type": "an object",
    "model_attributes_type": "an object",
}
"""What a field must be, by what pydantic says if it is not."""
_BOUNDS = {
    "greater_than_equal": ("ge", False),
    "greater_than": ("gt", False),
    "less_than_equal": ("le", True),
    "less_than": ("lt", True),
}
_LENGTHS = {
    "string_too_long": ("max_length", True),
    "too_long": ("max_length", True),
    "string_too_short": ("min_length", False),
    "too_short": ("min_length", False),
}
"""Where the limit is that something is beyond, and whether it is above."""


def model_error(found: ErrorDetails, param: str, value: Any, known: Iterable[str] = ()) -> BadRequestError:
    """Return the error for a value; `known` are the fields there are beside one that is not known."""
    fault, limits = found["type"], found.get("ctx", {})
    if fault == "missing":
        return missing_parameter(param)
    if fault == "extra_forbidden":
        return unknown_parameter(param, known)
    if fault in _EXPECTED:
        return wrong_type(param, _EXPECTED[fault], value)
    if fault == "string_pattern_mismatch":
        return wrong_pattern(param, limits["pattern"])
    if fault in _BOUNDS or fault in _LENGTHS:
        return _beyond(found, param, value)
    return BadRequestError(f"Invalid value for '{param}': {found['msg']}.", param=param, code="invalid_value")


def _beyond(found: ErrorDetails, param: str, value: Any) -> BadRequestError:
    limits = found.get("ctx", {})
    if found["type"] in _BOUNDS:
        name, above = _BOUNDS[found["type"]]
        number: Kind = "integer" if isinstance(limits[name], int) else "decimal"
        return beyond_limit(param, number, above=above, bound=limits[name], given=value)
    name, above = _LENGTHS[found["type"]]
    if found["loc"][-1:] == ("[key]",):
        return long_name(param, limits[name], str(found["loc"][-2]))
    kind: Kind = "string" if isinstance(value, str) else "object" if isinstance(value, dict) else "array"
    return beyond_limit(param, kind, above=above, bound=limits[name], given=len(value))
