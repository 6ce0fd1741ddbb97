"""The bodies of requests for messages, as clients send them."""

import functools
from collections.abc import Collection
from typing import Annotated, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct

from antwort.errors import BadRequestError
from antwort.types import JSON
from antwort.wire.field_errors import UNKNOWN_PARAMETER
from antwort.wire.messages.blocks import BlockInput, CacheControl, TextInput
from antwort.wire.requests import decode_body

_IGNORED = Meta(description="Taken and ignored.")
_REFUSED = Meta(description="Refused: the server has nothing of the kind.")
_MODEL = Meta(description="The model to ask; the default model if it is left out.")


class MessageInput(Struct, kw_only=True):
    """Something said."""

    role: Literal["user", "assistant", "system"]
    content: str | list[BlockInput]


# --- how the answer is to be ------------------------------------------------------------------------------------------


class ThinkingOn(Struct, tag="enabled", tag_field="type"):
    """The model is to think, for so many tokens."""

    budget_tokens: Annotated[int, Meta(ge=0)] = 0
    display: Literal["summarized", "omitted"] | None = None


class ThinkingAdaptive(Struct, tag="adaptive", tag_field="type"):
    """The model thinks as much as it wants."""

    display: Literal["summarized", "omitted"] | None = None


class ThinkingBetweenTools(Struct, tag="between_tools", tag_field="type"):
    """The model thinks when it has results."""

    display: Literal["summarized", "omitted"] | None = None


class ThinkingOff(Struct, tag="disabled", tag_field="type"):
    """Thoughts are not shown."""


ThinkingShown = ThinkingOn | ThinkingAdaptive | ThinkingBetweenTools
"""What asks for thoughts."""


class AutoChoice(Struct, tag="auto", tag_field="type"):
    """The model may call tools."""

    disable_parallel_tool_use: bool | None = None


class AnyChoice(Struct, tag="any", tag_field="type"):
    """The model must call a tool."""

    disable_parallel_tool_use: bool | None = None


class ToolChoice(Struct, tag="tool", tag_field="type"):
    """The model must call this tool."""

    name: str
    disable_parallel_tool_use: bool | None = None


class NoChoice(Struct, tag="none", tag_field="type"):
    """The model must not call tools."""


AnyToolChoice = AutoChoice | AnyChoice | ToolChoice | NoChoice


class OutputFormat(Struct, tag="json_schema", tag_field="type"):
    """JSON that fits a schema."""

    schema: JSON


class OutputConfig(Struct):
    """How hard the model tries, and what the answer looks like."""

    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    format: OutputFormat | None = None


class MessageMetadata(Struct):
    """Whom the request is for."""

    user_id: Annotated[str, Meta(max_length=1024)] | None = None


class McpToolConfiguration(Struct):
    """Which tools of an MCP server there are, as older clients say it."""

    enabled: bool | None = None
    allowed_tools: list[str] | None = None


class McpServer(Struct, kw_only=True, tag="url", tag_field="type"):
    """An MCP server that toolsets name."""

    name: Annotated[str, Meta(min_length=1, max_length=64)]
    url: str
    authorization_token: str | None = None
    tool_configuration: McpToolConfiguration | None = None


# --- bodies -----------------------------------------------------------------------------------------------------------


class CountMessages(Struct, kw_only=True, forbid_unknown_fields=True):
    """A request to count the tokens of one for a message."""

    messages: Annotated[list[MessageInput], Meta(min_length=1, max_length=10_000, description="What was said so far.")]
    model: Annotated[str | None, _MODEL] = None
    system: Annotated[
        str | list[TextInput] | None, Meta(description="What the model is told before everything else.")
    ] = None
    tools: Annotated[
        list[JSON] | None,
        Meta(description="The tools the model may use: the client's, and those that the server executes."),
    ] = None
    tool_choice: Annotated[AnyToolChoice | None, Meta(description="Which of them it must use.")] = None
    mcp_servers: Annotated[list[McpServer] | None, Meta(description="MCP servers that `mcp_toolset` tools name.")] = (
        None
    )
    thinking: Annotated[
        ThinkingShown | ThinkingOff | None, Meta(description="Whether the model thinks, and shows that.")
    ] = None
    output_config: Annotated[
        OutputConfig | None, Meta(description="How hard the model tries, and a schema for its answer.")
    ] = None
    output_format: Annotated[
        OutputFormat | None, Meta(description="`output_config.format`, as older clients say it.")
    ] = None
    cache_control: Annotated[CacheControl | None, _IGNORED] = None
    context_management: Annotated[JSON | None, _IGNORED] = None
    speed: Annotated[str | None, _IGNORED] = None
    user_profile_id: Annotated[str | None, _IGNORED] = None
    workspace_id: Annotated[str | None, _IGNORED] = None
    betas: Annotated[list[str] | None, _IGNORED] = None


