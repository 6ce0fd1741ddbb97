"""Every field of the SDK's types of what is passed through: it reaches the model server as it was written.

What is right is up to that server. Refused is what names no model, and what stands for a URL and is none.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai.types import (
    completion_create_params,
    embedding_create_params,
    image_generate_params,
    moderation_create_params,
)
from tests.backends.conftest import ModelServer, reply
from tests.server.truth.sdk_types import Case, Maker

from antwort import Antwort
from antwort.config import Config
from antwort.testing import running
from antwort.types import JSON

KINDS = {
    "/completions": completion_create_params.CompletionCreateParamsBase,
    "/embeddings": embedding_create_params.EmbeddingCreateParams,
    "/images/generations": image_generate_params.ImageGenerateParamsBase,
    "/moderations": moderation_create_params.ModerationCreateParams,
}
VALUES = {"model": "small", "url": "data:image/png;base64,iVBORw0KGgo="}
REFUSED = {
    ("model", "wrong integer"): "invalid_type",
    ("model", "wrong object"): "invalid_type",
    ("input[0].image_url", "wrong string"): "invalid_url",
}
"""What reaches no model server, and the code."""


@pytest.fixture
async def model() -> AsyncIterator[ModelServer]:
    server = ModelServer()
    server.scripts.append(reply({"answer": 42}))
    async with await asyncio.start_server(server.serve, "127.0.0.1", 0) as listener:
        server.url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}/v1"
        yield server
        await server.stop()


def with_model(body: JSON) -> JSON:
    return {"model": "small", **body}


async def test_each_field_reaches_the_model_server_as_it_was_written(tmp_path: Path, model: ModelServer) -> None:
    backend = {"url": model.url, "models": ["*"]}
    config: dict[str, Any] = {"data_dir": tmp_path, "backends": {"main": backend}, "engine": {"default_model": "small"}}
    serving = running(Antwort(Config.model_validate(config)))
    server = await asyncio.to_thread(serving.__enter__)
    try:
        async with httpx.AsyncClient(base_url=f"{server.url}/v1", timeout=60) as client:
            found = [
                (path, case.place, case.kind, why)
                for path, kind in KINDS.items()
                for case in Maker(VALUES).cases(kind, with_model)
                if (why := await problem(client, model, path, case)) is not None
            ]
    finally:
        await asyncio.to_thread(serving.__exit__, None, None, None)
    assert found == []
    assert {exchange.path for exchange in model.exchanges} >= {f"/v1{path}" for path in KINDS}


async def problem(client: httpx.AsyncClient, model: ModelServer, path: str, case: Case) -> str | None:
    """Send a case; return what is wrong with what became of it."""
    before, body = len(model.exchanges), json.dumps(case.body, indent=1).encode()
    answer = await client.post(path, content=body, headers={"content-type": "application/json"})
    reached = [exchange.body for exchange in model.exchanges[before:] if exchange.body]
    refusal = REFUSED.get((case.place, case.kind))
    if refusal is not None:
        error = answer.json().get("error", {})
        fine = (answer.status_code, error.get("code"), error.get("param")) == (400, refusal, case.place) and not reached
    elif case.body["model"] is None:  # the default is asked
        fine = [json.loads(one) for one in reached] == [{**case.body, "model": "small"}]
    else:
        fine = (answer.status_code, reached) == (200, [body])
    return None if fine else f"{answer.status_code} {answer.text} {reached}"
