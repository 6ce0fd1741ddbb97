"""Outages longer than any deadline: every run that was accepted completes, with all its events and each answer once."""

import asyncio
import contextlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest
from tests.runs.embedded import events_of, text_of
from tests.runs.outages import DatabaseAway, DiskFull, FileLocked, ModelFrozen, ModelGone, Outage
from tests.runs.processes import ServerProcess
from tests.runs.steady_model import ModelProcess, answer_to
from tests.support.postgres import PostgresServer

from antwort.testing import lint_response, lint_stream
from antwort.types import JSON

FULL = "ANTWORT_TEST_FULL" in os.environ
ROUNDS = 10 if FULL else 1
FIRST, MOST = 6, 20
"""Runs of a round: so many have begun when the outage does, and so many at most are asked for."""
PATIENCE = 120.0
PAUSE = 0.02
"""Seconds between two looks: who looks all the time takes from the server what it looks for."""
BACKEND = {"connect_timeout": 1.0, "first_byte_timeout": 0.5, "chunk_timeout": 0.5, "retries": 0}
"""The deadlines of the model server, so short that every outage is longer."""


@dataclass
class Clients:
    """Clients that ask for runs as long as they may, and what they know of them."""

    client: httpx.AsyncClient
    accepted: dict[str, str] = field(default_factory=dict)
    """The names of the runs, by id."""
    seen: dict[str, bytes] = field(default_factory=dict)
    """What was read of streams that were open all the time, by id."""
    asking: list["asyncio.Task[None]"] = field(default_factory=list)

    async def ask(self, stop: asyncio.Event) -> None:
        """Begin runs, one after the other, until there are enough or it is time to stop."""
        for number in range(len(self.asking), len(self.asking) + MOST):
            if stop.is_set():
                return
            begun = asyncio.Event()
            ask = self._stream if number % 2 else self._poll
            self.asking.append(asyncio.create_task(ask(f"run-{number}", begun)))
            await begun.wait()

    async def _poll(self, name: str, begun: asyncio.Event) -> None:
        try:
            body = {"model": "steady", "input": name, "background": True}
            answer = await self.client.post("/v1/responses", json=body)
            assert answer.status_code in {200, 503}, answer.text
            if answer.status_code == 200:
                self.accepted[answer.json()["id"]] = name
        finally:
            begun.set()

    async def _stream(self, name: str, begun: asyncio.Event) -> None:
        body = {"model": "steady", "input": name, "background": True, "stream": True}
        seen = b""
        try:
            async with self.client.stream("POST", "/v1/responses", json=body) as response:
                assert response.status_code in {200, 503}
                if response.status_code == 503:
                    return
                async for data in response.aiter_raw():
                    seen += data
                    if b"output_text.delta" in seen:  # the next outage finds it in the middle of an answer
                        begun.set()
        finally:
            begun.set()
        response_id = events_of(seen)[0]["response"]["id"]
        self.accepted[response_id] = name
        self.seen[response_id] = seen

    async def check(self) -> None:
        """Hold what was accepted against what there is in the end."""
        await asyncio.gather(*self.asking)
        assert self.accepted
        assert self.seen
        for response_id, name in self.accepted.items():
            url = f"/v1/responses/{response_id}"
            whole = (await self.client.get(url, params={"stream": True})).content
            assert frames_of(self.seen.get(response_id, whole)) == frames_of(whole)
            stream = lint_stream(whole)
            response = lint_response((await self.client.get(url)).json())
            assert response == stream.response
            assert response["status"] == "completed", response["error"]
            check_answer(response, name)


def frames_of(stream: bytes) -> list[bytes]:
    """Return the frames of a stream as they are, without the heartbeats of one that was open all the time."""
    return [frame for frame in stream.split(b"\n\n") if not frame.startswith(b":")]


def check_answer(response: JSON, name: str) -> None:
    """Check that each answer of the model is there once."""
    moment = f"Let me see about {name}, this will take a moment."
    texts = [text_of(item) for item in response["output"]]
    assert texts[:-1] == ["I need to know more.", moment, "I need to know more.", moment, "Everything is there."]
    outputs: dict[str, str] = json.loads(texts[-1].removeprefix("It is done. "))
    assert texts[-1] == answer_to(outputs)
    assert len(outputs) == 4


@pytest.fixture
def model() -> Iterator[ModelProcess]:
    process = ModelProcess()
    process.start()
    try:
        yield process
    finally:
        process.close()


@pytest.fixture(params=["file locked", "disk full", "database away", "model gone", "model frozen"])
def outage(request: pytest.FixtureRequest, tmp_path: Path, model: ModelProcess) -> Iterator[Outage]:
    with contextlib.ExitStack() as closing:
        if request.param == "file locked":
            yield FileLocked()
        elif request.param == "disk full":
            yield closing.enter_context(DiskFull.on(tmp_path / "data"))
        elif request.param == "database away":
            server: PostgresServer = request.getfixturevalue("postgres_server")
            yield DatabaseAway(server, request.getfixturevalue("ready_url"))
        else:
            yield ModelGone(model) if request.param == "model gone" else ModelFrozen(model)


async def test_every_run_outlives_an_outage(tmp_path: Path, model: ModelProcess, outage: Outage) -> None:
    server = ServerProcess(tmp_path, model.url, backend=BACKEND, sections=outage.sections)
    await asyncio.to_thread(server.start)
    try:
        async with httpx.AsyncClient(base_url=server.url, timeout=PATIENCE) as client:
            clients = Clients(client)
            for _ in range(ROUNDS):
                await suffer(clients, server, outage)
            await clients.check()
    finally:
        server.kill()


async def suffer(clients: Clients, server: ServerProcess, outage: Outage) -> None:
    """Let something go away while clients ask, until runs have waited for it in vain, and come back."""
    stop, first = asyncio.Event(), len(clients.asking) + FIRST
    waits = "waits for the store" if outage.of_store else "waits for the model"
    asking = asyncio.create_task(clients.ask(stop))
    while len(clients.asking) < first:
        await clients.client.get("/healthz")
        await asyncio.sleep(PAUSE)
    before = server.errors.count(waits)
    await asyncio.to_thread(outage.begin, server)
    try:
        while server.errors.count(waits) < before + 3:
            await clients.client.get("/healthz")
            await asyncio.sleep(PAUSE)
        if outage.of_store:
            await until_ready(clients.client, False)
        stop.set()
    finally:
        await asyncio.to_thread(outage.end, server)
    await asking
    await until_ready(clients.client, True)


async def until_ready(client: httpx.AsyncClient, ready: bool) -> None:
    """Wait until the server says that it is ready, or that it is not."""
    while True:
        if ((await client.get("/readyz")).status_code == 200) is ready:
            return
        await asyncio.sleep(PAUSE)
