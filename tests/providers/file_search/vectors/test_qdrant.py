"""The Qdrant backend on a real server."""

import contextlib
import http.server
import json
import logging
import re
import threading
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any, ClassVar
from uuid import UUID

import pytest
from tests.providers.file_search.vectors.conformance import (
    STORE,
    TENANT,
    VectorBackendContract,
    chunk,
    ids,
    near,
)
from tests.support.qdrant import REQUEST_MB, OwnQdrant, QdrantServer
from typing_extensions import override

from antwort.extensions import Comparison, Count, Query, VectorDatabase, VectorStoreUnavailable, shared_collection_name
from antwort.lazy_imports import imported_on_use
from antwort.provider import ConfigError, SecretStr
from antwort.providers.file_search.settings import QdrantSettings
from antwort.providers.file_search.vectors.qdrant.backend import Qdrant

if TYPE_CHECKING:
    import qdrant_client
else:
    qdrant_client = imported_on_use("qdrant_client")


@pytest.fixture
async def client(qdrant: QdrantServer) -> "AsyncIterator[qdrant_client.AsyncQdrantClient]":
    """The server as a pipeline sees it, empty."""
    client = qdrant_client.AsyncQdrantClient(url=qdrant.url)
    yield client
    await client.close()


class TestQdrant(VectorBackendContract):
    server: QdrantServer

    @pytest.fixture
    async def backend(
        self, qdrant_server: QdrantServer, client: "qdrant_client.AsyncQdrantClient"
    ) -> AsyncIterator[VectorDatabase]:
        self.server = qdrant_server
        backend = OwnQdrant(QdrantSettings(url=qdrant_server.url))
        yield backend
        await backend.close()

    @override
    def crash(self, backend: VectorDatabase) -> None:
        self.server.kill()

    @override
    def restore(self) -> None:
        self.server.start()


@pytest.fixture
async def backend(qdrant_server: QdrantServer, client: "qdrant_client.AsyncQdrantClient") -> AsyncIterator[Qdrant]:
    backend = OwnQdrant(
        QdrantSettings(
            url=qdrant_server.url, shards=2, on_disk=True, indexed_attributes={"year": "float", "a.b": "keyword"}
        )
    )
    yield backend
    await backend.close()


def written_by_a_pipeline(number: int, text: str) -> "qdrant_client.models.PointStruct":
    """A point without a sparse vector, with what the contract asks for and no more."""
    payload = {"text": text, "file_id": f"file-{number}", "tenant": TENANT}
    return qdrant_client.models.PointStruct(id=str(UUID(int=number)), vector=near(number), payload=payload)


async def test_keywords_find_points_that_a_pipeline_wrote_without_a_sparse_vector(
    backend: Qdrant, client: "qdrant_client.AsyncQdrantClient"
) -> None:
    await backend.create_collection(STORE, 4)
    await client.upsert(
        STORE,
        [
            written_by_a_pipeline(1, "Foxes sleep."),
            written_by_a_pipeline(2, "Foxes sleep in dens; the fox is red."),
            written_by_a_pipeline(3, "Bread and butter."),
        ],
    )
    await backend.upsert(STORE, [chunk(4, "Dens of foxes and of other animals")])
    hits = await backend.search(STORE, Query(TENANT, text="red foxes in dens"))
    assert set(ids(hits)) == {1, 2, 4}
    assert all(0 < hit.score < 1 for hit in hits)
    by_number = {UUID(hit.id).int: hit.score for hit in hits}
    assert by_number[2] > by_number[1], "it has more of the words"
    assert ids(await backend.search(STORE, Query(TENANT, near(1), "foxes", limit=4)))[0] in {1, 4}
    (hit,) = await backend.search(STORE, Query(TENANT, text="butter"))
    assert (hit.file_id, hit.filename, hit.index, hit.attributes) == ("file-3", "", 0, {})
    assert await backend.search(STORE, Query("tenant-b", text="butter")) == []


