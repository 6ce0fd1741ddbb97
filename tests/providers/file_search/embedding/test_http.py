"""The client for OpenAI-compatible services, against one."""

import asyncio
import base64
import datetime
import email.utils
import logging
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.embeddings import Asked, Reply, Service, error, vector_of

from antwort.extensions import EmbeddingUnavailable
from antwort.outbound import Outbound
from antwort.provider import ConfigError, FunctionError
from antwort.providers.file_search.embedding.http import HttpEmbedding, read_vectors

KEY = "sk-embedding-secret"
TEXTS = ["red", "green", "blue", "wine", "Käse 🧀"]
VECTORS = [vector_of(text) for text in TEXTS]


@pytest.fixture
def service() -> Iterator[Service]:
    with Service(key=KEY) as service:
        yield service


class Waits(list[float]):
    """Sleeps no time, and remembers how much it would have been."""

    async def __call__(self, seconds: float) -> None:
        self.append(seconds)


@pytest.fixture
def waits() -> Waits:
    return Waits()


@pytest.fixture
async def http() -> AsyncIterator[Outbound]:
    http = Outbound()
    yield http
    await http.close()


@pytest.fixture
def client(http: Outbound, service: Service, waits: Waits) -> HttpEmbedding:
    return HttpEmbedding(http, service.url, model="small", api_key=KEY, sleep=waits)


def data(*vectors: Any, **other: Any) -> dict[str, Any]:
    return {"data": [{"index": index, "embedding": vector, **other} for index, vector in enumerate(vectors)]}


def test_the_service_of_these_tests_speaks_what_the_sdk_of_openai_speaks(service: Service) -> None:
    with openai.OpenAI(base_url=service.url.removesuffix("/embeddings"), api_key=KEY, max_retries=0) as sdk:
        answer = sdk.embeddings.create(model="small", input=TEXTS, encoding_format="float")
        assert [entry.embedding for entry in answer.data] == VECTORS
        with pytest.raises(openai.BadRequestError):
            sdk.embeddings.create(model="small", input="")


async def test_every_text_gets_its_vector_in_one_request(client: HttpEmbedding, service: Service) -> None:
    assert await client.embed(TEXTS) == VECTORS
    (asked,) = service.asked
    assert asked.body == {"encoding_format": "float", "model": "small", "input": TEXTS}
    assert asked.headers["authorization"] == f"Bearer {KEY}"


async def test_no_texts_are_no_request(client: HttpEmbedding, service: Service) -> None:
    assert await client.embed([]) == []
    assert service.asked == []


async def test_an_empty_text_has_a_vector_although_services_refuse_one(client: HttpEmbedding) -> None:
    assert await client.embed(["", "red"]) == [vector_of(" "), vector_of("red")]


async def test_without_a_model_and_a_key_none_is_sent(http: Outbound) -> None:
    with Service() as service:
        await HttpEmbedding(http, service.url).embed(["red"])
    assert service.asked[0].body == {"encoding_format": "float", "input": ["red"]}
    assert "authorization" not in service.asked[0].headers


async def test_the_query_of_the_url_is_kept(http: Outbound) -> None:
    with Service() as service:
        await HttpEmbedding(http, f"{service.url}?api-version=2024-10-21").embed(["red"])
    assert service.asked[0].path == "/v1/embeddings?api-version=2024-10-21"


async def test_vectors_are_put_in_the_order_of_their_index(http: Outbound) -> None:
    with Service(shuffled=True) as service:
        assert await HttpEmbedding(http, service.url).embed(TEXTS) == VECTORS


async def test_packed_vectors_are_read(http: Outbound) -> None:
    with Service(packed=True) as service:
        assert await HttpEmbedding(http, service.url).embed(TEXTS) == VECTORS


async def test_batches_are_no_larger_than_the_service_takes(http: Outbound) -> None:
    texts = [f"text {number}" for number in range(25)]
    with Service(most=10) as service:
        vectors = await HttpEmbedding(http, service.url, batch=10).embed(texts)
    assert vectors == [vector_of(text) for text in texts]
    assert [len(asked.body["input"]) for asked in service.asked] == [10, 10, 5]


