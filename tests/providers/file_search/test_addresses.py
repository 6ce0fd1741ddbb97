"""Servers that are dead, broken or talkative: models and clients never learn where they are, or who we are there."""

import contextlib
import http.server
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.http.sdk import Served
from tests.providers.file_search.stage import answering, outputs, staged, tool
from tests.support.embeddings import EmbeddingServer
from tests.support.qdrant import OwnQdrant
from typing_extensions import override

from antwort.extensions import VectorDatabase
from antwort.providers.file_search import FileSearch, FileSearchSettings
from antwort.providers.file_search.settings import PgvectorSettings, QdrantSettings
from antwort.providers.file_search.vectors.pgvector.backend import Pgvector

SECRETS = ["127.0.0.1", "localhost", "secret-path", "the-user", "hunter22", "secretdb", "internal"]
NOWHERE = f"{'x' * 64}.internal"
"""A name that no resolver takes, so that none is asked."""


class Unexamined(OwnQdrant):
    """The real thing, but the server starts whatever the database says."""

    @override
    async def health(self) -> None:
        """Do nothing."""


class WithoutCollections(Unexamined):
    """A store is created, too."""

    @override
    async def create_collection(self, name: str, dimensions: int) -> None:
        """Do nothing."""


class WithoutTables(Pgvector):
    """The same for PostgreSQL."""

    @override
    async def create_collection(self, name: str, dimensions: int) -> None:
        """Do nothing."""


@contextlib.contextmanager
def talkative(status: int, body: str, *, silent: bool = False) -> Iterator[int]:
    """Serve one answer to every request, with our address in it, or nothing until the end; give the port."""
    over = threading.Event()

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("content-length", 0)))
            if silent:
                over.wait(60)
                self.close_connection = True
                return
            told = body.replace("URL", f"http://the-user:hunter22@{self.headers['host']}{self.path}").encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(told)))
            self.end_headers()
            self.wfile.write(told)

        do_POST = do_PUT = do_DELETE = do_PATCH = do_GET  # noqa: N815 - what the library calls

        @override
        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield int(server.server_address[1])
        finally:
            over.set()
            server.shutdown()
            thread.join()


@contextlib.contextmanager
def dead() -> Iterator[int]:
    """Give a port on which nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield int(taken.getsockname()[1])


ERROR = json.dumps({"status": {"error": "Wrong input: ask URL"}, "result": None})
KINDS: dict[str, Callable[[], AbstractContextManager[int]]] = {
    "dead": dead,
    "status 500": partial(talkative, 500, ERROR),
    "status 400": partial(talkative, 400, ERROR),
    "plain 400": partial(talkative, 400, "nginx at URL"),
    "status 401": partial(talkative, 401, ERROR),
    "status 403": partial(talkative, 403, "no access to URL"),
    "status 422": partial(talkative, 422, "URL"),
    "status 429": partial(talkative, 429, ERROR),
    "a portal": partial(talkative, 200, "<html>Welcome to URL</html>"),
    "silent": partial(talkative, 200, "", silent=True),
}


def walk(stage: Served, *, created: bool) -> list[tuple[int, str]]:
    """Ask for everything there is; return the status and what was told each time."""
    told = []

    def ask(method: str, path: str, **options: Any) -> Any:
        answer = stage.request(method, f"/vector_stores{path}", **options)
        told.append((answer.status_code, answer.text))
        return answer.json()

    made = ask("POST", "", json={"name": "tea"})
    if created:
        one = f"/{made['id']}"
        ask("GET", "")
        ask("GET", one)
        ask("POST", one, json={"name": "green tea"})
        ask("POST", f"{one}/search", json={"query": "tea"})
        points = [{"text": "tea", "file_id": "f", "filename": "tea.txt"}]
        ask("POST", f"{one}/points", json={"points": points})
        ask("DELETE", f"{one}/points", params={"file_id": "f"})
        response = stage.client().responses.create(
            input="tea", tools=[tool(made["id"])], include=["file_search_call.results"]
        )
        told.append((200, response.model_dump_json()))
        told += [(503, output) for output in outputs(stage)]
        ask("DELETE", one)
    return told


def check(told: list[tuple[int, str]], port: int) -> None:
    """Nothing that was told has an address in it."""
    for _, text in told:
        assert not [secret for secret in [*SECRETS, f":{port}", NOWHERE] if secret in text], text
    assert not [text for status, text in told if status == 500], told


@pytest.mark.parametrize(
    ("name", "created"), [*((name, True) for name in KINDS), ("dead", False), ("status 500", False)]
)
def test_the_address_of_qdrant_is_told_to_nobody(
    tmp_path: Path, embeddings: EmbeddingServer, name: str, created: bool
) -> None:
    with KINDS[name]() as port:
        settings = FileSearchSettings(
            embedding_url=embeddings.url,
            vector_backend="qdrant",
            qdrant=QdrantSettings(url=f"http://127.0.0.1:{port}/secret-path", timeout=0.2),
        )
        backend: VectorDatabase = (WithoutCollections if created else Unexamined)(settings.qdrant)
        with staged(
            tmp_path, answering("tea") if created else [], {}, provider=FileSearch(settings, backend=backend)
        ) as stage:
            told = walk(stage, created=created)
    check(told, port)
    # A store can be created while nobody answers.
    assert {200 if name == "dead" and not created else 503} <= {status for status, _ in told}


@pytest.mark.parametrize("host", ["127.0.0.1", NOWHERE])
@pytest.mark.parametrize("created", [True, False], ids=["with a store", "without one"])
def test_the_address_of_postgresql_is_told_to_nobody(
    tmp_path: Path, embeddings: EmbeddingServer, created: bool, host: str
) -> None:
    with dead() as port:
        url = f"postgresql://the-user:hunter22@{host}:{port}/secretdb"
        settings = FileSearchSettings.model_validate(
            {"embedding_url": embeddings.url, "vector_backend": "pgvector", "pgvector": {"url": url, "timeout": 1}}
        )
        backend: VectorDatabase = (WithoutTables if created else Pgvector)(PgvectorSettings(url=settings.pgvector.url))
        with staged(
            tmp_path, answering("tea") if created else [], {}, provider=FileSearch(settings, backend=backend)
        ) as stage:
            told = walk(stage, created=created)
    check(told, port)
    assert {503 if created else 200} <= {status for status, _ in told}


@pytest.mark.parametrize("name", ["dead", "status 500", "status 400", "status 401", "a portal", "silent"])
def test_the_address_of_an_embedding_service_is_told_to_nobody(tmp_path: Path, name: str) -> None:
    with KINDS[name]() as port, EmbeddingServer() as embeddings:
        with staged(tmp_path, [], {"embedding_url": embeddings.url}) as stage:
            made = stage.request("POST", "/vector_stores", json={"name": "tea"}).json()
        settings = {
            "embedding_url": f"http://the-user:hunter22@127.0.0.1:{port}/secret-path",
            "embedding_retries": 0,
            "embedding_timeout": 0.2,
        }
        with staged(tmp_path, answering("tea"), settings) as stage:
            told = walk(stage, created=False)
            points = [{"text": "tea", "file_id": "f", "filename": "tea.txt"}]
            for path, body in (("points", {"points": points}), ("search", {"query": "tea"})):
                answer = stage.request("POST", f"/vector_stores/{made['id']}/{path}", json=body)
                told.append((answer.status_code, answer.text))
            stage.client().responses.create(input="tea", tools=[tool(made["id"])])
            told += [(200, output) for output in outputs(stage)]
    check(told, port)
    assert [status for status, _ in told] == [503, 503, 200, 200]