async def test_bytes_are_counted_where_a_pipeline_did_not(
    backend: Qdrant, client: "qdrant_client.AsyncQdrantClient"
) -> None:
    await backend.create_collection(STORE, 4)
    await client.upsert(STORE, [written_by_a_pipeline(1, "füchse"), written_by_a_pipeline(2, "")])
    await backend.upsert(STORE, [chunk(3, "four", file="file-3")])
    assert await backend.count(STORE, tenant=TENANT) == Count(3, 3, 7 + 4)


async def test_settings_shape_a_new_collection(backend: Qdrant, client: "qdrant_client.AsyncQdrantClient") -> None:
    shared = shared_collection_name(4)
    for name in (STORE, shared):
        await backend.create_collection(name, 4)
    found = await client.get_collection(STORE)
    assert found.config.params.shard_number == 2
    assert found.config.optimizer_config.default_segment_number == 1
    assert isinstance(found.config.params.vectors, qdrant_client.models.VectorParams)
    assert found.config.params.vectors.on_disk is True
    attributes = {"attributes.year", 'attributes."a.b"'}
    assert set(found.payload_schema) == {"tenant", "file_id", "text", "text_bytes"} | attributes
    tenant = found.payload_schema["tenant"].params
    assert isinstance(tenant, qdrant_client.models.KeywordIndexParams)
    assert tenant.is_tenant is True
    found = await client.get_collection(shared)
    assert "vector_store_id" in found.payload_schema
    assert found.config.hnsw_config.m == 0
    assert found.config.optimizer_config.default_segment_number == 0, "the server's own"


async def test_an_indexed_attribute_filters_as_any_other(backend: Qdrant) -> None:
    await backend.create_collection(STORE, 4)
    await backend.upsert(STORE, [chunk(number, attributes={"year": 2000 + number}) for number in range(9)])
    wanted = Comparison("year", "gte", 2006.0)
    assert sorted(ids(await backend.search(STORE, Query(TENANT, near(0), filter=wanted)))) == [6, 7, 8]
    same = Comparison("year", "eq", 2003.0)
    assert ids(await backend.search(STORE, Query(TENANT, near(0), filter=same))) == [3]


async def test_an_index_that_a_crash_left_out_is_made_up_for(
    backend: Qdrant, client: "qdrant_client.AsyncQdrantClient"
) -> None:
    await backend.create_collection(STORE, 4)
    await client.delete_payload_index(STORE, "text_bytes")
    await backend.create_collection(STORE, 4)
    assert "text_bytes" in (await client.get_collection(STORE)).payload_schema


async def test_collections_of_others_are_left_alone(backend: Qdrant, client: "qdrant_client.AsyncQdrantClient") -> None:
    await client.create_collection(
        "theirs", vectors_config=qdrant_client.models.VectorParams(size=2, distance=qdrant_client.models.Distance.DOT)
    )
    assert await backend.collections() == []


async def test_what_a_pipeline_wrote_otherwise_is_found_without_it(
    backend: Qdrant, client: "qdrant_client.AsyncQdrantClient"
) -> None:
    await backend.create_collection(STORE, 4)
    odd: list[dict[str, Any]] = [
        {"attributes": {"tags": ["a"], "none": None, "kept": "yes"}, "chunk_index": 2.0},
        {"attributes": ["a"], "chunk_index": "2", "filename": 7},
        {"text": None, "attributes": None},
    ]
    points = [written_by_a_pipeline(number, "tea") for number in range(3)]
    for point, more in zip(points, odd, strict=True):
        point.payload = {**(point.payload or {}), **more}
    await client.upsert(STORE, points)
    hits = await backend.search(STORE, Query(TENANT, near(0)))
    found = {UUID(hit.id).int: (hit.text, hit.filename, hit.index, hit.attributes) for hit in hits}
    assert found == {0: ("tea", "", 2, {"kept": "yes"}), 1: ("tea", "", 0, {}), 2: ("", "", 0, {})}