async def test_long_texts_do_not_share_a_request(http: Outbound) -> None:
    texts = ["a" * 300_000, "b" * 300_000, "c", "d" * 900_000]
    with Service() as service:
        assert await HttpEmbedding(http, service.url).embed(texts) == [vector_of(text) for text in texts]
    assert [len(asked.body["input"]) for asked in service.asked] == [1, 2, 1]


async def test_a_batch_of_large_vectors_is_not_too_large_an_answer(http: Outbound) -> None:
    texts = [f"text {number}" for number in range(64)]
    with Service(dimensions=8192) as service:
        vectors = await HttpEmbedding(http, service.url, batch=64).embed(texts)
    assert [len(vector) for vector in vectors] == [8192] * 64


# --- dimensions -------------------------------------------------------------------------------------------------------


async def test_two_answers_tell_the_dimensions_and_they_are_kept(client: HttpEmbedding, service: Service) -> None:
    assert [await client.dimensions(), await client.dimensions()] == [8, 8]
    assert len(service.asked) == 2


async def test_one_wrong_answer_does_not_tell_the_dimensions(client: HttpEmbedding, service: Service) -> None:
    service.replies = [Reply(body={"data": [{"embedding": [1.0, 2.0, 3.0]}]})]
    with pytest.raises(EmbeddingUnavailable, match="gives vectors with 3 dimensions, and then with 8"):
        await client.dimensions()
    assert await client.dimensions() == 8


async def test_dimensions_are_discovered_once_however_many_ask(client: HttpEmbedding, service: Service) -> None:
    assert await asyncio.gather(*(client.dimensions() for _ in range(5))) == [8] * 5
    assert len(service.asked) == 2


async def test_a_failed_discovery_is_that_of_all_who_wait(http: Outbound, service: Service, waits: Waits) -> None:
    client = HttpEmbedding(http, service.url, api_key=KEY, timeout=0.05, sleep=waits)
    service.replies = [Reply(held=True)] * 8
    for one in await asyncio.gather(*(client.dimensions() for _ in range(8)), return_exceptions=True):
        assert isinstance(one, EmbeddingUnavailable)
    assert len(service.asked) == 1


class Gate:
    """Holds the answers of a service back until it is opened."""

    def __init__(self, service: Service) -> None:
        self.reached = asyncio.Event()
        self.opened = threading.Event()
        self._loop = asyncio.get_running_loop()
        self._answer = service.reply
        service.reply = self._reply  # type: ignore[method-assign]

    def _reply(self, asked: Asked) -> Reply:
        self._loop.call_soon_threadsafe(self.reached.set)
        self.opened.wait()
        return self._answer(asked)


@pytest.fixture
async def gate(service: Service) -> AsyncIterator[Gate]:
    gate = Gate(service)
    yield gate
    gate.opened.set()


async def test_who_leaves_does_not_end_the_discovery_of_others(
    client: HttpEmbedding, service: Service, gate: Gate
) -> None:
    first, *others = [asyncio.create_task(client.dimensions()) for _ in range(3)]
    await gate.reached.wait()
    first.cancel()
    await asyncio.wait([first])
    gate.opened.set()
    assert await asyncio.gather(*others) == [8, 8]
    assert first.cancelled()
    assert len(service.asked) == 2


async def test_closing_gives_up_a_discovery(client: HttpEmbedding, gate: Gate) -> None:
    waiting = asyncio.create_task(client.dimensions())
    await gate.reached.wait()
    await client.close()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_dimensions_that_are_set_are_asked_for_and_need_no_call(http: Outbound) -> None:
    with Service() as service:
        client = HttpEmbedding(http, service.url, dimensions=4)
        assert await client.dimensions() == 4
        assert service.asked == []
        assert await client.embed(["red"]) == [vector_of("red", 4)]
    assert service.asked[0].body["dimensions"] == 4


async def test_dimensions_that_change_are_an_error_that_names_both(client: HttpEmbedding, service: Service) -> None:
    assert await client.dimensions() == 8
    service.dimensions = 6
    with pytest.raises(EmbeddingUnavailable, match="6 dimensions, not 8"):
        await client.embed(["red"])
    assert await client.dimensions() == 6, "the service is asked anew"


async def test_a_failed_discovery_is_tried_again(client: HttpEmbedding, service: Service) -> None:
    service.replies = [error(400, "not now")]
    with pytest.raises(EmbeddingUnavailable):
        await client.dimensions()
    assert await client.dimensions() == 8


