"""Results that have to fit a schema: checked when an agent is done."""

import re
from collections.abc import Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from antwort.agents import AgentResult, AgentTask
from antwort.errors import FunctionError
from antwort.lazy_imports import imported_on_use
from antwort.run_services import Values
from antwort.types import JSON

if TYPE_CHECKING:
    import jsonschema_rs
else:  # only typed results need it
    jsonschema_rs = imported_on_use("jsonschema_rs")

UNFIT = "Your result does not fit the schema: {}. Give it again, all of it, and as JSON."
"""What an agent is told."""
_LARGEST = 200_000
"""Bytes of a value that are checked: schemas may be a model's, and each part of a value is held to all of one."""
_TOO_LARGE = f"it has more than {_LARGEST:,} bytes, or is gone"
_SHOWN_PROBLEMS, _LONGEST_PROBLEM = 5, 200
_FENCED = re.compile(r"```\w*\s*\n(.*)\n\s*```", re.DOTALL)
"""JSON as models like to write it."""


def check_schema(task: AgentTask) -> None:
    """Raise a FunctionError if nothing could be held to the schema of a task."""
    if task.output_schema is not None:
        _validator(task.output_schema)


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
    fenced = _FENCED.fullmatch(text)
    text = fenced[1] if fenced else text
    if len(text) > _LARGEST:
        return text, _TOO_LARGE
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        return text, f"it is no JSON: {error}"
    try:
        found = [*islice(_validator(schema).iter_errors(value), _SHOWN_PROBLEMS)]
    except (ValueError, OverflowError) as error:
        return text, str(error)
    return msgspec.json.encode(value).decode(), "; ".join(map(_told, found))


def _told(error: "jsonschema_rs.ValidationError") -> str:
    path = ".".join(str(part) for part in error.instance_path)
    message = f"{path}: {error.message}" if path else error.message
    return message if len(message) <= _LONGEST_PROBLEM else f"{message[:_LONGEST_PROBLEM]}…"


def _validator(schema: Mapping[str, Any]) -> "jsonschema_rs.Validator":
    plain: JSON = dict(schema)
    # Its patterns may be a model's: this engine takes as long as the text is, whatever they are.
    try:
        return jsonschema_rs.validator_for(plain, retriever=_refuse, pattern_options=jsonschema_rs.RegexOptions())
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
        cause = str(error).splitlines()[0][:_LONGEST_PROBLEM]
        raise FunctionError(f"The schema of the result is no JSON Schema that can be checked: {cause}") from error


def _refuse(uri: str) -> Any:
    raise ValueError(f"the reference {uri} points outside the schema")
