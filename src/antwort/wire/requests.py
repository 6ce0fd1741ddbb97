"""The bodies of requests that make something: a response, a compacted window."""

import contextlib
import functools
from collections.abc import Collection
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct

from antwort.concurrency.large_work import MUCH
from antwort.errors import BadRequestError
from antwort.types import JSON
from antwort.wire.field_errors import UNKNOWN_PARAMETER, field_error, no_json, read_document
from antwort.wire.items import AnyTool, InputItem

# --- what objects in a body say: how the answer is written, thought about, cached, compacted -------------------------


Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
Summary = Literal["auto", "concise", "detailed"]
ServiceTier = Literal["auto", "default", "flex", "scale", "priority", "fast", "ultrafast"]
CacheRetention = Literal["in_memory", "in-memory", "24h"]
"""How long a prompt stays cached; the second is how the first was spelt before."""

INCLUDES = frozenset(
    {
        "message.output_text.logprobs",
        "message.input_image.image_url",
        "reasoning.encrypted_content",
        "code_interpreter_call.outputs",
        "computer_call_output.output.image_url",
    }
)
"""Values of `include` that belong to no function; those of hosted tools are declared by them."""


def is_include(value: str) -> bool:
    """Tell whether a request may ask for something to be included.

    A hosted tool that is not offered has nothing to include; clients send its values all the same.
    """
    return value in INCLUDES or "_call." in value


IGNORED = Meta(description="Taken and ignored.")


class Options(Struct, kw_only=True, forbid_unknown_fields=True):
    """An object of a request. Whatever may be left out may be null."""


class TextConfig(Options):
    """How the answer's text is to be written."""

    format: Annotated[
        JSON | None,
        Meta(description='`{"type": "text"}`, `json_object`, or `json_schema` with `name`, `schema` and `strict`.'),
    ] = None
    verbosity: Annotated[Literal["low", "medium", "high"] | None, Meta(description="How much the model says.")] = None


class ReasoningOptions(Options):
    """How much the model should think, and what it shows of it."""

    effort: Annotated[Effort | None, Meta(description="How much it thinks.")] = None
    summary: Annotated[Summary | None, Meta(description="How its thoughts are summed up.")] = None
    generate_summary: Annotated[Summary | None, Meta(description="The older name of `summary`.")] = None
    context: Annotated[Literal["auto", "current_turn", "all_turns"] | None, IGNORED] = None
    mode: Annotated[str | None, IGNORED] = None


class PromptReference(Options):
    """A prompt that the server keeps, and what is to be in its places."""

    id: Annotated[str, Meta(min_length=1, max_length=256, description="Its id.")]
    version: Annotated[str | int | None, Meta(description="One of its versions; the default one if not given.")] = None
    variables: Annotated[
        dict[str, str | JSON] | None,
        Meta(description="Texts by the names of variables; or parts of content with a text, an image or a file."),
    ] = None


class StreamOptions(Options):
    """Options of a stream."""

    include_obfuscation: Annotated[bool | None, IGNORED] = None


class CacheOptions(Options):
    """How prompts are cached; the model server does as it does."""

    mode: Annotated[Literal["implicit", "explicit"] | None, IGNORED] = None
    ttl: Annotated[Literal["30m", "12h"] | None, IGNORED] = None
    prewarm: Annotated[bool | None, IGNORED] = None
    comparison_response_id: Annotated[str | None, IGNORED] = None


class AccessPrograms(Options):
    """Programs of OpenAI that an account takes part in."""

    cyber: Annotated[Literal["standard", "daybreak_blue", "daybreak_red"] | None, IGNORED] = None


class ImageOptions(Options):
    """How images in the window are kept small."""

    context_compression: Annotated[Literal["auto", "enabled", "disabled"] | None, IGNORED] = None


class ContextManagement(Options):
    """When the window is to be compacted."""

    type: Annotated[Literal["compaction"], Meta(description="Always `compaction`.")]
    compact_threshold: Annotated[
        Annotated[int, Meta(ge=1)] | None, Meta(description="How many tokens in the window are too many.")
    ] = None


class ConversationReference(Options):
    """A conversation by its id."""

    id: str


class MultiAgent(Struct, forbid_unknown_fields=True):
    """Whether the model may start sub-agents, shown as the items of OpenAI's beta."""

    enabled: bool
    max_concurrent_subagents: Annotated[int, Meta(ge=1)] | None = None


# --- bodies ----------------------------------------------------------------------------------------------------------


