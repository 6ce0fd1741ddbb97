"""A model turn as the body of a request to the Responses API: only what was asked for, and nothing is stored."""

from collections.abc import Iterator, Sequence
from typing import Any

from antwort.backends.base import ModelRequest, ToolDefinitions
from antwort.backends.items import json_arguments, text_of, with_extra
from antwort.backends.passages import shaped_items
from antwort.errors import BadRequestError
from antwort.types import JSON
from antwort.wire.client_tools import as_function

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
    body: JSON = {"model": request.model, "input": shaped_items(request.items, responses_input, responses_input)}
    if request.instructions:
        body["instructions"] = request.instructions
    if tools := request.tools:
        body["tools"] = tools.encoded(_tool) if isinstance(tools, ToolDefinitions) else [*map(_tool, tools)]
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


_ROLES = frozenset({"user", "system", "developer"})
_FILE_FIELDS = ("filename", "file_data", "file_url", "detail")


def responses_input(items: Sequence[JSON]) -> list[JSON]:
    """Return the items of a conversation; content that cannot be passed on is a BadRequestError.

    - Ids are left out: they are ours, and a server that stores nothing for us cannot know them.
    - What the assistant said is plain text, which every server takes; only its `phase` goes with it.
    - Calls of tools of the client, and their outputs, are those of the functions that stand for the tools.
    - Thoughts go back in the sealed form in which the server gave them; without it they are left out, since servers
      refuse thoughts they did not write.
    - Items that only mean something to us (hosted calls, references, compactions) are left out.
    """
    return list(_items(items))


def _items(items: Sequence[JSON]) -> Iterator[JSON]:
    for given in items:
        item = as_function(given)
        match item.get("type") or "message":
            case "message":
                yield _message(item)
            case "function_call":
                yield {
                    "type": "function_call",
                    "call_id": item.get("call_id"),
                    "name": item.get("name"),
                    "arguments": json_arguments(item.get("arguments")),
                }
            case "function_call_output":
                output = item.get("output")
                yield {
                    "type": "function_call_output",
                    "call_id": item.get("call_id"),
                    "output": "" if output is None else _content(output),
                }
            case "reasoning" if item.get("encrypted_content"):
                yield {
                    "type": "reasoning",
                    "summary": item.get("summary") or [],
                    "encrypted_content": item["encrypted_content"],
                }


def _message(item: JSON) -> JSON:
    role = item.get("role")
    message: JSON = {"type": "message", "role": role}
    if role == "assistant":
        message["content"] = text_of(item.get("content"))
        if item.get("phase") is not None:
            message["phase"] = item["phase"]
        return message
    if role not in _ROLES:
        raise BadRequestError(f"Messages cannot have the role '{role}'.", param="input", code="invalid_value")
    message["content"] = _content(item.get("content") or "")
    return message


def _content(content: Any) -> str | list[JSON]:
    if isinstance(content, str):
        return content
    if not isinstance(content, list) or not all(isinstance(part, dict) for part in content):
        raise BadRequestError("The content of a message must be a string or a list of parts.", param="input")
    return [_part(part) for part in content]


def _part(part: JSON) -> JSON:
    kind = part.get("type")
    if kind in {"input_image", "input_file"}:
        _check_reference(part)
    if kind == "input_image":
        return {"type": kind, "image_url": part.get("image_url"), "detail": part.get("detail") or "auto"}
    if kind == "input_file":
        return {"type": kind, **{name: part[name] for name in _FILE_FIELDS if part.get(name) is not None}}
    text = part.get("refusal") if kind == "refusal" else part.get("text")
    if isinstance(text, str):
        return {"type": "input_text", "text": text}
    raise BadRequestError(
        f"Content of the type '{kind}' cannot be given to the model.", param="input", code="unsupported_content"
    )


def _check_reference(part: JSON) -> None:
    fields, what = (("image_url",), "image") if part["type"] == "input_image" else (("file_data", "file_url"), "file")
    if any(isinstance(part.get(name), str) and part[name] for name in fields):
        return
    names = " or ".join(f"`{name}`" for name in fields)
    by_id = part.get("file_id") is not None
    reason = f"{what.capitalize()}s cannot be named by `file_id` yet" if by_id else f"The {what} has no {names}"
    raise BadRequestError(f"{reason}; send it as {names}.", param="input", code=f"unsupported_{what}")
