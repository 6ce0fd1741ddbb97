"""What one tenant may take: responses that are being made, and bytes that are stored."""

import asyncio
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import SecretStr
from typing_extensions import override
from websockets.sync.client import connect

from antwort import Antwort
from antwort.config import ApiKeyConfig, AuthConfig, Config, LimitsConfig, StorageConfig, TenantLimitsConfig
from antwort.errors import RateLimitError
from antwort.provider import Context, Provider, route
from antwort.runs import limits as module
from antwort.runs.limits import TenantLimits
from antwort.storage.sql.retention import Retention
from antwort.testing import Gate, RunningApp, ScriptedBackend, running, turn
from antwort.wire.requests import decode_create

KEYS = AuthConfig(
    api_keys=[ApiKeyConfig(id=name, key=SecretStr(f"key-of-{name}"), tenant=name) for name in ("alpha", "beta")]
)


class Shelf(Provider):
    @route("POST", "/v1/shelf")
    async def put(self, ctx: Context) -> dict[str, str]:
        """Keep something."""
        await self.services.records.create(ctx.tenant, "book", "b1", {"text": "x"})
        return {}


def bearer(name: str) -> dict[str, str]:
    return {"authorization": f"Bearer key-of-{name}"}


@contextmanager
def served(folder: Path, limits: TenantLimitsConfig, *script: Any, url: str | None = None) -> Iterator[Any]:
    config = Config(data_dir=folder, auth=KEYS, limits=LimitsConfig(per_tenant=limits), storage=StorageConfig(url=url))
    app = Antwort(config, backend=ScriptedBackend(list(script)), providers=[Shelf()])
    with running(app) as server, httpx.Client(base_url=server.url) as client:

        def create(name: str = "alpha", **fields: Any) -> httpx.Response:
            return client.post("/v1/responses", json={"input": "Hi", **fields}, headers=bearer(name))

        yield server, client, create


def over_a_websocket(server: RunningApp, **fields: Any) -> dict[str, Any]:
    """Ask for a response and return the last event."""
    url = server.url.replace("http://", "ws://") + "/v1/responses"
    with connect(url, additional_headers=bearer("alpha"), proxy=None) as connection:
        connection.send(json.dumps({"type": "response.create", "input": "Hi", **fields}))
        while True:
            event: dict[str, Any] = json.loads(connection.recv())
            if event["type"] in {"response.completed", "response.failed", "error"}:
                return event


def refused(answer: httpx.Response, code: str) -> str:
    assert answer.status_code == 429, answer.text
    error = answer.json()["error"]
    assert (error["type"], error["code"]) == ("rate_limit_error", code)
    if code == "storage_quota_exceeded":  # waiting does not help, so SDKs must not do it
        assert "retry-after" not in answer.headers
        assert answer.headers["x-should-retry"] == "false"
    else:
        assert int(answer.headers["retry-after"]) >= 1
        assert "x-should-retry" not in answer.headers
    return str(error["message"])


def test_a_tenant_makes_so_many_responses_at_the_same_time_whichever_way(tmp_path: Path) -> None:
    gates = [Gate(), Gate(), Gate()]
    script = [*(turn("Yes.", wait_for=gate) for gate in gates), "Beta.", "Then."]
    with (
        served(tmp_path, TenantLimitsConfig(max_runs=3), *script) as (server, client, create),
        ThreadPoolExecutor(2) as pool,
    ):
        streamed = pool.submit(create, stream=True)
        gates[0].wait_reached()
        background = create(background=True)
        gates[1].wait_reached()
        socket = pool.submit(over_a_websocket, server)
        gates[2].wait_reached()
        for fields in ({}, {"stream": True}, {"background": True}):
            message = refused(create(**fields), "concurrent_responses_exceeded")
            assert "at most 3 at the same time" in message
            assert "limits.per_tenant.max_runs" in message
        question = {"type": "predicate", "instructions": "It rains."}
        decision = client.post("/v1/decisions", json={"input": "Hi", "questions": [question]}, headers=bearer("alpha"))
        refused(decision, "concurrent_responses_exceeded")
        assert over_a_websocket(server)["error"]["code"] == "concurrent_responses_exceeded"
        assert create("beta").status_code == 200
        for gate in gates:
            gate.open()
        assert streamed.result().status_code == 200
        assert socket.result()["type"] == "response.completed"
        assert background.status_code == 200
        assert create().status_code == 200


