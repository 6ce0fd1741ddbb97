"""Requests for responses and what OpenAI answers: by its reference, its error messages, and what its types imply."""

from typing import Any

from tests.server.truth.rows import Row, refused, rows, taken

__all__ = ["TABLE"]

STRICT: Any = {
    "type": "object",
    "properties": {"a": {"type": "string"}},
    "required": ["a"],
    "additionalProperties": False,
}
OPEN: Any = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
HALF: Any = {**STRICT, "required": []}
INNER: Any = {**STRICT, "properties": {"a": {"type": "array", "items": OPEN}}}


def function(**fields: Any) -> Any:
    return {"tools": [{"type": "function", "name": "f", "parameters": STRICT, "strict": True, **fields}]}


def without(body: Any, name: str) -> Any:
    """Return a tool without one of its fields."""
    (tool,) = body["tools"]
    return {"tools": [{key: value for key, value in tool.items() if key != name}]}


def form(**fields: Any) -> Any:
    return {"text": {"format": {"type": "json_schema", "name": "n", "schema": STRICT, **fields}}}


def part(**fields: Any) -> Any:
    return {"input": [{"role": "user", "content": [fields]}]}


def item(**fields: Any) -> Any:
    return {"input": [{"role": "user", "content": "Hi"}, fields]}


def choice(value: Any) -> Any:
    return {**function(), "tool_choice": value}