# --- failures that may pass -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "reply", [error(429, "slow down"), error(500, "oops"), error(503, "loading"), Reply(silent=True)], ids=str
)
async def test_a_failure_that_passes_is_not_noticed(
    client: HttpEmbedding, service: Service, waits: Waits, reply: Reply
) -> None:
    service.replies = [reply, reply]
    assert await client.embed(TEXTS) == VECTORS
    assert len(service.asked) == 3
    assert 0.1 <= waits[0] <= 0.2 <= waits[1] <= 0.4


async def test_a_failure_that_stays_is_told(client: HttpEmbedding, service: Service, waits: Waits) -> None:
    service.replies = [error(503, "loading")] * 5
    with pytest.raises(EmbeddingUnavailable, match=r"^The embedding service failed with status 503\.$"):
        await client.embed(TEXTS)
    assert (len(service.asked), len(waits)) == (3, 2)


async def test_only_the_batch_that_failed_is_asked_for_again(http: Outbound, waits: Waits) -> None:
    with Service() as service:
        client = HttpEmbedding(http, service.url, batch=2, sleep=waits)
        original = service.reply
        service.reply = lambda asked: error(502, "bad") if len(service.asked) == 2 else original(asked)  # type: ignore[method-assign]
        assert await client.embed(TEXTS) == VECTORS
    assert [asked.body["input"] for asked in service.asked] == [TEXTS[:2], TEXTS[2:4], TEXTS[2:4], TEXTS[4:]]


async def test_the_service_says_how_long_to_wait(client: HttpEmbedding, service: Service, waits: Waits) -> None:
    service.replies = [error(429, "slow down", retry_after="3"), error(503, "loading", retry_after="0.5")]
    assert await client.embed(TEXTS) == VECTORS
    assert waits == [3.0, 0.5]


async def test_the_service_may_say_when(client: HttpEmbedding, service: Service, waits: Waits) -> None:
    soon = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=8)
    service.replies = [
        error(429, "slow down", retry_after=email.utils.format_datetime(soon, usegmt=True)),
        error(429, "slow down", retry_after="Thu, 01 Jan 1970 00:00:00 GMT"),
    ]
    assert await client.embed(TEXTS) == VECTORS
    assert 0 < waits[0] <= 8
    assert waits[1] == 0


@pytest.mark.parametrize("nonsense", ["soon", "", "nan", "-5"])
async def test_nonsense_about_when_does_no_harm(
    client: HttpEmbedding, service: Service, waits: Waits, nonsense: str
) -> None:
    service.replies = [error(429, "slow down", retry_after=nonsense)]
    assert await client.embed(TEXTS) == VECTORS
    assert 0 <= waits[0] <= 0.2


async def test_nobody_waits_longer_than_a_request_may_take(
    client: HttpEmbedding, service: Service, waits: Waits
) -> None:
    service.replies = [error(429, "slow down", retry_after="3600")]
    with pytest.raises(EmbeddingUnavailable, match="too many requests"):
        await client.embed(TEXTS)
    assert (len(service.asked), waits) == (1, [])


async def test_a_service_that_is_not_there_is_named_to_the_operator_by_its_host_and_port(
    http: Outbound, waits: Waits, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        port = taken.getsockname()[1]
        url = f"http://user:password@127.0.0.1:{port}/v1/embeddings"
        with pytest.raises(EmbeddingUnavailable) as caught:
            await HttpEmbedding(http, url, sleep=waits).embed(TEXTS)
    assert str(caught.value) == "The embedding service cannot be reached."
    assert caught.value.for_operator == f"The embedding service at '127.0.0.1:{port}' cannot be reached."
    [line] = caplog.messages
    assert line.startswith(f"{caught.value.for_operator} Connect call failed")
    assert line.endswith("; check 'embedding_url'")
    assert line.count("cannot be reached") == 1
    assert "password" not in line
    assert len(waits) == 2


async def test_a_service_that_is_silent_is_not_waited_for_twice(http: Outbound, waits: Waits) -> None:
    with Service() as service:
        service.replies = [Reply(held=True)]
        with pytest.raises(EmbeddingUnavailable, match=r"did not answer within 0\.05 seconds"):
            await HttpEmbedding(http, service.url, timeout=0.05, sleep=waits).embed(TEXTS)
        assert (len(service.asked), waits) == (1, [])


# --- failures that stay -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "told"),
    [
        (400, "failed with status 400"),
        (401, "check 'embedding_api_key'"),
        (403, "check 'embedding_api_key'"),
        (404, "must be the whole address"),
        (405, "must be the whole address"),
        (413, "too long"),
        (301, "failed with status 301"),
    ],
)
async def test_a_refusal_is_final_and_says_what_helps(
    client: HttpEmbedding, service: Service, waits: Waits, status: int, told: str
) -> None:
    service.replies = [error(status, "no", location="https://example.org/")]
    with pytest.raises(EmbeddingUnavailable, match=told):
        await client.embed(TEXTS)
    assert (len(service.asked), waits) == (1, [])


