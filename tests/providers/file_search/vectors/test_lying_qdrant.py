"""A Qdrant server that lies: wrong shapes, points of others, lists and answers without end. All of it is one error."""

import contextlib
import http.server
import itertools
import json
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any
from uuid import UUID

import pytest
from tests.providers.file_search.vectors.conformance import SHARED, STORE, TENANT, near
from tests.support.hostile_host import ATTACKS, DRIP, HostileHost, LoopWatch
from tests.support.qdrant import OwnQdrant
from typing_extensions import override

from antwort.extensions import Count, Query, VectorStoreUnavailable
from antwort.providers.file_search.settings import QdrantSettings
from antwort.providers.file_search.vectors.qdrant.backend import Qdrant

Say = Callable[[Any], Any]
ID = str(UUID(int=1))
LIE = r"^The vector database failed: its answer is not one that Qdrant gives\.$"


def _nothing(_asked: Any) -> None:
    """Say nothing."""


@contextlib.contextmanager
def lying(**answers: Say) -> Iterator[str]:
    """Serve results that are made from the bodies of requests, by the last part of the path; give the URL."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))) or b"null")
            say: Say = answers.get(self.path.partition("?")[0].rpartition("/")[2], _nothing)
            body = json.dumps({"result": say(asked), "status": "ok", "time": 0.0}).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_PUT = do_DELETE = do_POST  # noqa: N815 - its names

        @override
        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def point(**fields: Any) -> dict[str, Any]:
    payload = {"text": "tea", "file_id": "file-1", "tenant": TENANT, "vector_store_id": "vs_test"}
    return {"id": ID, "version": 1, "score": 0.5, "payload": payload, **fields}


def owned(tenant: str, store: str) -> dict[str, Any]:
    return point(payload={"text": "secret", "tenant": tenant, "vector_store_id": store})


async def refused(url: str, work: Callable[[Qdrant], Awaitable[object]]) -> None:
    backend = OwnQdrant(QdrantSettings(url=url))
    try:
        with pytest.raises(VectorStoreUnavailable, match=LIE):
            await work(backend)
    finally:
        await backend.close()


@pytest.mark.parametrize(
    "found",
    [
        None,
        [],
        {},
        [{"points": None}],
        [{"points": [None]}],
        [{"points": [1]}],
        [{}],
        [{"points": [point(id=[])]}],
        [{"points": [point(score="best")]}],
        [{"points": [point(score=None)]}],
        [{"points": [point(payload=[])]}],
        [{"points": [point()]}] * 2,
        [{"points": [point()] * 99}],
    ],
)
async def test_results_of_another_shape_are_an_error_of_ours(found: Any) -> None:
    with lying(batch=lambda _asked: found) as url:
        await refused(url, lambda backend: backend.search(STORE, Query(TENANT, near(1))))


async def test_points_of_another_tenant_reach_nobody(caplog: pytest.LogCaptureFixture) -> None:
    query = Query(TENANT, near(1), vector_store_id="vs_mine")
    for name, other in (
        (STORE, owned("tenant-b", "vs_test")),
        (STORE, point(payload={"text": "nobody's"})),
        (STORE, point(payload=None)),
        (SHARED, owned(TENANT, "vs_other")),
        (SHARED, owned("tenant-b", "vs_mine")),
    ):
        answers: Any = {
            "batch": lambda _asked, found=other: [{"points": [found]}],
            "scroll": lambda _asked, found=other: {"points": [found], "next_page_offset": None},
        }
        with lying(**answers) as url:
            await refused(url, lambda backend, name=name: backend.search(name, query))  # type: ignore[misc]
            await refused(
                url,
                lambda backend, name=name: backend.fetch(name, [ID], tenant=TENANT, vector_store_id="vs_mine"),  # type: ignore[misc]
            )
    assert "a point of somebody else was given" in caplog.text
    assert "secret" not in caplog.text


async def test_what_was_asked_for_is_passed_on() -> None:
    with lying(batch=lambda _asked: [{"points": [point()]}]) as url:
        backend = OwnQdrant(QdrantSettings(url=url))
        [hit] = await backend.search(STORE, Query(TENANT, near(1)))
        await backend.close()
    assert (hit.id, hit.text, hit.file_id) == (ID, "tea", "file-1")


@pytest.mark.parametrize("value", ["many", -1, 1.5, None, {}])
async def test_sizes_that_are_none_are_an_error_of_ours(value: Any) -> None:
    facet = {"hits": [{"value": value, "count": 1}]}
    with lying(count=lambda _asked: {"count": 1}, facet=lambda _asked: facet) as url:
        await refused(url, lambda backend: backend.count(STORE, tenant=TENANT))


@pytest.mark.parametrize("is_new", [False, True])
async def test_a_list_of_points_without_end_is_given_up(is_new: bool) -> None:
    numbers = itertools.count()

    def page(asked: Any) -> Any:
        full = [point(id=next(numbers)) for _ in range(asked["limit"] if is_new else 1)]
        return {"points": full, "next_page_offset": next(numbers) if is_new else 7}

    with lying(count=lambda _asked: {"count": 5}, facet=lambda _asked: {"hits": []}, scroll=page) as url:
        await refused(url, lambda backend: backend.count(STORE, tenant=TENANT))
    assert next(numbers) < 10_000


async def test_a_list_of_points_that_ends_is_counted() -> None:
    def page(asked: Any) -> Any:
        return {"points": [point()], "next_page_offset": None if asked.get("offset") == 2 else 2}

    with lying(count=lambda _asked: {"count": 2}, facet=lambda _asked: {"hits": []}, scroll=page) as url:
        backend = OwnQdrant(QdrantSettings(url=url))
        assert await backend.count(STORE, tenant=TENANT) == Count(2, 0, 6)
        await backend.close()


@pytest.mark.parametrize(
    "answer", [None, {}, {"config": {}}, {"config": {"params": {"vectors": {"size": "4"}}}}, [], "yes"]
)
async def test_a_collection_of_another_shape_is_an_error_of_ours(answer: Any) -> None:
    answers: Any = {"exists": lambda _asked: {"exists": True}, STORE: lambda _asked: answer}
    with lying(**answers) as url:
        await refused(url, lambda backend: backend.dimensions(STORE))


@pytest.mark.parametrize("attack", ATTACKS)
async def test_an_answer_without_end_is_given_up(attack: str) -> None:
    with HostileHost(ATTACKS[attack]) as host:
        backend = OwnQdrant(QdrantSettings(url=host.url, timeout=120))
        async with LoopWatch() as watch:
            with pytest.raises(VectorStoreUnavailable, match=r"The vector database (failed|cannot be reached)"):
                await backend.collections()
        await backend.close()
    assert watch.longest < 1.0, "in seconds of CPU"


@pytest.mark.parametrize("attack", DRIP)
async def test_an_answer_that_drips_is_given_up(attack: str) -> None:
    with HostileHost(DRIP[attack]) as host:
        backend = OwnQdrant(QdrantSettings(url=host.url, timeout=0.3))
        with pytest.raises(VectorStoreUnavailable, match=r"cannot be reached\.$") as caught:
            await backend.collections()
        await backend.close()
    assert caught.value.away
