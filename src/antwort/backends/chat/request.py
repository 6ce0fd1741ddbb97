"""A model turn as the body of a Chat Completions request: only what was asked for."""

from antwort.backends.base import ModelRequest
from antwort.backends.chat.dialect import Dialect
from antwort.backends.chat.messages import chat_messages
from antwort.backends.items import with_extra
from antwort.errors import BadRequestError
from antwort.types import JSON

__all__ = ["chat_body"]


_SAME_NAME = (
    "temperature",
    "top_p",
    "presence_penalty",
    "frequency_penalty",
    "verbosity",
    "user",
    "service_tier",
    "prompt_cache_key",
)


def chat_body(request: ModelRequest, dialect: Dialect, backend: str, extra: JSON) -> JSON:
    """Return the body. Fields of `extra`, then of the request's own, replace ours; null leaves a field out."""
    body: JSON = {
        "model": request.model,
        "messages": chat_messages(request.items, request.instructions, dialect, backend),
    }
    if request.stream:
        body["stream"] = True
        body["stream_options"] = {"include_usage": True}
    for name in _SAME_NAME:
        value = getattr(request, name)
        if value is not None:
            body[name] = value
    if request.max_output_tokens is not None:
        body[dialect.limit_field] = request.max_output_tokens
    if request.effort is not None:
        body["reasoning_effort"] = request.effort
    if request.top_logprobs is not None:
        body["logprobs"] = True
        body["top_logprobs"] = request.top_logprobs
    if request.tools:
        body |= _tools(request)
    response_format = _response_format(request.text_format)
    if response_format is not None:
        body["response_format"] = response_format
    return with_extra(body, extra, request.extra)


def _tools(request: ModelRequest) -> JSON:
    # Without tools, servers refuse the two fields that say how to use them.
    fields: JSON = {"tools": [_tool(tool) for tool in request.tools]}
    if request.tool_choice is not None:
        fields["tool_choice"] = _tool_choice(request.tool_choice)
    if request.parallel_tool_calls is not None:
        fields["parallel_tool_calls"] = request.parallel_tool_calls
    return fields


def _tool(tool: JSON) -> JSON:
    function: JSON = {"name": tool["name"]}
    if tool.get("description") is not None:
        function["description"] = tool["description"]
    function["parameters"] = tool.get("parameters") or {"type": "object", "properties": {}}
    if tool.get("strict") is not None:
        function["strict"] = tool["strict"]
    return {"type": "function", "function": function}


def _tool_choice(choice: str | JSON) -> str | JSON:
    if isinstance(choice, str):
        return choice
    name = choice.get("name")
    if choice.get("type") != "function" or not isinstance(name, str):
        raise BadRequestError("The tool choice names no function.", param="tool_choice", code="invalid_value")
    return {"type": "function", "function": {"name": name}}


def _response_format(text_format: JSON | None) -> JSON | None:
    kind = text_format.get("type") if text_format is not None else None
    if text_format is None or kind == "text":
        return None
    if kind == "json_object":
        return {"type": "json_object"}
    if kind == "json_schema":
        fields = {key: text_format.get(key) for key in ("name", "description", "schema", "strict")}
        return {
            "type": "json_schema",
            "json_schema": {key: value for key, value in fields.items() if value is not None},
        }
    raise BadRequestError(f"The text format '{kind}' is not known.", param="text.format", code="invalid_value")
