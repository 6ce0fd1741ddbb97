"""Spans of time as operators write them: `30d`, `12h`, `90s`; where little depends on it, or a number of seconds."""

import re
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

__all__ = ["Age", "Duration", "read_age", "read_duration", "written_duration"]

_DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,3})?)\s*([smhdw]?)")
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
_UNITS = [("day", 86_400), ("hour", 3600), ("minute", 60)]


def read_duration(value: Any) -> Any:
    """Return a text as seconds; a ValueError if it is no duration. What is no text is returned as it is."""
    if not isinstance(value, str):
        return value
    # M is no m: others read it as months.
    found = _DURATION.fullmatch(value.strip())
    if found is None:
        raise ValueError(f"'{value}' is no duration; write 30d, 12h, 15m, 90s, or a number of seconds")
    return float(found[1]) * _SECONDS[found[2]]


def read_age(value: Any) -> float:
    """Return the age from which on things are deleted, in seconds; a ValueError if it is none.

    Nobody gets back what was deleted because days were meant, and seconds were read: it has a unit, and is above 0.
    """
    found = _DURATION.fullmatch(value.strip()) if isinstance(value, str) else None
    seconds = float(found[1]) * _SECONDS[found[2]] if found is not None and found[2] else 0.0
    if seconds <= 0:
        raise ValueError(f"'{value}' is no age with a unit and above 0; write 30d, 12h, 15m, 90s or 2w")
    return seconds


def written_duration(seconds: float) -> str:
    """Return seconds in words: `30 days`, `1 hour`."""
    unit, size = next(((unit, size) for unit, size in _UNITS if seconds >= size and seconds % size == 0), ("second", 1))
    count = f"{seconds / size:,.3f}".rstrip("0").rstrip(".")
    return f"{count} {unit}{'' if count == '1' else 's'}"


Duration = Annotated[float, BeforeValidator(read_duration), Field(gt=0, allow_inf_nan=False)]
"""Seconds, which may be written as `30d`."""

Age = Annotated[float, BeforeValidator(read_age)]
"""Seconds, which are written as `30d`, never as a bare number."""
