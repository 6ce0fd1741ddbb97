"""Requests for chat completions that the engine makes, as clients send them."""

import functools
from collections.abc import Collection, Iterable
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from antwort.errors import BadRequestError
from antwort.types import JSON
from antwort.wire.field_errors import UNKNOWN_PARAMETER, misplaced_parameter, no_json
from antwort.wire.requests import (
    IGNORED,
    CacheOptions,
    CacheRetention,
    CreateResponse,
    Effort,
    FrequencyPenalty,
    Metadata,
    PresencePenalty,
    ServiceTier,
    Temperature,
    TopP,
    decode_body,
)

# --- messages: fields of theirs that nobody knows are ignored, since clients send back what they got ------------------


class ChatText(Struct, tag="text", tag_field="type"):
    """Text."""

    text: str


class ChatRefusal(Struct, tag="refusal", tag_field="type"):
    """What the model has declined."""

    refusal: str


class ImageUrl(Struct):
    """Where an image is, or the image itself."""

    url: str
    detail: Literal["auto", "low", "high"] | None = None


class ChatImage(Struct, tag="image_url", tag_field="type"):
    """An image."""

    image_url: ImageUrl


class FileData(Struct):
    """A file: one of the server, or the bytes of one."""

    file_id: str | None = None
    file_data: str | None = None
    filename: str | None = None


class ChatFile(Struct, tag="file", tag_field="type"):
    """A file."""

    file: FileData


class ChatSound(Struct, tag="input_audio", tag_field="type"):
    """Sound."""

    input_audio: JSON


UserPart = ChatText | ChatImage | ChatFile | ChatSound


class _Message(Struct, kw_only=True, tag_field="role"):
    name: str | None = None


class SystemMessage(_Message, tag="system"):
    """What the operator says."""

    content: str | list[ChatText]


class DeveloperMessage(_Message, tag="developer"):
    """What the operator says, as newer models know it."""

    content: str | list[ChatText]


class UserMessage(_Message, tag="user"):
    """What the user says."""

    content: str | list[UserPart]


class CalledFunction(Struct):
    """A function, and what it was called with."""

    name: str
    arguments: str


class ChatFunctionCall(Struct, tag="function", tag_field="type"):
    """A call of a function of the client."""

    id: str
    function: CalledFunction


class CalledTool(Struct):
    """A tool, and the text that it was called with."""

    name: str
    input: str


class ChatToolCall(Struct, tag="custom", tag_field="type"):
    """A call of a tool that takes a text."""

    id: str
    custom: CalledTool


class AssistantMessage(_Message, tag="assistant"):
    """What the model has said."""

    content: str | list[ChatText | ChatRefusal] | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[ChatFunctionCall | ChatToolCall] | None = None
    function_call: JSON | None = None


class ToolMessage(_Message, tag="tool"):
    """What has come of a call."""

    content: str | list[ChatText]
    tool_call_id: str


class FunctionMessage(_Message, tag="function"):
    """What has come of a call, as it was said before there were tools."""

    content: str | None = None


ChatMessage = SystemMessage | DeveloperMessage | UserMessage | AssistantMessage | ToolMessage | FunctionMessage

# --- the request ------------------------------------------------------------------------------------------------------


class ChatStreamOptions(Struct, forbid_unknown_fields=True):
    """Options of a stream."""

    include_usage: Annotated[bool | None, Meta(description="Whether a last chunk tells the usage.")] = None
    include_obfuscation: Annotated[bool | None, IGNORED] = None


_REFUSED = Meta(description="Refused: the server has nothing of the kind.")
_OF_SERVER = Meta(description="Passed on, if `parameters` of the backend names it; else refused.")


