"""Reading the input of a request: strings and items in all their spellings become items with ids."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from antwort.errors import BadRequestError
from antwort.types import JSON
from antwort.wire.client_tools import CALLS, CALLS_OF_THEIR_OWN, ITEM_PREFIXES, OUTPUTS
from antwort.wire.ids import new_id

_PREFIX = {
    "message": "msg",
    "function_call": "fc",
    "function_call_output": "fco",
    "custom_tool_call": "ctc",
    "custom_tool_call_output": "ctco",
    "reasoning": "rs",
    "compaction": "cmp",
    "compaction_trigger": "cmpt",
    "item_reference": "ref",
    "mcp_approval_response": "mcpa",
    **ITEM_PREFIXES,
}
_PARTS = {
    "user": {"input_text", "input_image", "input_file", "input_audio", "output_text"},
    "system": {"input_text"},
    "developer": {"input_text"},
    "assistant": {"output_text", "refusal", "input_text"},
}
_REQUIRED = {
    "function_call": ("call_id", "name", "arguments"),
    "custom_tool_call": ("call_id", "name", "input"),
    **dict.fromkeys(CALLS_OF_THEIR_OWN | OUTPUTS, ("call_id",)),
    "compaction": ("encrypted_content",),
    "item_reference": ("id",),
    "mcp_approval_response": ("approval_request_id",),
}
"""The texts that items must have."""
_REQUIRED_OF_PART = {
    "input_text": "text",
    "output_text": "text",
    "refusal": "refusal",
}
_WITH_STATUS = {"message", *CALLS, *OUTPUTS}
_TEXT_OUTPUTS = {"function_call_output", "custom_tool_call_output"}
_TEXTS = ("type", "role", "status", "name", "call_id", "phase")
"""Fields by which items are told apart. Whatever the type of an item is, they are strings where they are."""
_ID = re.compile(r"[^\x00-\x1f\x7f/]{1,256}")
MOST_ITEMS = 10_000
LONGEST_TEXT = 10_485_760


def read_input(value: str | Sequence[JSON] | None) -> list[JSON]:
    """Return the items of a request's `input`, each with an id; BadRequestError names what does not fit."""
    if value is None:
        return []
    if isinstance(value, str):
        if len(value) > LONGEST_TEXT:
            raise _bad(f"is longer than {LONGEST_TEXT:,} characters", "input")
        return [
            {
                "type": "message",
                "role": "user",
                "content": [{"type": "input_text", "text": value}],
                "id": new_id("msg"),
                "status": "completed",
            }
        ]
    if len(value) > MOST_ITEMS:
        raise _bad(f"has more than {MOST_ITEMS:,} items", "input")
    return [_item(item, f"input[{index}]") for index, item in enumerate(value)]


def _bad(problem: str, param: str) -> BadRequestError:
    return BadRequestError(f"Invalid value for '{param}': it {problem}.", param=param, code="invalid_value")


def _item(item: JSON, param: str) -> JSON:
    given = item.get("id")
    if isinstance(given, str) and given and not _ID.fullmatch(given):
        raise _bad("must have at most 256 characters, and no control characters or slashes", f"{param}.id")
    _check_texts(item, param)
    kind = item.get("type", "message" if "role" in item else None)
    if not isinstance(kind, str) or not kind:
        raise BadRequestError(f"'{param}' has no 'type'.", param=f"{param}.type", code="missing_required_parameter")
    if kind == "message":
        return _message(item, param)
    if kind in OUTPUTS and "call_id" not in item and "id" in item:
        item = {**item, "call_id": item["id"]}  # the outputs of local shells name their call so
    _require(item, param, *_REQUIRED.get(kind, ()))
    if kind in _TEXT_OUTPUTS:
        output = item.get("output")
        if not isinstance(output, str | list):
            raise _bad("must be a string or a list of parts", f"{param}.output")
    elif kind == "mcp_approval_response":
        if not isinstance(item.get("approve"), bool):
            raise _bad("must be true or false", f"{param}.approve")
    elif kind == "reasoning":
        item = {"summary": [], **item}
    return _with_id(item, kind)


def _check_texts(item: JSON, param: str) -> None:
    for name in _TEXTS:
        if not isinstance(item.get(name), str | None):
            raise _bad("must be a string", f"{param}.{name}")


def _require(item: JSON, param: str, *names: str) -> None:
    for name in names:
        if name not in item:
            raise BadRequestError(
                f"Missing required parameter: '{param}.{name}'.",
                param=f"{param}.{name}",
                code="missing_required_parameter",
            )
        if not isinstance(item[name], str):
            raise _bad("must be a string", f"{param}.{name}")


def _with_id(item: Mapping[str, Any], kind: str) -> JSON:
    """Fill in what clients may leave out; what they sent stays, so that unknown items come back as they were."""
    result = {"type": kind, **item}
    if not isinstance(result.get("id"), str) or not result["id"]:
        result["id"] = new_id(_PREFIX.get(kind, "item"))
    if kind in _WITH_STATUS and not result.get("status"):
        result["status"] = "completed"
    return result


def _message(item: JSON, param: str) -> JSON:
    role = item.get("role")
    if not isinstance(role, str) or role not in _PARTS:
        raise _bad(f"must be one of {', '.join(_PARTS)}", f"{param}.role")
    content = item.get("content")
    if isinstance(content, str):
        content = [_text_part(role, content)]
    if not isinstance(content, list):
        raise _bad("must be a string or a list of parts", f"{param}.content")
    parts = [_part(part, role, f"{param}.content[{index}]") for index, part in enumerate(content)]
    message = _with_id({**item, "content": parts}, "message")
    if message.get("phase", "") is None:  # never null on the way out
        del message["phase"]
    return message


def _text_part(role: str, text: str) -> JSON:
    if role == "assistant":
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    return {"type": "input_text", "text": text}


def _part(part: Any, role: str, param: str) -> JSON:
    if not isinstance(part, dict):
        raise _bad("must be an object", param)
    kind = part.get("type")
    if not isinstance(kind, str) or kind not in _PARTS[role]:
        allowed = ", ".join(sorted(_PARTS[role]))
        raise _bad(f"is not a content part of a message of role '{role}' (use {allowed})", f"{param}.type")
    required = _REQUIRED_OF_PART.get(kind)
    if required is not None and not isinstance(part.get(required), str):
        raise BadRequestError(
            f"Missing required parameter: '{param}.{required}'.",
            param=f"{param}.{required}",
            code="missing_required_parameter",
        )
    if kind == "output_text" and "annotations" not in part:
        return {**part, "annotations": []}
    return part
