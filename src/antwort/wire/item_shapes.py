"""The items of an input, by type, as clients may send them. They are only checked; what was sent stays JSON.

Fields that OpenAI's types require and that nobody here needs may be left out: many clients do.
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Literal

from msgspec import field

from antwort.types import JSON
from antwort.wire.part_shapes import (
    Caller,
    CodeOutput,
    ComputerAction,
    ContainerReference,
    ExecAction,
    FoundChunk,
    ImageError,
    LocalEnvironment,
    McpError,
    McpTool,
    MessagePart,
    OutputPart,
    PatchOperation,
    ReasoningPart,
    SafetyCheck,
    ScreenshotPart,
    Shape,
    ShellAction,
    ShellOutput,
    SummaryPart,
    SvgUsage,
    WebAction,
)
from antwort.wire.requests import Effort

Status = Literal["in_progress", "completed", "incomplete"]


class _Item(Shape, kw_only=True):
    """What every item may have."""

    type: str | None = None
    id: str | None = None
    created_by: str | None = None
    """Who has made it; OpenAI's servers tell."""
    agent: JSON | None = None
    """Which agent it is of; sub-agents as in OpenAI's beta have it."""


class MessageItem(_Item):
    """Something said."""

    role: Literal["user", "assistant", "system", "developer"]
    content: str | list[MessagePart]
    status: Status | None = None
    phase: Literal["commentary", "final_answer"] | None = None


class _ReasoningItem(_Item):
    summary: list[SummaryPart] | None = None
    content: list[ReasoningPart] | None = None
    encrypted_content: str | None = None
    status: Status | None = None


class _FunctionCallItem(_Item):
    call_id: str
    name: str
    arguments: str
    namespace: str | None = None
    caller: Caller | None = None
    status: Status | None = None
    is_async: bool | None = field(default=None, name="async")


class _CallOutputItem(_Item):
    call_id: str
    output: str | list[OutputPart]
    name: str | None = None
    namespace: str | None = None
    caller: Caller | None = None
    status: Status | None = None


class _CustomCallItem(_Item):
    call_id: str
    name: str
    input: str
    namespace: str | None = None
    caller: Caller | None = None
    status: Status | None = None
    is_async: bool | None = field(default=None, name="async")


# --- what clients execute and models know as functions ----------------------------------------------------------------


class _ShellCallItem(_Item):
    call_id: str
    action: ShellAction
    environment: LocalEnvironment | ContainerReference | None = None
    caller: Caller | None = None
    status: Status | None = None


class _ShellOutputItem(_Item):
    call_id: str
    output: list[ShellOutput]
    max_output_length: int | None = None
    caller: Caller | None = None
    status: Status | None = None


class _LocalShellCallItem(_Item):
    call_id: str
    action: ExecAction
    status: Status | None = None


class _LocalShellOutputItem(_Item):
    call_id: str
    output: str
    status: Status | None = None


class _PatchCallItem(_Item):
    call_id: str
    operation: PatchOperation
    caller: Caller | None = None
    status: Status | None = None


class _PatchOutputItem(_Item):
    call_id: str
    output: str | None = None
    caller: Caller | None = None
    status: Literal["completed", "failed"] | None = None


class _ComputerCallItem(_Item):
    call_id: str
    action: ComputerAction | None = None
    actions: list[ComputerAction] | None = None
    pending_safety_checks: list[SafetyCheck] | None = None
    status: Status | None = None


class _ComputerOutputItem(_Item):
    call_id: str
    output: ScreenshotPart
    acknowledged_safety_checks: list[SafetyCheck] | None = None
    status: Status | Literal["failed"] | None = None


# --- what servers execute ---------------------------------------------------------------------------------------------


class _FileSearchItem(_Item):
    queries: list[str] | None = None
    results: list[FoundChunk] | None = None
    status: Literal["in_progress", "searching", "completed", "incomplete", "failed"] | None = None


class _WebSearchItem(_Item):
    action: WebAction | None = None
    results: list[JSON] | None = None
    status: Literal["in_progress", "searching", "completed", "incomplete", "failed"] | None = None


class _CodeItem(_Item):
    code: str | None = None
    container_id: str | None = None
    outputs: list[CodeOutput] | None = None
    status: Literal["in_progress", "completed", "incomplete", "interpreting", "failed"] | None = None


class _ImageItem(_Item):
    result: str | None = None
    action: Literal["generate", "edit", "auto"] | None = None
    background: Literal["transparent", "opaque", "auto"] | None = None
    error: ImageError | None = None
    output_format: Literal["png", "webp", "jpeg", "gif", "svg"] | None = None
    quality: Literal["low", "medium", "high", "xhigh", "max", "auto"] | None = None
    revised_prompt: str | None = None
    size: str | None = None
    svg_usage: SvgUsage | None = None
    status: Literal["in_progress", "completed", "generating", "failed"] | None = None


