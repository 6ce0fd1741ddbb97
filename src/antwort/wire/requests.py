"""The bodies of requests that make something: a response, a compacted window."""

import contextlib
import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct

from antwort.concurrency.large_work import MUCH
from antwort.errors import BadRequestError, did_you_mean
from antwort.types import JSON
from antwort.wire.items import AnyTool, InputItem

S = TypeVar("S", bound=Struct)
UNKNOWN_PARAMETER = "unknown_parameter"
"""The code of an error about a field that no request has."""
Key = Annotated[str, Meta(max_length=64)]

_MODEL = Meta(description="The model to ask; the default model if it is left out.")
_INPUT = Meta(description="A text, or a list of items.")
_REFUSED = Meta(description="Refused: the server has nothing of the kind.")
_IGNORED = Meta(description="Taken and ignored.")


class TextConfig(Struct, kw_only=True, forbid_unknown_fields=True):
    """How the answer's text is to be written."""

    format: Annotated[
        JSON | None,
        Meta(description='`{"type": "text"}`, `json_object`, or `json_schema` with `name`, `schema` and `strict`.'),
    ] = None
    verbosity: Annotated[Literal["low", "medium", "high"] | None, Meta(description="How much the model says.")] = None


class ReasoningOptions(Struct, kw_only=True):
    """How much the model should think, and what it shows of it."""

    effort: Annotated[str | None, Meta(description="How much it thinks, in the model server's own words.")] = None
    summary: Annotated[
        str | None, Meta(description="How its thoughts are summed up, in the model server's own words.")
    ] = None
    generate_summary: Annotated[str | None, Meta(description="The older name of `summary`.")] = None


class StreamOptions(Struct, kw_only=True):
    """Options of a stream."""

    include_obfuscation: Annotated[bool | None, _IGNORED] = None


class ContextManagement(Struct, kw_only=True, forbid_unknown_fields=True):
    """When the window is to be compacted."""

    type: Annotated[Literal["compaction"], Meta(description="Always `compaction`.")]
    compact_threshold: Annotated[
        Annotated[int, Meta(ge=1)] | None, Meta(description="How many tokens in the window are too many.")
    ] = None


MULTI_AGENT_BETA = "responses_multi_agent=v1"
"""What the header `openai-beta` has in requests with `multi_agent`."""


class MultiAgent(Struct, forbid_unknown_fields=True):
    """Whether the model may start sub-agents, shown as the items of OpenAI's beta."""

    enabled: bool
    max_concurrent_subagents: Annotated[int, Meta(ge=1)] | None = None


