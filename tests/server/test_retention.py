"""The server deletes what is too old, and gets along without what is gone."""

import asyncio
import json
import time
from pathlib import Path

import httpx
from tests.storage.samples import record

from antwort import Antwort
from antwort.config import Config, StorageConfig
from antwort.storage import SqliteStore
from antwort.testing import ScriptedBackend, running


async def test_a_server_deletes_what_is_too_old_and_goes_on_with_what_is_not_over(tmp_path: Path) -> None:
    store = SqliteStore.open(tmp_path / "antwort.db")
    old = int(time.time()) - 40 * 86_400
    await store.create(record("old", tenant="default", status="completed", created_at=old))
    await store.create(record("unstored", tenant="default", status="completed", unstored_at=old))
    await store.create(record("new", tenant="default", status="completed", created_at=int(time.time())))
    await store.close()
    config = Config(data_dir=tmp_path, storage=StorageConfig.model_validate({"keep": {"responses": "30d"}}))
    async with Antwort(config) as app:
        while True:
            if not any([await app.engine.store.get("default", name) for name in ("old", "unstored")]):
                break
            await asyncio.sleep(0.01)
        assert await app.engine.store.get("default", "new") is not None
        made = await app.run("Hi")
        assert await app.engine.store.get("default", made.id) is not None


def test_a_background_response_can_be_streamed_again_when_its_events_are_gone(tmp_path: Path) -> None:
    app = Antwort(Config(data_dir=tmp_path), backend=ScriptedBackend(["Good morning."]))
    with running(app) as server, httpx.Client(base_url=server.url) as client:
        made = client.post("/v1/responses", json={"input": "Hi", "background": True, "stream": True})
        frames = [json.loads(line[6:]) for line in made.text.splitlines() if line.startswith("data: {")]
        name = frames[-1]["response"]["id"]
        dropping = app.engine.store.retention.drop_events("default", name, 1000)
        assert asyncio.run_coroutine_threadsafe(dropping, server.loop).result() == len(frames)
        again = client.get(f"/v1/responses/{name}", params={"stream": "true"})
    shown = [json.loads(line[6:]) for line in again.text.splitlines() if line.startswith("data: {")]
    assert (shown[0]["type"], shown[-1]["type"]) == ("response.created", "response.completed")
    assert shown[-1]["response"] == frames[-1]["response"]
    assert again.text.endswith("data: [DONE]\n\n")
