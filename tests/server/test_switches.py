"""The operator's switch: providers and functions out of service and back, on running servers."""

import contextlib
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import SecretStr
from tests.runs.processes import ServerProcess
from tests.runs.steady_model import steady_model

from antwort import Antwort
from antwort.config import ApiKeyConfig, AuthConfig, Config, ObservabilityConfig
from antwort.provider import Context, Hosted, Provider, function, route
from antwort.storage.postgres.letters import PostgresLetters
from antwort.testing import Gate, RunningApp, ScriptedBackend, call, running, turn
from antwort.types import JSON

PATIENCE = 60.0
KEY = "c2l4dGVlbiBieXRlcywgdHdpY2UsIGFzIGl0IG11c3Q="
KEYS = {"ops": ["*"], "switch": ["admin:write"], "watch": ["admin"], "use": ["responses:*", "functions:call", "shop"]}


class Shop(Provider):
    """Something that may be out of service."""

    def __init__(self, gate: Gate | None = None) -> None:
        super().__init__()
        self._gate = gate or Gate()

    @function(hosted=Hosted(types=("shop",), item="shop_call"))
    async def look(self) -> str:
        """Look what there is."""
        return "A teapot."

    @function
    async def buy(self, ctx: Context) -> str:
        """Buy it, which takes until the gate is open."""
        await self._gate.wait()
        return "bought"

    @function(effect="end_agent", offer="on_request")
    async def finish(self, value: str) -> str:
        """End a sub-agent."""
        return value

    @route("GET", "/v1/shop")
    async def goods(self) -> dict[str, str]:
        """Tell what there is."""
        return {"goods": "a teapot"}


def bearer(name: str) -> dict[str, str]:
    return {"authorization": f"Bearer key-of-{name}"}


def config(folder: Path, **sections: Any) -> Config:
    keys = [
        ApiKeyConfig(id=name, key=SecretStr(f"key-of-{name}"), tenant="acme", subject=name, scopes=scopes)
        for name, scopes in KEYS.items()
    ]
    auth = AuthConfig(api_keys=keys)
    return Config.model_validate({"data_dir": folder, "auth": auth, "providers": {}, **sections})


@contextlib.contextmanager
def served(app: Antwort, name: str = "ops") -> Iterator[httpx.Client]:
    with running(app) as server, client_of(server, name) as client:
        yield client


def client_of(server: RunningApp, name: str = "ops") -> httpx.Client:
    return httpx.Client(base_url=f"{server.url}/v1", timeout=PATIENCE, headers=bearer(name))


def switch(client: httpx.Client, what: str, **options: Any) -> JSON:
    answer = client.post(f"/{what}", **options)
    assert answer.status_code == 200, answer.text
    found: JSON = answer.json()
    return found


def error_of(answer: httpx.Response, status: int) -> JSON:
    assert answer.status_code == status, answer.text
    error: JSON = answer.json()["error"]
    return error


def listed(client: httpx.Client, what: str) -> dict[str, JSON]:
    return {one["name"]: one for one in client.get(f"/{what}").json()["data"]}


def until(holds: Callable[[], bool]) -> None:
    """Wait until something holds."""
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end, "it does not come about"
        time.sleep(0.02)


def test_a_disabled_provider_is_offered_to_nobody_says_so_wherever_it_is_named_and_comes_back(tmp_path: Path) -> None:
    backend = ScriptedBackend(["Hello."] * 3)
    with served(Antwort(config(tmp_path), backend=backend, providers=[Shop()])) as client:
        assert client.get("/shop").status_code == 200
        off = switch(client, "providers/shop/disable")
        assert (off["enabled"], off["functions"], off["routes"]) == (False, ["finish"], [])
        assert off["disabled"] | {"since": 0} == {"kind": "provider", "name": "shop", "by": "ops", "since": 0}
        assert abs(off["disabled"]["since"] - time.time()) < PATIENCE
        assert switch(client, "providers/shop/disable") == off  # it is so already
        assert listed(client, "providers")["shop"] == off
        assert {name: one["enabled"] for name, one in listed(client, "functions").items()} == {
            "look": False, "buy": False, "finish": True
        }  # fmt: skip

        assert client.post("/responses", json={"input": "Hi"}).status_code == 200
        assert {tool["name"] for tool in backend.requests[-1].tools} <= {"finish"}
        for tool, named in (({"type": "shop"}, "type"), ({"type": "function", "name": "buy"}, "name")):
            error = error_of(client.post("/responses", json={"input": "Hi", "tools": [tool]}), 400)
            assert (error["code"], error["param"]) == ("unsupported_tool", f"tools[0].{named}")
            assert "`antwort providers enable shop`" in error["message"]
        answer = client.get("/shop")
        error = error_of(answer, 503)
        assert (error["code"], answer.headers["x-should-retry"]) == ("provider_disabled", "false")
        assert "`antwort providers enable shop`" in error["message"]
        assert "/v1/shop" not in client.get("/../openapi.json").json()["paths"]

        on = switch(client, "providers/shop/enable")
        assert (on["enabled"], on["disabled"], on["functions"]) == (True, None, ["look", "buy", "finish"])
        assert switch(client, "providers/shop/enable") == on
        assert client.get("/shop").status_code == 200
        assert client.post("/responses", json={"input": "Hi", "tools": [{"type": "shop"}]}).status_code == 200
        assert "/v1/shop" in client.get("/../openapi.json").json()["paths"]


