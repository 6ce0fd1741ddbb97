"""Chaos when a server is told to stop: whatever it is doing, it is gone in time, and nothing is lost.

It has `server.shutdown_timeout`, `functions.close_timeout` and fifteen seconds, as the page about operations says. All
it does meanwhile is bounded, so that the last of these limits, which ends it by force, is never met here.
"""

import asyncio
import contextlib
import itertools
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import httpx
import psycopg
import pytest
from tests.runs.outages import DatabaseAway, FileLocked
from tests.runs.processes import ServerProcess
from tests.support.embeddings import EmbeddingServer, Reply
from tests.support.postgres import PostgresServer

from antwort.cli.event_loop import STOPPING
from antwort.config import Config
from antwort.context import ANONYMOUS_TENANT
from antwort.storage.opening import open_configured
from antwort.testing import Gate, ScriptServer, Turn, call, turn
from antwort.types import JSON

SHUTDOWN, CLOSE = 1.0, 2.0
DOCUMENTED = SHUTDOWN + CLOSE + STOPPING
PATIENCE = 60.0
"""Seconds after which a test fails in place of hanging."""
OVER = {"completed", "incomplete", "failed", "cancelled"}


class Stage:
    """A server that was told to do several things, and what is known of them."""

    def __init__(self, folder: Path, request: pytest.FixtureRequest, workers: int) -> None:
        self.folder = folder
        self.workers = workers
        self.sections: JSON = {"functions": {"close_timeout": CLOSE}}
        self.providers: JSON = {}
        self.closing = contextlib.ExitStack()
        self.fixture: Callable[[str], Any] = request.getfixturevalue
        self.acknowledged: dict[str, JSON] = {}
        """Responses that clients were told are over, by their ids."""
        self.run = ""
        """A background response that clients were told is accepted."""
        self.promised: list[Callable[[httpx.Client], bool]] = []
        """What else comes about after the next start."""
        if workers > 1:
            self.use_postgres()

    def use_postgres(self) -> str:
        """Keep all in PostgreSQL; return its URL."""
        storage = self.sections.setdefault("storage", {"url": self.fixture("ready_url")})
        return str(storage["url"])

    def start(self, *steps: Turn | str) -> None:
        """Start the server; it has told a client that a first response is over."""
        # The same model outlives the server; what of its script is never asked for does not matter here.
        self.model = ScriptServer(["Fine.", *steps])
        self.model.start()
        self.closing.callback(self.model.stop)
        self.server = ServerProcess(
            self.folder,
            self.model.url,
            backend={"models": ["scripted"]},
            providers=self.providers,
            sections=self.sections,
            workers=self.workers,
            shutdown_timeout=SHUTDOWN,
        )
        self.closing.callback(self.server.kill)
        self.server.start()
        answer = self.post("responses", {"input": "Hello?"})
        self.acknowledged[answer["id"]] = answer

    def post(self, path: str, body: JSON) -> JSON:
        """Ask for something that works."""
        answer = httpx.post(f"{self.server.url}/v1/{path}", json=body, timeout=PATIENCE)
        assert answer.status_code == 200, answer.text
        found: JSON = answer.json()
        return found

    def begin(self, **body: Any) -> None:
        """Have a background response begun."""
        self.run = str(self.post("responses", {"input": "Go on.", "background": True, **body})["id"])

    def stream(self, text: str) -> None:
        """Have a client read a stream until the end of the test."""
        client = self.closing.enter_context(httpx.Client(timeout=PATIENCE))
        body = {"input": text, "stream": True}
        self.closing.enter_context(client.stream("POST", f"{self.server.url}/v1/responses", json=body))

    async def check_stored(self) -> None:
        """Check that all is in the store: what was told is over, what was accepted, and all else at its end."""
        config = Config.model_validate({"data_dir": self.server.data_dir, "storage": self.sections.get("storage", {})})
        async with open_configured(config) as storage:
            store = storage.store
            for response_id, answer in self.acknowledged.items():
                record = await store.get(ANONYMOUS_TENANT, response_id)
                assert record is not None
                assert record.status == answer["status"]
            run = await store.get(ANONYMOUS_TENANT, self.run)
            assert run is not None
            unfinished = [(left.tenant, left.id) for left in await store.unfinished()]
            assert unfinished == ([] if run.status in OVER else [(ANONYMOUS_TENANT, self.run)])

    def wait_for(self, what: Callable[[], object]) -> None:
        """Wait until something is so."""
        end = time.monotonic() + PATIENCE
        while not what():
            assert time.monotonic() < end, f"it does not come about: {self.server.errors}"
            time.sleep(0.01)


