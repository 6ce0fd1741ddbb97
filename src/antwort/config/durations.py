"""Spans of time as operators write them: `30d`, `12h`, `500ms`; where little depends on it, or a number of seconds."""

import re
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from antwort.lazy_imports import compiled_on_use

_DURATION = compiled_on_use(r"(\d{1,18}(?:\.\d{1,18})?)\s*(ms|[smhdw]?)")
_SIZES = {
    unit: Decimal(size)
    for unit, size in {"": "1", "ms": "0.001", "s": "1", "m": "60", "h": "3600", "d": "86400", "w": "604800"}.items()
}
_UNITS = [("day", 86_400), ("hour", 3600), ("minute", 60)]
_EXAMPLES = "500ms, 90s, 15m, 12h, 30d, 2w"
_LONGEST = 1e15
"""Seconds that nobody writes with a unit."""


def read_duration(value: Any) -> Any:
    """Return a text as seconds; a ValueError if it is no duration. What is no text is returned as it is."""
    if not isinstance(value, str):
        return value
    # M is no m: others read it as months.
    found = _DURATION.fullmatch(value.strip())
    if found is None:
        raise ValueError(f"not a duration; write {_EXAMPLES}, or a number of seconds")
    return _seconds(found)


def read_age(value: Any) -> float:
    """Return the age from which on things are deleted, in seconds; a ValueError if it is none.

    Nobody gets back what was deleted because days were meant, and seconds were read: it has a unit, and is above 0.
    """
    found = _DURATION.fullmatch(value.strip()) if isinstance(value, str) else None
    seconds = _seconds(found) if found is not None and found[2] else 0.0
    if seconds <= 0:
        raise ValueError("not an age with a unit and above 0; write 30d, 12h, 15m, 90s or 2w")
    return seconds


def short_duration(seconds: float) -> str:
    """Return seconds as an operator would write them in a configuration, and as they are read there: `30d`, `90s`."""
    if seconds >= _LONGEST:
        return f"{seconds:.1f}"
    exact = Decimal(repr(float(seconds)))
    for unit in ("d", "h", "m"):
        if exact and exact % _SIZES[unit] == 0:
            return f"{exact // _SIZES[unit]:f}{unit}"
    if 0 < exact < 1 and exact * 1000 % 1 == 0:
        return f"{int(exact * 1000)}ms"
    return f"{exact.quantize(Decimal(1)) if exact % 1 == 0 else exact:f}s"


def written_duration(seconds: float) -> str:
    """Return seconds in words: `30 days`, `1 hour`."""
    unit, size = next(((unit, size) for unit, size in _UNITS if seconds >= size and seconds % size == 0), ("second", 1))
    count = f"{seconds / size:,.3f}".rstrip("0").rstrip(".")
    return f"{count} {unit}{'' if count == '1' else 's'}"


def _seconds(found: re.Match[str]) -> float:
    return float(Decimal(found[1]) * _SIZES[found[2]])


if TYPE_CHECKING:
    Seconds = float
    Age = float
else:
    # A type of its own tells the reference, the template and `antwort config show` that a number is a span of time;
    # to all others it is a number, and may be given as one.

    class Seconds(float):
        """Seconds, 0 or more, which may be written as `30d`."""

        __slots__ = ()

        @classmethod
        def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
            number = core_schema.float_schema(ge=0, allow_inf_nan=False)
            read = core_schema.no_info_before_validator_function(cls._read, number)
            return core_schema.no_info_after_validator_function(cls, read)

        _read = staticmethod(read_duration)

    class Age(Seconds):
        """Seconds, above 0, which are written as `30d`, never as a bare number."""

        __slots__ = ()
        _read = staticmethod(read_age)


def is_duration(value: Any) -> bool:
    """Tell whether a value of the configuration is a span of time, rather than any other number."""
    return type(value) in (Seconds, Age)


Duration = Annotated[Seconds, Field(gt=0)]
"""Seconds, above 0, which may be written as `30d`."""
