"""How well a search finds what a question is about: by meaning, by words, and by both, as the default install does it.

The documents and the questions in `questions/` were written for this, the questions before anything was measured. Each
question is about one section, and each section is a chunk. Of a third of the questions the words are those of the
section; half ask with words of their own, and the rest for a name, a code or a number.
"""

import asyncio
import contextlib
import math
import os
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from typing_extensions import override

from antwort.documents.child import parsed
from antwort.documents.chunking import DocumentChunk, chunked
from antwort.extensions import Chunk, collection_name
from antwort.providers.file_search.embedding import MiniLM
from antwort.providers.file_search.search import Searcher, Wish
from antwort.providers.file_search.store_record import VectorStoreRecord
from antwort.providers.file_search.vectors.embedded.backend import Embedded
from antwort.providers.file_search.wire import HybridSearch, RankingOptions
from antwort.storage.base import Kept
from benchmarks.measure import Row
from benchmarks.processes import cpu_seconds

METHOD = """\
retrieval: every question of benchmarks/questions, asked of all its documents, cut into sections, in the embedded
database with the embedded model. A question has one right section: recall@10 tells how often it is among the first ten,
nDCG@10 also how far up. The cost of a search is the CPU time of the server and of the database's process, with as many
results as a request gets that does not say how many."""
BEST = 10
KINDS = ("words", "meaning", "names")
WAYS = {
    "vector": RankingOptions(hybrid_search=HybridSearch(embedding_weight=1, text_weight=0)),
    "keyword": RankingOptions(hybrid_search=HybridSearch(embedding_weight=0, text_weight=1)),
    "hybrid": None,
}
"""How a request asks for each; hybrid is what one that says nothing gets."""
SECTION_TOKENS = 100
"""The size of chunks with which each section is one."""

_FOLDER = Path(__file__).parent / "questions"
_SPACE = uuid.UUID("5b0c7c1e-7a55-5d63-9a2f-1f1f0e9a7c31")
_TENANT, _STORE = "default", "vs_questions"
_PATIENCE = 60.0
_RESULTS = 40
"""Results of a request that does not say how many."""
_COST = 12
"""Milliseconds of CPU that a search may take, with the embedding of its query."""


@dataclass(frozen=True, slots=True)
class Question:
    """A question, and the section that answers it."""

    document: str
    section: str
    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Section:
    """A section of a document, as the chunk that is searched."""

    document: str
    title: str
    heading: str
    chunk: DocumentChunk


@dataclass(frozen=True, slots=True)
class Quality:
    """How well some questions were answered, each figure between 0 and 1."""

    ndcg: float
    recall: float