WAITING = """
    SELECT count(*) FROM pg_locks JOIN pg_database ON pg_database.oid = database
    WHERE NOT granted AND datname = current_database()
"""
Trouble: TypeAlias = Callable[[Stage], Callable[[], None]]
"""Makes it for a server, and returns what ends it."""


def store_locked(stage: Stage) -> Callable[[], None]:
    """Somebody else holds what a run has to write, while it writes."""
    if stage.workers == 1:
        return file_locked(stage)
    gate = half_an_answer(stage)
    other = stage.closing.enter_context(psycopg.connect(stage.use_postgres()))
    other.execute("LOCK TABLE responses IN ACCESS EXCLUSIVE MODE")
    gate.open()
    with psycopg.connect(stage.use_postgres(), autocommit=True) as watching:
        stage.wait_for(lambda: watching.execute(WAITING).fetchone() != (0,))
    return other.close


def file_locked(stage: Stage) -> Callable[[], None]:
    """Another process holds the file of the database for longer than a write waits."""
    outage = FileLocked()
    # When requests were waited for, which takes a second, the run tries to write: it does so most of the time.
    stage.sections["storage"] = {"busy_timeout": 2 * SHUTDOWN}
    gate, other = Gate(), Gate()
    stage.start(*(turn(["Half an ", one, "answer."]) for one in (gate, other)), *["A whole answer."] * 8)
    stage.begin()
    gate.wait_reached()
    stage.stream("Answer.")
    other.wait_reached()
    outage.begin(stage.server)
    gate.open()
    stage.wait_for(lambda: "waits for the store" in stage.server.errors)
    return lambda: outage.end(stage.server)


def store_away(stage: Stage) -> Callable[[], None]:
    """The database has ended."""
    postgres: PostgresServer = stage.fixture("postgres_server")
    outage = DatabaseAway(postgres, stage.use_postgres())
    stage.sections |= outage.sections
    gate = half_an_answer(stage)
    outage.begin(stage.server)
    back = contextlib.ExitStack()
    back.callback(outage.end, stage.server)
    stage.closing.callback(back.close)  # others need it as well
    gate.open()
    stage.wait_for(lambda: "waits for the store" in stage.server.errors)
    return back.close


def half_an_answer(stage: Stage) -> Gate:
    gate = Gate()
    stage.start(turn(["Half an ", gate, "answer."]), *["A whole answer."] * 8)
    stage.begin()
    gate.wait_reached()
    return gate


def model_hanging(stage: Stage) -> Callable[[], None]:
    """The model says no more, neither to a background response nor to a client that waits."""
    gates = [Gate(), Gate()]
    stage.start(*(turn(["Half an ", gate, "answer."]) for gate in gates), *["A whole answer."] * 8)
    stage.begin()
    gates[0].wait_reached()
    stage.stream("Answer.")
    gates[1].wait_reached()
    return lambda: None


def sandbox_busy(stage: Stage) -> Callable[[], None]:
    """A command of a model goes on."""
    stage.providers = {"workspace": {"enabled": True}}
    command = f"sleep {100_000 + os.getpid()}"
    stage.start(turn(calls=[call("shell", command=command)]), *["A whole answer."] * 8)
    stage.begin(tools=[{"type": "function", "name": "shell"}])
    stage.wait_for(lambda: processes_of(command.split()[1]))

    def end() -> None:
        stage.wait_for(lambda: not processes_of(command.split()[1]))

    return end


