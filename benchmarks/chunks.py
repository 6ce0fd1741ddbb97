"""Generated chunks and queries: vectors in heaps around topics, texts of words as frequent as those of a language."""

import functools
import uuid
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from antwort.extensions import Chunk, Query

Vectors = npt.NDArray[np.float64]

BATCH = 500
TOPICS = 500
WORDS = 20_000
TEXT_WORDS = 40
PER_FILE = 50


class Store:
    """What a vector store has in it, the same in every run. In a shared collection its name is in every chunk."""

    def __init__(self, tenant: str, size: int, dimensions: int, *, seed: int = 0, shared: bool = False) -> None:
        self.tenant = tenant
        self.size = size
        self.dimensions = dimensions
        self.id = f"vs_{tenant}"
        self._seed = seed
        self._shared = self.id if shared else ""
        self._topics = _topics(dimensions)

    def batches(self) -> Iterator[list[Chunk]]:
        """Yield all chunks, some at a time, so that they need no memory to speak of."""
        chance = np.random.default_rng([self._seed, 1])
        for start in range(0, self.size, BATCH):
            numbers = range(start, min(start + BATCH, self.size))
            words = (chance.zipf(1.3, (len(numbers), TEXT_WORDS)) % WORDS).tolist()
            vectors = self._vectors(numbers).tolist()
            yield [
                self._chunk(number, vector, " ".join(map(_word, row)))
                for number, vector, row in zip(numbers, vectors, words, strict=True)
            ]

    def queries(self, count: int, *, hybrid: bool = False) -> Iterator[tuple[str, Query]]:
        """Yield queries near chunks, each with the id of the chunk that it should find.

        The first of two words is in 0.1 to 2.5 % of the texts, as words that people look for are; the other is rare.
        """
        chance = np.random.default_rng([self._seed, 2])
        for number in chance.integers(0, self.size, count).tolist():
            vector = _unit(self._vectors([number]) + 0.3 * _directions(chance, 1, self.dimensions))[0]
            text = f"{_word(100 + number % 900)} {_word(number % WORDS)}" if hybrid else None
            yield self._chunk_id(number), Query(self.tenant, vector.tolist(), text, vector_store_id=self._shared)

    def _chunk(self, number: int, vector: list[float], text: str) -> Chunk:
        file = number // PER_FILE
        return Chunk(
            id=self._chunk_id(number),
            vector=vector,
            text=text,
            file_id=f"file_{file}",
            filename=f"document-{file}.txt",
            index=number % PER_FILE,
            attributes={"year": float(2000 + file % 25), "language": "en" if file % 3 else "de"},
            tenant=self.tenant,
            vector_store_id=self._shared,
        )

    def _chunk_id(self, number: int) -> str:
        return str(uuid.UUID(int=(self._seed << 64) + number + 1))

    def _vectors(self, numbers: Sequence[int]) -> Vectors:
        """Return the vectors of some chunks; each depends on its number only."""
        seeds = [np.random.default_rng([self._seed, 4, number]) for number in numbers]
        own = np.concatenate([_directions(seed, 1, self.dimensions) for seed in seeds])
        return _unit(self._topics[np.asarray(numbers) % TOPICS] + own)


@functools.cache
def _topics(dimensions: int) -> Vectors:
    return _directions(np.random.default_rng(3), TOPICS, dimensions)


def _directions(chance: np.random.Generator, count: int, dimensions: int) -> Vectors:
    return _unit(chance.standard_normal((count, dimensions)))


def _unit(vectors: Vectors) -> Vectors:
    lengths: Vectors = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / lengths


def _word(number: int) -> str:
    return f"w{number}"
