"""Reading the answer of an embeddings endpoint: OpenAI's, and what others make of it."""

import base64
import binascii
import struct
from typing import Any

import msgspec

__all__ = ["read_vectors"]


_MOST = 1e30
"""What a coordinate may be: databases keep 32 bits of it."""


class _Entry(msgspec.Struct):
    embedding: list[float] | str
    index: int | None = None


class _Answer(msgspec.Struct):
    data: list[_Entry]


_DECODER = msgspec.json.Decoder(_Answer)


def read_vectors(body: bytes, count: int) -> list[list[float]]:
    """Return the vectors in the order of their texts; raise ValueError unless there are `count` of one length."""
    try:
        entries = _DECODER.decode(body).data
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise ValueError(f"not a list of embeddings: {error}") from error
    if len(entries) != count:
        raise ValueError(f"{len(entries)} vectors for {count} texts")
    placed: dict[int, list[float]] = {}
    for position, entry in enumerate(entries):
        placed[position if entry.index is None else entry.index] = _vector(entry.embedding)
    if placed.keys() != set(range(count)):
        raise ValueError("the vectors are not numbered from 0, each once")
    lengths = {len(vector) for vector in placed.values()}
    if len(lengths) > 1:
        raise ValueError(f"vectors of different lengths: {sorted(lengths)}")
    return [placed[index] for index in range(count)]


def _vector(given: list[float] | str) -> list[float]:
    """Return the numbers of a vector, which may be packed: 32-bit floats, low byte first, in base64."""
    vector = _unpacked(given) if isinstance(given, str) else given
    if not vector:
        raise ValueError("a vector is empty")
    if not all(-_MOST <= number <= _MOST for number in vector):  # false for what is no number, too
        raise ValueError("a vector has numbers that are none, or too large")
    return vector


def _unpacked(packed: str) -> list[float]:
    try:
        raw = base64.b64decode(packed, validate=True)
        numbers: tuple[Any, ...] = struct.unpack(f"<{len(raw) // 4}f", raw)
    except (binascii.Error, ValueError, struct.error) as error:
        raise ValueError(f"a vector is not in base64: {error}") from error
    return list(numbers)
