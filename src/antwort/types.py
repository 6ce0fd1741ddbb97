"""The types of JSON, declared once."""

from typing import Any, TypeAlias

JSON = dict[str, Any]
"""A JSON object: what it holds is known to whoever reads it."""

JSONValue: TypeAlias = "str | int | float | bool | list[JSONValue] | dict[str, JSONValue] | None"
"""Any JSON value, for whoever walks through one."""