CALL: Any = {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": "{}"}
OUTPUT: Any = {"type": "function_call_output", "call_id": "call_1", "output": "1"}
USER: Any = {"role": "user", "content": "Hi"}
PNG = "data:image/png;base64,iVBORw0KGgo="
BASE = {"model": "scripted", "input": "Hi"}

NUMBERS = [
    *taken({"temperature": 0}, {"temperature": 2}, {"temperature": None}, {"top_p": 0.5}, {"top_p": None}),
    *taken({"max_output_tokens": 16}, {"max_output_tokens": None}, {"max_tool_calls": 1}, {"top_logprobs": 20}),
    *refused("temperature", "decimal_above_max_value", {"temperature": 2.1}),
    *refused("temperature", "decimal_below_min_value", {"temperature": -0.1}),
    *refused("temperature", "invalid_type", {"temperature": "warm"}, {"temperature": True}, {"temperature": [1]}),
    *refused("top_p", "decimal_above_max_value", {"top_p": 1.1}),
    *refused("top_p", "decimal_below_min_value", {"top_p": -1}),
    *refused("max_output_tokens", "integer_below_min_value", {"max_output_tokens": 15}, {"max_output_tokens": -1}),
    *refused("max_output_tokens", "invalid_type", {"max_output_tokens": "many"}, {"max_output_tokens": 16.5}),
    *refused("max_tool_calls", "integer_below_min_value", {"max_tool_calls": 0}),
    *refused("top_logprobs", "integer_above_max_value", {"top_logprobs": 21}),
    *refused("top_logprobs", "integer_below_min_value", {"top_logprobs": -1}),
]
CHOICES = [
    *taken({"truncation": "auto"}, {"truncation": None}, {"service_tier": "flex"}, {"service_tier": None}),
    *taken({"include": ["reasoning.encrypted_content"]}, {"include": None}, {"include": []}),
    *taken({"prompt_cache_retention": "24h"}, {"prompt_cache_retention": None}),
    *refused("truncation", "invalid_value", {"truncation": "sometimes"}),
    *refused("truncation", "invalid_type", {"truncation": 1}),
    *refused("service_tier", "invalid_value", {"service_tier": "gold"}),
    *refused("include", "invalid_value", {"include": ["everything"]}),
    *refused("include", "invalid_type", {"include": "reasoning.encrypted_content"}),
    *refused("include[0]", "invalid_type", {"include": [1]}),
    *refused("prompt_cache_retention", "invalid_value", {"prompt_cache_retention": "1h"}),
]
FLAGS = [
    *taken({"store": False}, {"store": None}, {"background": None}, {"parallel_tool_calls": False}),
    *taken({"background": True, "store": True}, {"background": True, "store": False}),
    *refused("store", "invalid_type", {"store": "no"}, {"store": 0}),
    *refused("stream", "invalid_type", {"stream": "yes"}),
    *refused("background", "invalid_type", {"background": 1}),
    *refused("parallel_tool_calls", "invalid_type", {"parallel_tool_calls": "true"}),
    *refused("stream_options.no_such", "unknown_parameter", {"stream_options": {"no_such": True}}),
    *refused("stream_options.include_obfuscation", "invalid_type", {"stream_options": {"include_obfuscation": 1}}),
]
TEXTS = [
    *taken({"instructions": "Be brief."}, {"instructions": None}, {"user": "me"}, {"prompt_cache_key": None}),
    *refused("model", "invalid_type", {"model": 4}),
    *refused("instructions", "invalid_type", {"instructions": ["Be brief."]}),
    *refused("safety_identifier", "string_above_max_length", {"safety_identifier": "x" * 129}),
    *refused("user", "invalid_type", {"user": 7}),
    *refused("no_such_field", "unknown_parameter", {"no_such_field": 1}, {"no_such_field": None}),
    *refused("messages", "unknown_parameter", {"messages": [USER]}),
]
METADATA = [
    *taken({"metadata": {}}, {"metadata": None}, {"metadata": {"k" * 64: "v" * 512}}, {"metadata": {"a": None}}),
    *refused("metadata", "invalid_type", {"metadata": "a"}, {"metadata": [1]}),
    *refused("metadata.a", "invalid_type", {"metadata": {"a": 1}}, {"metadata": {"a": {}}}),
    *refused("metadata.a", "string_above_max_length", {"metadata": {"a": "v" * 513}}),
    *refused("metadata", "property_name_above_max_length", {"metadata": {"k" * 65: "v"}}),
    *refused("metadata", "object_above_max_properties", {"metadata": {str(n): "v" for n in range(17)}}),
]
REASONING = [
    *taken({"reasoning": None}, {"reasoning": {}}, {"reasoning": {"effort": None, "summary": None}}),
    *taken({"reasoning": {"effort": "minimal"}}, {"reasoning": {"effort": "xhigh", "summary": "concise"}}),
    *refused("reasoning.effort", "invalid_value", {"reasoning": {"effort": "enormous"}}, {"reasoning": {"effort": ""}}),
    *refused("reasoning.effort", "invalid_type", {"reasoning": {"effort": 3}}),
    *refused("reasoning.summary", "invalid_value", {"reasoning": {"summary": "long"}}),
    *refused("reasoning.no_such", "unknown_parameter", {"reasoning": {"no_such": 1}}),
    *refused("reasoning", "invalid_type", {"reasoning": "high"}),
]
FORMATS = [
    *taken({"text": {}}, {"text": {"format": {"type": "text"}}}, {"text": {"verbosity": "low"}}, {"text": None}),
    *taken(form(), form(strict=True), form(strict=None), form(schema=OPEN), form(description="d"), form(name="a-B_9")),
    *refused("text.verbosity", "invalid_value", {"text": {"verbosity": "loud"}}),
    *refused("text.no_such", "unknown_parameter", {"text": {"no_such": 1}}),
    *refused("text.format.type", "invalid_value", {"text": {"format": {"type": "xml"}}}),
    *refused("text.format.type", "missing_required_parameter", {"text": {"format": {}}}),
    *refused("text.format.name", "missing_required_parameter", {"text": {"format": {"type": "json_schema"}}}),
    *refused("text.format.name", "invalid_value", form(name="no blanks"), form(name="ü")),
    *refused("text.format.name", "string_above_max_length", form(name="n" * 65)),
    *refused("text.format.schema", "invalid_type", form(schema="object"), form(schema=None)),
    *refused(
        "text.format.schema", "invalid_json_schema", form(schema=OPEN, strict=True), form(schema=HALF, strict=True)
    ),
    *refused("text.format.strict", "invalid_type", form(strict="yes")),
    *taken(form(no_such=1)),
    *refused("text.format.schema", "invalid_json_schema", form(schema={"type": "object", "properties": 1})),
    *refused("text.format.schema", "invalid_json_schema", form(schema={"properties": {"a": {"properties": []}}})),
    *refused("text.format.schema", "invalid_json_schema", form(schema={"type": "object", "properties": {"a": 1}})),
]
FUNCTIONS = [
    *taken(function(), function(strict=None), function(strict=False, parameters=OPEN), function(description=None)),
    *taken(function(name="n" * 128), function(parameters=None), without(function(), "strict"), {"tools": []}),
    *refused("tools[0].name", "missing_required_parameter", without(function(), "name")),
    *refused("tools[0].name", "invalid_type", function(name=1), function(name=None)),
    *refused("tools[0].name", "invalid_value", function(name="no blanks"), function(name="a.b")),
    *refused("tools[0].name", "string_above_max_length", function(name="n" * 129)),
    *refused("tools[0].name", "string_below_min_length", function(name="")),
    *refused("tools[0].description", "invalid_type", function(description=1), function(description=["a"])),
    *refused("tools[0].parameters", "invalid_type", function(parameters="none"), function(parameters=[])),
    *refused(
        "tools[0].parameters", "invalid_function_parameters", function(parameters=OPEN), function(parameters=HALF)
    ),
    *refused("tools[0].parameters", "invalid_function_parameters", function(parameters=INNER)),
    *refused(
        "tools[0].parameters", "invalid_function_parameters", function(strict=False, parameters={"type": "array"})
    ),
    *refused("tools[0].strict", "invalid_type", function(strict="true"), function(strict=1)),
    *taken(function(no_such=1), function(function={"name": "f"})),
    *refused(
        "tools[0].parameters", "invalid_function_parameters", function(strict=False, parameters={"properties": 1})
    ),
    *refused("tools[0].type", "missing_required_parameter", {"tools": [{"name": "f"}]}),
    *refused("tools", "invalid_type", {"tools": {}}, {"tools": "f"}),
    *refused("tools[0]", "invalid_type", {"tools": ["f"]}),
]
OTHER_TOOLS = [
    *taken({"tools": [{"type": "custom", "name": "c"}]}, {"tools": [{"type": "shell"}]}),
    *taken({"tools": [{"type": "web_search"}, {"type": "web_search_preview", "search_context_size": "low"}]}),
    *taken({"tools": [{"type": "file_search", "vector_store_ids": ["{store}"], "max_num_results": 50}]}),
    *taken({"tools": [{"type": "code_interpreter"}]}),
    *taken({"tools": [{"type": "code_interpreter", "container": {"type": "auto"}}]}),
    *refused("tools[0].format.syntax", "invalid_value", {"tools": [{"type": "custom", "name": "c", "format": {
        "type": "grammar", "syntax": "bnf", "definition": "x"}}]}),
    *refused("tools[0].search_context_size", "invalid_value", {"tools": [
        {"type": "web_search", "search_context_size": "huge"}]}),
    *taken({"tools": [{"type": "web_search", "no_such": 1}]}),
    *refused("tools[0].max_num_results", "integer_above_max_value", {"tools": [
        {"type": "file_search", "vector_store_ids": [], "max_num_results": 51}]}),
    *refused("tools[0].max_num_results", "integer_below_min_value", {"tools": [
        {"type": "file_search", "vector_store_ids": [], "max_num_results": 0}]}),
    *refused("tools[0].vector_store_ids", "invalid_type", {"tools": [
        {"type": "file_search", "vector_store_ids": "v"}]}),
    *refused("tools[0].container.type", "invalid_value", {"tools": [
        {"type": "code_interpreter", "container": {"type": "mine"}}]}),
    *refused("tools[0].tools", "empty_array", {"tools": [{"type": "namespace", "name": "n", "tools": []}]}),
]  # fmt: skip
TOOL_CHOICES = [
    *taken(choice("auto"), choice("none"), choice("required"), choice(None), choice({"type": "function", "name": "f"})),
    *taken(choice({"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}]})),
    *refused("tool_choice", "invalid_value", choice("always")),
    *refused("tool_choice", "invalid_type", choice(3)),
    *refused("tool_choice.type", "missing_required_parameter", choice({})),
    *refused("tool_choice.name", "missing_required_parameter", choice({"type": "function"})),
    *refused("tool_choice.name", "invalid_type", choice({"type": "function", "name": 1})),
    *refused("tool_choice.function", "unknown_parameter", choice({"type": "function", "name": "f", "function": {}})),
    *refused("tool_choice.mode", "invalid_value", choice({"type": "allowed_tools", "mode": "some", "tools": [{}]})),
    *refused("tool_choice.tools", "empty_array", choice({"type": "allowed_tools", "mode": "auto", "tools": []})),
]
INPUT = [
    *taken({"input": [USER]}, {"input": [{**USER, "type": "message", "status": "completed"}]}, {"input": []}),
    *taken({"input": [USER, {"role": "assistant", "content": "Ho", "phase": None}]}, {"input": [CALL, OUTPUT]}),
    *taken(part(type="input_text", text="Hi"), part(type="input_image", image_url=PNG, detail="high")),
    *refused("input", "invalid_type", {"input": 5}, {"input": {}}),
    *refused("input", "missing_required_parameter", {"input": None}),
    *refused("input[0]", "invalid_type", {"input": ["Hi"]}),
    *refused("input[0].role", "invalid_value", {"input": [{"role": "robot", "content": "Hi"}]}),
    *refused("input[0].content", "invalid_type", {"input": [{"role": "user", "content": None}]}),
    *refused("input[0].content", "missing_required_parameter", {"input": [{"role": "user"}]}),
    *refused("input[0].name", "unknown_parameter", {"input": [{**USER, "name": "Ann"}]}),
    *refused("input[0].content[0].type", "invalid_value", part(type="text", text="Hi"), part(type="image_url")),
    *refused("input[0].content[0].type", "missing_required_parameter", part(text="Hi")),
    *refused("input[0].content[0].text", "missing_required_parameter", part(type="input_text")),
    *refused("input[0].content[0].text", "invalid_type", part(type="input_text", text=1)),
    *refused("input[0].content[0].no_such", "unknown_parameter", part(type="input_text", text="Hi", no_such=1)),
    *refused("input[0].content[0].detail", "invalid_value", part(type="input_image", image_url=PNG, detail="best")),
    *refused("input[0].content[0].detail", "invalid_type", part(type="input_image", image_url=PNG, detail=1)),
    *refused("input[0].content[0].image_url", "invalid_type", part(type="input_image", image_url={"url": PNG})),
]
ITEMS = [
    *refused("input[1].type", "invalid_value", item(type="telepathy")),
    *refused("input[1].type", "missing_required_parameter", item(content="Hi")),
    *refused("input[1].type", "invalid_type", item(type=5)),
    *refused("input[1].call_id", "missing_required_parameter", item(type="function_call_output", output="1")),
    *refused("input[1].output", "missing_required_parameter", item(type="function_call_output", call_id="c")),
    *refused("input[1].output", "invalid_type", item(type="function_call_output", call_id="c", output=1)),
    *refused("input[1].arguments", "invalid_type", item(**{**CALL, "arguments": {}})),
    *refused("input[1].parsed_arguments", "unknown_parameter", item(**{**CALL, "parsed_arguments": {}})),
    *refused("input[1].status", "invalid_value", item(**{**CALL, "status": "done"})),
    *refused("input[1].summary", "invalid_type", item(type="reasoning", summary="Hm")),
    *refused("input", None, {"input": [USER, CALL]}, {"input": [USER, OUTPUT]}),
    *refused("input", "duplicate_tool_output", {"input": [CALL, OUTPUT, OUTPUT]}),
    *refused("input", None, {"input": [{**USER, "id": "msg_1"}, {**USER, "id": "msg_1"}]}),
    *refused("input", None, {"input": [{"type": "item_reference", "id": "msg_gone"}]}, status=404),
]
BEFORE = [
    *taken({"previous_response_id": "{response}"}, {"previous_response_id": None}, {"conversation": "{conversation}"}),
    *taken({"conversation": {"id": "{conversation}"}}, {"conversation": None}),
    *refused("previous_response_id", "previous_response_not_found", {"previous_response_id": "resp_gone"}),
    *refused("previous_response_id", "invalid_value", {"previous_response_id": "msg_1"}),
    *refused("previous_response_id", "invalid_type", {"previous_response_id": 1}),
    *refused("conversation", "invalid_value", {"conversation": "resp_1"}),
    *refused("conversation", "invalid_type", {"conversation": 1}),
    *refused("conversation.id", "missing_required_parameter", {"conversation": {}}),
    *refused("conversation.name", "unknown_parameter", {"conversation": {"id": "{conversation}", "name": "n"}}),
    *refused(None, None, {"conversation": "conv_gone"}, status=404),
]
CREATING = [
    *NUMBERS, *CHOICES, *FLAGS, *TEXTS, *METADATA, *REASONING, *FORMATS, *FUNCTIONS, *OTHER_TOOLS, *TOOL_CHOICES,
    *INPUT, *ITEMS, *BEFORE,
]  # fmt: skip
COUNTING = [
    *taken({"personality": "friendly"}, {"personality": None}, {"tools": None}, {"reasoning": {"effort": "low"}}),
    *refused("personality", "invalid_type", {"personality": 1}),
    *refused("truncation", "invalid_value", {"truncation": "maybe"}),
    *refused("no_such_field", "unknown_parameter", {"no_such_field": 1}),
]
COMPACTING = [
    *taken({}, {"model": None}, {"instructions": None}, {"service_tier": "auto"}),
    *refused("instructions", "invalid_type", {"instructions": 1}),
    *refused("service_tier", "invalid_value", {"service_tier": "gold"}),
    *refused("no_such_field", "unknown_parameter", {"no_such_field": 1}),
]
STORED = [
    Row("GET", "/responses/{response}", None, 200),
    Row("GET", "/responses/{response}?include[]=reasoning.encrypted_content&include_obfuscation=false", None, 200),
    Row("GET", "/responses/{response}?beta=true", None, 200),
    *rows("GET", "/responses/{response}?no_such=1", None, refused("no_such", "unknown_parameter", None)),
    *rows("GET", "/responses/{response}?include=everything", None, refused("include", "invalid_value", None)),
    *rows("GET", "/responses/{response}?stream=maybe", None, refused("stream", "invalid_type", None)),
    *rows("GET", "/responses/resp_gone", None, refused(None, None, None, status=404)),
    *rows("DELETE", "/responses/resp_gone", None, refused(None, None, None, status=404)),
    *rows("POST", "/responses/resp_gone/cancel", None, refused(None, None, None, status=404)),
    Row("GET", "/responses/{response}/input_items?order=asc&limit=1", None, 200),
    *rows(
        "GET", "/responses/{response}/input_items?limit=101", None, refused("limit", "integer_above_max_value", None)
    ),
    *rows("GET", "/responses/{response}/input_items?limit=0", None, refused("limit", "integer_below_min_value", None)),
    *rows("GET", "/responses/{response}/input_items?order=up", None, refused("order", "invalid_value", None)),
    *rows("GET", "/responses/{response}/input_items?x=1", None, refused("x", "unknown_parameter", None)),
    *rows("POST", "/responses?x=1", BASE, refused("x", "unknown_parameter", {})),
    *rows("POST", "/responses", None, refused(None, "invalid_json", b"{", b"")),
    *rows("POST", "/responses", None, refused(None, "invalid_type", b"[]", b'"Hi"')),
]
TABLE = [
    *rows("POST", "/responses", BASE, CREATING),
    *rows("POST", "/responses/input_tokens", BASE, COUNTING),
    *rows("POST", "/responses/compact", BASE, COMPACTING),
    *STORED,
]
