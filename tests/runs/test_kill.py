"""`kill -9` while background runs are under way, and what a client finds after the next start."""

import asyncio
import json
import os
import random
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest
from tests.runs.embedded import events_of
from tests.runs.processes import ServerProcess
from tests.runs.steady_model import answer_to, steady_model

from antwort.engine.window import INTERRUPTED
from antwort.testing import lint_response, lint_stream
from antwort.types import JSON

SERVERS, ROUNDS = (4, 25) if os.environ.get("ANTWORT_TEST_FULL") else (2, 3)
"""Kills of each of so many servers."""
RUNS = 5
"""Runs accepted in one round, if the kill does not come before."""
LATEST = 0.5
"""Seconds until the kill comes, at the latest; an undisturbed run takes about as long."""
PATIENCE = 60.0


@dataclass
class Run:
    """What a client knows about a run."""

    name: str
    streams: bool
    shows_calls: bool
    stored: bool = True
    id: str | None = None
    """Known once the server has accepted it."""
    seen: bytes = b""
    """What was read of its stream."""

    @property
    def prefix(self) -> bytes:
        """The whole frames among it."""
        return self.seen[: self.seen.rfind(b"\n\n") + 2] if b"\n\n" in self.seen else b""

    async def ask(self, client: httpx.AsyncClient, after: float) -> None:
        """Ask for the run and read its stream, until the server is gone."""
        await asyncio.sleep(after)  # so that a kill meets each run somewhere else
        body = {"model": "steady", "input": self.name, "background": True, "stream": self.streams, "store": self.stored}
        headers = {"antwort-show-calls": "1"} if self.shows_calls else {}
        try:
            if not self.streams:
                answer = await client.post("/v1/responses", json=body, headers=headers)
                assert answer.status_code == 200, answer.text
                self.id = answer.json()["id"]
                return
            async with client.stream("POST", "/v1/responses", json=body, headers=headers) as response:
                assert response.status_code == 200
                async for data in response.aiter_raw():
                    self.seen += data
        except httpx.TransportError:
            pass  # killed
        if self.prefix:
            self.id = events_of(self.prefix)[0]["response"]["id"]


@dataclass
class Round:
    """One kill and what follows."""

    server: ServerProcess
    chance: random.Random
    number: int
    runs: list[Run] = field(default_factory=list)
    before: dict[str, int] = field(default_factory=dict)
    """How often the calls were executed that were finished before the last start."""

    async def play(self) -> None:
        """Accept runs, kill the server, perhaps once more while it recovers, and start it for good."""
        await self._cut_off()
        while self.chance.random() < 0.3:
            await self._start_again()
            await asyncio.sleep(self.chance.uniform(0, LATEST))
            self.server.kill()
        await self._start_again()

    async def _cut_off(self) -> None:
        for number in range(RUNS):
            streams, shows_calls = self.chance.random() < 0.5, self.chance.random() < 0.5
            self.runs.append(Run(f"run-{self.number}-{number}", streams, shows_calls, stored=number != 1))
        async with httpx.AsyncClient(base_url=self.server.url, timeout=PATIENCE) as client:
            asking = [asyncio.ensure_future(run.ask(client, self.chance.uniform(0, LATEST / 2))) for run in self.runs]
            await asyncio.sleep(self.chance.uniform(0, LATEST))
            self.server.kill()
            await asyncio.gather(*asking)

    async def _start_again(self) -> None:
        """Start the server; what was finished before is not executed again."""
        finished = await self.server.finished_calls()
        executions = self.server.executions()
        self.before = {call: executions[call] for call in finished}
        await asyncio.to_thread(self.server.start)

    async def check(self) -> None:
        """Hold everything that was accepted against what clients find now."""
        async with httpx.AsyncClient(base_url=self.server.url, timeout=PATIENCE) as client:
            listed = [response["id"] async for response in _all_responses(client)]
            accepted = {run.id: run for run in self.runs if run.id is not None}
            unstored = [response_id for response_id, run in accepted.items() if not run.stored]
            assert set(accepted) - set(listed) == set(unstored)
            for response_id in [*listed, *unstored]:
                await self._check_run(client, response_id, accepted.get(response_id))
        executions = self.server.executions()
        assert {call: executions[call] for call in self.before} == self.before
        repeated = [call for call, count in executions.items() if count > 1 and not _is_idempotent(call)]
        assert repeated == []

    async def _check_run(self, client: httpx.AsyncClient, response_id: str, run: Run | None) -> None:
        whole = (await client.get(f"/v1/responses/{response_id}", params={"stream": True})).content
        stream = lint_stream(whole)
        assert stream.types[-1] == "response.completed"
        response = (await client.get(f"/v1/responses/{response_id}")).json()
        assert lint_response(response) == stream.response
        self._check_answer(response)
        if run is not None and run.prefix:
            last = events_of(run.prefix)[-1]["sequence_number"]
            again = await client.get(f"/v1/responses/{response_id}", params={"stream": True, "starting_after": last})
            assert run.prefix + again.content == whole

    def _check_answer(self, response: JSON) -> None:
        """Check what the model was told about each call."""
        text = response["output"][-1]["content"][0]["text"]
        outputs: dict[str, str] = json.loads(text.removeprefix("It is done. "))
        assert text == answer_to(outputs)
        assert len(outputs) == 4
        ended = self.server.executions("end")
        for call_id, output in outputs.items():
            if output == INTERRUPTED:
                assert not _is_idempotent(call_id)
            else:
                assert output.startswith("found " if _is_idempotent(call_id) else "charged ")
                assert ended[call_id] >= 1


def _is_idempotent(call_id: str) -> bool:
    """Tell the questions of the model from its orders: they stand second and third among its calls."""
    return call_id.endswith(("_0_1", "_0_2"))


async def _all_responses(client: httpx.AsyncClient) -> AsyncIterator[JSON]:
    """Yield the responses of the last rounds, the newest first."""
    page = (await client.get("/v1/responses", params={"limit": 2 * RUNS})).json()
    for response in page["data"]:
        yield response


@pytest.fixture(scope="module")
def model() -> Iterator[str]:
    with steady_model() as url:
        yield url


@pytest.mark.parametrize("seed", range(SERVERS))
async def test_after_kill_9_every_accepted_run_ends_once_and_readers_go_on_where_they_were(
    seed: int, model: str, tmp_path: Path
) -> None:
    server = ServerProcess(tmp_path, model)
    chance = random.Random(seed)
    await asyncio.to_thread(server.start)
    try:
        for number in range(ROUNDS):
            attempt = Round(server, chance, number)
            await attempt.play()
            await attempt.check()
    finally:
        server.kill()
    assert server.errors == ""
