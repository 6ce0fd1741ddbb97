"""Every item, tool and parameter that the official SDK can send, each with two values for every field of it."""

import typing
from collections.abc import Iterator
from typing import Any, get_args, get_origin, get_type_hints

import typing_extensions
from openai.types.responses import response_create_params, response_input_item_param, tool_param

Fields = dict[str, tuple[Any, Any]]
"""Two values of each field; the first is the one that it has while another is tried."""

LEFT_OUT = object()
FUNCTION: Any = {"type": "function", "name": "echo", "parameters": {"type": "object", "properties": {}}}
_SCHEMA: Any = {"type": "object", "properties": {}, "additionalProperties": False}
FORMAT: Any = {"type": "json_schema", "name": "answer", "schema": _SCHEMA}
_IMAGE = "data:image/png;base64,iVBORw0KGgo="
_CALLER: Any = ({"type": "direct"}, LEFT_OUT)
_ID = ("call_1", "call_2")
_DONE = ("completed", "in_progress")


def _text(text: str, kind: str = "input_text") -> Any:
    return [{"type": kind, "text": text} | ({"annotations": []} if kind == "output_text" else {})]


ITEMS: dict[str, Fields] = {
    "EasyInputMessageParam": {
        "role": ("user", "developer"),
        "content": ("Hi", _text("Ho")),
        "phase": (LEFT_OUT, "commentary"),
    },
    "Message": {"role": ("user", "system"), "content": (_text("Hi"), _text("Ho")), "status": _DONE},
    "ResponseOutputMessageParam": {
        "id": ("msg_1", "msg_2"),
        "role": ("assistant", "assistant"),
        "content": (_text("Hi", "output_text"), [{"type": "refusal", "refusal": "No."}]),
        "status": _DONE,
        "phase": ("final_answer", "commentary"),
    },
    "ResponseFileSearchToolCallParam": {
        "id": ("fs_1", "fs_2"),
        "queries": (["tea"], ["coffee"]),
        "status": ("completed", "failed"),
        "results": ([{"file_id": "f", "filename": "a.txt", "text": "Tea", "score": 1}], None),
    },
    "ResponseFunctionWebSearchParam": {
        "id": ("ws_1", "ws_2"),
        "action": ({"type": "search", "query": "tea"}, {"type": "search", "query": "coffee"}),
        "status": ("completed", "failed"),
    },
    "ResponseCodeInterpreterToolCallParam": {
        "id": ("ci_1", "ci_2"),
        "code": ("1+1", "2+2"),
        "container_id": ("cntr_1", "cntr_2"),
        "outputs": ([{"type": "logs", "logs": "2"}], [{"type": "logs", "logs": "4"}]),
        "status": ("completed", "failed"),
    },
    "ResponseComputerToolCallParam": {
        "id": ("cu_1", "cu_2"),
        "call_id": _ID,
        "pending_safety_checks": ([], [{"id": "s", "code": "c", "message": "m"}]),
        "status": _DONE,
        "action": ({"type": "screenshot"}, {"type": "wait"}),
        "actions": (LEFT_OUT, [{"type": "wait"}]),
    },
    "ComputerCallOutput": {
        "call_id": _ID,
        "output": ({"type": "computer_screenshot", "image_url": _IMAGE}, {"type": "computer_screenshot"}),
        "id": (LEFT_OUT, "cuo_2"),
        "acknowledged_safety_checks": (LEFT_OUT, [{"id": "s"}]),
        "status": _DONE,
    },
    "ResponseFunctionToolCallParam": {
        "async": (LEFT_OUT, True),
        "arguments": ("{}", '{"a":1}'),
        "call_id": _ID,
        "name": ("echo", "other"),
        "id": (LEFT_OUT, "fc_2"),
        "caller": _CALLER,
        "namespace": (LEFT_OUT, "space"),
        "status": _DONE,
    },
    "FunctionCallOutput": {
        "output": ("one", _text("two")),
        "id": (LEFT_OUT, "fco_2"),
        "call_id": _ID,
        "caller": _CALLER,
        "name": (LEFT_OUT, "echo"),
        "namespace": (LEFT_OUT, "space"),
        "status": _DONE,
    },
    "ToolSearchCall": {
        "arguments": ({"query": "a"}, {"query": "b"}),
        "id": (LEFT_OUT, "tsc_2"),
        "call_id": _ID,
        "execution": ("client", "server"),
        "status": _DONE,
    },
    "ResponseToolSearchOutputItemParamParam": {
        "tools": ([FUNCTION], []),
        "id": (LEFT_OUT, "tso_2"),
        "call_id": _ID,
        "execution": ("client", "server"),
        "status": _DONE,
    },
    "AdditionalTools": {"role": ("developer", "user"), "tools": ([FUNCTION], []), "id": (LEFT_OUT, "at_2")},
    "ResponseConfigurationUpdateItemParamParam": {
        "id": (LEFT_OUT, "cu_2"),
        "reasoning": (LEFT_OUT, {"effort": "high"}),
        "text": (LEFT_OUT, {"format": FORMAT}),
    },
    "ResponseReasoningItemParam": {
        "id": ("rs_1", "rs_2"),
        "summary": ([], [{"type": "summary_text", "text": "Short."}]),
        "content": ([{"type": "reasoning_text", "text": "Hm."}], [{"type": "reasoning_text", "text": "Oh."}]),
        "encrypted_content": (LEFT_OUT, "sealed"),
        "status": _DONE,
    },
    "ResponseCompactionItemParamParam": {"encrypted_content": ("nothing of ours", "other"), "id": (LEFT_OUT, "cmp_2")},
    "ImageGenerationCall": {
        "id": ("ig_1", "ig_2"),
        "result": ("aWc=", None),
        "status": ("completed", "failed"),
        "action": (LEFT_OUT, "edit"),
        "background": (LEFT_OUT, "opaque"),
        "error": (LEFT_OUT, {"code": "c", "message": "m", "param": None, "type": "t"}),
        "output_format": (LEFT_OUT, "png"),
        "quality": (LEFT_OUT, "low"),
        "revised_prompt": (LEFT_OUT, "A cat."),
        "size": (LEFT_OUT, "1x1"),
        "svg_usage": (
            LEFT_OUT,
            {"input_tokens": 1, "model": "m", "output_tokens": 1, "reasoning_tokens": 0, "total_tokens": 2},
        ),
    },
    "LocalShellCall": {
        "id": ("lsh_1", "lsh_2"),
        "action": (
            {"type": "exec", "command": ["ls"], "env": {}},
            {"type": "exec", "command": ["pwd"], "env": {}},
        ),
        "call_id": _ID,
        "status": _DONE,
    },
    "LocalShellCallOutput": {"id": _ID, "output": ("one", "two"), "status": _DONE},
    "ShellCall": {
        "action": ({"commands": ["ls"]}, {"commands": ["pwd"]}),
        "call_id": _ID,
        "id": (LEFT_OUT, "sh_2"),
        "caller": _CALLER,
        "environment": ({"type": "local"}, LEFT_OUT),
        "status": _DONE,
    },
    "ShellCallOutput": {
        "call_id": _ID,
        "output": (
            [{"stdout": "a", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}],
            [{"stdout": "b", "stderr": "", "outcome": {"type": "timeout"}}],
        ),
        "id": (LEFT_OUT, "sho_2"),
        "caller": _CALLER,
        "max_output_length": (LEFT_OUT, 100),
        "status": _DONE,
    },
    "ApplyPatchCall": {
        "call_id": _ID,
        "operation": (
            {"type": "create_file", "path": "a", "diff": "+a"},
            {"type": "delete_file", "path": "b"},
        ),
        "status": _DONE,
        "id": (LEFT_OUT, "apc_2"),
        "caller": _CALLER,
    },
    "ApplyPatchCallOutput": {
        "call_id": _ID,
        "status": ("completed", "failed"),
        "id": (LEFT_OUT, "apo_2"),
        "caller": _CALLER,
        "output": (LEFT_OUT, "Oh."),
    },
    "McpListTools": {
        "id": ("mcpl_1", "mcpl_2"),
        "server_label": ("wiki", "other"),
        "tools": ([{"name": "find", "input_schema": {}}], []),
        "error": (LEFT_OUT, "Away."),
    },
    "McpApprovalRequest": {
        "id": ("mcpr_1", "mcpr_2"),
        "arguments": ("{}", '{"a":1}'),
        "name": ("find", "other"),
        "server_label": ("wiki", "other"),
    },
    "McpApprovalResponse": {
        "approval_request_id": ("mcpr_1", "mcpr_2"),
        "approve": (True, False),
        "id": (LEFT_OUT, "mcpa_2"),
        "reason": (LEFT_OUT, "So."),
    },
    "McpCall": {
        "id": ("mcp_1", "mcp_2"),
        "arguments": ("{}", '{"a":1}'),
        "name": ("find", "other"),
        "server_label": ("wiki", "other"),
        "approval_request_id": (LEFT_OUT, "mcpr_1"),
        "error": (LEFT_OUT, {"type": "http_error", "code": 500, "message": "Away."}),
        "output": ("one", "two"),
        "status": ("completed", "failed"),
    },
    "ResponseCustomToolCallParam": {
        "async": (LEFT_OUT, True),
        "call_id": _ID,
        "input": ("one", "two"),
        "name": ("exec", "other"),
        "id": (LEFT_OUT, "ctc_2"),
        "caller": _CALLER,
        "namespace": (LEFT_OUT, "space"),
    },
    "ResponseCustomToolCallOutputParam": {
        "call_id": _ID,
        "output": ("one", _text("two")),
        "id": (LEFT_OUT, "ctco_2"),
        "caller": _CALLER,
    },
    "CompactionTrigger": {"id": (LEFT_OUT, "cmpt_2")},
    "ItemReference": {"id": ("msg_nobody", "msg_none")},
    "Program": {
        "id": ("prog_1", "prog_2"),
        "call_id": _ID,
        "code": ("1", "2"),
        "fingerprint": ("f", "g"),
    },
    "ProgramOutput": {
        "id": ("po_1", "po_2"),
        "call_id": _ID,
        "result": ("1", "2"),
        "status": ("completed", "incomplete"),
    },
}

