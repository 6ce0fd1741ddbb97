"""Chunks that are longer than the embedding model reads: each further window is a point of its own that is never shown.

A window has no text, so that no search by words finds it and nothing is counted twice. Its name is the id of its chunk,
and its index is below 0; file and attributes are the chunk's, so that filters and deletions reach it.
"""

from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID, uuid5

from antwort.extensions import Chunk, Hit

_SPACE = UUID("3d0f3f0e-0b1c-5a77-8f0b-9a4d5f6c2e11")
"""The namespace of the ids of windows."""


def windows_of(chunk: Chunk, vectors: Sequence[Sequence[float]]) -> list[Chunk]:
    """Return the further windows of a chunk, which itself has the vector of the first."""
    return [
        replace(chunk, id=_window_id(chunk.id, number), vector=vector, text="", filename=chunk.id, index=-number)
        for number, vector in enumerate(vectors, start=1)
    ]


def surplus_ids(chunk_id: str, count: int, most: int) -> list[str]:
    """Return the ids of windows that a chunk may have had, and has no more."""
    return [_window_id(chunk_id, number) for number in range(count + 1, most + 1)]


def chunk_of(hit: Hit) -> str | None:
    """Return the id of the chunk that a hit is a window of; None if it is a chunk itself."""
    if hit.index >= 0 or hit.text:
        return None
    try:
        return str(UUID(hit.filename))
    except ValueError:  # a pipeline counts from below 0
        return None


def _window_id(chunk_id: str, number: int) -> str:
    return str(uuid5(_SPACE, f"{UUID(chunk_id)}/{number}"))
