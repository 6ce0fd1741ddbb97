"""How well the default search answers questions that nobody here wrote, beside what else can be had from PyPI.

Documents are cut and embedded as an ingestion worker does it, and asked as a request that says nothing asks.
"""

import asyncio
import contextlib
import importlib
import math
import re
import subprocess
import sys
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from antwort.documents.child import parsed
from antwort.documents.chunking import AUTO_OVERLAP, AUTO_SIZE, TokenRuler, chunked
from antwort.extensions import Chunk, collection_name
from antwort.providers.file_search.ingestion.store_files import ChunkPosition
from antwort.providers.file_search.neighbours import with_neighbours_joined
from antwort.providers.file_search.search import RankedChunk, Searcher, Wish
from antwort.providers.file_search.store_record import VectorStoreRecord
from antwort.providers.file_search.vectors.embedded.backend import Embedded
from antwort.providers.file_search.wire import RankingOptions
from antwort.storage.base import Kept
from benchmarks.faqs import FAQS, Faq, FaqDocument, faq_documents
from benchmarks.measure import BenchmarkError, Row
from benchmarks.retrieval import BEST, WAYS, RememberingModel

METHOD = """\
finding: the FAQs of packages of Debian (benchmarks/faqs.py): the questions are asked, the text without them is
searched. nDCG@10 of the chunks at least half of which belong to the answer, or which have half of it, and how often
half of the answer, or of its first 800 characters, is in the first so many tokens of what is found. Beside the default:
each of its halves, rank_bm25 and plain vectors of the embedded model over the same chunks, and vectors of the first 256
tokens of OpenAI's chunks."""
BUDGETS = (400, 800, 1600, 3200)
_LIMIT = 40
_COUNTED = 800
"""Characters of an answer that are looked for."""
_RANK_BM25 = "rank-bm25==0.2.2"
_PATIENCE = 600.0
_COLLECTION = collection_name("vs_faq")
_SPACE = uuid.UUID("c8b3f9f6-40f5-5f9b-8d5c-9b1e1f1d6b0a")


@dataclass(frozen=True, slots=True)
class Piece:
    """A range of a document, with its text."""

    document: int
    start: int
    end: int
    text: str


@dataclass(frozen=True, slots=True)
class Asked:
    """A question, and where its answer stands."""

    text: str
    document: int
    start: int
    end: int

    def is_answered_by(self, piece: Piece) -> bool:
        """Tell whether half of a piece belongs to the answer, or half of the answer to the piece."""
        common = _common(piece, self.document, self.start, self.end)
        return common > 0 and 2 * common >= min(piece.end - piece.start, self.end - self.start)

    def is_within(self, pieces: Sequence[Piece], tokens: int) -> bool:
        """Tell whether half of the answer is in so many tokens of pieces."""
        end, found = min(self.end, self.start + _COUNTED), 0
        for piece in pieces:
            ruler = TokenRuler(piece.text)
            reached = ruler.after(0, tokens)
            # In front of the text there may be the header of a table: it is the end that is the range.
            shown = max(piece.start, piece.end - len(piece.text) + reached)
            found += _common(Piece(piece.document, piece.start, shown, ""), self.document, self.start, end)
            tokens -= ruler.count(0, len(piece.text))
            if tokens <= 0:
                break
        return 2 * found >= end - self.start


def _common(piece: Piece, document: int, start: int, end: int) -> int:
    return max(0, min(piece.end, end) - max(piece.start, start)) if piece.document == document else 0


class Corpus:
    """Documents, cut in one way, and what is asked of them."""

    def __init__(self, documents: Sequence[FaqDocument], *, size: int, overlap: int) -> None:
        self.pieces: list[Piece] = []
        self.contexts: list[str] = []
        self.asked: list[Asked] = []
        for number, one in enumerate(documents):
            document = parsed(one.text.encode(), f"{one.title}.txt")
            for chunk in chunked(document, size=size, overlap=overlap):
                self.pieces.append(Piece(number, chunk.start, chunk.end, chunk.text))
                self.contexts.append(chunk.in_context(document.title or one.title))
            for answer in one.answers:
                body = one.text[answer.start : answer.end]
                if (start := document.text.find(body)) >= 0:
                    self.asked.append(Asked(answer.question, number, start, start + len(body)))

    def rows(self, name: str, orders: Sequence[Sequence[Piece]], budgets: Sequence[int]) -> list[Row]:
        """Return what a way of searching is worth, by what it has found for each question."""
        asked = list(zip(self.asked, orders, strict=True))
        rows = [Row(f"{name}, nDCG@{BEST}", _mean([self._gain(one, order) for one, order in asked]), "")]
        for budget in budgets:
            share = 100 * _mean([float(one.is_within(order, budget)) for one, order in asked])
            rows.append(Row(f"{name}, answered in the first {budget:,} tokens", share, "%"))
        return rows

    def best(self, scores: Any) -> list[Piece]:
        """Return the pieces with the best scores."""
        return [self.pieces[number] for number in np.argsort(-scores, kind="stable")[:_LIMIT]]

    def _gain(self, asked: Asked, order: Sequence[Piece]) -> float:
        right = sum(map(asked.is_answered_by, self.pieces))
        best = sum(1 / math.log2(rank + 2) for rank in range(min(BEST, right)))
        found = [1 / math.log2(rank + 2) for rank, piece in enumerate(order[:BEST]) if asked.is_answered_by(piece)]
        return sum(found) / best