Stop = Annotated[str, Meta(min_length=1, max_length=200)]


class CreateMessage(CountMessages, kw_only=True, forbid_unknown_fields=True):
    """A request for a message."""

    max_tokens: Annotated[int, Meta(ge=1, description="How many tokens may be generated, thoughts included.")]
    stream: Annotated[bool | None, Meta(description="Whether to answer with server-sent events.")] = None
    stop_sequences: Annotated[
        Annotated[list[Stop], Meta(max_length=32)] | None, Meta(description="Texts at which the answer ends.")
    ] = None
    temperature: Annotated[
        Annotated[float, Meta(ge=0, le=1)] | None, Meta(description="How freely the model chooses its words.")
    ] = None
    top_p: Annotated[
        Annotated[float, Meta(ge=0, le=1)] | None, Meta(description="The share of likely words it chooses from.")
    ] = None
    top_k: Annotated[
        Annotated[int, Meta(ge=0)] | None,
        Meta(description="How many words it chooses from, if `parameters` of the backend names `top_k`."),
    ] = None
    metadata: Annotated[MessageMetadata | None, Meta(description="A stable name for your end user.")] = None
    store: Annotated[
        bool | None,
        Meta(description="Whether the answer is kept as a response; not part of Anthropic's API."),
    ] = None
    service_tier: Annotated[Literal["auto", "standard_only"] | None, _IGNORED] = None
    container: Annotated[str | JSON | None, _IGNORED] = None
    diagnostics: Annotated[JSON | None, _IGNORED] = None
    inference_geo: Annotated[str | None, _IGNORED] = None
    # Known, and refused by name: without them a request means something else.
    thread: Annotated[JSON | None, _REFUSED] = None
    compaction: Annotated[JSON | None, _REFUSED] = None


M = TypeVar("M", bound=CountMessages)

_fields_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])
# Made with the first request: that takes as long as importing a module.
_create_decoder = functools.cache(lambda: msgspec.json.Decoder(CreateMessage))
_message_decoder = functools.cache(lambda: msgspec.json.Decoder(MessageInput))
_count_decoder = functools.cache(lambda: msgspec.json.Decoder(CountMessages))


def decode_create_message(body: bytes | bytearray, *, beta: bool = False) -> CreateMessage:
    """Read a request; what does not fit is a BadRequestError that names the field.

    Whoever takes part in a `beta` may send fields that nobody knows here: they are ignored.
    """
    return _read(_create_decoder(), body, beta=beta)


def decode_count_messages(body: bytes | bytearray, *, beta: bool = False) -> CountMessages:
    """Read a request to count tokens, as one for a message is read."""
    return _read(_count_decoder(), body, beta=beta)


def _read(decoder: msgspec.json.Decoder[M], body: bytes | bytearray, *, beta: bool) -> M:
    try:
        return decode_body(decoder, body, "messages", _message_decoder())
    except BadRequestError as error:
        if not beta or error.code != UNKNOWN_PARAMETER:
            raise
    known = _known(body, decoder.type.__struct_fields__)
    return decode_body(decoder, known, "messages", _message_decoder())


def _known(body: bytes | bytearray, fields: Collection[str]) -> bytes:
    """Return a request without the fields that are not among these."""
    found = _fields_decoder.decode(body)
    return msgspec.json.encode({name: value for name, value in found.items() if name in fields})
