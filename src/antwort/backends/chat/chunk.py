"""The shape of a Chat Completions chunk or answer, as wide as servers write it.

Decoding into structs skips everything unknown, which is most of a chunk. Fields whose type differs between servers are
`Any` and read with care; those that have one type everywhere are checked.
"""

from typing import Any

import msgspec
from msgspec import Struct

from antwort.backends.usage import ChatUsage


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


class ChunkChoice(Struct, gc=False):
    """One of the answers; we never ask for more than one."""

    delta: Delta | None = None
    message: Delta | None = None
    finish_reason: str | None = None
    logprobs: Any = None


class ChatChunk(Struct, gc=False):
    """A chunk of a stream, or an answer that came as a whole."""

    choices: list[ChunkChoice] | None = None
    usage: ChatUsage | None = None
    error: Any = None
    message: Any = None
    """Of an error that has no object of its own; likewise the fields below."""
    detail: Any = None
    code: Any = None
    type: Any = None
    param: Any = None


class OddChunk(ChatChunk, gc=False):
    """One that counts tokens in a way of its own, or in which something else is odd."""

    usage: Any = None


decode_chunk = msgspec.json.Decoder(ChatChunk).decode
decode_leniently = msgspec.json.Decoder(OddChunk, strict=False).decode


def decode_whole(body: bytes) -> ChatChunk:
    """Read an answer that came as a whole, leniently if need be."""
    try:
        return decode_chunk(body)
    except msgspec.ValidationError:
        return decode_leniently(body)