S = TypeVar("S", bound=Struct)
Key = Annotated[str, Meta(max_length=64)]
Metadata = Annotated[dict[Key, Annotated[str, Meta(max_length=512)] | None], Meta(max_length=16)]
Temperature = Annotated[
    Annotated[float, Meta(ge=0, le=2)] | None, Meta(description="How freely the model chooses its words.")
]
TopP = Annotated[
    Annotated[float, Meta(ge=0, le=1)] | None, Meta(description="The share of likely words it chooses from.")
]
PresencePenalty = Annotated[
    Annotated[float, Meta(ge=-2, le=2)] | None, Meta(description="How much it avoids words that were used.")
]
FrequencyPenalty = Annotated[
    Annotated[float, Meta(ge=-2, le=2)] | None,
    Meta(description="How much it avoids words the more often they were used."),
]

_MODEL = Meta(description="The model to ask; the default model if it is left out.")
_INPUT = Meta(description="A text, or a list of items.")
_REFUSED = Meta(description="Refused: the server has nothing of the kind.")


MULTI_AGENT_BETA = "responses_multi_agent=v1"
"""What the header `openai-beta` has in requests with `multi_agent`."""


class CreateResponse(Struct, kw_only=True, forbid_unknown_fields=True):
    """A request for a response. Items, tools and tool choices stay JSON here; the engine reads them by type."""

    model: Annotated[str | None, _MODEL] = None
    input: Annotated[str | list[InputItem] | None, _INPUT] = None
    instructions: Annotated[
        str | None, Meta(description="What the model is told before everything else; not kept for the next response.")
    ] = None
    previous_response_id: Annotated[str | None, Meta(description="A response to continue.")] = None
    conversation: Annotated[
        str | ConversationReference | None,
        Meta(description="A conversation to continue, by id or as an object with its id."),
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
        Metadata | None,
        Meta(description="Up to 16 pairs of text of your own, returned with the response; null leaves one out."),
    ] = None
    text: Annotated[
        TextConfig | None, Meta(description="How the text is to be written: plain, or as JSON that fits a schema.")
    ] = None
    temperature: Temperature = None
    top_p: TopP = None
    presence_penalty: PresencePenalty = None
    frequency_penalty: FrequencyPenalty = None
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
    background: Annotated[bool | None, Meta(description="Whether to answer at once and work on.")] = None
    store: Annotated[
        bool | None, Meta(description="Whether the response is kept, so that it can be fetched and continued.")
    ] = None
    truncation: Annotated[
        Literal["auto", "disabled"] | None,
        Meta(description="What happens if the window is full: `auto` leaves out the oldest, `disabled` is an error."),
    ] = None
    service_tier: Annotated[
        ServiceTier | None,
        Meta(description="Passed on to the model server."),
    ] = None
    safety_identifier: Annotated[
        Annotated[str, Meta(max_length=128)] | None, Meta(description="A stable name for your end user.")
    ] = None
    prompt_cache_key: Annotated[
        Annotated[str, Meta(max_length=128)] | None, Meta(description="A name for requests that begin alike.")
    ] = None
    prompt_cache_retention: Annotated[CacheRetention | None, IGNORED] = None
    prompt_cache_options: Annotated[CacheOptions | None, IGNORED] = None
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
    prompt: Annotated[
        PromptReference | None,
        Meta(description="A prompt that the server keeps, for the beginning of the instructions."),
    ] = None
    # Known, and refused by name where they would change what the request means.
    moderation: Annotated[JSON | None, _REFUSED] = None
    access_programs: Annotated[AccessPrograms | None, IGNORED] = None
    client_metadata: Annotated[dict[str, str] | None, IGNORED] = None
    image: Annotated[ImageOptions | None, IGNORED] = None


def wants_summary(create: CreateResponse) -> bool:
    """Tell whether a request asks for a summary of the model's thoughts."""
    asked = create.reasoning
    return asked is not None and (asked.summary or asked.generate_summary) is not None


def implied_tools(create: CreateResponse) -> list[JSON]:
    """Return the tools that a request asks for by parameters of their own."""
    asked = create.multi_agent is not None and create.multi_agent.enabled
    return [{"type": "multi_agent"}] if asked else []


class CountInput(CreateResponse, kw_only=True):
    """A request to count the tokens of one for a response."""

    personality: Annotated[str | None, IGNORED] = None


class CompactRequest(Struct, kw_only=True, forbid_unknown_fields=True):
    """A request for a window that means the same and is shorter."""

    model: Annotated[str | None, _MODEL]
    input: Annotated[str | list[InputItem] | None, _INPUT] = None
    previous_response_id: Annotated[str | None, Meta(description="A response whose window is compacted.")] = None
    instructions: Annotated[str | None, Meta(description="What the model is told before everything else.")] = None
    prompt_cache_key: Annotated[Annotated[str, Meta(max_length=128)] | None, IGNORED] = None
    prompt_cache_retention: Annotated[CacheRetention | None, IGNORED] = None
    prompt_cache_options: Annotated[CacheOptions | None, IGNORED] = None
    service_tier: Annotated[ServiceTier | None, IGNORED] = None
    image: Annotated[ImageOptions | None, IGNORED] = None