async def test_limits_of_the_server_are_told_as_such(
    qdrant_server: QdrantServer, client: "qdrant_client.AsyncQdrantClient"
) -> None:
    backend = OwnQdrant(QdrantSettings(url=qdrant_server.url))
    await backend.create_collection(STORE, 4)
    few = qdrant_client.models.StrictModeConfig(enabled=True, max_query_limit=3, write_rate_limit=1)
    await client.update_collection(STORE, strict_mode_config=few)
    with pytest.raises(VectorStoreUnavailable, match="database refuses this with status 4") as refused:
        await backend.search(STORE, Query(TENANT, near(1)))
    assert "Limit exceeded 10 > 3" in refused.value.for_operator
    await backend.upsert(STORE, [chunk(1)])
    with pytest.raises(VectorStoreUnavailable, match="database has reached its limit of requests"):
        await backend.upsert(STORE, [chunk(2)])
    await backend.close()


class Answering(http.server.BaseHTTPRequestHandler):
    """Answers each request with the status, the headers and the body of its server."""

    protocol_version = "HTTP/1.1"
    answer: ClassVar[tuple[int, dict[str, str], bytes]]

    def do_GET(self) -> None:
        """Answer."""
        status, headers, body = self.answer
        self.send_response(status)
        for name, value in {**headers, "content-length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    @override
    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@contextlib.contextmanager
def answering(status: int, headers: dict[str, str], body: bytes) -> Iterator[str]:
    """Serve one answer to everything; give the URL."""
    handler = type("Handler", (Answering,), {"answer": (status, headers, body)})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    ("status", "headers", "body", "message"),
    [
        (429, {"retry-after": "5"}, b'{"status": {"error": "Rate limiting exceeded"}}', "has reached its limit"),
        (429, {"retry-after": "Sun, 15 Nov 2026 10:00:00 GMT"}, b"", "has reached its limit"),
        (429, {}, b"slow down", "has reached its limit"),
        (403, {}, b'{"status": {"error": "Forbidden: too many collections"}}', "refuses this with status 403"),
        (403, {}, b'{"status": {"error": "Forbidden: Global access is required"}}', "refuses the key"),
        (400, {}, b"Bad request", r"refuses this with status 400; the log says why\. Its operator"),
        (200, {}, b"<html>a portal</html>", "failed"),
        (200, {}, b"\xff\xfe\x00", "failed"),
        (200, {}, b"[]", "failed"),
        (200, {}, b'{"title": "qdrant", "version": "1.16.3"}', "failed"),
        (502, {}, b"<html>", "failed with status 502"),
    ],
)
async def test_any_answer_is_an_error_of_ours(status: int, headers: dict[str, str], body: bytes, message: str) -> None:
    with answering(status, headers, body) as url:
        backend = OwnQdrant(QdrantSettings(url=url))
        server = re.escape(url.removeprefix("http://"))
        unhealthy = ConfigError if message == "refuses the key" else VectorStoreUnavailable
        for call, kind in ((backend.collections(), VectorStoreUnavailable), (backend.health(), unhealthy)):
            with pytest.raises(kind, match=message) as failed:
                await call
            told = failed.value.for_operator if isinstance(failed.value, VectorStoreUnavailable) else str(failed.value)
            assert re.search(rf"database at {server} {message}", told)
        await backend.close()


@pytest.mark.parametrize(
    ("version", "problem", "message"),
    [
        ("0.11.7", ConfigError, r"is Qdrant 0\.11\.7, which is too old; file search needs 1\.16 or later"),
        ("1.15.5", ConfigError, r"127\.0\.0\.1:\d+ \('qdrant\.url'\) is Qdrant 1\.15\.5, which is too old"),
        ("1.16.0-dev", VectorStoreUnavailable, "failed"),
        ("2.0.0", VectorStoreUnavailable, "failed"),
        ("master", VectorStoreUnavailable, "failed"),
    ],
)
async def test_a_server_that_is_too_old_is_refused(version: str, problem: type[Exception], message: str) -> None:
    """One that is not is asked on, and what it says to that is none of Qdrant's answers."""
    with answering(200, {}, json.dumps({"title": "qdrant", "version": version}).encode()) as url:
        backend = OwnQdrant(QdrantSettings(url=url))
        with pytest.raises(problem, match=message):
            await backend.health()
        await backend.close()


