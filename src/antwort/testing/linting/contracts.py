"""Two independent sets of types: those of the Open Responses contract, and those of the OpenAI SDK.

Both come from PyPI and are only needed for linting. Where one of them knows less than the protocol we speak, exactly
the unknown part is replaced before it looks: a hosted item by nothing, the schema of a format by null, and so on.
"""

import functools
import importlib
import json
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from antwort.testing.linting.report import LintReport
from antwort.types import JSON

_CONTRACT_ITEMS = {"message", "function_call", "function_call_output", "reasoning", "compaction"}
_CONTRACT_EFFORTS = {None, "none", "low", "medium", "high", "xhigh"}
_OWN_REASONS = {"max_turns", "budget", "cancelled", "deadline", "repeated_calls", "unfinished"}
"""Truer ends than the SDK's types know."""
_BETA_ITEMS = frozenset({"multi_agent_call", "multi_agent_call_output"})
"""Items that only the types of the SDK's beta know."""
_STAND_IN = {"id": "msg_0", "type": "message", "role": "assistant", "status": "completed", "content": []}
_MOST = 4

Models = Mapping[str, type[BaseModel]]


class Contracts:
    """Checks events and responses against both sets of types."""

    def __init__(self, report: LintReport) -> None:
        self._report = report
        self._open_responses = _open_responses_events()
        self._openai = _openai_events()

    @property
    def known(self) -> frozenset[str]:
        """The event types of the SDK."""
        return frozenset(self._openai)

    def check_event(self, event: JSON) -> None:
        """Check an event against both."""
        kind = str(event.get("type"))
        if ":" in kind:  # an extension, which nobody else describes
            return
        # The release calls these `response.reasoning.…`, which clients do not understand.
        name = kind.replace("response.reasoning_text.", "response.reasoning.")
        if name in self._open_responses:
            self._validate("open-responses-types", self._open_responses[name], _for_contract(event | {"type": name}))
        if kind not in self._openai:
            self._report.broken("event-known", f"no client knows events of type '{kind}'")
        elif kind != "error" or "message" in event:  # its nested form, the contract's, is not in the SDK's types
            self._validate("openai-types", self._openai[kind], _for_openai(event))

    def check_response(self, response: JSON) -> None:
        """Check a response against both."""
        resource = getattr(_module("openresponses_types"), "ResponseResource")  # noqa: B009 (an untyped module)
        self._validate("open-responses-types", resource, _for_contract({"response": response})["response"])
        sdk = getattr(_module("openai.types.responses"), "Response")  # noqa: B009 (an untyped module)
        self._validate("openai-types", sdk, _for_openai({"response": response})["response"])

    def _validate(self, rule: str, model: type[BaseModel], value: JSON) -> None:
        try:
            model.model_validate_json(json.dumps(value), strict=True)
        except ValidationError as error:
            self._report.broken(rule, "; ".join(_problem_lines(error)))


@functools.cache
def _open_responses_events() -> Models:
    module = _module("openresponses_types")
    found = {}
    for value in vars(module).values():
        if isinstance(value, type) and issubclass(value, BaseModel) and value.__name__.endswith("StreamingEvent"):
            (kind,) = value.model_fields["type"].annotation or ()  # type: ignore[misc] # an enumeration of one
            found[str(kind)] = value
    return found


@functools.cache
def _openai_events() -> Models:
    module = _module("openai.types.responses")
    union = get_args(getattr(module, "ResponseStreamEvent"))[0]  # noqa: B009 (an untyped module)
    return {get_args(model.model_fields["type"].annotation)[0]: model for model in get_args(union)}


def _module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        package = name.partition(".")[0].replace("_", "-")
        raise ModuleNotFoundError(
            f"linting needs the package '{package}'; install the types with 'pip install openresponses-types openai'"
        ) from error


def _problem_lines(error: ValidationError) -> list[str]:
    """Say what is wrong. Of a union only the members that have the right `type` are of interest."""
    errors = error.errors(include_url=False, include_input=False)
    wrong = {one["loc"][:-1] for one in errors if one["loc"][-1:] == ("type",) and one["type"] != "missing"}
    told = [one for one in errors if not any(one["loc"][: len(location)] == location for location in wrong)] or errors
    lines = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in told]
    return lines[:_MOST] + ([f"and {len(lines) - _MOST} more"] if len(lines) > _MOST else [])


# --- what each of them does not know ---------------------------------------------------------------------------------


def _for_contract(event: JSON) -> JSON:
    known = dict(event)
    if isinstance(known.get("response"), dict):
        known["response"] = _contract_response(known["response"])
    if isinstance(known.get("item"), dict):
        known["item"] = _contract_item(known["item"]) if known["item"].get("type") in _CONTRACT_ITEMS else None
    if isinstance(known.get("part"), dict):
        known["part"] = _contract_part(known["part"])
    if isinstance(known.get("annotation"), dict) and known["annotation"].get("type") != "url_citation":
        known["annotation"] = None
    return known


def _contract_response(response: JSON) -> JSON:
    known = dict(response)
    known["output"] = _each(known.get("output"), _contract_item, keep=lambda item: item.get("type") in _CONTRACT_ITEMS)
    known["tools"] = _each(known.get("tools"), dict, keep=lambda tool: tool.get("type") == "function")
    choice = known.get("tool_choice")
    if isinstance(choice, dict) and choice.get("type") == "allowed_tools":
        tools = _each(choice.get("tools"), dict, keep=lambda tool: tool.get("type") == "function")
        known["tool_choice"] = choice | {"tools": tools}
    elif isinstance(choice, dict) and choice.get("type") != "function":
        known["tool_choice"] = "auto"
    text = known.get("text")
    if (
        isinstance(text, dict)
        and isinstance(text.get("format"), dict)
        and isinstance(text["format"].get("schema"), dict)
    ):
        known["text"] = text | {"format": text["format"] | {"schema": None}}
    reasoning = known.get("reasoning")
    if isinstance(reasoning, dict) and reasoning.get("effort") not in _CONTRACT_EFFORTS:
        known["reasoning"] = reasoning | {"effort": None}
    return known


def _contract_item(item: JSON) -> JSON:
    return item | {"content": _each(item["content"], _contract_part)} if isinstance(item.get("content"), list) else item


def _contract_part(part: JSON) -> JSON:
    if "annotations" not in part:
        return part
    kept = _each(part["annotations"], dict, keep=lambda note: note.get("type") == "url_citation")
    return part | {"annotations": kept}


def _for_openai(event: JSON) -> JSON:
    known = dict(event)
    if isinstance(known.get("item"), dict) and _is_extension(known["item"]):
        known["item"] = _STAND_IN
    response = known.get("response")
    if isinstance(response, dict):
        output = _each(response.get("output"), dict, keep=lambda item: not _is_extension(item))
        known["response"] = response | {"output": output}
        details = response.get("incomplete_details")
        if isinstance(details, dict) and details.get("reason") in _OWN_REASONS:
            known["response"]["incomplete_details"] = None
    return known


def _is_extension(item: JSON) -> bool:
    kind = str(item.get("type"))
    return ":" in kind or kind in _BETA_ITEMS


def _each(value: Any, change: Callable[[JSON], JSON], keep: Callable[[JSON], bool] = lambda _: True) -> Any:
    """Change the objects of a list and keep some; anything else stays, so that the types complain about it."""
    if not isinstance(value, list):
        return value
    return [change(one) if isinstance(one, dict) else one for one in value if not isinstance(one, dict) or keep(one)]
