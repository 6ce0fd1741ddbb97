"""`kill -9` while trees of agents work, ask and wait; answers come whenever the server is there."""

import asyncio
import contextlib
import itertools
import json
import os
import random
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.runs.processes import ServerProcess
from tests.runs.steady_model import steady_model

from antwort.engine.window import INTERRUPTED
from antwort.testing import lint_response, lint_stream
from antwort.types import JSON

ROUNDS = 50 if os.environ.get("ANTWORT_TEST_FULL") else 3
"""Kills of each of the two servers."""
LATEST = 0.6
"""Seconds until a kill comes, at the latest; a tree takes about as long, if it is answered at once."""
PATIENCE = 60.0
OVER = frozenset({"completed", "failed", "incomplete", "cancelled"})
TOOLS = [{"type": "function", "name": name} for name in ("store_set", "store_get")]
ANSWERS: dict[str, JSON] = {"question": {"answer": "yes"}, "approval": {"approve": True}}


@pytest.fixture(scope="module")
def model() -> Iterator[str]:
    with steady_model() as url:
        yield url


async def answer_all(client: httpx.AsyncClient) -> None:
    """Answer what is open, until cancelled, or until the server is gone."""
    with contextlib.suppress(httpx.TransportError):
        while True:
            listed = (await client.get("/v1/questions", params={"status": "open", "limit": 100})).json()
            for question in listed["data"]:
                answer = ANSWERS[question["kind"]]
                found = await client.post(f"/v1/questions/{question['id']}/answer", json=answer)
                assert found.status_code in {200, 409}, found.text
            await asyncio.sleep(0.05)


async def accepted(client: httpx.AsyncClient, name: str) -> str | None:
    """Ask for a run; return its id, if the server got to tell it."""
    with contextlib.suppress(httpx.TransportError):
        body = {"model": "steady", "input": name, "background": True, "tools": TOOLS}
        found = await client.post("/v1/responses", json=body)
        assert found.status_code == 200, found.text
        return str(found.json()["id"])
    return None


async def ended(client: httpx.AsyncClient, response_id: str) -> JSON:
    async with asyncio.timeout(PATIENCE):
        while True:
            response: JSON = (await client.get(f"/v1/responses/{response_id}")).json()
            if response["status"] in OVER:
                return response
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("seed", range(2))
async def test_trees_with_questions_end_once_whatever_kills_the_server(seed: int, model: str, tmp_path: Path) -> None:
    chance = random.Random(seed)
    sections = {"engine": {"max_takeovers": 10_000}}
    server = ServerProcess(
        tmp_path, model, providers={"user": {"enabled": True}, "variables": {"enabled": True}}, sections=sections
    )
    runs: list[tuple[str, str]] = []
    try:
        for number in itertools.takewhile(lambda number: number < ROUNDS or not runs, itertools.count()):
            await asyncio.to_thread(server.start)
            async with httpx.AsyncClient(base_url=server.url, timeout=PATIENCE) as client:
                name = f"tree-{seed}-{number}"
                asking = asyncio.ensure_future(accepted(client, name))
                answering = asyncio.ensure_future(answer_all(client))
                # Where nothing got to be accepted in this time, processors are busy.
                await asyncio.sleep(chance.uniform(0, LATEST) * max(1, number - ROUNDS + 2))
                server.kill()
                if (response_id := await asking) is not None:
                    runs.append((name, response_id))
                await answering
        await asyncio.to_thread(server.start)
        async with httpx.AsyncClient(base_url=server.url, timeout=PATIENCE) as client:
            answering = asyncio.ensure_future(answer_all(client))
            responses = [await ended(client, response_id) for _, response_id in runs]
            streams = [(await client.get(f"/v1/responses/{id_}", params={"stream": True})).content for _, id_ in runs]
            answering.cancel()
        for (name, _), response, stream in zip(runs, responses, streams, strict=True):
            assert lint_response(response) == lint_stream(stream).response
            check(response, name)
    finally:
        server.kill()
    assert runs
    assert [await server.agents_below(response_id) for _, response_id in runs] == [2] * len(runs)
    executions = server.executions()
    assert [call for call, count in executions.items() if count > 1] == []
    assert server.errors == ""


def check(response: JSON, name: str) -> None:
    """Check what the model of the root was told, what it had kept, and what its budget has counted."""
    assert response["status"] == "completed", (response["error"], response["incomplete_details"])
    text = response["output"][-1]["content"][0]["text"]
    children, answer, refund, kept, note = json.loads(text.removeprefix("It is done. ")).values()
    assert children == "completed, completed"
    assert answer == "yes"
    assert refund == INTERRUPTED or refund.startswith("refunded ")
    assert note == name or kept == INTERRUPTED
    assert response["usage"]["total_tokens"] >= 7 * 15