CALLS: dict[str, Any] = {
    "ComputerCallOutput": {"type": "computer_call", "call_id": "call_1", "action": {"type": "wait"}},
    "FunctionCallOutput": {"type": "function_call", "call_id": "call_1", "name": "echo", "arguments": "{}"},
    "ResponseToolSearchOutputItemParamParam": {"type": "tool_search_call", "call_id": "call_1", "arguments": {}},
    "LocalShellCallOutput": {
        "type": "local_shell_call",
        "call_id": "call_1",
        "action": {"type": "exec", "command": ["ls"], "env": {}},
    },
    "ShellCallOutput": {"type": "shell_call", "call_id": "call_1", "action": {"commands": ["ls"]}},
    "ApplyPatchCallOutput": {
        "type": "apply_patch_call",
        "call_id": "call_1",
        "operation": {"type": "delete_file", "path": "a"},
    },
    "ResponseCustomToolCallOutputParam": {
        "type": "custom_tool_call",
        "call_id": "call_1",
        "name": "exec",
        "input": "ls",
    },
    "ProgramOutput": {"type": "program", "id": "prog_1", "call_id": "call_1", "code": "1", "fingerprint": "f"},
}
"""What stands before an output."""
OUTPUTS: dict[str, Any] = {
    "ResponseComputerToolCallParam": {
        "type": "computer_call_output",
        "output": {"type": "computer_screenshot", "image_url": _IMAGE},
    },
    "ResponseFunctionToolCallParam": {"type": "function_call_output", "output": "one"},
    "ToolSearchCall": {"type": "tool_search_output", "tools": []},
    "LocalShellCall": {"type": "local_shell_call_output", "output": "one"},
    "ShellCall": {"type": "shell_call_output", "output": []},
    "ApplyPatchCall": {"type": "apply_patch_call_output", "status": "completed"},
    "ResponseCustomToolCallParam": {"type": "custom_tool_call_output", "output": "one"},
    "Program": {"type": "program_output", "result": "1", "status": "completed"},
}
"""What stands behind a call, with its call id."""


