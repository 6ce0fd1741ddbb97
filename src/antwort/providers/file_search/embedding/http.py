"""A service that speaks OpenAI's embeddings API."""

import asyncio
import base64
import binascii
import logging
import re
import struct
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, Self
from urllib.parse import unquote, urldefrag, urlsplit

import msgspec
from pydantic import PositiveInt
from typing_extensions import override

from antwort.extensions import EmbeddingClient, EmbeddingUnavailable
from antwort.provider import (
    ConfigError,
    Duration,
    Field,
    HttpAnswer,
    HttpClient,
    OutboundError,
    OutboundTimeoutError,
    SecretStr,
    Settings,
    SingleFlight,
    UnreachableError,
    call_again,
)

logger = logging.getLogger(__name__)

_BATCH_CHARACTERS = 400_000
"""Characters of one request, if it has several texts: services limit its size, too."""
_VECTOR_BYTES = 512 * 1024
"""Room for one vector in an answer: 16,384 numbers, spelled out."""
_LOGGED = 300
"""Characters of an answer that are logged."""
_READ = 4000
"""Characters of it that are looked at."""
_TOO_LONG = re.compile(
    r"too (long|large|many tokens)|context (length|size|window)|max(imum)? (\w+ )?(token|input|length|sequence)|"
    r"(token|length|sequence) limit|longer than|more than \d+ tokens|exceed",
    re.IGNORECASE,
)
"""How services say that a text is longer than their model reads."""
_SHORTEST = 400
"""Bytes of a text that every model reads whole."""
_SAMPLES = ("How long is a vector?", "And how long is this one?")
"""What a service is asked that has to tell the length of its vectors, one after the other: the answers must agree."""


class TextTooLong(EmbeddingUnavailable):
    """The service reads no text of this length."""


class HttpEmbeddingSettings(Settings):
    """A service, and what it is asked for."""

    url: str = Field(pattern=r"^https?://", description="The whole address of the endpoint.")
    model: str | None = Field(default=None, description="The model to ask for.")
    api_key: SecretStr | None = Field(default=None, description="The key it wants.")
    dimensions: PositiveInt | None = Field(default=None, description="The length of vectors to ask for.")
    max_tokens: int | None = Field(default=None, ge=16, description="Tokens that the model reads at once.")
    timeout: Duration = Field(default=10.0, description="Time that one request may take.")
    retries: int = Field(default=2, ge=0, le=5, description="Tries after a failure that may pass.")
    batch: int = Field(default=32, ge=1, le=2048, description="Texts in one request.")


