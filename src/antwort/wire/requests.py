"""The bodies of requests that make something: a response, a compacted window."""

import contextlib
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct

from antwort.concurrency.large_work import MUCH
from antwort.errors import BadRequestError, did_you_mean
from antwort.types import JSON

S = TypeVar("S", bound=Struct)
Key = Annotated[str, Meta(max_length=64)]


class TextConfig(Struct, kw_only=True, forbid_unknown_fields=True):
    """How the answer's text is to be written."""

    format: JSON | None = None
    verbosity: Literal["low", "medium", "high"] | None = None


class ReasoningOptions(Struct, kw_only=True):
    """How much the model should think, and what it shows of it."""

    effort: str | None = None
    summary: str | None = None
    generate_summary: str | None = None


class StreamOptions(Struct, kw_only=True):
    """Options of a stream."""

    include_obfuscation: bool | None = None


class ContextManagement(Struct, kw_only=True, forbid_unknown_fields=True):
    """When the window is to be compacted."""

    type: Literal["compaction"]
    compact_threshold: Annotated[int, Meta(ge=1)] | None = None
    """Tokens in the window from which on it is."""


class CreateResponse(Struct, kw_only=True, forbid_unknown_fields=True):
    """A request for a response. Items, tools and tool choices stay JSON here; the engine reads them by type."""

    model: str | None = None
    input: str | list[JSON] | None = None
    instructions: str | None = None
    previous_response_id: str | None = None
    conversation: str | JSON | None = None
    include: list[str] | None = None
    tools: list[JSON] | None = None
    tool_choice: str | JSON | None = None
    parallel_tool_calls: bool | None = None
    metadata: Annotated[dict[Key, Annotated[str, Meta(max_length=512)]], Meta(max_length=16)] | None = None
    text: TextConfig | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    presence_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    frequency_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    max_output_tokens: Annotated[int, Meta(ge=16)] | None = None
    max_tool_calls: Annotated[int, Meta(ge=1)] | None = None
    reasoning: ReasoningOptions | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    background: bool | None = None
    store: bool | None = None
    truncation: Literal["auto", "disabled"] | None = None
    service_tier: Literal["auto", "default", "flex", "scale", "priority", "fast", "ultrafast"] | None = None
    safety_identifier: Annotated[str, Meta(max_length=128)] | None = None
    prompt_cache_key: Annotated[str, Meta(max_length=128)] | None = None
    prompt_cache_retention: str | None = None
    prompt_cache_options: JSON | None = None
    user: str | None = None
    agent: str | None = None
    """An agent profile of the configuration; ours."""
    context_management: list[ContextManagement] | None = None
    # Known, and refused by name where they would change what the request means.
    prompt: JSON | None = None
    moderation: JSON | None = None
    access_programs: Any = None
    image: JSON | None = None


class CompactRequest(Struct, kw_only=True, forbid_unknown_fields=True):
    """A request for a window that means the same and is shorter."""

    model: str
    input: str | list[JSON] | None = None
    previous_response_id: str | None = None
    instructions: str | None = None
    prompt_cache_key: Annotated[str, Meta(max_length=128)] | None = None
    prompt_cache_retention: str | None = None
    prompt_cache_options: JSON | None = None
    service_tier: str | None = None


_create_decoder = msgspec.json.Decoder(CreateResponse)
_compact_decoder = msgspec.json.Decoder(CompactRequest)
_fields_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])
_items_decoder = msgspec.json.Decoder(list[msgspec.Raw])
_item_decoder = msgspec.json.Decoder(JSON)
_PLACE = re.compile(r" - at `\$?\.?(.*)`$")
_MISSING = re.compile(r"missing required field `(.*?)`")
_UNKNOWN = re.compile(r"unknown field `(.*?)`")


def decode_create(body: bytes | bytearray | str) -> CreateResponse:
    """Read a request; what does not fit is a BadRequestError that names the parameter."""
    return _decoded(_create_decoder, body)


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
        raise BadRequestError(f"The body is not valid JSON: {error}.", code="invalid_json") from None


def _in_pieces(decoder: msgspec.json.Decoder[S], body: bytes | bytearray | str) -> S:
    """Read a large request item by item: no step takes so long that other threads would have to wait."""
    fields = _fields_decoder.decode(body)
    items = _items_decoder.decode(fields.pop("input", b""))
    request: Any = decoder.decode(msgspec.json.encode(fields))
    request.input = [_item_decoder.decode(item) for item in items]
    whole: S = request
    return whole


def _invalid(message: str, kind: type[S]) -> BadRequestError:
    place = _PLACE.search(message)
    param = place.group(1) if place else None
    unknown = _UNKNOWN.search(message)
    if unknown is not None:
        name = unknown.group(1)
        param = f"{param}.{name}" if param else name
        hint = did_you_mean(name, kind.__struct_fields__)
        return BadRequestError(f"Unknown parameter: '{param}'{hint or '.'}", param=param, code="unknown_parameter")
    missing = _MISSING.search(message)
    if missing is not None:
        param = f"{param}.{missing.group(1)}" if param else missing.group(1)
        return BadRequestError(
            f"Missing required parameter: '{param}'.", param=param, code="missing_required_parameter"
        )
    reason = _PLACE.sub("", message)
    if not param:
        return BadRequestError(f"The body must be a JSON object: {reason}.", code="invalid_type")
    return BadRequestError(f"Invalid value for '{param}': {reason}.", param=param, code="invalid_value")


def read_type(value: Mapping[str, Any], param: str) -> str:
    """Return the `type` of an object of a request; BadRequestError names it if it is missing or is not a string."""
    kind = value.get("type")
    if isinstance(kind, str):
        return kind
    place = f"{param}.type"
    if kind is None:
        raise BadRequestError(f"Missing required parameter: '{place}'.", param=place, code="missing_required_parameter")
    raise BadRequestError(f"Invalid value for '{place}': it must be a string.", param=place, code="invalid_type")