@pytest.fixture
def guarded() -> Iterator[QdrantServer]:
    server = QdrantServer(api_key="the-right-key")
    try:
        server.start()
        yield server
    finally:
        server.remove()


async def test_a_key_is_sent_and_a_wrong_one_never_shown(
    guarded: QdrantServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    for key in ("the-right-key", "a-wrong-key", None):
        secret = SecretStr(key) if key else None
        backend = OwnQdrant(QdrantSettings(url=guarded.url, api_key=secret))
        if key == "the-right-key":
            await backend.health()
            await backend.create_collection(STORE, 4)
            await backend.upsert(STORE, [chunk(1)])
        else:
            message = r"refuses the key. Its operator must check 'qdrant.api_key'"
            with pytest.raises(VectorStoreUnavailable, match=rf"^The vector database {message}") as caught:
                await backend.search(STORE, Query(TENANT, near(1)))
            with pytest.raises(ConfigError, match=message) as unhealthy:
                await backend.health()
            assert "a-wrong-key" not in f"{caught.value} {unhealthy.value}"
        await backend.close()
    assert "a-wrong-key" not in caplog.text


async def test_the_operator_is_told_the_host_and_the_port_and_the_log_the_setting(
    caplog: pytest.LogCaptureFixture,
) -> None:
    backend = OwnQdrant(QdrantSettings(url="http://127.0.0.1:9/secret-path"))
    server = "127.0.0.1:9"
    with pytest.raises(VectorStoreUnavailable, match=r"^The vector database cannot be reached\.$") as failed:
        await backend.health()
    assert failed.value.for_operator == f"The vector database at {server} cannot be reached."
    await backend.close()
    [line] = [record.getMessage() for record in caplog.records if record.name.endswith("qdrant.rest")]
    assert line.startswith(f"vector database at {server}: ")
    assert line.endswith("; check 'qdrant.url' and 'qdrant.timeout'")
    assert "status" not in line
    assert "secret-path" not in line


@pytest.mark.parametrize(("url", "server"), [("http://[::1]", "[::1]:6333"), ("https://127.0.0.1:9/", "127.0.0.1:9")])
async def test_a_server_is_named_as_it_is_asked(url: str, server: str) -> None:
    backend = OwnQdrant(QdrantSettings(url=url))
    with pytest.raises(VectorStoreUnavailable) as failed:
        await backend.health()
    assert f" {server} " in failed.value.for_operator
    await backend.close()


async def test_long_texts_are_written_in_requests_that_the_server_takes(
    qdrant_server: QdrantServer, client: "qdrant_client.AsyncQdrantClient"
) -> None:
    backend = OwnQdrant(QdrantSettings(url=qdrant_server.url, timeout=60))
    await backend.create_collection(STORE, 4)
    text = "ж" + "\x01" * 40_000  # each of which is six bytes in JSON
    number = REQUEST_MB * 1024**2 // (2 * 6 * 40_000) + 1  # it is sent twice for each chunk
    await backend.upsert(STORE, [chunk(one, text) for one in range(number)])
    assert await backend.count(STORE, tenant=TENANT) == Count(number, 1, number * 40_002)
    await backend.delete_collection(STORE)
    await backend.close()


async def test_long_vectors_are_written_in_requests_that_the_server_takes(
    qdrant_server: QdrantServer, client: "qdrant_client.AsyncQdrantClient"
) -> None:
    backend = OwnQdrant(QdrantSettings(url=qdrant_server.url, timeout=60))
    await backend.create_collection(STORE, 20_000)
    number = REQUEST_MB * 1024**2 // (20_000 * len(f"{1 / 3},")) + 1
    await backend.upsert(STORE, [chunk(one, vector=[1 / 3] * 20_000) for one in range(number)])
    assert (await backend.count(STORE, tenant=TENANT)).chunks == number
    await backend.delete_collection(STORE)
    await backend.close()
