"""Who may call a function, as a request says: the model, or functions that call others."""

from collections.abc import Iterable

from antwort.errors import BadRequestError
from antwort.functions.stubs import python_stub
from antwort.types import JSON

DIRECT, PROGRAMMATIC = "direct", "programmatic"
"""Who calls a function: the model, or a function that calls others."""


def read_callers(tool: JSON, param: str) -> frozenset[str] | None:
    """Read who may call a tool, None if it does not say so; BadRequestError if nobody could."""
    given = tool.get("allowed_callers")
    if given is None:
        return None
    if not isinstance(given, list) or not given or any(caller not in (DIRECT, PROGRAMMATIC) for caller in given):
        raise BadRequestError(
            f"Invalid value for '{param}.allowed_callers': it is a list of '{DIRECT}', '{PROGRAMMATIC}', or both.",
            param=f"{param}.allowed_callers",
            code="invalid_value",
        )
    return frozenset(given)


def with_stubs(definition: JSON, hidden: Iterable[JSON]) -> JSON:
    """Return the definition of a function that calls others, with those that the model does not see otherwise."""
    stubs = "\n\n".join(map(python_stub, hidden))
    return {**definition, "description": f"{definition.get('description', '')}\n\nFurther functions:\n\n{stubs}"}