async def test_runs_that_a_restart_takes_up_count_and_are_not_refused(tmp_path: Path) -> None:
    limits = LimitsConfig(per_tenant=TenantLimitsConfig(max_runs=1))
    stop, gates = Gate(), [Gate(), Gate()]
    before = Antwort(Config(data_dir=tmp_path), backend=ScriptedBackend([turn("Never.", wait_for=stop)] * 2))
    async with before:
        made = [await accepted(before, text) for text in ("One?", "Two?")]
        await stop.reached()
    backend = ScriptedBackend([turn("Yes.", wait_for=gate) for gate in gates])
    async with Antwort(Config(data_dir=tmp_path, limits=limits), backend=backend) as app:
        for gate in gates:
            await gate.reached()
        with pytest.raises(RateLimitError):
            await accepted(app, "Three?")
        for gate in gates:
            gate.open()
        for name in made:
            async for _ in app.runs.events("default", name):
                pass
            record = await app.engine.store.get("default", name)
            assert record is not None
            assert record.status == "completed"
        while True:
            if app.runs.idle:  # the tasks of both have ended, too
                break
            await asyncio.sleep(0)
        app.runs.limits.enter("default")()


async def accepted(app: Antwort, text: str) -> str:
    create = decode_create(json.dumps({"input": text, "background": True}).encode())
    plan = await app.engine.plan(create, Context("default", scopes=frozenset({"*"})))
    await app.runs.accept(plan)
    return plan.response.id


def test_a_tenant_that_has_stored_enough_stores_no_more_until_it_deletes(
    tmp_path: Path, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0)
    monkeypatch.setattr(module, "REMEMBERED", 0)
    monkeypatch.setattr(module, "REMEMBERED_NEAR", 0)
    limits = TenantLimitsConfig.model_validate({"max_stored_bytes": "20kB"})
    with served(tmp_path, limits, *["Yes."] * 20, url=database_url) as (server, client, create):
        talk = client.post("/v1/conversations", json={}, headers=bearer("alpha")).json()["id"]
        item = {"items": [{"role": "user", "content": "Hi"}]}
        large = create(input="ä" * 12_000).json()["id"]
        unkept = "send it with 'store': false"
        for fields, cure in (
            ({}, unkept),
            ({"background": True}, "send it without 'background' and with 'store': false"),
            ({"background": True, "store": False}, "send it without 'background'"),
            ({"stream": True}, unkept),
            ({"store": False, "conversation": talk}, "send it without 'conversation'"),
        ):
            message = refused(create(**fields), "storage_quota_exceeded")
            assert "of 20,000 bytes (limits.per_tenant.max_stored_bytes)" in message
            assert message.endswith(f"other things of it, or {cure}.")
        for path, body in (("conversations", {}), (f"conversations/{talk}/items", item), ("shelf", {})):
            answer = client.post(f"/v1/{path}", json=body, headers=bearer("alpha"))
            assert refused(answer, "storage_quota_exceeded").endswith("other things of it.")
        batch = {"requests": [{"custom_id": "a", "params": {}}]}
        told = client.post("/v1/messages/batches", json=batch, headers=bearer("alpha")).json()["error"]["message"]
        assert told.endswith("other things of it.")
        asked = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 9, "store": True}
        told = client.post("/v1/messages", json=asked, headers=bearer("alpha")).json()["error"]["message"]
        assert told.endswith(f"other things of it, or {unkept}.")
        assert over_a_websocket(server)["error"]["code"] == "storage_quota_exceeded"
        assert over_a_websocket(server, store=False)["type"] == "response.completed"
        assert create(store=False).status_code == 200
        assert create("beta").status_code == 200
        tokens = client.post("/v1/responses/input_tokens", json={"input": "Hi"}, headers=bearer("alpha"))
        assert tokens.status_code == 200
        assert client.delete(f"/v1/responses/{large}", headers=bearer("alpha")).status_code == 200
        assert create().status_code == 200
        assert client.post("/v1/shelf", headers=bearer("alpha")).status_code == 200


class Counted(Retention):
    """A tenant whose bytes are what the test says, and who counts how often it is asked."""

    def __init__(self, tick: Callable[[], None]) -> None:
        self.bytes, self.asked, self._tick = 0, 0, tick

    @override
    async def usage(self, tenant: str) -> int:
        assert tenant == "acme"
        self.asked += 1
        await asyncio.sleep(0)
        self._tick()
        return self.bytes


async def test_bytes_are_counted_now_and_then_and_once_for_all_who_ask() -> None:
    now, cost = 0.0, 0.0

    def tick() -> None:
        nonlocal now
        now += cost

    counted = Counted(tick)
    limits = TenantLimits(TenantLimitsConfig.model_validate({"max_stored_bytes": 1000}), counted, clock=lambda: now)
    await asyncio.gather(*(limits.check_room("acme") for _ in range(10)))
    now += module.REMEMBERED - 0.1
    counted.bytes = 1000
    await limits.check_room("acme")
    assert counted.asked == 1
    now += 0.1
    with pytest.raises(RateLimitError, match="1,000 of 1,000 bytes"):
        await limits.check_room("acme")
    assert counted.asked == 2
    counted.bytes, cost = 10, 3.0
    now += module.REMEMBERED_NEAR
    await limits.check_room("acme")  # deleting helps
    now += module.PATIENCE * cost - 0.1
    await limits.check_room("acme")
    assert counted.asked == 3
    now += 0.2
    await limits.check_room("acme")
    assert counted.asked == 4