def processes_of(word: str) -> list[str]:
    """Return the processes that have a word in their command line."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has ended
            if path.read_bytes().split(b"\0")[1:2] == [word.encode()]:
                found.append(path.parent.name)
    return found


def ingestion_busy(stage: Stage) -> Callable[[], None]:
    """A file is being made searchable, and the server that embeds it does not answer."""
    embeddings = stage.closing.enter_context(EmbeddingServer())
    settings: JSON = {"embedding_url": embeddings.url, "embedding_retries": 0}
    if stage.workers > 1:
        settings |= {"vector_backend": "pgvector", "pgvector": {"url": stage.fixture("postgres_url")}}
    stage.providers = {"files": {"enabled": True}, "file_search": {"enabled": True, "settings": settings}}
    stage.start("A whole answer.")
    stage.begin()
    with httpx.Client(base_url=f"{stage.server.url}/v1", timeout=PATIENCE) as client:
        store = client.post("/vector_stores", json={"name": "docs"}).json()["id"]
        sent = {"file": ("a.txt", b"What is to be found.")}
        file = client.post("/files", files=sent, data={"purpose": "assistants"}).json()["id"]
        embeddings.asked.clear()
        embeddings.replies = [Reply(200, held=True)] * 100
        assert client.post(f"/vector_stores/{store}/files", json={"file_id": file}).status_code == 200
    stage.wait_for(lambda: any("found" in text for texts in embeddings.texts() for text in texts))

    def is_searchable(client: httpx.Client) -> bool:
        return bool(client.get(f"/vector_stores/{store}/files/{file}").json()["status"] == "completed")

    stage.promised.append(is_searchable)
    return embeddings.replies.clear


def stream_stalled(stage: Stage) -> Callable[[], None]:
    """A client does not read what it has asked for, and that is much."""
    stage.start(turn(["much " * 20_000] * 200), *["A whole answer."] * 8)
    host, _, port = stage.server.url.removeprefix("http://").partition(":")
    client = stage.closing.enter_context(socket.create_connection((host, int(port)), timeout=PATIENCE))
    body = b'{"input": "Go on.", "stream": true}'
    head = f"POST /v1/responses HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\n"
    client.sendall(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
    assert client.recv(12) == b"HTTP/1.1 200"
    stage.begin()
    return lambda: None


TROUBLES: list[Trouble] = [store_locked, store_away, model_hanging, sandbox_busy, ingestion_busy, stream_stalled]


@pytest.fixture
def stage(tmp_path: Path, request: pytest.FixtureRequest, workers: int) -> Iterator[Stage]:
    made = Stage(tmp_path, request, workers)
    with made.closing:
        yield made


# Each trouble with either signal or with two workers, and those of a store, which are others there, with both; all of
# these together with the large counts only.
CASES = [
    pytest.param(workers, number, trouble, id=f"{workers}-{number}-{trouble.__name__}")
    for (first, workers), (second, number), (third, trouble) in itertools.product(
        enumerate([1, 2]), enumerate([signal.SIGTERM, signal.SIGINT]), enumerate(TROUBLES)
    )
    if os.environ.get("ANTWORT_TEST_FULL")
    or ((first + second + third) % 2 == 0 and (trouble in (store_locked, store_away) or first == (third // 2) % 2))
]


@pytest.mark.parametrize(("workers", "number", "trouble"), CASES)
def test_a_server_that_is_told_to_stop_is_gone_in_time_and_nothing_is_lost(
    stage: Stage, trouble: Trouble, number: int
) -> None:
    end = trouble(stage)
    processes = [stage.server.pid, *stage.server.children()]
    stage.server.ask_to_stop(number)
    assert stage.server.exit_code(DOCUMENTED + PATIENCE) == 0
    assert not any(Path(f"/proc/{pid}").exists() for pid in processes[1:] if is_ours(pid))
    log = stage.server.errors
    assert "Traceback" not in log
    assert "the process ends at once" not in log
    assert "it is killed" not in log
    end()
    if number == signal.SIGINT:  # to look at what is stored is quicker
        asyncio.run(stage.check_stored())
        return
    stage.server.start()
    with httpx.Client(base_url=f"{stage.server.url}/v1", timeout=PATIENCE) as client:
        for response_id, answer in stage.acknowledged.items():
            assert client.get(f"/responses/{response_id}").json() == answer
        stage.wait_for(lambda: client.get(f"/responses/{stage.run}").json()["status"] in OVER)
        assert client.get(f"/responses/{stage.run}").json()["status"] == "completed"
        others = [one for one in client.get("/responses").json()["data"] if one["id"] not in stage.acknowledged]
        assert {one["status"] for one in others} <= OVER
        for done in stage.promised:
            stage.wait_for(lambda: done(client))  # noqa: B023 - at once
    assert stage.server.terminate() == 0


def is_ours(pid: int) -> bool:
    """Tell whether a process is a server; its number may be another's by now."""
    with contextlib.suppress(OSError):
        return b"antwort" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False
