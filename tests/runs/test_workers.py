"""Background runs of a server with two workers, on one PostgreSQL."""

import asyncio
import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.runs.embedded import TENANT, embedded, text_of
from tests.runs.processes import ServerProcess
from tests.runs.steady_model import steady_model

from antwort.app import Antwort
from antwort.concurrency.peers import Mailbox, Peers
from antwort.config import Config
from antwort.context import Context
from antwort.engine.output import coalescer
from antwort.errors import ConfigError
from antwort.functions import FunctionSpec
from antwort.runs import local
from antwort.storage.base import StoreUnavailableError
from antwort.storage.sql.workers import WorkerStore
from antwort.testing import Gate, RunningApp, ScriptedBackend, call, lint_response, lint_stream, running, turn
from antwort.types import JSON

PATIENCE = 60.0


@pytest.fixture
def mailboxes() -> Iterator[list[Mailbox]]:
    """Those of three workers."""
    made = [Mailbox() for _ in range(3)]
    yield made
    for mailbox in made:
        mailbox.close()


@contextlib.contextmanager
def two_workers(
    folder: Path, url: str, model: ScriptedBackend, mailboxes: list[Mailbox], **options: Any
) -> Iterator[list[httpx.Client]]:
    """Start two apps that know of each other; yield a client of each."""
    with contextlib.ExitStack() as stack:
        clients = []
        for number in range(2):
            app = Antwort(
                Config.model_validate(
                    {"data_dir": folder, "providers": {"user": {"enabled": True}}, "storage": {"url": url}}
                ),
                backend=model,
                peers=Peers(number, mailboxes[:2]),
                **options,
            )
            server: RunningApp = stack.enter_context(running(app))
            clients.append(stack.enter_context(httpx.Client(base_url=f"{server.url}/v1", timeout=PATIENCE)))
        yield clients


def begun(client: httpx.Client) -> JSON:
    """Ask for a background run and return it as it was accepted."""
    accepted: JSON = client.post("/responses", json={"input": "Go on.", "background": True}).json()
    return accepted