def finding_rows() -> list[Row]:
    """Measure all ways of searching with all sets of questions."""
    with TemporaryDirectory(prefix="antwort-bench-") as folder:
        return asyncio.run(_finding_rows(Path(folder)))


async def _finding_rows(folder: Path) -> list[Row]:
    embedding = RememberingModel()
    rows: list[Row] = []
    try:
        for faq in FAQS:
            rows += await rows_of(faq, folder, embedding)
    finally:
        await embedding.close()
    return rows


async def rows_of(faq: Faq, folder: Path, embedding: RememberingModel) -> list[Row]:
    """Measure all ways with one set; where it cannot be had, a row says so, and others are measured all the same."""
    try:
        bm25, documents = _rank_bm25(folder / "rank_bm25"), faq_documents(faq, folder)
    except BenchmarkError as error:
        return [Row(f"{faq.name}: {error}", None, "")]
    corpus = Corpus(documents, size=AUTO_SIZE, overlap=AUTO_OVERLAP)
    whole = Corpus(documents, size=800, overlap=400)
    name = f"{faq.name} ({faq.licence}), {len(corpus.asked)} questions"
    rows = await own_rows(name, corpus, embedding, folder / faq.package / "vectors")
    rows += corpus.rows(f"{name}, rank_bm25", _by_words(bm25, corpus), [1600])
    for what, other in (("vectors", corpus), ("vectors of the first 256 tokens", whole)):
        rows += other.rows(f"{name}, {what}", await _by_vectors(embedding, other), [1600])
    return rows


async def own_rows(name: str, corpus: Corpus, embedding: RememberingModel, folder: Path) -> list[Row]:
    """Measure what is ours: both halves, and both together, as it is by default and with all results apart."""
    store = VectorStoreRecord(Kept("vs_faq", "default", 0, {"collection": _COLLECTION, "dimensions": 384}))
    backend = Embedded(folder)
    searcher = Searcher(backend, embedding, contextlib.nullcontext)

    async def found(question: str, ranking: RankingOptions | None, *, joined: bool) -> list[Piece]:
        wish = replace(Wish.of((question,), _LIMIT, None, ranking, hybrid=True), until_enough=True)
        outcome = await searcher.search([store], wish, embed_within=_PATIENCE)
        placed = [_placed(one, corpus.pieces[one.hit.index]) for one in wish.enough_of(outcome.found)]
        return [_piece(one) for one in (with_neighbours_joined(placed) if joined else placed)]

    rows: list[Row] = []
    try:
        await _write(backend, corpus, await embedding.embed(corpus.contexts))
        for way, ranking in WAYS.items():
            apart = [await found(one.text, ranking, joined=False) for one in corpus.asked]
            rows += corpus.rows(f"{name}, {way}", apart, BUDGETS if ranking is None else [1600])
        joined = [await found(one.text, None, joined=True) for one in corpus.asked]
        # Only this: to nDCG two chunks that are one result are one too few.
        rows += corpus.rows(f"{name}, hybrid, neighbours joined", joined, BUDGETS)[1:]
    finally:
        await backend.close()
    return rows


async def _write(backend: Embedded, corpus: Corpus, vectors: Sequence[Sequence[float]]) -> None:
    await backend.create_collection(_COLLECTION, len(vectors[0]))
    ids = (str(uuid.uuid5(_SPACE, str(number))) for number in range(len(vectors)))
    chunks = [
        Chunk(id_, vector, piece.text, str(piece.document), "", number, {}, "default")
        for number, (id_, vector, piece) in enumerate(zip(ids, vectors, corpus.pieces, strict=True))
    ]
    await backend.upsert(_COLLECTION, chunks)


def _placed(one: RankedChunk, piece: Piece) -> RankedChunk:
    return replace(one, position=ChunkPosition(piece.start, piece.end, 0, 0, ""))


def _piece(one: RankedChunk) -> Piece:
    start, end = (one.position.start, one.position.end) if one.position is not None else (0, 0)
    return Piece(int(one.hit.file_id), start, end, one.hit.text)


def _by_words(bm25: Any, corpus: Corpus) -> list[list[Piece]]:
    """Search as rank_bm25 does it, with the words of its readme: whatever stands between spaces, here without case."""
    index = bm25.BM25Okapi([_words(piece.text) for piece in corpus.pieces])
    return [corpus.best(index.get_scores(_words(one.text))) for one in corpus.asked]


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


async def _by_vectors(embedding: RememberingModel, corpus: Corpus) -> list[list[Piece]]:
    """Search by the vectors of texts alone, without what stands above them."""
    texts = np.array(await embedding.embed([piece.text for piece in corpus.pieces]))
    asked = np.array(await embedding.embed([one.text for one in corpus.asked]))
    return [corpus.best(scores) for scores in asked @ texts.T]


def _rank_bm25(folder: Path) -> Any:
    """Install the package into a folder, and return its module."""
    if folder.is_dir():
        return importlib.import_module("rank_bm25")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder), _RANK_BM25]
    try:
        subprocess.run(command, check=True, timeout=_PATIENCE, stdout=subprocess.DEVNULL)
    except (OSError, subprocess.SubprocessError) as error:
        raise BenchmarkError(f"{_RANK_BM25} cannot be installed: {error}") from error
    sys.path.insert(0, str(folder))
    try:
        return importlib.import_module("rank_bm25")
    finally:
        sys.path.remove(str(folder))


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
