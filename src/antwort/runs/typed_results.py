"""Results that have to fit a schema: checked when an agent is done."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from antwort.context.agents import AgentResult, AgentTask
from antwort.context.values import Values
from antwort.errors import FunctionError
from antwort.lazy_imports import imported_on_use
from antwort.types import JSON

if TYPE_CHECKING:
    import jsonschema_rs
else:  # only typed results need it
    jsonschema_rs = imported_on_use("jsonschema_rs")

UNFIT = "Your result does not fit the schema: {}. Give it again, all of it, and as JSON."
"""What an agent is told."""
_LARGEST = 200_000
"""Bytes of a value that are looked at."""
_MOST_WORK = 100_000
"""Steps that a check may take, a microsecond each at worst: schemas may be a model's, and all wait meanwhile."""
_PATTERN_SIZE, _PATTERN_STEPS = 10_000, 3
"""Bytes that a pattern may take, and the steps of each character that is held to one."""
_TOO_LARGE = f"it has more than {_LARGEST:,} bytes, or is gone"
_TOO_MUCH = "it is too much to be checked; give less, or give it in parts"
_LONGEST_PROBLEM = 200
_FENCE = "```"
"""What models like to write around JSON."""


def check_schema(schema: Mapping[str, Any]) -> None:
    """Raise a FunctionError if nothing could be held to a schema."""
    _validator(schema)


async def typed(result: AgentResult, task: AgentTask, tenant: str, values: Values | None) -> tuple[AgentResult, str]:
    """Return what came of an agent as its task wants it, and what is wrong with it; that is empty if nothing is.

    What has no whole answer anyway is as it is.
    """
    if task.output_schema is None or not result.is_answer:
        return result, ""
    text = result.text if result.reference is None else await _read(result.reference, tenant, values)
    if text is None:
        return result, _TOO_LARGE
    plain, problem = _checked(task.output_schema, text)
    if problem:
        return result, problem
    return replace(result, text=plain if result.reference is None else result.text, is_json=True), ""


def unfit(result: AgentResult, problem: str) -> AgentResult:
    """Return an agent whose result does not fit as one that has failed; what it has said is there."""
    return replace(result, status="failed", reason=f"Its result does not fit the schema: {problem}.")


async def _read(variable_id: str, tenant: str, values: Values | None) -> str | None:
    variable = None if values is None else await values.get(tenant, variable_id)
    if values is None or variable is None or variable.size > _LARGEST:
        return None
    return b"".join([piece async for piece in values.read(variable)]).decode(errors="replace")


def _checked(schema: Mapping[str, Any], text: str) -> tuple[str, str]:
    """Return the JSON in a text, without what models write around it, and what is wrong with it."""
    text = text.strip()
    if text.startswith(_FENCE) and text.endswith(_FENCE):
        text = text.removesuffix(_FENCE).partition("\n")[2]
    if len(text) > _LARGEST:
        return text, _TOO_LARGE
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        return text, f"it is no JSON: {error}"
    if _work(schema, text) > _MOST_WORK:
        return text, _TOO_MUCH
    try:
        _validator(schema).validate(value)  # up to what is wrong first: to find all of it may take very long
    except jsonschema_rs.ValidationError as error:
        return text, _problem_line(error)
    except (ValueError, OverflowError) as error:
        return text, str(error)
    return msgspec.json.encode(value).decode(), ""


def _work(schema: Mapping[str, Any], text: str) -> int:
    """Return about how many steps it takes to hold each part of a value to each part of a schema, at worst."""
    wanted = msgspec.json.encode(schema)
    parts = 1 + text.count(",") + text.count("[") + text.count("{")
    return parts * (wanted.count(b"{") + wanted.count(b",")) + _PATTERN_STEPS * wanted.count(b'"pattern') * len(text)


def _problem_line(error: "jsonschema_rs.ValidationError") -> str:
    path = ".".join(str(part) for part in error.instance_path)
    message = f"{path}: {error.message}" if path else error.message
    return message if len(message) <= _LONGEST_PROBLEM else f"{message[:_LONGEST_PROBLEM]}…"


def _validator(schema: Mapping[str, Any]) -> "jsonschema_rs.Validator":
    plain: JSON = dict(schema)
    try:
        # Patterns may be a model's: these take a time that grows with the text, and with their own size.
        patterns = jsonschema_rs.RegexOptions(size_limit=_PATTERN_SIZE)
        return jsonschema_rs.validator_for(plain, retriever=_refuse, pattern_options=patterns)
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
        cause = str(error).splitlines()[0][:_LONGEST_PROBLEM]
        raise FunctionError(f"The schema of the result is no JSON Schema that can be checked: {cause}") from error


def _refuse(uri: str) -> Any:
    raise ValueError(f"the reference {uri} points outside the schema")