def test_one_function_is_disabled_and_the_others_of_its_provider_stay(tmp_path: Path) -> None:
    backend = ScriptedBackend([turn(calls=[call("look"), call("buy")]), "Hello."])
    gate = Gate()
    gate.open()
    with served(Antwort(config(tmp_path), backend=backend, providers=[Shop(gate)])) as client:
        off = switch(client, "functions/look/disable")
        assert (off["enabled"], off["disabled"]["kind"], off["disabled"]["by"]) == (False, "function", "ops")
        assert client.get("/shop").status_code == 200
        assert listed(client, "providers")["shop"]["functions"] == ["buy", "finish"]
        error = error_of(client.post("/responses", json={"input": "Hi", "tools": [{"type": "shop"}]}), 400)
        assert "`antwort functions enable look`" in error["message"]
        assert client.post("/responses", json={"input": "Hi"}).status_code == 200
        assert [tool["name"] for tool in backend.requests[0].tools] == ["buy"]
        assert switch(client, "functions/look/enable")["enabled"] is True
        error = error_of(client.post("/functions/finish/disable"), 409)
        assert "Sub-agents end by 'finish'" in error["message"]


def test_a_call_that_runs_completes_and_the_next_one_reads_why_it_is_refused(tmp_path: Path) -> None:
    gate = Gate()
    backend = ScriptedBackend([turn(calls=[call("buy")]), turn(calls=[call("buy")]), "Done."])
    with served(Antwort(config(tmp_path), backend=backend, providers=[Shop(gate)])) as client:
        made = client.post("/responses", json={"input": "Hi", "background": True}).json()["id"]
        gate.wait_reached()
        switch(client, "providers/shop/disable")
        gate.open()
        until(lambda: client.get(f"/responses/{made}").json()["status"] == "completed")
    outputs = [item["output"] for item in backend.requests[-1].items if item["type"] == "function_call_output"]
    assert outputs[0] == "bought"
    assert "the operator of this server has disabled it" in outputs[1]


def test_a_run_that_waits_goes_on_without_what_was_disabled_meanwhile(tmp_path: Path) -> None:
    backend = ScriptedBackend([turn(calls=[call("ask_user", question="Shall I?")]), "Done."])
    sections = {"providers": {"user": {"enabled": True}}}
    tools = [{"type": "shop"}, {"type": "function", "name": "ask_user"}, {"type": "function", "name": "buy"}]
    with served(Antwort(config(tmp_path, **sections), backend=backend, providers=[Shop()])) as client:
        made = client.post("/responses", json={"input": "Hi", "background": True, "tools": tools}).json()["id"]
        until(lambda: bool(client.get("/questions?status=open").json()["data"]))
        switch(client, "providers/shop/disable")
        question = client.get("/questions?status=open").json()["data"][0]["id"]
        assert client.post(f"/questions/{question}/answer", json={"answer": "Yes."}).status_code == 200
        until(lambda: client.get(f"/responses/{made}").json()["status"] not in {"queued", "in_progress"})
        assert client.get(f"/responses/{made}").json()["status"] == "completed"
        assert error_of(client.post("/responses", json={"input": "Hi", "tools": tools}), 400)
    offered = {tool["name"] for tool in backend.requests[-1].tools}
    assert ("ask_user" in offered, offered & {"look", "buy"}) == (True, set())


def test_a_provider_that_sleeps_is_not_woken_while_it_is_disabled(tmp_path: Path) -> None:
    with (
        running(Antwort(Config(data_dir=tmp_path), backend=ScriptedBackend(["Hello."]))) as server,
        httpx.Client(base_url=f"{server.url}/v1", timeout=PATIENCE) as client,
    ):
        assert "file_search" in server.app.asleep.names
        off = switch(client, "providers/file_search/disable")
        assert (off["enabled"], listed(client, "providers")["file_search"]) == (False, off)
        assert error_of(client.get("/vector_stores"), 503)["code"] == "provider_disabled"
        assert "file_search" in server.app.asleep.names
        switch(client, "providers/file_search/enable")
        assert client.get("/vector_stores").status_code == 200