class CreateChat(Struct, kw_only=True, forbid_unknown_fields=True):
    """A request for a chat completion that the engine makes."""

    messages: Annotated[list[ChatMessage], Meta(min_length=1, description="What was said so far.")]
    model: Annotated[str | None, Meta(description="The model to ask; the default model if it is left out.")] = None
    tools: Annotated[
        list[JSON] | None,
        Meta(description="The tools the model may use: the client's, and those that the server executes."),
    ] = None
    tool_choice: Annotated[str | JSON | None, Meta(description="Which of them it must use.")] = None
    parallel_tool_calls: Annotated[
        bool | None, Meta(description="Whether the model may call several tools in one turn.")
    ] = None
    response_format: Annotated[JSON | None, Meta(description="Plain text, JSON, or JSON that fits a schema.")] = None
    max_completion_tokens: Annotated[
        Annotated[int, Meta(ge=1)] | None, Meta(description="How many tokens may be generated, thoughts included.")
    ] = None
    max_tokens: Annotated[
        Annotated[int, Meta(ge=1)] | None, Meta(description="The older name of `max_completion_tokens`.")
    ] = None
    stop: Annotated[
        str | Annotated[list[str], Meta(max_length=4)] | None, Meta(description="Texts at which the answer ends.")
    ] = None
    temperature: Temperature = None
    top_p: TopP = None
    presence_penalty: PresencePenalty = None
    frequency_penalty: FrequencyPenalty = None
    reasoning_effort: Annotated[Effort | None, Meta(description="How much the model thinks.")] = None
    verbosity: Annotated[Literal["low", "medium", "high"] | None, Meta(description="How much it says.")] = None
    logprobs: Annotated[bool | None, Meta(description="Whether tokens come with their probability.")] = None
    top_logprobs: Annotated[
        Annotated[int, Meta(ge=0, le=20)] | None, Meta(description="How many alternatives of each come, too.")
    ] = None
    n: Annotated[int | None, Meta(description="How many answers are made: one.")] = None
    stream: Annotated[bool | None, Meta(description="Whether to answer with server-sent events.")] = None
    stream_options: Annotated[ChatStreamOptions | None, Meta(description="Options of the stream.")] = None
    store: Annotated[bool | None, Meta(description="Whether the completion and its response are kept.")] = None
    metadata: Annotated[Metadata | None, Meta(description="Up to 16 pairs of text of your own.")] = None
    web_search_options: Annotated[JSON | None, Meta(description="Lets the model search the web.")] = None
    user: Annotated[str | None, Meta(description="A stable name for your end user.")] = None
    safety_identifier: Annotated[
        Annotated[str, Meta(max_length=128)] | None, Meta(description="The newer name of `user`.")
    ] = None
    prompt_cache_key: Annotated[
        Annotated[str, Meta(max_length=128)] | None, Meta(description="A name for requests that begin alike.")
    ] = None
    service_tier: Annotated[ServiceTier | None, Meta(description="Passed on to the model server.")] = None
    agent: Annotated[
        str | None, Meta(description="An agent profile of the configuration; not part of the OpenAI API.")
    ] = None
    seed: Annotated[int | None, _OF_SERVER] = None
    logit_bias: Annotated[JSON | None, _OF_SERVER] = None
    extra_body: Annotated[
        JSON | None, Meta(description="Further fields of the model server's own; they may stand beside the others.")
    ] = None
    modalities: Annotated[list[str] | None, Meta(description="What the answer is: `text`.")] = None
    prediction: Annotated[JSON | None, IGNORED] = None
    prompt_cache_retention: Annotated[CacheRetention | None, IGNORED] = None
    prompt_cache_options: Annotated[CacheOptions | None, IGNORED] = None
    # Known, and refused by name: without them a request means something else.
    audio: Annotated[JSON | None, _REFUSED] = None
    functions: Annotated[list[Any] | None, _REFUSED] = None
    function_call: Annotated[str | JSON | None, _REFUSED] = None
    moderation: Annotated[JSON | None, _REFUSED] = None


_OF_RESPONSES = {
    "input": "'messages'",
    "instructions": "a message with the role 'developer'",
    "max_output_tokens": "'max_completion_tokens'",
    "text": "'response_format' and 'verbosity'",
    "reasoning": "'reasoning_effort'",
    "prompt": "'messages', or /v1/responses with a prompt of the server",
}
"""What has another name in the Responses API, by that name."""
_RESPONSES = "/v1/responses"
"""Where the rest of it is."""
OF_SERVERS = ("seed", "logit_bias")
"""Fields that are the model server's own."""


class SentChat(Struct, frozen=True):
    """A request, and its messages as they were sent."""

    chat: CreateChat
    messages: msgspec.Raw


_fields_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])
# Made with the first request: that takes as long as importing a module.
_chat_decoder = functools.cache(lambda: msgspec.json.Decoder(CreateChat))
_message_decoder = functools.cache(lambda: msgspec.json.Decoder(ChatMessage))


def decode_chat(body: bytes | bytearray) -> SentChat:
    """Read a request; what does not fit is a BadRequestError that names the field.

    Fields beyond the API are put into its `extra_body`: whether a model server takes them is not known here.
    """
    try:
        chat = _decoded(body)
    except BadRequestError as error:
        if error.code != UNKNOWN_PARAMETER:
            raise
        known, beyond = _parted(body, CreateChat.__struct_fields__)
        if not beyond:
            raise
        chat = _decoded(known)
        chat.extra_body = {**(chat.extra_body or {}), **beyond}
    _check_beyond(chat.extra_body or ())
    messages = _fields_decoder.decode(body)["messages"] if chat.store else msgspec.Raw(b"[]")
    return SentChat(chat, messages)


def _decoded(body: bytes | bytearray) -> CreateChat:
    return decode_body(_chat_decoder(), body, "messages", _message_decoder())


def _parted(body: bytes | bytearray, known: Collection[str]) -> tuple[bytes, JSON]:
    """Return a request without the fields beyond the API, and these."""
    try:
        fields = _fields_decoder.decode(body)
        values = {name: msgspec.json.decode(fields.pop(name)) for name in [*fields] if name not in known}
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise no_json(body, error) from None
    _check_beyond(values)
    return msgspec.json.encode(fields), values


def _check_beyond(names: Iterable[str]) -> None:
    """Refuse, as fields beyond the API, those that it has itself, and those of the Responses API."""
    for name in names:
        if name in CreateChat.__struct_fields__ and name not in OF_SERVERS:
            raise misplaced_parameter(name)
        if name in CreateResponse.__struct_fields__:
            raise BadRequestError(
                f"Unknown parameter: '{name}'; this is Chat Completions: use {_OF_RESPONSES.get(name, _RESPONSES)}.",
                param=name,
                code=UNKNOWN_PARAMETER,
            )