class ChatRequest(Struct, kw_only=True):
    """A request for a chat completion. Whatever else is in it is the model server's business."""

    messages: Annotated[list[JSON], Meta(description="What was said so far.")]
    model: Annotated[str | None, _MODEL] = None
    stream: Annotated[bool | None, Meta(description="Whether to answer with server-sent events.")] = None
    store: Annotated[
        bool | None, Meta(description="Whether the completion is kept, so that it can be fetched and listed.")
    ] = None
    metadata: Annotated[Metadata | None, Meta(description="With `store`, up to 16 pairs of text to find it by.")] = None


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


class ModerationRequest(Struct, kw_only=True):
    """A request to judge texts and images. Whatever else is in it is the model server's business."""

    input: Annotated[str | list[str | JSON], Meta(description="A text, a list of texts, or texts and images as parts.")]
    model: Annotated[str | None, _MODEL] = None


class ImagesRequest(Struct, kw_only=True):
    """A request for images. Whatever else is in it is the model server's business."""

    prompt: Annotated[str, Meta(description="What is to be seen.")]
    model: Annotated[str | None, _MODEL] = None
    stream: Annotated[bool | None, Meta(description="Whether to answer with server-sent events.")] = None


C = TypeVar("C", bound=CreateResponse)

_fields_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])
_items_decoder = msgspec.json.Decoder(list[msgspec.Raw])
_item_decoder = msgspec.json.Decoder(JSON)
_value_decoder = msgspec.json.Decoder()
# Those of requests are made with the first of them: that takes as long as importing a module.
_create_decoder = functools.cache(lambda: msgspec.json.Decoder(CreateResponse))
_count_decoder = functools.cache(lambda: msgspec.json.Decoder(CountInput))
_compact_decoder = functools.cache(lambda: msgspec.json.Decoder(CompactRequest))


def decode_create(body: bytes | bytearray | str) -> CreateResponse:
    """Read a request; what does not fit is a BadRequestError that names the parameter.

    Fields beyond the API are put into its `extra_body`: whether a model server takes them is not known here.
    """
    return _decoded_beyond(_create_decoder(), body)


def decode_count(body: bytes | bytearray | str) -> CountInput:
    """Read a request to count tokens, as one for a response is read."""
    return _decoded_beyond(_count_decoder(), body)


def _decoded_beyond(decoder: msgspec.json.Decoder[C], body: bytes | bytearray | str) -> C:
    try:
        return _decoded(decoder, body)
    except BadRequestError as error:
        if error.code != UNKNOWN_PARAMETER:
            raise
        known, beyond = _parted(body, decoder.type.__struct_fields__)
        if not beyond:
            raise
    create = _decoded(decoder, known)
    create.extra_body = {**(create.extra_body or {}), **beyond}
    return create


def _parted(body: bytes | bytearray | str, known: Collection[str]) -> tuple[bytes, JSON]:
    """Return a request without the fields beyond the API, and these."""
    try:
        fields = _fields_decoder.decode(body)
        beyond = [name for name in fields if name not in known]
        values = {name: _value_decoder.decode(fields.pop(name)) for name in beyond}
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise no_json(body, error) from None
    return msgspec.json.encode(fields), values


def decode_compact(body: bytes | bytearray | str) -> CompactRequest:
    """Read a request for compaction; what does not fit is a BadRequestError that names the parameter."""
    return _decoded(_compact_decoder(), body)


def _decoded(decoder: msgspec.json.Decoder[S], body: bytes | bytearray | str) -> S:
    return decode_body(decoder, body, "input", _item_decoder)


def decode_body(
    decoder: msgspec.json.Decoder[S], body: bytes | bytearray | str, long: str, part: msgspec.json.Decoder[Any]
) -> S:
    """Read a request whose field `long` may be long, part by part then; a BadRequestError names what does not fit."""
    if len(body) >= MUCH:
        with contextlib.suppress(msgspec.MsgspecError, UnicodeError, RecursionError, KeyError):  # to be told below
            return _in_pieces(decoder, body, long, part)
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise field_error(str(error), decoder.type, functools.partial(read_document, body)) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise no_json(body, error) from None


def _in_pieces(
    decoder: msgspec.json.Decoder[S], body: bytes | bytearray | str, long: str, part: msgspec.json.Decoder[Any]
) -> S:
    """Read a large request part by part: no step takes so long that other threads would have to wait."""
    fields = _fields_decoder.decode(body)
    parts = _items_decoder.decode(fields[long])
    request = decoder.decode(msgspec.json.encode({**fields, long: parts[:1]}))
    setattr(request, long, [part.decode(one) for one in parts])
    return request
