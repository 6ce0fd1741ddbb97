"""Everybody who asks the world outside has the same limits: a host without end is the error that is documented."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from tests.http.sdk import done, served
from tests.providers.user.stage import answer, asked, begun, patience, served_user
from tests.support.hostile_host import ATTACKS, DRIP, REDIRECTS, HostileHost, LoopWatch

from antwort import Context
from antwort.auth.jwt import KeysUnavailableError, from_url
from antwort.config import OutboundConfig
from antwort.extensions import EmbeddingUnavailable, RerankUnavailable, SearchError
from antwort.outbound import Outbound
from antwort.provider import OutboundError, Slots
from antwort.providers.file_search.embedding.http import HttpEmbedding
from antwort.providers.file_search.reranking import HttpReranker, HttpRerankerSettings
from antwort.providers.web_search.adapter import ask
from antwort.providers.web_search.provider import PageReading, read_page
from antwort.testing import RunningApp, Turn, call, turn

SHOWN = ["interim answers", "headers", "one header", "chunked content", "gzip bomb", "trailers"]
MOST_SENT = 2 * 50 * 1024 * 1024
"""Bytes after which an endless answer is given up for certain: twice what the files of a request may have."""
ALL_WAYS = {**{name: ATTACKS[name] for name in SHOWN}, "redirects": REDIRECTS, **DRIP}


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
    await HttpReranker(HttpRerankerSettings(url=url, timeout=60), client).scores("antwort", ["antwort"])


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


# --- through the server ----------------------------------------------------------------------------------------------


@contextlib.contextmanager
def watched(server: RunningApp) -> Iterator[LoopWatch]:
    """Watch over the loop of a server."""
    watch = LoopWatch()
    asyncio.run_coroutine_threadsafe(watch.__aenter__(), server.loop).result(60)
    try:
        yield watch
    finally:
        asyncio.run_coroutine_threadsafe(watch.__aexit__(None, None, None), server.loop).result(60)


@pytest.mark.parametrize("attack", ALL_WAYS)
def test_a_file_at_a_host_without_end_is_refused_and_its_part_is_named(tmp_path: Path, attack: str) -> None:
    with HostileHost(ALL_WAYS[attack]) as host:
        outbound = {"allow": [host.place], "timeout": 0.3 if attack in DRIP else 60}
        with served(tmp_path, [], over_http=True, outbound=outbound) as stage:
            content = [{"type": "input_file", "file_url": f"{host.url}/a.pdf"}]
            body = {"model": "scripted", "input": [{"role": "user", "content": content}]}
            with watched(stage.server) as watch:
                refused = stage.request("POST", "/responses", json=body)
            assert stage.requests == [], "no model was asked"
    error = refused.json()["error"]
    assert (refused.status_code, error["code"], error["param"]) == (400, "invalid_url", "input[0].content[0].file_url")
    assert "127.0.0.1" in error["message"]
    assert host.connections == (6 if attack == "redirects" else 1)
    assert host.sent < MOST_SENT
    assert watch.longest < 1.0, "in seconds of CPU"


def test_an_image_is_left_to_the_model_server_whatever_its_host_does(tmp_path: Path) -> None:
    with HostileHost(ATTACKS["interim answers"]) as host:
        with served(tmp_path, ["A cup."], over_http=True, outbound={"allow": [host.place]}) as stage:
            content = [{"type": "input_image", "image_url": f"{host.url}/a.png"}]
            body = {"model": "scripted", "input": [{"role": "user", "content": content}]}
            assert stage.request("POST", "/responses", json=body).json()["status"] == "completed"
            assert f"{host.url}/a.png" in str(stage.bodies)
        assert host.connections == 0


@pytest.mark.parametrize("attack", ALL_WAYS)
def test_a_webhook_without_end_is_told_again_later_and_its_question_can_be_answered(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, attack: str
) -> None:
    with HostileHost(ALL_WAYS[attack]) as host:
        limit = "300ms" if attack in DRIP else "60s"
        webhook = {"url": host.url, "secret": "0123456789abcdef", "retry": "1h", "timeout": limit}
        steps: list[Turn | str] = [turn(calls=[call("ask_user", question="Which one?")]), "Well."]
        with served_user(tmp_path, steps, user={"settings": {"webhook": webhook}}) as stage:
            with watched(stage.server) as watch:
                response_id = begun(stage)
                [question] = asked(stage)
                assert any("tried again" in caplog.text for _ in patience())
            answer(stage, question, answer="This one.")
            assert done(stage, response_id)["status"] == "completed"
    assert f"the webhook was not told of question {question['id']}" in caplog.text
    assert ("answered with the status 302" in caplog.text) is (attack == "redirects")
    assert host.connections == 1
    assert host.sent < MOST_SENT
    assert watch.longest < 1.0, "in seconds of CPU"