def types_in(kind: Any) -> Iterator[Any]:
    """Yield the dictionaries of a union."""
    if get_origin(kind) is typing.Union:
        for member in get_args(kind):
            yield from types_in(member)
    elif typing_extensions.is_typeddict(kind):
        yield kind


def fields_of(kind: Any) -> set[str]:
    """Return the fields that a dictionary of the SDK can have."""
    return set(get_type_hints(kind)) - {"type"}


def kind_of(kind: Any) -> str:
    """Return the `type` of an item or a tool."""
    hint = get_type_hints(kind)["type"]
    while get_origin(hint) is not typing.Literal:
        hint = get_args(hint)[0]
    return str(get_args(hint)[0])


ITEM_TYPES = {kind.__name__: kind for kind in types_in(response_input_item_param.ResponseInputItemParam)}
TOOL_TYPES = {kind_of(kind): kind for kind in types_in(tool_param.ToolParam)}
PARAMETERS = set(get_type_hints(response_create_params.ResponseCreateParamsNonStreaming))

_OBJECT: Any = {
    "type": "object",
    "properties": {"a": {"type": "string"}},
    "required": ["a"],
    "additionalProperties": False,
}
_CALLERS: Any = (["direct"], ["programmatic"])
_INNER: Any = {"type": "function", "name": "inner", "parameters": _OBJECT}
TOOLS: dict[str, Fields] = {
    "function": {
        "async": (LEFT_OUT, True),
        "name": ("echo", "other"),
        "parameters": (_OBJECT, {"type": "object", "properties": {}}),
        "strict": (False, True),
        "allowed_callers": _CALLERS,
        "defer_loading": (LEFT_OUT, True),
        "description": ("Says it.", "Says it again."),
        "output_schema": (LEFT_OUT, _OBJECT),
    },
    "custom": {
        "async": (LEFT_OUT, True),
        "name": ("exec", "other"),
        "allowed_callers": _CALLERS,
        "defer_loading": (LEFT_OUT, True),
        "description": ("Runs it.", "Runs it again."),
        "format": (LEFT_OUT, {"type": "grammar", "syntax": "regex", "definition": "a+"}),
    },
    "namespace": {
        "description": ("One.", "Two."),
        "name": ("space", "other"),
        "tools": ([_INNER], [{**_INNER, "name": "another"}]),
    },
    "computer": {},
    "computer_use_preview": {
        "display_height": (1, 2),
        "display_width": (1, 2),
        "environment": ("linux", "mac"),
    },
    "local_shell": {},
    "shell": {"allowed_callers": _CALLERS, "environment": (LEFT_OUT, {"type": "container_auto"})},
    "apply_patch": {"allowed_callers": _CALLERS},
    "tool_search": {
        "description": ("Finds.", "Looks."),
        "execution": ("client", "server"),
        "parameters": (_OBJECT, {"type": "object", "properties": {}}),
    },
}
"""Tools that clients execute; what others say of themselves is read by whoever executes them."""
HOSTED = {
    *("code_interpreter", "file_search", "image_generation", "mcp", "programmatic_tool_calling", "web_search"),
    "web_search_preview",
}
"""Those that servers execute: they are offered where somebody has them, and refused elsewhere."""
CREATE: Fields = {
    "access_programs": (LEFT_OUT, {"cyber": "standard"}),
    "background": (LEFT_OUT, True),
    "context_management": (LEFT_OUT, [{"type": "compaction", "compact_threshold": 1}]),
    "conversation": (LEFT_OUT, "conv_nobody"),
    "image": (LEFT_OUT, {"context_compression": "enabled"}),
    "include": (LEFT_OUT, ["message.output_text.logprobs"]),
    "input": (
        [{"role": role, "content": text} for role, text in (("user", "Hi"), ("assistant", "Ho"), ("user", "Go"))],
        "Ho",
    ),
    "instructions": (LEFT_OUT, "Be brief."),
    "max_output_tokens": (LEFT_OUT, 100),
    "max_tool_calls": (LEFT_OUT, 3),
    "metadata": (LEFT_OUT, {"a": "b"}),
    "model": ("scripted", "other"),
    "moderation": (LEFT_OUT, {"model": "m"}),
    "parallel_tool_calls": (LEFT_OUT, False),
    "previous_response_id": (LEFT_OUT, "resp_nobody"),
    "prompt": (LEFT_OUT, {"id": "pmpt_1"}),
    "prompt_cache_key": (LEFT_OUT, "key"),
    "prompt_cache_options": (LEFT_OUT, {"mode": "explicit"}),
    "prompt_cache_retention": (LEFT_OUT, "24h"),
    "reasoning": (LEFT_OUT, {"effort": "low"}),
    "safety_identifier": (LEFT_OUT, "me"),
    "service_tier": (LEFT_OUT, "flex"),
    "store": (False, True),
    "stream": (LEFT_OUT, True),
    "stream_options": (LEFT_OUT, {"include_obfuscation": False}),
    "temperature": (LEFT_OUT, 0.5),
    "text": (LEFT_OUT, {"format": FORMAT}),
    "tool_choice": (LEFT_OUT, "none"),
    "tools": (LEFT_OUT, [FUNCTION]),
    "top_logprobs": (LEFT_OUT, 2),
    "top_p": (LEFT_OUT, 0.5),
    "truncation": (LEFT_OUT, "auto"),
    "user": (LEFT_OUT, "me"),
}