async def test_the_base_of_the_api_is_not_the_endpoint(http: Outbound) -> None:
    with Service() as service, pytest.raises(EmbeddingUnavailable, match="whole address, with /v1/embeddings"):
        await HttpEmbedding(http, service.url.removesuffix("/embeddings")).embed(TEXTS)


async def test_the_key_is_in_no_message_and_in_no_log(
    client: HttpEmbedding, service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    service.replies = [error(401, f"Incorrect API key provided: {KEY}. Find yours at …")]
    with caplog.at_level(logging.DEBUG), pytest.raises(FunctionError) as caught:
        await client.embed(TEXTS)
    assert "Incorrect API key provided: ***" in caplog.text
    assert KEY not in caplog.text + str(caught.value) + repr(caught.value) + repr(client)


@pytest.mark.parametrize(
    "body",
    [
        b"<html>Welcome</html>",
        b"\xff\xfe",
        b"[" * 100_000,
        b"null",
        {},
        {"data": None},
        data(*VECTORS[:4]),
        data(*VECTORS, VECTORS[0]),
        data(*VECTORS[:4], VECTORS[4][:7]),
        data(*VECTORS[:4], []),
        data(*VECTORS[:4], None),
        data(*VECTORS[:4], [*VECTORS[4][:7], None]),
        data(*VECTORS[:4], "not base64"),
        data(*VECTORS[:4], base64.b64encode(b"12345").decode()),
        data(*VECTORS[:4], base64.b64encode(b"\x00\x00\xc0\x7f" * 8).decode()),  # NaN
        {"data": [{"index": 0, "embedding": vector} for vector in VECTORS]},
        {"data": [{"index": index + 1, "embedding": vector} for index, vector in enumerate(VECTORS)]},
        {"error": {"message": "with status 200"}},
    ],
    ids=lambda body: str(body)[:40],
)
async def test_an_answer_that_cannot_be_right_is_an_error(
    client: HttpEmbedding, service: Service, body: bytes | dict[str, Any]
) -> None:
    service.replies = [Reply(200, body)]
    with pytest.raises(EmbeddingUnavailable, match="cannot be used"):
        await client.embed(TEXTS)
    assert await client.embed(TEXTS) == VECTORS


async def test_an_answer_without_end_is_not_read(client: HttpEmbedding, service: Service) -> None:
    service.replies = [Reply(200, b" " * 4_000_000)]
    with pytest.raises(EmbeddingUnavailable, match="cannot be used"):
        await client.embed(TEXTS)


async def test_whole_numbers_and_missing_indexes_are_understood(client: HttpEmbedding, service: Service) -> None:
    service.replies = [Reply(200, {"data": [{"embedding": [0, 1]}, {"embedding": [1, 0.5]}]})]
    assert await client.embed(["a", "b"]) == [[0.0, 1.0], [1.0, 0.5]]


@given(st.binary(max_size=300), st.integers(1, 3))
def test_any_bytes_are_vectors_or_a_value_error(body: bytes, count: int) -> None:
    try:
        vectors = read_vectors(body, count)
    except ValueError:
        return
    assert len(vectors) == count


def test_a_user_in_the_url_beside_a_key_is_refused(http: Outbound) -> None:
    with pytest.raises(ConfigError, match="give only one of them") as caught:
        HttpEmbedding(http, "http://user:password@localhost/v1/embeddings", api_key=KEY)
    assert "password" not in str(caught.value)


async def test_closing_twice_does_no_harm(client: HttpEmbedding) -> None:
    await client.close()
    await client.close()
