"""Chunks as they are written: their ids, and the windows of long ones.

Of a chunk that is longer than the embedding model reads, each further window is a point of its own that is never shown.
A window has no text, so that no search by words finds it and nothing is counted twice. Its name is the id of its chunk,
and its index is below 0; file and attributes are the chunk's, so that filters and deletions reach it.
"""

from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID, uuid5

from antwort.extensions import Chunk, Hit
from antwort.providers.file_search.ingestion.store_files import StoreFileValue

_CHUNKS = UUID("0f1b7f64-5a43-5d0b-9c1e-2f3a6f0b7d58")
"""The namespace of the ids of chunks."""
_WINDOWS = UUID("3d0f3f0e-0b1c-5a77-8f0b-9a4d5f6c2e11")
"""The namespace of the ids of windows."""


def chunk_id(store_id: str, value: StoreFileValue, number: int) -> str:
    """Return the id of a chunk of a file: the same whenever the same content is cut in the same way."""
    chunking = value.chunking
    parts = (store_id, value.file_id, value.sha256, str(chunking.size), str(chunking.overlap), str(number))
    return str(uuid5(_CHUNKS, "/".join(parts)))


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
    return str(uuid5(_WINDOWS, f"{UUID(chunk_id)}/{number}"))