class _McpToolsItem(_Item):
    server_label: str
    tools: list[McpTool]
    error: str | None = None
    status: Status | None = None


class _McpRequestItem(_Item):
    server_label: str
    name: str
    arguments: str
    status: Status | None = None


class _McpResponseItem(_Item):
    approval_request_id: str
    approve: bool
    reason: str | None = None
    status: Status | None = None


class _McpCallItem(_Item):
    server_label: str
    name: str
    arguments: str
    approval_request_id: str | None = None
    error: McpError | None = None
    output: str | None = None
    status: Literal["in_progress", "completed", "incomplete", "calling", "failed"] | None = None


class _ToolSearchItem(_Item):
    arguments: Any = None
    call_id: str | None = None
    execution: Literal["server", "client"] | None = None
    status: Status | None = None


class _ToolSearchOutputItem(_Item):
    tools: list[JSON]
    call_id: str | None = None
    execution: Literal["server", "client"] | None = None
    status: Status | None = None


class _ProgramItem(_Item):
    call_id: str
    code: str
    fingerprint: str | None = None
    status: Status | None = None


class _ProgramOutputItem(_Item):
    call_id: str
    result: str
    status: Literal["completed", "incomplete"] | None = None


# --- what is about the window -----------------------------------------------------------------------------------------


class _ReferenceItem(_Item):
    id: str


class _CompactionItem(_Item):
    encrypted_content: str
    status: Status | None = None


class _AdditionalToolsItem(_Item):
    role: Literal["developer"]
    tools: list[JSON]
    status: Status | None = None


class _NewEffort(Shape):
    effort: Effort | None = None


class _NewFormat(Shape):
    format: JSON


class _UpdateItem(_Item):
    reasoning: _NewEffort | None = None
    text: _NewFormat | None = None


ITEM_SHAPES: Mapping[str, type[Shape]] = MappingProxyType(
    {
        "message": MessageItem,
        "reasoning": _ReasoningItem,
        "function_call": _FunctionCallItem,
        "function_call_output": _CallOutputItem,
        "custom_tool_call": _CustomCallItem,
        "custom_tool_call_output": _CallOutputItem,
        "shell_call": _ShellCallItem,
        "shell_call_output": _ShellOutputItem,
        "local_shell_call": _LocalShellCallItem,
        "local_shell_call_output": _LocalShellOutputItem,
        "apply_patch_call": _PatchCallItem,
        "apply_patch_call_output": _PatchOutputItem,
        "computer_call": _ComputerCallItem,
        "computer_call_output": _ComputerOutputItem,
        "file_search_call": _FileSearchItem,
        "web_search_call": _WebSearchItem,
        "code_interpreter_call": _CodeItem,
        "image_generation_call": _ImageItem,
        "mcp_list_tools": _McpToolsItem,
        "mcp_approval_request": _McpRequestItem,
        "mcp_approval_response": _McpResponseItem,
        "mcp_call": _McpCallItem,
        "tool_search_call": _ToolSearchItem,
        "tool_search_output": _ToolSearchOutputItem,
        "program": _ProgramItem,
        "program_output": _ProgramOutputItem,
        "item_reference": _ReferenceItem,
        "compaction": _CompactionItem,
        "compaction_trigger": _Item,
        "additional_tools": _AdditionalToolsItem,
        "configuration_update": _UpdateItem,
    }
)
"""What items must look like, by their type. Items of further types are passed on as they are."""
WITH_TOOLS = frozenset({"additional_tools", "tool_search_output"})
"""Those whose `tools` are as in a request."""
CALL_TEXTS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "function_call": ("arguments",),
        "custom_tool_call": ("input",),
        "mcp_call": ("arguments", "output", "error"),
        "web_search_call": ("action", "results"),
        "file_search_call": ("queries", "results"),
        "image_generation_call": ("revised_prompt",),
        "code_interpreter_call": ("code", "outputs"),
        "local_shell_call": ("action",),
        "shell_call": ("action",),
        "apply_patch_call": ("operation",),
        "computer_call": ("action", "actions"),
        "tool_search_call": ("arguments",),
        "program": ("code",),
    }
)
"""What calls were made with, and what has come of them, by the types of their items: fields with texts in them."""
NAMES = frozenset({"type", "id", "file_id", "container_id", "status"})
"""Fields in them that only say which thing is meant."""
BETWEEN = "\n---\n"
"""Stands between texts that are looked at together: nothing reaches from one into the next."""


def texts_in(value: Any) -> Iterator[str]:
    """Yield the texts in what a call was made with, or what has come of it; pictures are none."""
    if isinstance(value, str):
        if value and not value.startswith("data:"):
            yield value
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            if name not in NAMES:
                yield from texts_in(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from texts_in(inner)
