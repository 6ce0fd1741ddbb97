"""What is in items, as clients may send it: parts of messages and outputs, what calls of tools did. It stays JSON."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from antwort.types import JSON

# --- parts of messages and outputs -----------------------------------------------------------------------------------


class Shape(Struct, kw_only=True, forbid_unknown_fields=True):
    """What an object of a request must look like. Whatever may be left out may be null."""


class CacheBreakpoint(Shape):
    """Where a prompt can be cached up to."""

    mode: Literal["explicit"]
    ttl: Literal["30m", "12h"] | None = None


class TextPart(Shape, tag="input_text", tag_field="type"):
    """Text for the model."""

    text: str
    prompt_cache_breakpoint: CacheBreakpoint | None = None


class ImagePart(Shape, tag="input_image", tag_field="type"):
    """An image for the model."""

    detail: Literal["low", "high", "auto", "original"] | None = None
    image_url: Annotated[str, Meta(max_length=20_971_520)] | None = None
    file_id: str | None = None
    prompt_cache_breakpoint: CacheBreakpoint | None = None


class FilePart(Shape, tag="input_file", tag_field="type"):
    """A file for the model."""

    detail: Literal["low", "high", "auto"] | None = None
    file_data: Annotated[str, Meta(max_length=73_400_320)] | None = None
    file_id: str | None = None
    file_url: str | None = None
    filename: str | None = None
    prompt_cache_breakpoint: CacheBreakpoint | None = None


class _Audio(Shape):
    data: str
    format: Literal["mp3", "wav"]


class AudioPart(Shape, tag="input_audio", tag_field="type"):
    """Speech for the model."""

    input_audio: _Audio


class VideoPart(Shape, tag="input_video", tag_field="type"):
    """A video that a tool has returned, as in Open Responses."""

    video_url: str


class ScreenshotPart(Shape, tag="computer_screenshot", tag_field="type"):
    """A picture of a screen."""

    image_url: str | None = None
    file_id: str | None = None
    detail: Literal["low", "high", "auto", "original"] | None = None


class _FileCitation(Shape, tag="file_citation", tag_field="type"):
    file_id: str
    index: int
    filename: str | None = None


class _UrlCitation(Shape, tag="url_citation", tag_field="type"):
    url: str
    title: str
    start_index: int
    end_index: int


class _ContainerFileCitation(Shape, tag="container_file_citation", tag_field="type"):
    container_id: str
    file_id: str
    filename: str
    start_index: int
    end_index: int


class _FilePath(Shape, tag="file_path", tag_field="type"):
    file_id: str
    index: int


class _TopLogprob(Shape):
    token: str
    logprob: float
    bytes: list[int] | None = None


class _Logprob(Shape):
    token: str
    logprob: float
    bytes: list[int] | None = None
    top_logprobs: list[_TopLogprob] | None = None


class OutputTextPart(Shape, tag="output_text", tag_field="type"):
    """Text that the model has written."""

    text: str
    annotations: list[_FileCitation | _UrlCitation | _ContainerFileCitation | _FilePath] | None = None
    logprobs: list[_Logprob] | None = None


class RefusalPart(Shape, tag="refusal", tag_field="type"):
    """That the model has declined."""

    refusal: str


class SummaryPart(Shape, tag="summary_text", tag_field="type"):
    """A summary of what the model has thought."""

    text: str


class ReasoningPart(Shape, tag="reasoning_text", tag_field="type"):
    """What the model has thought."""

    text: str


MessagePart = TextPart | ImagePart | FilePart | AudioPart | OutputTextPart | RefusalPart
"""What a message can have; its role says which."""
OutputPart = TextPart | ImagePart | FilePart | AudioPart | VideoPart
"""What a tool can return."""


# --- what calls of hosted and of client tools did --------------------------------------------------------------------


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