class CreateResponse(Struct, kw_only=True, forbid_unknown_fields=True):
    """A request for a response. Items, tools and tool choices stay JSON here; the engine reads them by type."""

    model: Annotated[str | None, _MODEL] = None
    input: Annotated[str | list[InputItem] | None, _INPUT] = None
    instructions: Annotated[
        str | None, Meta(description="What the model is told before everything else; not kept for the next response.")
    ] = None
    previous_response_id: Annotated[str | None, Meta(description="A response to continue.")] = None
    conversation: Annotated[
        str | JSON | None, Meta(description="A conversation to continue, by id or as an object with its id.")
    ] = None
    include: Annotated[list[str] | None, Meta(description="Further data to include in the output.")] = None
    tools: Annotated[list[AnyTool] | None, Meta(description="The tools the model may use.")] = None
    tool_choice: Annotated[
        str | JSON | None,
        Meta(description="Which of them it must use: `auto`, `none`, `required`, or an object that names one."),
    ] = None
    parallel_tool_calls: Annotated[
        bool | None, Meta(description="Whether the model may call several tools in one turn.")
    ] = None
    metadata: Annotated[
        Annotated[dict[Key, Annotated[str, Meta(max_length=512)]], Meta(max_length=16)] | None,
        Meta(description="Up to 16 pairs of text of your own, returned with the response."),
    ] = None
    text: Annotated[
        TextConfig | None, Meta(description="How the text is to be written: plain, or as JSON that fits a schema.")
    ] = None
    temperature: Annotated[
        Annotated[float, Meta(ge=0, le=2)] | None, Meta(description="How freely the model chooses its words.")
    ] = None
    top_p: Annotated[
        Annotated[float, Meta(ge=0, le=1)] | None, Meta(description="The share of likely words it chooses from.")
    ] = None
    presence_penalty: Annotated[
        Annotated[float, Meta(ge=-2, le=2)] | None, Meta(description="How much it avoids words that were used.")
    ] = None
    frequency_penalty: Annotated[
        Annotated[float, Meta(ge=-2, le=2)] | None,
        Meta(description="How much it avoids words the more often they were used."),
    ] = None
    top_logprobs: Annotated[
        Annotated[int, Meta(ge=0, le=20)] | None,
        Meta(description="How many alternatives are returned for each token, with their probability."),
    ] = None
    max_output_tokens: Annotated[
        Annotated[int, Meta(ge=16)] | None, Meta(description="How many tokens may be generated, thoughts included.")
    ] = None
    max_tool_calls: Annotated[
        Annotated[int, Meta(ge=1)] | None, Meta(description="How many tool calls are executed; later ones are not.")
    ] = None
    reasoning: Annotated[
        ReasoningOptions | None, Meta(description="How much the model should think, and what it shows of it.")
    ] = None
    stream: Annotated[bool | None, Meta(description="Whether to answer with server-sent events.")] = None
    stream_options: Annotated[StreamOptions | None, Meta(description="Options of the stream.")] = None
    background: Annotated[bool | None, Meta(description="Whether to answer at once and work on; needs `store`.")] = None
    store: Annotated[
        bool | None, Meta(description="Whether the response is kept, so that it can be fetched and continued.")
    ] = None
    truncation: Annotated[
        Literal["auto", "disabled"] | None,
        Meta(description="What happens if the window is full: `auto` leaves out the oldest, `disabled` is an error."),
    ] = None
    service_tier: Annotated[
        Literal["auto", "default", "flex", "scale", "priority", "fast", "ultrafast"] | None,
        Meta(description="Passed on to the model server."),
    ] = None
    safety_identifier: Annotated[
        Annotated[str, Meta(max_length=128)] | None, Meta(description="A stable name for your end user.")
    ] = None
    prompt_cache_key: Annotated[
        Annotated[str, Meta(max_length=128)] | None, Meta(description="A name for requests that begin alike.")
    ] = None
    prompt_cache_retention: Annotated[str | None, _IGNORED] = None
    prompt_cache_options: Annotated[JSON | None, _IGNORED] = None
    user: Annotated[str | None, Meta(description="The older name of `safety_identifier`.")] = None
    agent: Annotated[
        str | None, Meta(description="An agent profile of the configuration; not part of the OpenAI API.")
    ] = None
    context_management: Annotated[
        list[ContextManagement] | None, Meta(description="When the window is compacted by itself.")
    ] = None
    multi_agent: Annotated[
        MultiAgent | None,
        Meta(description="Sub-agents as in OpenAI's beta; needs the header `openai-beta: responses_multi_agent=v1`."),
    ] = None
    extra_body: Annotated[
        JSON | None,
        Meta(
            description="Fields of the model server's own, such as `top_k`, if its backend takes them; not part of the"
            " OpenAI API. They may stand beside the other fields as well."
        ),
    ] = None
    # Known, and refused by name where they would change what the request means.
    prompt: Annotated[JSON | None, _REFUSED] = None
    moderation: Annotated[JSON | None, _REFUSED] = None
    access_programs: Annotated[Any, _IGNORED] = None
    client_metadata: Annotated[dict[str, str] | None, _IGNORED] = None
    image: Annotated[JSON | None, _REFUSED] = None


def wants_summary(create: CreateResponse) -> bool:
    """Tell whether a request asks for a summary of the model's thoughts."""
    asked = create.reasoning
    return asked is not None and (asked.summary or asked.generate_summary) is not None


def implied_tools(create: CreateResponse) -> list[JSON]:
    """Return the tools that a request asks for by parameters of their own."""
    asked = create.multi_agent is not None and create.multi_agent.enabled
    return [{"type": "multi_agent"}] if asked else []


class CompactRequest(Struct, kw_only=True, forbid_unknown_fields=True):
    """A request for a window that means the same and is shorter."""

    model: Annotated[str, _MODEL]
    input: Annotated[str | list[InputItem] | None, _INPUT] = None
    previous_response_id: Annotated[str | None, Meta(description="A response whose window is compacted.")] = None
    instructions: Annotated[str | None, Meta(description="What the model is told before everything else.")] = None
    prompt_cache_key: Annotated[Annotated[str, Meta(max_length=128)] | None, _IGNORED] = None
    prompt_cache_retention: Annotated[str | None, _IGNORED] = None
    prompt_cache_options: Annotated[JSON | None, _IGNORED] = None
    service_tier: Annotated[str | None, _IGNORED] = None


class ChatRequest(Struct, kw_only=True):
    """A request for a chat completion. Whatever else is in it is the model server's business."""

    messages: Annotated[list[JSON], Meta(description="What was said so far.")]
    model: Annotated[str | None, _MODEL] = None
    stream: Annotated[bool | None, Meta(description="Whether to answer with server-sent events.")] = None


class CompletionRequest(Struct, kw_only=True):
    """A request for the completion of a text. Whatever else is in it is the model server's business."""

    prompt: Annotated[
        str | list[str | int | list[int]] | None,
        Meta(description="What is to be completed: a text, or a list of texts or tokens."),
    ] = None
    model: Annotated[str | None, _MODEL] = None
    stream: Annotated[bool | None, Meta(description="Whether to answer with server-sent events.")] = None


class EmbeddingsRequest(Struct, kw_only=True):
    """A request for embeddings. Whatever else is in it is the model server's business."""

    input: Annotated[str | list[str | int | list[int]], Meta(description="A text, or a list of texts or tokens.")]
    model: Annotated[str | None, _MODEL] = None


