"""Everybody who asks the world outside has the same limits: a host without end is the error that is documented."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import pytest_asyncio
from tests.support.hostile_host import ATTACKS, HostileHost, LoopWatch

from antwort import Context
from antwort.auth.jwks import KeysUnavailableError, from_url
from antwort.config import OutboundConfig
from antwort.outbound import Outbound
from antwort.provider import OutboundError, Slots
from antwort.providers.file_search.embedding.http import HttpEmbedding
from antwort.providers.file_search.errors import EmbeddingUnavailable
from antwort.providers.file_search.reranking import Reranker, RerankUnavailable
from antwort.providers.file_search.settings import FileSearchSettings
from antwort.providers.web_search.adapter import SearchError, ask
from antwort.providers.web_search.pages import PageReading, read_page

SHOWN = ["interim answers", "headers", "one header", "chunked content", "gzip bomb", "trailers"]


@pytest_asyncio.fixture
async def client() -> AsyncIterator[Outbound]:
    client = Outbound(OutboundConfig(allow=["127.0.0.0/8"]))
    yield client
    await client.close()


async def opened_page(client: Outbound, url: str) -> object:
    with contextlib.closing(PageReading(Slots(1))) as reading:
        return await read_page(Context("default", http=client), url, lambda _host: True, reading)


async def search_engine(client: Outbound, url: str) -> object:
    return await ask(Context("default", http=client), url, {"q": "tea"}, {}, retries=0, time_limit=60)


async def embedding(client: Outbound, url: str) -> object:
    return await HttpEmbedding(client, url, retries=0, timeout=60).embed(["tea"])


async def reranker(client: Outbound, url: str) -> None:
    settings = FileSearchSettings(rerank_url=url, rerank_timeout=60)
    await Reranker(client, url, settings, lambda _status, _seconds: None).check()


async def issuer(_client: Outbound, url: str) -> object:
    return await asyncio.to_thread(from_url(url, timeout=60))


USERS: list[tuple[Callable[[Outbound, str], Awaitable[object]], type[Exception], str]] = [
    (opened_page, OutboundError, "127.0.0.1"),
    (
        search_engine,
        SearchError,
        "search backend cannot be (reached|used)",
    ),
    (embedding, EmbeddingUnavailable, "The embedding service (cannot be reached|gave an answer that cannot be used)"),
    (reranker, RerankUnavailable, "The rerank service cannot be used"),
    (issuer, KeysUnavailableError, "the issuer cannot be reached|the answer is larger than"),
]


@pytest.mark.parametrize(("user", "error", "message"), USERS, ids=[user.__name__ for user, _, _ in USERS])
@pytest.mark.parametrize("attack", SHOWN)
async def test_a_host_without_end_is_the_error_that_is_documented(
    client: Outbound,
    attack: str,
    user: Callable[[Outbound, str], Awaitable[object]],
    error: type[Exception],
    message: str,
) -> None:
    with HostileHost(ATTACKS[attack]) as host:
        async with LoopWatch() as watch:
            with pytest.raises(error, match=message):
                await user(client, f"{host.url}/v1")
    assert watch.longest < 1.0, "in seconds of CPU"
