"""The body of `POST /v1/responses`."""

import re
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from antwort.errors import BadRequestError, did_you_mean

__all__ = ["CreateResponse", "Reasoning", "StreamOptions", "TextConfig", "decode_create"]

JSON = dict[str, Any]


class TextConfig(Struct, kw_only=True, forbid_unknown_fields=True):
    """How the answer's text is to be written."""

    format: JSON | None = None
    verbosity: Literal["low", "medium", "high"] | None = None


class Reasoning(Struct, kw_only=True):
    """How much the model should think, and what it shows of it."""

    effort: str | None = None
    summary: str | None = None
    generate_summary: str | None = None


class StreamOptions(Struct, kw_only=True):
    """Options of a stream."""

    include_obfuscation: bool | None = None


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
    metadata: Annotated[dict[str, Annotated[str, Meta(max_length=512)]], Meta(max_length=16)] | None = None
    text: TextConfig | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    presence_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    frequency_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    max_output_tokens: Annotated[int, Meta(ge=16)] | None = None
    max_tool_calls: Annotated[int, Meta(ge=1)] | None = None
    reasoning: Reasoning | None = None
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
    # Known, and refused by name where they would change what the request means.
    prompt: JSON | None = None
    moderation: JSON | None = None
    context_management: list[JSON] | None = None
    access_programs: Any = None
    image: JSON | None = None


_decoder = msgspec.json.Decoder(CreateResponse)
_PLACE = re.compile(r" - at `\$?\.?(.*)`$")
_UNKNOWN = re.compile(r"unknown field `(.*?)`")


def decode_create(body: bytes | str) -> CreateResponse:
    """Read a request; what does not fit is a BadRequestError that names the parameter."""
    try:
        return _decoder.decode(body)
    except msgspec.ValidationError as error:
        raise _invalid(str(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequestError(f"The body is not valid JSON: {error}.", code="invalid_json") from None


def _invalid(message: str) -> BadRequestError:
    place = _PLACE.search(message)
    param = place.group(1) if place else None
    unknown = _UNKNOWN.search(message)
    if unknown is not None:
        name = unknown.group(1)
        param = f"{param}.{name}" if param else name
        hint = did_you_mean(name, CreateResponse.__struct_fields__)
        return BadRequestError(f"Unknown parameter: '{param}'{hint or '.'}", param=param, code="unknown_parameter")
    reason = _PLACE.sub("", message)
    if not param:
        return BadRequestError(f"The body must be a JSON object: {reason}.", code="invalid_type")
    return BadRequestError(f"Invalid value for '{param}': {reason}.", param=param, code="invalid_value")
