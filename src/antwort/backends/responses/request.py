"""A model turn as the body of a request to the Responses API: only what was asked for, and nothing is stored."""

from antwort.backends.base import ModelRequest
from antwort.backends.items import with_extra
from antwort.backends.responses.input import responses_input
from antwort.errors import BadRequestError
from antwort.types import JSON

__all__ = ["SEALED_THOUGHTS", "count_body", "responses_body"]


SEALED_THOUGHTS = "reasoning.encrypted_content"

_SAME_NAME = (
    "temperature",
    "top_p",
    "presence_penalty",
    "frequency_penalty",
    "max_output_tokens",
    "top_logprobs",
    "user",
    "service_tier",
    "prompt_cache_key",
)


def responses_body(request: ModelRequest, extra: JSON, *, sealed_thoughts: bool = True) -> JSON:
    """Return the body. Fields of `extra`, then of the request's own, replace ours; null leaves a field out.

    With `sealed_thoughts` the server is asked to give its thoughts in the form in which it takes them back.
    """
    body = _read(request)
    body["store"] = False
    if request.stream:
        body["stream"] = True
    for name in _SAME_NAME:
        value = getattr(request, name)
        if value is not None:
            body[name] = value
    include = []
    if sealed_thoughts and request.effort != "none":
        include.append(SEALED_THOUGHTS)
    if request.top_logprobs is not None:
        include.append("message.output_text.logprobs")
    if include:
        body["include"] = include
    return with_extra(body, extra, request.extra)


def count_body(request: ModelRequest) -> JSON:
    """Return the body of a request to count the input tokens."""
    return _read(request)


def _read(request: ModelRequest) -> JSON:
    """Return what a model reads, or is told about how to answer."""
    body: JSON = {"model": request.model, "input": responses_input(request.items)}
    if request.instructions:
        body["instructions"] = request.instructions
    if request.tools:
        body["tools"] = [_tool(tool) for tool in request.tools]
        if request.tool_choice is not None:
            body["tool_choice"] = _tool_choice(request.tool_choice)
        if request.parallel_tool_calls is not None:
            body["parallel_tool_calls"] = request.parallel_tool_calls
    text: JSON = {}
    if request.text_format is not None and request.text_format.get("type") != "text":
        text["format"] = request.text_format
    if request.verbosity is not None:
        text["verbosity"] = request.verbosity
    if text:
        body["text"] = text
    reasoning = _reasoning(request)
    if reasoning:
        body["reasoning"] = reasoning
    return body


def _tool(tool: JSON) -> JSON:
    # Left out, `strict` would mean true here, and most schemas are not written for that.
    function: JSON = {"type": "function", "name": tool["name"]}
    if tool.get("description") is not None:
        function["description"] = tool["description"]
    function["parameters"] = tool.get("parameters") or {"type": "object", "properties": {}}
    function["strict"] = bool(tool.get("strict"))
    return function


def _tool_choice(choice: str | JSON) -> str | JSON:
    if isinstance(choice, str):
        return choice
    if choice.get("type") != "function" or not isinstance(choice.get("name"), str):
        raise BadRequestError("The tool choice names no function.", param="tool_choice", code="invalid_value")
    return {"type": "function", "name": choice["name"]}


def _reasoning(request: ModelRequest) -> JSON:
    reasoning: JSON = {}
    if request.effort is not None:
        reasoning["effort"] = request.effort
    if request.summary is not None or request.effort not in {None, "none"}:
        reasoning["summary"] = request.summary or "auto"
    return reasoning
