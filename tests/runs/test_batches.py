"""Batches whose servers are killed: each line is answered once."""

import json
import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.runs.processes import ServerProcess
from tests.runs.steady_model import steady_model

from antwort.types import JSON

FULL = "ANTWORT_TEST_FULL" in os.environ
LINES = 10_000 if FULL else 240
MESSAGES = 10_000 if FULL else 100
KILLS = 10 if FULL else 2
SECTIONS: JSON = {"engine": {"takeover_after": 0.5, "parallel_batch_requests": 16}}


@pytest.fixture(scope="module")
def model() -> Iterator[str]:
    with steady_model() as url:
        yield url


def test_lines_of_a_batch_are_answered_once_though_the_server_is_killed(model: str, tmp_path: Path) -> None:
    draws = random.Random(20)
    server = ServerProcess(tmp_path, model, providers={"files": {"enabled": True}}, sections=SECTIONS)
    server.start()
    try:
        path = f"/v1/batches/{begun(server)}"
        for kill in range(KILLS):
            share = (kill + draws.random()) / (KILLS + 1)
            until(server, path, lambda batch, share=share: done(batch) >= share * LINES)
            server.kill()
            server.start()
        batch = until(server, path, lambda batch: batch["status"] == "completed")
        counts = {"total": LINES, "completed": LINES, "failed": 0}
        assert (batch["request_counts"], batch["error_file_id"]) == (counts, None)
        content = ask(server, "GET", f"/v1/files/{batch['output_file_id']}/content").text
        answers = [json.loads(line) for line in content.splitlines()]
        assert Counter(answer["custom_id"] for answer in answers) == Counter(f"line-{n}" for n in range(LINES))
        assert {answer["response"]["status_code"] for answer in answers} == {200}
        assert len(ask(server, "GET", "/v1/files").json()["data"]) == 2
    finally:
        server.kill()


def test_messages_of_a_batch_are_made_once_though_the_server_is_killed(model: str, tmp_path: Path) -> None:
    server = ServerProcess(tmp_path, model, sections=SECTIONS)
    server.start()
    try:
        asked = [
            {
                "custom_id": f"line-{n}",
                "params": {
                    "model": "steady",
                    "max_tokens": 100,
                    "messages": [{"role": "user", "content": f"plain-{n}"}],
                },
            }
            for n in range(MESSAGES)
        ]
        begun = ask(server, "POST", "/v1/messages/batches", json={"requests": asked}).json()["id"]
        path, enough = f"/v1/messages/batches/{begun}", time.monotonic() + 240
        while len(ask(server, "GET", "/v1/responses?limit=20").json()["data"]) < 20:
            assert time.monotonic() < enough
        server.kill()
        server.start()
        while (batch := ask(server, "GET", path).json())["processing_status"] != "ended":
            assert time.monotonic() < enough + (1200 if FULL else 0)
            time.sleep(0.1)
        nothing_else = {"processing": 0, "errored": 0, "canceled": 0, "expired": 0}
        assert batch["request_counts"] == {**nothing_else, "succeeded": MESSAGES}
        results = [json.loads(line) for line in ask(server, "GET", f"{path}/results").text.splitlines()]
        assert Counter(result["custom_id"] for result in results) == Counter(f"line-{n}" for n in range(MESSAGES))
        assert {result["result"]["type"] for result in results} == {"succeeded"}
    finally:
        server.kill()


def begun(server: ServerProcess) -> str:
    lines = [
        {
            "custom_id": f"line-{n}",
            "method": "POST",
            "url": "/v1/responses",
            "body": {"model": "steady", "input": f"plain-{n}"},
        }
        for n in range(LINES)
    ]
    content = "\n".join(map(json.dumps, lines)).encode()
    file = ask(server, "POST", "/v1/files", files={"file": ("lines.jsonl", content)}, data={"purpose": "batch"}).json()
    asked = {"input_file_id": file["id"], "endpoint": "/v1/responses", "completion_window": "24h"}
    return str(ask(server, "POST", "/v1/batches", json=asked).json()["id"])


def ask(server: ServerProcess, method: str, path: str, **options: object) -> httpx.Response:
    found = httpx.request(method, f"{server.url}{path}", timeout=60, **options)  # type: ignore[arg-type]
    assert found.status_code == 200, found.text
    return found


def done(batch: JSON) -> int:
    counts = batch["request_counts"]
    return int(counts["completed"]) + int(counts["failed"])


def until(server: ServerProcess, path: str, enough: object) -> JSON:
    end = time.monotonic() + (1200 if FULL else 240)
    while True:
        batch: JSON = ask(server, "GET", path).json()
        assert callable(enough)
        if enough(batch):
            return batch
        assert batch["status"] in {"validating", "in_progress", "finalizing"}, batch
        assert time.monotonic() < end, batch
        time.sleep(0.1)