def read_questions() -> list[Question]:
    """Return all questions: lines `kind: question` below `# document` and `## section`."""
    found: list[Question] = []
    document = section = ""
    for line in (_FOLDER / "questions.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            section = line.removeprefix("## ")
        elif line.startswith("# "):
            document = line.removeprefix("# ")
        else:
            kind, _, text = line.partition(": ")
            found.append(Question(document, section, kind, text))
    return found


def read_sections(documents: Sequence[str] | None = None) -> list[Section]:
    """Return the sections of some documents, or of all."""
    found: list[Section] = []
    for file in sorted((_FOLDER / "documents").glob("*.md")):
        if documents is None or file.stem in documents:
            document = parsed(file.read_bytes(), file.name)
            title = document.title or file.name
            headings = {block.end: block.headings[-1] for block in document.blocks}
            chunks = chunked(document, size=SECTION_TOKENS, overlap=0)
            found += [Section(file.stem, title, headings[chunk.end], chunk) for chunk in chunks]
    return found


class RememberingModel(MiniLM):
    """The embedded model, which embeds a question once, in however many ways it is asked."""

    def __init__(self) -> None:
        super().__init__()
        self._known: dict[tuple[str, ...], list[list[float]]] = {}
        self.remembers = True

    @override
    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        key = tuple(texts)
        if key not in self._known or not self.remembers:
            self._known[key] = await super().embed(texts)
        return self._known[key]


class Library:
    """Documents in the embedded database, which can be asked."""

    def __init__(
        self, backend: Embedded, embedding: RememberingModel, sections: dict[tuple[str, int], Section]
    ) -> None:
        self._searcher = Searcher(backend, embedding, contextlib.nullcontext)
        self._backend = backend
        self._embedding = embedding
        self._sections = sections
        value = {"collection": collection_name(_STORE), "dimensions": 384}
        self._store = VectorStoreRecord(Kept(_STORE, _TENANT, 0, value))

    async def ask(self, question: str, ranking: RankingOptions | None) -> list[Section]:
        """Return the best sections, the best first."""
        wish = Wish.of((question,), BEST, None, ranking, hybrid=True)
        outcome = await self._searcher.search([self._store], wish, embed_within=_PATIENCE)
        return [self._sections[one.hit.file_id, one.hit.index] for one in outcome.found]

    async def costs(self, questions: Sequence[Question]) -> tuple[float, float]:
        """Return the milliseconds of CPU of a search: the first time it is made, and the second."""
        self._embedding.remembers = False
        searcher = Searcher(self._backend, self._embedding, contextlib.nullcontext)  # it knows no question yet
        found = []
        for _ in range(2):
            before = self._cpu_seconds()
            for question in questions:
                wish = Wish.of((question.text,), _RESULTS, None, None, hybrid=True)
                await searcher.search([self._store], wish, embed_within=_PATIENCE)
            found.append((self._cpu_seconds() - before) / len(questions) * 1e3)
        return found[0], found[1]

    def _cpu_seconds(self) -> float:
        return time.process_time() + cpu_seconds(self._backend.pid or os.getpid())


@contextlib.asynccontextmanager
async def opened_library(sections: Sequence[Section]) -> AsyncIterator[Library]:
    """Embed and write sections as an ingestion worker does it."""
    embedding = RememberingModel()
    with TemporaryDirectory(prefix="antwort-bench-") as folder:
        backend = Embedded(Path(folder))
        try:
            vectors = await embedding.embed([section.chunk.in_context(section.title) for section in sections])
            await backend.create_collection(collection_name(_STORE), len(vectors[0]))
            chunks = [_chunk(section, vector) for section, vector in zip(sections, vectors, strict=True)]
            await backend.upsert(collection_name(_STORE), chunks)
            by_place = {(section.document, section.chunk.index): section for section in sections}
            yield Library(backend, embedding, by_place)
        finally:
            await backend.close()
            await embedding.close()


def _chunk(section: Section, vector: list[float]) -> Chunk:
    index, name = section.chunk.index, section.document
    own = str(uuid.uuid5(_SPACE, f"{name}/{index}"))
    return Chunk(own, vector, section.chunk.text, name, f"{name}.md", index, {}, _TENANT)


async def ranked(library: Library, questions: Sequence[Question], ranking: RankingOptions | None) -> list[int | None]:
    """Ask all questions in one way; return at which rank, from 0, each right section is, None if it is not there."""
    ranks: list[int | None] = []
    for question in questions:
        answers = [(one.document, one.heading) for one in await library.ask(question.text, ranking)]
        right = question.document, question.section
        ranks.append(answers.index(right) if right in answers else None)
    return ranks


def quality_of(ranks: Sequence[int | None]) -> Quality:
    """Return the means: with one right section, the gain of a rank is its discount."""
    gains = [0.0 if rank is None else 1 / math.log2(rank + 2) for rank in ranks]
    return Quality(sum(gains) / len(gains), sum(rank is not None for rank in ranks) / len(ranks))


def retrieval_rows() -> list[Row]:
    """Measure all ways over all questions, and each kind of question apart."""
    return asyncio.run(_retrieval_rows())


async def _retrieval_rows() -> list[Row]:
    questions = read_questions()
    async with opened_library(read_sections()) as library:
        found = {way: await ranked(library, questions, ranking) for way, ranking in WAYS.items()}
        first, again = await library.costs(questions)
    rows = [
        Row("retrieval, a search with the embedding of its query, CPU", first, "ms", _COST),
        Row("retrieval, the same search again, CPU", again, "ms", _COST),
    ]
    for way, ranks in found.items():
        quality = quality_of(ranks)
        rows.append(Row(f"retrieval, {way}, {len(ranks)} questions, nDCG@10", quality.ndcg, ""))
        rows.append(Row(f"retrieval, {way}, {len(ranks)} questions, recall@10", quality.recall, ""))
        for kind in KINDS:
            some = [rank for rank, question in zip(ranks, questions, strict=True) if question.kind == kind]
            rows.append(Row(f"retrieval, {way}, {len(some)} by {kind}, nDCG@10", quality_of(some).ndcg, ""))
    hybrid, others = quality_of(found["hybrid"]), [quality_of(found[way]) for way in ("vector", "keyword")]
    for what, own, best in (
        ("nDCG@10", hybrid.ndcg, max(one.ndcg for one in others)),
        ("recall@10", hybrid.recall, max(one.recall for one in others)),
    ):
        rows.append(
            Row(f"retrieval, the better of vector and keyword, {what}", best / own, "\N{MULTIPLICATION SIGN} hybrid", 1)
        )
    return rows
