"""A second ranking of what a search has found, and the service that is asked for it."""

import asyncio
import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from urllib.parse import urlsplit

import msgspec
from typing_extensions import override

from antwort.extensions import Reranker, RerankUnavailable
from antwort.provider import Duration, Field, HttpAnswer, HttpClient, OutboundError, SecretStr, Settings
from antwort.providers.file_search.search import FoundChunk, SearchOutcome, Wish

logger = logging.getLogger(__name__)

_ANSWER_BYTES = 4 << 20
"""Room for an answer: some services send the texts back."""
_GRACE = 0.5
"""Seconds by which a re-ranker that minds its time itself may be late."""
_LOGGED = 300
"""Characters of an answer that are logged."""
_BYTES_PER_TOKEN = 3
"""Bytes of UTF-8 that a token has, or more."""


class SecondRanking:
    """Ranks what a search has found once more. If that fails, results stay as the search has ranked them."""

    def __init__(
        self, reranker: Reranker, *, candidates: int, timeout: float, on_end: Callable[[str, float], None]
    ) -> None:
        self._reranker = reranker
        self._candidates = candidates
        self._timeout = timeout
        self._on_end = on_end

    def widened(self, wish: Wish) -> Wish:
        """Return what to search for, so that there is something to choose from; thresholds are for the new scores."""
        return replace(wish, limit=max(wish.limit, self._candidates), threshold=None)

    async def rank(self, findings: SearchOutcome, wish: Wish) -> None:
        """Put what was found in a new order, with new scores, as many as were wished; if that fails, leave the old."""
        found = findings.found
        if len(found) > 1 or (found and wish.threshold):
            started, status = time.monotonic(), "failed"
            try:
                found = await self._ranked("\n".join(wish.queries), found)
                status = "success"
            except RerankUnavailable as error:
                logger.warning("file search: results are not ranked again: %s", error.for_operator)
            finally:
                self._on_end(status, time.monotonic() - started)
            if wish.threshold and (status == "success" or not findings.by_keywords):
                found = [one for one in found if one.hit.score >= wish.threshold]
        findings.found = found[: wish.limit]

    async def check(self) -> None:
        """Raise RerankUnavailable if results cannot be ranked."""
        await self._scores("antwort", ["antwort"])

    async def _ranked(self, query: str, found: Sequence[FoundChunk]) -> list[FoundChunk]:
        scores = await self._scores(query, [one.hit.text for one in found])
        new = [replace(one, hit=replace(one.hit, score=score)) for one, score in zip(found, scores, strict=True)]
        return sorted(new, key=lambda one: -one.hit.score)

    async def _scores(self, query: str, texts: Sequence[str]) -> list[float]:
        try:
            async with asyncio.timeout(self._timeout + _GRACE):
                scores = await self._reranker.scores(query, texts)
        except TimeoutError:
            raise RerankUnavailable(f"The re-ranker did not answer within {round(self._timeout, 3):g} s.") from None
        if len(scores) != len(texts):
            raise RerankUnavailable(f"The re-ranker gave {len(scores)} scores for {len(texts)} texts.")
        return scores


class HttpRerankerSettings(Settings):
    """A service, and what it is asked for."""

    url: str = Field(pattern=r"^https?://", description="The whole address of the endpoint.")
    model: str | None = Field(default=None, description="The model to ask for.")
    api_key: SecretStr | None = Field(default=None, description="The key it wants.")
    max_tokens: int | None = Field(default=None, ge=16, description="Tokens of a text that are sent.")
    timeout: Duration = Field(default=5.0, description="Time that ranking may take.")


class HttpReranker(Reranker):
    """Asks a service that reads the query and each text together, as Cohere, Jina and vLLM have one."""

    def __init__(self, settings: HttpRerankerSettings, http: HttpClient) -> None:
        self._http = http
        self._url = settings.url
        self._server = urlsplit(settings.url).netloc.rpartition("@")[2]
        self._key = settings.api_key
        self._model = settings.model
        self._most = settings.max_tokens
        self._timeout = settings.timeout

    @override
    async def scores(self, query: str, texts: Sequence[str]) -> list[float]:
        body: dict[str, object] = {"query": query, "documents": [*map(self._shortened, texts)], "top_n": len(texts)}
        if self._model is not None:
            body["model"] = self._model
        answer = await self._answer(msgspec.json.encode(body))
        if answer.status != 200:
            raise self._failure(f"answered with {answer.status}.", answer.text())
        try:
            return read_scores(answer.body, len(texts))
        except ValueError as error:
            raise self._failure("gave an answer that cannot be used.", str(error)) from None

    @override
    async def close(self) -> None:
        """Do nothing: the client is not ours."""

    def _shortened(self, text: str) -> str:
        if self._most is None:
            return text
        return text.encode(errors="replace")[: self._most * _BYTES_PER_TOKEN].decode(errors="ignore")

    async def _answer(self, body: bytes) -> HttpAnswer:
        headers = {"content-type": "application/json", "accept": "application/json"}
        if self._key is not None:
            headers["authorization"] = f"Bearer {self._key.get_secret_value()}"
        try:
            return await self._http.call(
                "POST", self._url, headers=headers, body=body, time_limit=self._timeout, max_bytes=_ANSWER_BYTES
            )
        except OutboundError as error:
            raise self._failure("cannot be used; check 'rerank_url'.", str(error)) from None

    def _failure(self, what: str, details: str) -> RerankUnavailable:
        """Return an error; what the service says about it is for the operator, without the key."""
        key = None if self._key is None else self._key.get_secret_value()
        told = " ".join((details.replace(key, "***") if key else details)[:_LOGGED].split())
        subject = "The rerank service"
        return RerankUnavailable(
            f"{subject} {what}", for_operator=f"{subject} at '{self._server}' {what} {told}".rstrip()
        )


class _Entry(msgspec.Struct):
    index: int
    relevance_score: float


class _RerankAnswer(msgspec.Struct):
    results: list[_Entry]


_DECODER = msgspec.json.Decoder(_RerankAnswer)


def read_scores(body: bytes, count: int) -> list[float]:
    """Return a score from 0 to 1 for each text, in the order of the texts; 0 for those that the service leaves out.

    Some models give any number: then all are mapped, in the same order. ValueError if that is no ranking of `count`.
    """
    try:
        entries = _DECODER.decode(body).results
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise ValueError(f"not a ranking: {error}") from error
    found = {entry.index: entry.relevance_score for entry in entries}
    if not found or len(found) != len(entries) or not found.keys() <= set(range(count)):
        raise ValueError("the results are not numbered as the documents, each once at most")
    if not all(map(math.isfinite, found.values())):
        raise ValueError("a score is no number")
    if not all(0 <= score <= 1 for score in found.values()):
        found = {index: _squeezed(score) for index, score in found.items()}
    return [found.get(index, 0.0) for index in range(count)]


def _squeezed(score: float) -> float:
    """Map any number to one between 0 and 1, in the same order."""
    return 1 / (1 + math.exp(-max(-700.0, min(700.0, score))))
