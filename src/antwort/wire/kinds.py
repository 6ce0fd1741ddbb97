"""What kind of thing a JSON object says it is."""

from collections.abc import Mapping
from typing import Any

from antwort.errors import BadRequestError

__all__ = ["read_type"]


def read_type(value: Mapping[str, Any], param: str) -> str:
    """Return the `type` of an object of a request; BadRequestError names it if it is missing or is not a string."""
    kind = value.get("type")
    if isinstance(kind, str):
        return kind
    place = f"{param}.type"
    if kind is None:
        raise BadRequestError(f"Missing required parameter: '{place}'.", param=place, code="missing_required_parameter")
    raise BadRequestError(f"Invalid value for '{place}': it must be a string.", param=place, code="invalid_type")