_create_decoder = msgspec.json.Decoder(CreateResponse)
_compact_decoder = msgspec.json.Decoder(CompactRequest)
_fields_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])
_items_decoder = msgspec.json.Decoder(list[msgspec.Raw])
_item_decoder = msgspec.json.Decoder(JSON)
_value_decoder = msgspec.json.Decoder()
_CREATE_FIELDS = frozenset(CreateResponse.__struct_fields__)
_PARAM = re.compile(r" - at `\$?\.?(.*)`$")
_MISSING = re.compile(r"missing required field `(.*?)`")
_OF_CHAT = {
    "messages": "'input', which takes a text or a list of messages",
    "max_tokens": "'max_output_tokens'",
    "max_completion_tokens": "'max_output_tokens'",
    "response_format": "'text.format'",
    "reasoning_effort": "'reasoning.effort'",
}
"""What has another name in Chat Completions, by that name."""
_UNKNOWN = re.compile(r"unknown field `(.*?)`")


def decode_create(body: bytes | bytearray | str) -> CreateResponse:
    """Read a request; what does not fit is a BadRequestError that names the parameter.

    Fields beyond the API are put into its `extra_body`: whether a model server takes them is not known here.
    """
    try:
        return _decoded(_create_decoder, body)
    except BadRequestError as error:
        if error.code != UNKNOWN_PARAMETER:
            raise
        known, beyond = _parted(body)
        if not beyond:
            raise
    create = _decoded(_create_decoder, known)
    create.extra_body = {**(create.extra_body or {}), **beyond}
    return create


def _parted(body: bytes | bytearray | str) -> tuple[bytes, JSON]:
    """Return a request without the fields beyond the API, and these."""
    try:
        fields = _fields_decoder.decode(body)
        beyond = [name for name in fields if name not in _CREATE_FIELDS]
        values = {name: _value_decoder.decode(fields.pop(name)) for name in beyond}
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _no_json(error) from None
    return msgspec.json.encode(fields), values


def unknown_parameter(param: str, known: Iterable[str], cure: str = "") -> BadRequestError:
    """Return the error for a field that a request cannot have: with the one that was meant, and a cure."""
    if param in _OF_CHAT:
        message = f"Unknown parameter: '{param}'; this is the Responses API: use {_OF_CHAT[param]}."
        return BadRequestError(message, param=param, code=UNKNOWN_PARAMETER)
    hint = did_you_mean(param.rpartition(".")[2], known) or "."
    return BadRequestError(
        f"Unknown parameter: '{param}'{hint}{cure and f' {cure}'}", param=param, code=UNKNOWN_PARAMETER
    )


def decode_compact(body: bytes | bytearray | str) -> CompactRequest:
    """Read a request for compaction; what does not fit is a BadRequestError that names the parameter."""
    return _decoded(_compact_decoder, body)


def _decoded(decoder: msgspec.json.Decoder[S], body: bytes | bytearray | str) -> S:
    if len(body) >= MUCH:
        with contextlib.suppress(msgspec.MsgspecError, UnicodeError, RecursionError):  # to be told below
            return _in_pieces(decoder, body)
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise _invalid(str(error), decoder.type) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _no_json(error) from None


def _no_json(error: Exception) -> BadRequestError:
    return BadRequestError(f"The body is not valid JSON: {error}.", code="invalid_json")


def _in_pieces(decoder: msgspec.json.Decoder[S], body: bytes | bytearray | str) -> S:
    """Read a large request item by item: no step takes so long that other threads would have to wait."""
    fields = _fields_decoder.decode(body)
    items = _items_decoder.decode(fields.pop("input", b""))
    request: Any = decoder.decode(msgspec.json.encode(fields))
    request.input = [_item_decoder.decode(item) for item in items]
    whole: S = request
    return whole


def _invalid(message: str, kind: type[S]) -> BadRequestError:
    found = _PARAM.search(message)
    param = found.group(1) if found else None
    unknown = _UNKNOWN.search(message)
    if unknown is not None:
        name = unknown.group(1)
        param = f"{param}.{name}" if param else name
        return unknown_parameter(param, kind.__struct_fields__)
    missing = _MISSING.search(message)
    if missing is not None:
        param = f"{param}.{missing.group(1)}" if param else missing.group(1)
        return BadRequestError(
            f"Missing required parameter: '{param}'.", param=param, code="missing_required_parameter"
        )
    reason = _PARAM.sub("", message)
    if not param:
        return BadRequestError(f"The body must be a JSON object: {reason}.", code="invalid_type")
    return BadRequestError(f"Invalid value for '{param}': {reason}.", param=param, code="invalid_value")


def read_type(value: Mapping[str, Any], param: str) -> str:
    """Return the `type` of an object of a request; BadRequestError names it if it is missing or is not a string."""
    kind = value.get("type")
    if isinstance(kind, str):
        return kind
    param = f"{param}.type"
    if kind is None:
        raise BadRequestError(f"Missing required parameter: '{param}'.", param=param, code="missing_required_parameter")
    raise BadRequestError(f"Invalid value for '{param}': it must be a string.", param=param, code="invalid_type")