class HttpEmbedding(EmbeddingClient):
    """Asks an endpoint for vectors, a batch of texts at a time, again if a failure may pass.

    `url` is the whole address of the endpoint; behind a `#` it may name the model. `dimensions` is asked for if given;
    otherwise two answers that agree tell the length of the vectors, until one of another length comes: then two others
    have to agree. Each request may take `timeout` seconds. A text of more than `max_tokens`, by an estimate that is
    rather too high, is embedded in windows; so is one that the service refuses as too long.
    """

    def __init__(
        self,
        http: HttpClient,
        url: str,
        *,
        model: str | None = None,
        api_key: str | None = None,
        dimensions: int | None = None,
        max_tokens: int | None = None,
        timeout: float = 10.0,
        retries: int = 2,
        batch: int = 32,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        parts = urlsplit(url)
        if api_key is not None and parts.username is not None:
            raise ConfigError("there is a user in 'embedding_url' beside 'embedding_api_key'; give only one of them")
        if model is not None and parts.fragment:
            raise ConfigError("there is a model in 'embedding_url' beside 'embedding_model'; give only one of them")
        model = model or unquote(parts.fragment) or None
        self._http = http
        self._url = urldefrag(url).url
        self._server = parts.netloc.rpartition("@")[2]
        self._key = api_key
        self._timeout = timeout
        self._retries = retries
        self._batch = batch
        self._sleep = sleep
        self._dimensions = dimensions
        self._learned: int | None = None
        self._most = None if max_tokens is None else BYTES_PER_TOKEN * max_tokens
        self._discovery = SingleFlight(self._discover)
        self._options: dict[str, object] = {"encoding_format": "float"}
        if model is not None:
            self._options["model"] = model
        if dimensions is not None:
            self._options["dimensions"] = dimensions

    @classmethod
    def of(cls, settings: HttpEmbeddingSettings, http: HttpClient) -> Self:
        """Make it as the settings say."""
        key = settings.api_key
        return cls(
            http,
            settings.url,
            model=settings.model,
            api_key=None if key is None else key.get_secret_value(),
            dimensions=settings.dimensions,
            max_tokens=settings.max_tokens,
            timeout=settings.timeout,
            retries=settings.retries,
            batch=settings.batch,
        )

    @override
    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        vectors: list[list[float]] = []
        for batch in _batches([self._windows(text)[0] for text in texts], self._batch):
            vectors += await self._embed(batch)
        return vectors

    @override
    async def embed_whole(self, texts: Sequence[str]) -> list[list[list[float]]]:
        parted = [self._windows(text) for text in texts]
        flat = [window for parts in parted for window in parts]
        vectors: list[list[list[float]]] = []
        for batch in _batches(flat, self._batch):
            try:
                vectors += [[vector] for vector in await self._embed(batch)]
            except TextTooLong:
                vectors += [await self._shorten(window) for window in batch]
        remaining = iter(vectors)
        return [[vector for _ in parts for vector in next(remaining)] for parts in parted]

    def _windows(self, text: str) -> list[str]:
        return [text] if self._most is None else windows(text, self._most)

    async def _shorten(self, text: str) -> list[list[float]]:
        """Embed a text that may be too long for the service, in windows half as long each time."""
        try:
            return await self._embed([text])
        except TextTooLong:
            size = len(text.encode(errors="replace"))
            if size < _SHORTEST:  # it is something else that the service complains about
                raise
        return [vector for window in windows(text, size // 2 + 1) for vector in await self._shorten(window)]

    @override
    async def dimensions(self) -> int:
        return self._dimensions or self._learned or await self._discovery.outcome()

    async def _discover(self) -> int:
        """Find out how long vectors are. What is made for them stays: one wrong answer must not decide it."""
        first, second = [len((await self._embed([sample]))[0]) for sample in _SAMPLES]
        if first != second:
            raise self._failure(f"gives vectors with {first} dimensions, and then with {second}")
        self._learned = first
        return first

    @override
    async def close(self) -> None:
        """Only a request for the dimensions may be under way: the HTTP client is the owner's."""
        await self._discovery.close()

    async def _embed(self, texts: Sequence[str]) -> list[list[float]]:
        answer = await self._answer(texts)
        if answer.status != 200:
            raise self._refusal(answer)
        try:
            vectors = read_vectors(answer.body, len(texts))
        except ValueError as error:
            raise self._failure("gave an answer that cannot be used", str(error)) from None
        length, wanted = len(vectors[0]), self._dimensions or self._learned
        if wanted is not None and length != wanted:
            self._learned = None  # it may be that which was wrong
            raise self._failure(f"gives vectors with {length} dimensions, not {wanted}")
        return vectors

    async def _answer(self, texts: Sequence[str]) -> HttpAnswer:
        """Ask, again if the failure may pass, and return the last answer."""
        # Services refuse an empty text, but a vector for it is due.
        body = msgspec.json.encode({**self._options, "input": [text or " " for text in texts]})
        try:
            return await call_again(
                lambda: self._call(body, len(texts)), retries=self._retries, patience=self._timeout, sleep=self._sleep
            )
        except OutboundTimeoutError:
            raise self._failure(f"did not answer within {self._timeout:g} seconds") from None
        except UnreachableError as error:
            raise self._failure("cannot be reached", f"{_cause(error)}; check 'embedding_url'") from None
        except OutboundError as error:
            raise self._failure("gave an answer that cannot be used", str(error)) from None

    async def _call(self, body: bytes, count: int) -> HttpAnswer:
        headers = {"content-type": "application/json", "accept": "application/json"}
        if self._key is not None:
            headers["authorization"] = f"Bearer {self._key}"
        return await self._http.call(
            "POST",
            self._url,
            headers=headers,
            body=body,
            time_limit=self._timeout,
            max_bytes=_VECTOR_BYTES * (count + 1),
        )

    def _refusal(self, answer: HttpAnswer) -> EmbeddingUnavailable:
        """Say what a status means; what the service says about it is for the log."""
        status = answer.status
        meaning = {
            401: "does not accept the key (401); its operator must check 'embedding_api_key'",
            403: "does not accept the key (403); its operator must check 'embedding_api_key'",
            404: "has no such endpoint or model (404); 'embedding_url' must be the whole address, with /v1/embeddings",
            405: "has no such endpoint (405); 'embedding_url' must be the whole address, with /v1/embeddings",
            429: "gets too many requests (429)",
        }.get(status, f"failed with status {status}")
        if status == 413 or (status not in {401, 403, 404, 429} and _TOO_LONG.search(answer.text()[:_READ])):
            return self._failure("says that the text is too long", answer.text(), TextTooLong)
        return self._failure(meaning, answer.text())

    def _failure(
        self, what: str, details: str = "", kind: type[EmbeddingUnavailable] = EmbeddingUnavailable
    ) -> EmbeddingUnavailable:
        failure = kind.at(f"'{self._server}'", "The embedding service", f"{what}.")
        told = details.replace(self._key, "***") if self._key else details
        logger.warning("%s %s", failure.for_operator, " ".join(told[:_LOGGED].split()))
        return failure


def _batches(texts: Sequence[str], most: int) -> Iterator[list[str]]:
    """Part texts into batches that are not too many and, together, not too long."""
    batch: list[str] = []
    size = 0
    for text in texts:
        if batch and (len(batch) == most or size + len(text) > _BATCH_CHARACTERS):
            yield batch
            batch, size = [], 0
        batch.append(text)
        size += len(text)
    if batch:
        yield batch


def _cause(error: UnreachableError) -> str:
    """Say for the log why a service cannot be reached, not that it cannot."""
    cause = error.__cause__
    return (cause.strerror if isinstance(cause, OSError) else None) or str(error).rstrip(".")


# --- reading the answer: OpenAI's, and what others make of it ---------------------------------------------------------

_MOST = 1e30
"""What a coordinate may be: databases keep 32 bits of it."""


class _EmbeddingEntry(msgspec.Struct):
    embedding: list[float] | str
    index: int | None = None


class _EmbeddingsAnswer(msgspec.Struct):
    data: list[_EmbeddingEntry]


_DECODER = msgspec.json.Decoder(_EmbeddingsAnswer)


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


# --- windows of a text by its words, for models whose tokens nobody here can count ------------------------------------

BYTES_PER_TOKEN = 3
"""Bytes of UTF-8 that a token has, or more: four letters of English, one character of Chinese."""
_WORD = re.compile(r"\S+\s*|\s+")
_OVERLAP = 8
"""The part of a window that the next one repeats: an eighth."""


def windows(text: str, most: int) -> list[str]:
    """Part a text into overlapping windows of so many bytes at most; one that is not longer is left as it is."""
    if len(text) <= most and len(text.encode(errors="replace")) <= most:
        return [text]
    words = list(_words(text, max(1, most // _OVERLAP)))
    found: list[str] = []
    start = 0
    while start < len(words):
        end, size = start, 0
        while end < len(words) and (end == start or size + words[end][1] <= most):
            size += words[end][1]
            end += 1
        found.append("".join(word for word, _ in words[start:end]))
        if end == len(words):
            break
        start = _stepped_back(words, start, end, most // _OVERLAP)
    return found


def _words(text: str, most: int) -> Iterator[tuple[str, int]]:
    """Give the words of a text with their sizes; a long one in pieces."""
    for match in _WORD.finditer(text):
        word = match[0]
        if len(word) * 4 <= most:
            yield word, len(word.encode(errors="replace"))
            continue
        step = max(1, most // 4)
        for start in range(0, len(word), step):
            piece = word[start : start + step]
            yield piece, len(piece.encode(errors="replace"))


def _stepped_back(words: list[tuple[str, int]], start: int, end: int, overlap: int) -> int:
    """Return where the next window begins: a few words before the end of this one, and after its beginning."""
    size = 0
    while end - 1 > start and size + words[end - 1][1] <= overlap:
        end -= 1
        size += words[end][1]
    return end