def test_only_who_may_switches_and_all_that_is_switched_is_in_the_audit_log(tmp_path: Path) -> None:
    audit = tmp_path / "audit.log"
    sections = {"observability": ObservabilityConfig(audit_file=audit)}
    with running(Antwort(config(tmp_path, **sections), backend=ScriptedBackend([]), providers=[Shop()])) as server:
        for name in ("watch", "use"):
            with client_of(server, name) as client:
                for what in ("providers/shop", "functions/look"):
                    for state in ("disable", "enable"):
                        assert "'admin:write'" in error_of(client.post(f"/{what}/{state}"), 403)["message"]
        with client_of(server, "switch") as client:
            assert error_of(client.get("/providers"), 403)
            switch(client, "providers/shop/disable")
            switch(client, "providers/shop/disable")
            switch(client, "functions/look/disable")
            switch(client, "functions/look/enable")
            switch(client, "providers/shop/enable")
            error = error_of(client.post("/providers/shob/disable"), 404)
            assert (error["code"], error["param"]) == ("provider_not_found", "provider_name")
            assert "did you mean 'shop'?" in error["message"]
            error = error_of(client.post("/functions/nothing/disable"), 404)
            assert "There are: look, buy, finish." in error["message"]
    events = [json.loads(line) for line in audit.read_text().splitlines()]
    switched = [one for one in events if one["event"].split(".")[0] in {"provider", "function"}]
    assert [(one["event"], one.get("provider") or one.get("function")) for one in switched] == [
        ("provider.disabled", "shop"),
        ("function.disabled", "look"),
        ("function.enabled", "look"),
        ("provider.enabled", "shop"),
    ]
    assert {(one["tenant"], one["subject"]) for one in switched} == {("acme", "switch")}
    assert all(one["request_id"] for one in switched)


def test_what_is_switched_off_stays_so_after_a_restart_also_what_is_not_there_any_more(tmp_path: Path) -> None:
    with served(Antwort(config(tmp_path), backend=ScriptedBackend([]), providers=[Shop()])) as client:
        switch(client, "providers/shop/disable")
        switch(client, "functions/look/disable")
    with served(Antwort(config(tmp_path), backend=ScriptedBackend([]))) as client:
        assert listed(client, "providers")["shop"]["disabled"]["by"] == "ops"
        assert switch(client, "functions/look/enable")["disabled"] is None
        assert error_of(client.post("/functions/look/enable"), 404)
    with served(Antwort(config(tmp_path), backend=ScriptedBackend([]), providers=[Shop()])) as client:
        assert client.get("/shop").status_code == 503
        assert switch(client, "providers/shop/enable")["functions"] == ["look", "buy", "finish"]
        assert client.get("/shop").status_code == 200


@pytest.mark.parametrize("deaf", [False, True], ids=["letters", "no letters"])
def test_all_servers_of_a_database_know_of_it(
    tmp_path: Path, ready_url: str, deaf: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if deaf:  # the regular look at the store is what counts then
        monkeypatch.setattr(PostgresLetters, "tell", lambda *_: None)
    storage = {"url": ready_url, "s3": {"bucket": "none", "endpoint": "http://127.0.0.1:9"}}
    engine = {"takeover_after": 1.0 if deaf else 3600.0}
    sections = {"storage": storage, "encryption": {"key": KEY}, "engine": engine}
    with contextlib.ExitStack() as stack:
        here, there = (
            stack.enter_context(
                served(Antwort(config(tmp_path / name, **sections), backend=ScriptedBackend([]), providers=[Shop()]))
            )
            for name in ("here", "there")
        )
        switch(here, "providers/shop/disable")
        until(lambda: there.get("/shop").status_code == 503)
        assert listed(there, "providers")["shop"] == listed(here, "providers")["shop"]
        switch(there, "providers/shop/enable")
        until(lambda: here.get("/shop").status_code == 200)


def test_all_workers_of_a_server_know_of_it_and_those_that_take_the_place_of_one_that_was_killed(
    tmp_path: Path, ready_url: str
) -> None:
    sections = {"storage": {"url": ready_url}}
    providers = {"user": {"enabled": True}}
    with steady_model() as model:
        server = ServerProcess(tmp_path, model, providers=providers, sections=sections, workers=2)
        server.start()
        try:
            with httpx.Client(base_url=f"{server.url}/v1", timeout=PATIENCE) as client:
                switch(client, "providers/user/disable")

            def questions(status: int) -> bool:
                """Ask over connections of their own, so that each worker is asked."""
                found = [httpx.get(f"{server.url}/v1/questions", timeout=PATIENCE).status_code for _ in range(12)]
                return set(found) == {status}

            until(lambda: questions(503))
            before = server.children()
            for pid in before:
                os.kill(pid, signal.SIGKILL)
            until(lambda: len(server.children()) == 2 and not set(server.children()) & set(before))
            assert questions(503)
            with httpx.Client(base_url=f"{server.url}/v1", timeout=PATIENCE) as client:
                switch(client, "providers/user/enable")
            until(lambda: questions(200))
        finally:
            server.kill()