@pytest.fixture
def never_looking(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let readers of a run that another worker has wait for news of it, and runs for readers, however long it takes."""
    monkeypatch.setattr(local, "LOOK", None)
    monkeypatch.setattr(coalescer, "UNREAD_SECONDS", 3600.0)


@pytest.mark.usefixtures("never_looking")
@pytest.mark.parametrize("owner", [0, 1])
def test_the_events_of_a_run_can_be_read_from_the_other_worker_as_they_come(
    tmp_path: Path, ready_url: str, mailboxes: list[Mailbox], owner: int
) -> None:
    gate = Gate()
    with (
        ScriptedBackend([turn(["It is ", gate, "done."])]) as model,
        two_workers(tmp_path, ready_url, model, mailboxes) as clients,
    ):
        mine, other = clients[owner], clients[1 - owner]
        run = begun(mine)
        gate.wait_reached()
        with other.stream("GET", f"/responses/{run['id']}", params={"stream": True}) as response:
            pieces = response.iter_raw()
            seen = b""
            while b'"delta":"It is "' not in seen:
                seen += next(pieces)
            gate.open()
            seen += b"".join(pieces)
        stream = lint_stream(seen)
        assert stream.events[-1]["type"] == "response.completed"
        assert seen == mine.get(f"/responses/{run['id']}", params={"stream": True}).content
        assert text_of(other.get(f"/responses/{run['id']}").json()["output"][0]) == "It is done."


@pytest.mark.parametrize("owner", [0, 1])
def test_a_run_is_cancelled_by_the_other_worker_and_leaves_its_function_at_once(
    tmp_path: Path, ready_url: str, mailboxes: list[Mailbox], owner: int
) -> None:
    entered, left = threading.Event(), threading.Event()

    async def wait() -> str:
        """Wait for ever."""
        entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            left.set()
        return ""

    with (
        ScriptedBackend([turn(calls=[call("wait")])]) as model,
        two_workers(tmp_path, ready_url, model, mailboxes, functions=[FunctionSpec.of(wait)]) as clients,
    ):
        mine, other = clients[owner], clients[1 - owner]
        run = begun(mine)
        assert entered.wait(PATIENCE)
        cancelled = lint_response(other.post(f"/responses/{run['id']}/cancel").json())
        assert cancelled["status"] == "cancelled"
        assert left.wait(PATIENCE)
        assert mine.get(f"/responses/{run['id']}").json() == cancelled
        lint_stream(mine.get(f"/responses/{run['id']}", params={"stream": True}).content, cancelled=True)


def test_of_two_answers_that_two_workers_get_at_once_one_counts(
    tmp_path: Path, ready_url: str, mailboxes: list[Mailbox]
) -> None:
    rounds = 4

    async def ask(ctx: Context) -> str:
        """Ask somebody."""
        ctx.suspend({"question": "Which one?"})

    asking = FunctionSpec.of(ask, {"effect": "suspend", "attach": True})
    with (
        ScriptedBackend([turn(calls=[call("ask", call_id="call_1")]), "Done."] * rounds) as model,
        two_workers(tmp_path, ready_url, model, mailboxes, functions=[asking]) as clients,
        ThreadPoolExecutor(2) as threads,
    ):
        for number in range(rounds):
            run = begun(clients[number % 2])
            # The call is shown before its question is asked; an answer that comes in between is refused.
            asked = {"response_id": run["id"], "status": "open"}
            while not clients[0].get("/questions", params=asked).json()["data"]:
                pass
            together = threading.Barrier(2)

            def answer(client: httpx.Client, run: JSON = run, together: threading.Barrier = together) -> httpx.Response:
                given = {"type": "function_call_output", "call_id": "call_1", "output": "blue"}
                together.wait(PATIENCE)
                return client.post("/responses", json={"previous_response_id": run["id"], "input": [given]})

            taken, late = sorted(threads.map(answer, clients), key=lambda response: response.status_code)
            assert (taken.status_code, late.status_code) == (200, 409)
            assert lint_response(taken.json())["status"] == "completed"


async def test_a_worker_that_starts_takes_up_what_nobody_works_on(tmp_path: Path, ready_url: str) -> None:
    storage = {"url": ready_url}
    never = [turn("Never.", wait_for=Gate())]
    async with embedded(tmp_path, never, storage=storage) as first:
        run = await first.accept()
        async with embedded(tmp_path, never, storage=storage) as second:  # another identity of the same folder
            assert second.runs.idle
            left = await second.accept()
        async with embedded(tmp_path, ["Done."], storage=storage) as third:
            await third.result(left)
            assert [unfinished.id for unfinished in await third.store.unfinished()] == [run]
    async with embedded(tmp_path, ["Done."], storage=storage) as last:
        response, _ = await last.result(run)
        assert response["status"] == "completed"


async def test_a_database_that_cannot_be_written_is_told_at_start(
    tmp_path: Path, ready_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def join(*_: object) -> None:
        raise StoreUnavailableError("The database is read-only.")

    monkeypatch.setattr(WorkerStore, "join", join)
    with pytest.raises(ConfigError, match=r"the database cannot be written: The database is read-only\."):
        async with embedded(tmp_path, [], storage={"url": ready_url}):
            pytest.fail("it has started")


async def test_a_run_that_was_taken_to_be_cancelled_belongs_to_whoever_took_it(tmp_path: Path, ready_url: str) -> None:
    options: JSON = {"storage": {"url": ready_url}, "engine": {"takeover_after": 1.0}}
    async with embedded(tmp_path, [turn("Never.", wait_for=Gate())], **options) as app:
        run = await app.accept()
        await app.store.claim(TENANT, run, worker="elsewhere-0")  # and that one dies before it has cancelled it
    async with embedded(tmp_path, ["Done."], **options) as app:
        assert app.runs.idle  # nobody knows yet whether it is dead
        await app.result(run)


def test_runs_go_on_when_one_worker_after_the_other_is_killed(tmp_path: Path, ready_url: str) -> None:
    with steady_model() as model:
        server = ServerProcess(tmp_path, model, workers=2, sections={"storage": {"url": ready_url}})
        server.start()
        try:
            with httpx.Client(base_url=server.url, limits=httpx.Limits(max_keepalive_connections=0)) as client:
                for number, worker in enumerate(server.children()):
                    runs = [_accepted(client, f"run-{number}-{run}") for run in range(6)]
                    with client.stream("GET", f"/v1/responses/{runs[-1]}", params={"stream": True}) as stream:
                        next(stream.iter_raw())
                        os.kill(worker, signal.SIGKILL)
                    for run in runs:
                        content = client.get(f"/v1/responses/{run}", params={"stream": True}).content
                        assert lint_stream(content).types[-1] == "response.completed"
        finally:
            code = server.terminate()
        assert code == 0
        repeated = [call for call, count in server.executions().items() if count > 1]
        assert [call for call in repeated if call.endswith("_0")] == []  # those that charge


def _accepted(client: httpx.Client, text: str) -> str:
    return str(client.post("/v1/responses", json={"model": "steady", "input": text, "background": True}).json()["id"])
