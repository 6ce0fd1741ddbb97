"""A turn for models that are told in words how to call functions: no functions in the request, calls as plain text."""

import re
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

import msgspec
from msgspec.structs import replace

from antwort.backends.base import ModelRequest, ToolDefinitions
from antwort.lazy_imports import compiled_on_use
from antwort.types import JSON
from antwort.wire.client_tools import CALLS, OUTPUTS, as_function

_HOW = """\
You can call functions. These are the functions, as JSON:
[{tools}]

To call a function, write its name and its arguments as JSON between <tool_call> and </tool_call>, like this:
<tool_call>
{{"name": "name_of_the_function", "arguments": {{"parameter": "value"}}}}
</tool_call>
{number} The results are given to you in the next message, between <tool_response> and </tool_response>. Never write \
results yourself. If you need no function, answer in plain words."""
_SEVERAL = "You may write several calls, one after the other; then stop."
_ONE = "Write one call only, then stop."
_MUST = "Now you must call one of the functions: answer with nothing but the call."
_MUST_NAMED = "Now you must call the function {name}: answer with nothing but the call."
_mark = compiled_on_use(r"<(?=\s*/?\s*tool_response)", re.IGNORECASE)
_FORMAT = "When you answer without a call, answer with nothing but JSON{schema}."


def prompted(request: ModelRequest, *, guided: bool) -> ModelRequest:
    """Return a turn with the functions and what was called in words.

    `guided`: a choice that leaves the model nothing but a call is also given as the schema of the answer.
    """
    items = plain_items(request.items)
    if not request.tools or request.tool_choice == "none":
        return replace(request, items=items, tools=(), tool_choice=None, parallel_tool_calls=None)
    told = [request.instructions] if request.instructions else []
    told.append(_instructions(request))
    schema = forced_schema(request) if guided else None
    return replace(
        request,
        items=items,
        instructions="\n\n".join(told),
        tools=(),
        tool_choice=None,
        parallel_tool_calls=None,
        text_format=None if schema is None else {"type": "json_schema", "name": "function_call", "schema": schema},
    )


def _instructions(request: ModelRequest) -> str:
    tools = request.tools
    if not isinstance(tools, ToolDefinitions):
        tools = ToolDefinitions(tools)
    described = b",\n".join(bytes(part) for part in tools.encoded(_described)).decode()
    number = _ONE if request.parallel_tool_calls is False else _SEVERAL
    words = [_HOW.format(tools=described, number=number)]
    name = _forced_name(request)
    if name is not None:
        words.append(_MUST_NAMED.format(name=name))
    elif request.tool_choice == "required":
        words.append(_MUST)
    words += _format_words(request.text_format)
    return "\n\n".join(words)


def _described(tool: JSON) -> JSON:
    described: JSON = {"name": tool["name"]}
    if tool.get("description"):
        described["description"] = tool["description"]
    return described | {"parameters": _parameters(tool)}


def _parameters(tool: JSON) -> JSON:
    return tool.get("parameters") or {"type": "object", "properties": {}}


def _forced_name(request: ModelRequest) -> str | None:
    choice = request.tool_choice
    return str(choice.get("name")) if isinstance(choice, dict) else None


def _format_words(text_format: JSON | None) -> list[str]:
    """Return what a model is told about the form of its answer, which no server can enforce while it may call."""
    kind = None if text_format is None else text_format.get("type")
    if text_format is None or kind not in {"json_object", "json_schema"}:
        return []
    schema = msgspec.json.encode(text_format.get("schema")).decode() if kind == "json_schema" else ""
    return [_FORMAT.format(schema=f" that fits this schema: {schema}" if schema else "")]


# --- a choice that leaves nothing but a call -------------------------------------------------------------------------


def forced_schema(request: ModelRequest) -> JSON | None:
    """Return the schema of the calls that a turn must end with; None if it need not."""
    name = _forced_name(request)
    if name is None and request.tool_choice != "required":
        return None
    calls = [_call_schema(tool) for tool in request.tools if name is None or tool["name"] == name]
    if not calls:
        return None
    return calls[0] if len(calls) == 1 else {"anyOf": calls}


def _call_schema(tool: JSON) -> JSON:
    parameters = _parameters(tool)
    if b'"$ref"' in msgspec.json.encode(parameters):  # which would point elsewhere here
        parameters = {"type": "object"}
    return {
        "type": "object",
        "properties": {"name": {"const": tool["name"]}, "arguments": parameters},
        "required": ["name", "arguments"],
        "additionalProperties": False,
    }


# --- what was called before ------------------------------------------------------------------------------------------


def plain_items(items: Sequence[JSON]) -> list[JSON]:
    """Return items with calls as words of the assistant, and their outputs as messages of the user.

    Outputs that follow each other are one message: templates of many models want the two to alternate.
    """
    plain: list[JSON] = []
    names: dict[Any, str] = {}
    for are_outputs, group in groupby(items, _is_output):
        if are_outputs:
            plain.append(_results([as_function(item) for item in group], names))
            continue
        for item in group:
            if item.get("type") in CALLS:
                call = as_function(item)
                names[call.get("call_id")] = str(call.get("name"))
                content = [{"type": "output_text", "text": _call_text(call), "annotations": []}]
                plain.append({"type": "message", "role": "assistant", "content": content})
            else:
                plain.append(item)
    return plain


def _is_output(item: JSON) -> bool:
    return item.get("type") in OUTPUTS


def _call_text(call: JSON) -> str:
    arguments = call.get("arguments")
    written = arguments if isinstance(arguments, str) else msgspec.json.encode(arguments or {}).decode()
    name = msgspec.json.encode(str(call.get("name"))).decode()
    return f'<tool_call>\n{{"name": {name}, "arguments": {written.strip() or "{}"}}}\n</tool_call>'


def _results(outputs: Sequence[JSON], names: Mapping[Any, str]) -> JSON:
    """Return the outputs of calls as one message; as one text unless there are images or files in it.

    An output that has the mark of its own end in it could go on as the user.
    """
    parts: list[JSON] = []
    for output in outputs:
        content = output.get("output")
        name = names.get(output.get("call_id"), "function")
        parts.append(_text(f'<tool_response name="{name}">\n'))
        parts += map(_unmarked, content if isinstance(content, list) else [_text(str(content or ""))])
        parts.append(_text("\n</tool_response>\n"))
    if all(part.get("type") == "input_text" for part in parts):
        parts = [_text("".join(str(part.get("text")) for part in parts).rstrip())]
    return {"type": "message", "role": "user", "content": parts}


def _unmarked(part: JSON) -> JSON:
    """Return a part of an output whose text neither begins nor ends a result."""
    if part.get("type") != "input_text":
        return part
    return {**part, "text": _mark.sub("< ", str(part.get("text")))}


def _text(text: str) -> JSON:
    return {"type": "input_text", "text": text}
