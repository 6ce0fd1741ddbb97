"""What calls of hosted and of client tools did, as clients may send it back. It is only checked, and stays JSON."""

from typing import Literal

from antwort.types import JSON
from antwort.wire.content_shapes import Shape

# --- who has called, and where it runs --------------------------------------------------------------------------------


class _Direct(Shape, tag="direct", tag_field="type"):
    pass


class _Program(Shape, tag="program", tag_field="type"):
    caller_id: str


Caller = _Direct | _Program


class _LocalSkill(Shape):
    name: str
    description: str
    path: str


class LocalEnvironment(Shape, tag="local", tag_field="type"):
    """The client's computer."""

    skills: list[_LocalSkill] | None = None


class ContainerReference(Shape, tag="container_reference", tag_field="type"):
    """A container of the server."""

    container_id: str


# --- shells and patches -----------------------------------------------------------------------------------------------


class ShellAction(Shape):
    """Commands to run."""

    commands: list[str] | None = None  # a call that was cut off may have none
    timeout_ms: int | None = None
    max_output_length: int | None = None


class _TimedOut(Shape, tag="timeout", tag_field="type"):
    pass


class _Exited(Shape, tag="exit", tag_field="type"):
    exit_code: int


class ShellOutput(Shape):
    """What a command has written, and how it ended."""

    stdout: str
    stderr: str
    outcome: _TimedOut | _Exited
    created_by: str | None = None


class ExecAction(Shape, tag="exec", tag_field="type"):
    """A program to run."""

    command: list[str]
    env: dict[str, str] | None = None
    timeout_ms: int | None = None
    user: str | None = None
    working_directory: str | None = None


class _CreateFile(Shape, tag="create_file", tag_field="type"):
    path: str
    diff: str


class _UpdateFile(Shape, tag="update_file", tag_field="type"):
    path: str
    diff: str


class _DeleteFile(Shape, tag="delete_file", tag_field="type"):
    path: str


PatchOperation = _CreateFile | _UpdateFile | _DeleteFile


# --- computers --------------------------------------------------------------------------------------------------------


class _Point(Shape):
    x: int
    y: int


class _Action(Shape, tag_field="type", kw_only=True):
    keys: list[str] | None = None


class _Click(_Action, tag="click"):
    button: Literal["left", "right", "wheel", "back", "forward"]
    x: int
    y: int


class _DoubleClick(_Action, tag="double_click"):
    x: int
    y: int


class _Drag(_Action, tag="drag"):
    path: list[_Point]


class _Keypress(_Action, tag="keypress"):
    pass


class _Move(_Action, tag="move"):
    x: int
    y: int


class _Screenshot(_Action, tag="screenshot"):
    pass


class _Scroll(_Action, tag="scroll"):
    x: int
    y: int
    scroll_x: int
    scroll_y: int


class _Type(_Action, tag="type"):
    text: str


class _Wait(_Action, tag="wait"):
    pass


ComputerAction = _Click | _DoubleClick | _Drag | _Keypress | _Move | _Screenshot | _Scroll | _Type | _Wait


class SafetyCheck(Shape):
    """What somebody should look at before an action is taken."""

    id: str
    code: str | None = None
    message: str | None = None


# --- searches, code, images -------------------------------------------------------------------------------------------


class FoundChunk(Shape):
    """A result of a search in files."""

    file_id: str | None = None
    filename: str | None = None
    text: str | None = None
    score: float | None = None
    attributes: dict[str, str | float | bool] | None = None
    vector_store_id: str | None = None


class _Source(Shape):
    type: str
    url: str | None = None
    name: str | None = None


class _Search(Shape, tag="search", tag_field="type"):
    query: str | None = None
    queries: list[str] | None = None
    sources: list[_Source] | None = None


class _OpenPage(Shape, tag="open_page", tag_field="type"):
    url: str | None = None


class _FindInPage(Shape, tag="find_in_page", tag_field="type"):
    url: str | None = None
    pattern: str | None = None


WebAction = _Search | _OpenPage | _FindInPage


class _Logs(Shape, tag="logs", tag_field="type"):
    logs: str


class _Picture(Shape, tag="image", tag_field="type"):
    url: str


CodeOutput = _Logs | _Picture


class _ModerationDetails(Shape):
    categories: list[str]
    moderation_stage: Literal["input", "output", "unknown"]


class ImageError(Shape):
    """Why there is no image."""

    type: str
    message: str
    code: str | None = None
    param: str | None = None
    moderation_details: _ModerationDetails | None = None


class SvgUsage(Shape):
    """What a drawing has cost."""

    model: str
    input_tokens: int
    output_tokens: int
    reasoning_tokens: int
    total_tokens: int


# --- MCP --------------------------------------------------------------------------------------------------------------


class McpTool(Shape):
    """A tool of an MCP server."""

    name: str
    input_schema: JSON
    description: str | None = None
    annotations: JSON | None = None


class _ProtocolError(Shape, tag="mcp_protocol_error", tag_field="type"):
    code: int
    message: str


class _ToolError(Shape, tag="mcp_tool_execution_error", tag_field="type"):
    content: object


class _HttpError(Shape, tag="http_error", tag_field="type"):
    code: int
    message: str


McpError = str | _ProtocolError | _ToolError | _HttpError
"""Why a call has failed: an object or, as it was before, a text."""
