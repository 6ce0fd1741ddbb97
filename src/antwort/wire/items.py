"""Items: what a response is made of. Those we write are structs; those we only pass on stay JSON."""

from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from msgspec import UNSET, Meta, Struct, UnsetType, field

from antwort.types import JSON

ItemStatus = Literal["in_progress", "completed", "incomplete"]

_WITHOUT_FAILED = frozenset({"shell_call"})
"""Items of calls that OpenAI's types give no status `failed`."""


def failed_status(item_type: str) -> str:
    """Return the status that the item of a call has if the call has failed."""
    return "incomplete" if item_type in _WITHOUT_FAILED else "failed"


COMPONENT = "x-component"
"""The key of a JSON Schema under which an open type names the component that describes it."""

AnyItem = Annotated[JSON, Meta(extra_json_schema={COMPONENT: "Item"})]
"""An item, whichever it is."""
InputItem = Annotated[JSON, Meta(extra_json_schema={COMPONENT: "InputItem"})]
"""An item as clients send it."""
AnyTool = Annotated[JSON, Meta(extra_json_schema={COMPONENT: "Tool"})]
"""A tool: one of the client, or a type that the server itself answers."""


class OutputText(Struct, tag="output_text", tag_field="type"):
    """Text of the answer."""

    text: str = ""
    annotations: list[JSON] = field(default_factory=list)
    logprobs: list[JSON] = field(default_factory=list)


class Refusal(Struct, tag="refusal", tag_field="type"):
    """The model declined."""

    refusal: str = ""


class Message(Struct, tag="message", tag_field="type"):
    """A message of the assistant."""

    id: str
    status: ItemStatus = "in_progress"
    role: Literal["assistant"] = "assistant"
    content: list[OutputText | Refusal] = field(default_factory=list)
    phase: Literal["commentary", "final_answer"] | UnsetType = UNSET


class SummaryText(Struct, tag="summary_text", tag_field="type"):
    """A summary of the model's thoughts."""

    text: str = ""


class ReasoningText(Struct, tag="reasoning_text", tag_field="type"):
    """The model's thoughts."""

    text: str = ""


class Reasoning(Struct, tag="reasoning", tag_field="type"):
    """What the model thought before it answered."""

    id: str
    status: ItemStatus = "in_progress"
    summary: list[SummaryText] = field(default_factory=list)
    content: list[ReasoningText] | UnsetType = UNSET
    encrypted_content: str | UnsetType = UNSET


class FunctionCall(Struct, tag="function_call", tag_field="type"):
    """A call of a function that the client executes."""

    id: str
    call_id: str
    name: str
    arguments: str = ""
    status: ItemStatus = "in_progress"
    namespace: str | UnsetType = UNSET


class CustomToolCall(Struct, tag="custom_tool_call", tag_field="type"):
    """A call of a client's tool that takes text in place of arguments."""

    id: str
    call_id: str
    name: str
    input: str = ""
    status: ItemStatus = "in_progress"
    namespace: str | UnsetType = UNSET


class ShellCall(Struct, tag="shell_call", tag_field="type"):
    """Shell commands that the client runs."""

    id: str
    call_id: str
    action: JSON
    environment: JSON
    status: ItemStatus = "completed"


class LocalShellCall(Struct, tag="local_shell_call", tag_field="type"):
    """A program that the client runs."""

    id: str
    call_id: str
    action: JSON
    status: ItemStatus = "completed"


class ApplyPatchCall(Struct, tag="apply_patch_call", tag_field="type"):
    """A change of a file that the client makes."""

    id: str
    call_id: str
    operation: JSON
    status: ItemStatus = "completed"


class ComputerCall(Struct, tag="computer_call", tag_field="type"):
    """What the client is to do by mouse and keyboard: several actions, or one."""

    id: str
    call_id: str
    actions: list[JSON] | UnsetType = UNSET
    action: JSON | UnsetType = UNSET
    pending_safety_checks: list[JSON] = field(default_factory=list)
    status: ItemStatus = "completed"


class ToolSearchCall(Struct, tag="tool_search_call", tag_field="type"):
    """A search among tools that the client has not told of yet."""

    id: str
    call_id: str
    arguments: JSON
    execution: Literal["client"] = "client"
    status: ItemStatus = "completed"


ClientCall: TypeAlias = (
    FunctionCall | CustomToolCall | ShellCall | LocalShellCall | ApplyPatchCall | ComputerCall | ToolSearchCall
)
"""What a client executes."""

HostedItem = JSON
"""The receipt of a hosted tool, which the function's `HostedTool` makes."""

if TYPE_CHECKING:
    Item: TypeAlias = Message | Reasoning | ClientCall | HostedItem
else:
    # Items are only written, never read; msgspec cannot tell such a union apart.
    Item = Annotated[Any, Meta(extra_json_schema={COMPONENT: "Item"})]
