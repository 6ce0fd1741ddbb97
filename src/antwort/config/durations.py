"""Spans of time as operators write them: `30d`, `12h`, `90s`, or a number of seconds."""

import re
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

__all__ = ["Duration", "read_duration"]

_DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,3})?)\s*([smhdw]?)")
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}


def read_duration(value: Any) -> Any:
    """Return a text as seconds; a ValueError if it is no duration. What is no text is returned as it is."""
    if not isinstance(value, str):
        return value
    found = _DURATION.fullmatch(value.strip().lower())
    if found is None:
        raise ValueError(f"'{value}' is no duration; write 30d, 12h, 15m, 90s, or a number of seconds")
    return float(found[1]) * _SECONDS[found[2]]


Duration = Annotated[float, BeforeValidator(read_duration), Field(gt=0, allow_inf_nan=False)]
"""Seconds, which may be written as `30d`."""
