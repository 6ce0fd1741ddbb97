"""The shape of a Chat Completions chunk or answer, as wide as servers write it.

Decoding into structs skips everything unknown, which is most of a chunk. Fields whose type differs between servers are
`Any` and read with care; those that have one type everywhere are checked.
"""

from typing import Any

import msgspec
from msgspec import Struct

from antwort.wire.usage import InputTokensDetails, OutputTokensDetails, Usage

__all__ = [
    "CallDelta",
    "Chunk",
    "Delta",
    "FunctionDelta",
    "decode_chunk",
    "decode_leniently",
    "logprobs_of",
    "usage_of",
]

JSON = dict[str, Any]


class FunctionDelta(Struct, gc=False):
    """A piece of a call: the name once or every time, arguments as text or as an object."""

    name: str | None = None
    arguments: Any = None


class CallDelta(Struct, gc=False):
    """A piece of one of several calls."""

    index: int | None = None
    id: str | int | None = None
    function: FunctionDelta | None = None


class Delta(Struct, gc=False):
    """A piece of the answer, or all of it."""

    content: Any = None
    reasoning_content: Any = None
    reasoning: Any = None
    reasoning_details: Any = None
    refusal: str | None = None
    tool_calls: list[CallDelta] | None = None
    function_call: FunctionDelta | None = None


class Choice(Struct, gc=False):
    """One of the answers; we never ask for more than one."""

    delta: Delta | None = None
    message: Delta | None = None
    finish_reason: str | None = None
    logprobs: Any = None


class Chunk(Struct, gc=False):
    """A chunk of a stream, or an answer that came as a whole."""

    choices: list[Choice] | None = None
    usage: Any = None
    error: Any = None
    message: Any = None
    """Of an error that has no object of its own; likewise the fields below."""
    detail: Any = None
    code: Any = None
    type: Any = None
    param: Any = None


decode_chunk = msgspec.json.Decoder(Chunk).decode
decode_leniently = msgspec.json.Decoder(Chunk, strict=False).decode


def usage_of(value: Any) -> Usage | None:
    """Read the tokens used in any of the spellings; None if there are none."""
    if not isinstance(value, dict):
        return None
    prompt, completion = _object(value, "prompt_tokens_details"), _object(value, "completion_tokens_details")
    input_tokens = _count(value, "prompt_tokens", "input_tokens")
    output_tokens = _count(value, "completion_tokens", "output_tokens")
    cached = _count(prompt, "cached_tokens") or _count(value, "prompt_cache_hit_tokens", "cache_read_input_tokens")
    written = _count(prompt, "cache_write_tokens", "cache_creation_tokens") or _count(
        value, "cache_creation_input_tokens"
    )
    return Usage(
        input_tokens=input_tokens,
        input_tokens_details=InputTokensDetails(cached, written),
        output_tokens=output_tokens,
        output_tokens_details=OutputTokensDetails(_count(completion, "reasoning_tokens")),
        total_tokens=_count(value, "total_tokens") or input_tokens + output_tokens,
    )


def logprobs_of(value: Any) -> list[JSON] | None:
    """Turn log probabilities into the Responses shape, in which no field is null; None if there are none."""
    content = value.get("content") if isinstance(value, dict) else None
    if not isinstance(content, list) or not content:
        return None
    return [
        {**_logprob(entry), "top_logprobs": [_logprob(top) for top in entry.get("top_logprobs") or ()]}
        for entry in content
        if isinstance(entry, dict)
    ]


def _logprob(entry: JSON) -> JSON:
    token = str(entry.get("token", ""))
    encoded = entry.get("bytes")
    return {
        "token": token,
        "bytes": list(token.encode(errors="replace")) if encoded is None else encoded,
        "logprob": entry.get("logprob") or 0.0,
    }


def _object(value: JSON, name: str) -> JSON:
    inner = value.get(name)
    return inner if isinstance(inner, dict) else {}


def _count(value: JSON, *names: str) -> int:
    for name in names:
        number = value.get(name)
        if isinstance(number, int | float):
            return int(number)
    return 0
