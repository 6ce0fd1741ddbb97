"""`/v1/config` and `/v1/keys`, for those who look after a server."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from antwort import Antwort
from antwort.config import Config, load_config
from antwort.testing import ScriptedBackend, running

GIVEN: Any = {
    "operator": {"tenant": "acme", "scopes": ["*"]},
    "clerk": {"tenant": "acme", "scopes": ["admin:write", "runs:*", "metrics"]},
    "other": {"tenant": "other", "scopes": ["*"]},
}
Ask = Callable[..., httpx.Response]


@pytest.fixture
def ask(tmp_path: Path) -> Iterator[Ask]:
    """Ask a server as one of those who have a key."""
    keys = [{"id": name, "key": f"sk-{name}", **rest} for name, rest in GIVEN.items()]
    logs = {"audit_file": tmp_path / "audit.jsonl"}
    config = Config.model_validate({"data_dir": tmp_path, "auth": {"api_keys": keys}, "observability": logs})
    with (
        running(Antwort(config, backend=ScriptedBackend([]))) as server,
        httpx.Client(base_url=server.url, timeout=60) as client,
    ):

        def asked(who: str, method: str, path: str, body: Any = None) -> httpx.Response:
            key = who if who.startswith("ak_") else f"sk-{who}"
            return client.request(method, path, json=body, headers={"authorization": f"Bearer {key}"})

        yield asked


def made(ask: Ask, who: str = "operator", **fields: Any) -> dict[str, Any]:
    answer = ask(who, "POST", "/v1/keys", fields)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def ids(ask: Ask, who: str) -> list[str]:
    return [key["id"] for key in ask(who, "GET", "/v1/keys").json()["data"]]


def test_a_key_is_told_once_opens_what_it_may_and_is_revoked(ask: Ask, tmp_path: Path) -> None:
    ends = int(time.time()) + 3600
    key = made(ask, subject="nightly", scopes=["runs:read"], expires_at=ends, label="The night")
    listed = ask("operator", "GET", "/v1/keys")
    assert key["key"] not in listed.text
    assert [one["source"] for one in listed.json()["data"]] == ["configuration", "configuration", "file"]
    assert listed.json()["data"][-1] == {name: value for name, value in key.items() if name != "key"}
    assert (key["tenant"], key["subject"], key["expires_at"]) == ("acme", "nightly", ends)
    while ask(key["key"], "GET", "/v1/runs").status_code != 200:
        time.sleep(0.05)  # the file is looked at once a second
    assert ask(key["key"], "GET", "/v1/models").status_code == 403
    assert ask("operator", "DELETE", f"/v1/keys/{key['id']}").json()["deleted"]
    while ask(key["key"], "GET", "/v1/runs").status_code != 401:
        time.sleep(0.05)
    assert ask("operator", "DELETE", f"/v1/keys/{key['id']}").status_code == 404
    audit = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    told = [(line["event"], line["subject"], line["key_id"]) for line in audit if line["event"].startswith("key.")]
    assert told == [("key.created", "operator", key["id"]), ("key.revoked", "operator", key["id"])]
    assert key["key"] not in str(audit)


def test_keys_are_those_of_the_callers_tenant(ask: Ask) -> None:
    key = made(ask)
    assert key["scopes"] == ["*"]
    assert ids(ask, "other") == ["other"]
    assert made(ask, "other")["tenant"] == "other"
    assert len(ids(ask, "other")) == 2
    assert ask("other", "DELETE", f"/v1/keys/{key['id']}").status_code == 404
    assert ask("other", "DELETE", "/v1/keys/clerk").status_code == 404
    refused = ask("operator", "DELETE", "/v1/keys/clerk")
    assert (refused.status_code, "The configuration gives" in refused.text) == (409, True)
    assert key["id"] in ids(ask, "operator")


def test_settings_tell_of_no_keys_of_other_tenants(ask: Ask) -> None:
    found = ask("operator", "GET", "/v1/config")
    keys = [one for one in found.json()["data"] if one["key"].startswith("auth.api_keys.")]
    assert [one["value"] for one in keys if one["key"].endswith(".id")] == ["operator", "clerk"]
    assert {one["value"] for one in keys if one["key"].endswith(".key")} == {"********"}
    assert '"other"' not in found.text


def test_nobody_gives_what_he_has_not(ask: Ask) -> None:
    assert made(ask, "clerk")["scopes"] == ["admin:write", "metrics", "runs:*"]
    assert made(ask, "clerk", scopes=["runs:read", "metrics", "runs:*"])["scopes"] == ["metrics", "runs:*", "runs:read"]
    for scope in ("*", "responses:read", "responses:*", "admin"):
        refused = ask("clerk", "POST", "/v1/keys", {"scopes": ["metrics", scope]})
        assert (refused.status_code, refused.json()["error"]["param"]) == (403, "scopes[1]")
    assert ask("clerk", "GET", "/v1/keys").status_code == 403


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"scopes": []}, "scopes"),
        ({"scopes": ["runs:reed"]}, "scopes[0]"),
        ({"scopes": ["runs:read metrics"]}, "scopes[0]"),
        ({"subject": " "}, "subject"),
        ({"label": "x" * 201}, "label"),
        ({"expires_at": 1}, "expires_at"),
        ({"expires_at": 10**18}, "expires_at"),
        ({"tenant": "other"}, "tenant"),
    ],
)
def test_what_no_key_can_be_is_refused(ask: Ask, body: Any, param: str) -> None:
    refused = ask("operator", "POST", "/v1/keys", body)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, param)
    assert ids(ask, "operator") == ["operator", "clerk"]


def test_a_file_that_is_broken_is_told_without_its_place(ask: Ask, tmp_path: Path) -> None:
    (tmp_path / "keys.json").write_text("{")
    for method, body in (("GET", None), ("POST", {})):
        answer = ask("operator", method, "/v1/keys", body)
        assert (answer.status_code, str(tmp_path) in answer.text) == (503, False)


def test_a_server_that_asks_nobody_makes_no_keys(tmp_path: Path) -> None:
    with running(Antwort(Config(data_dir=tmp_path), backend=ScriptedBackend([]))) as server:
        refused = httpx.post(f"{server.url}/v1/keys", json={}, timeout=60)
        assert refused.status_code == 409
        assert "antwort keys new" in refused.text
        assert httpx.get(f"{server.url}/v1/keys", timeout=60).json()["data"] == []
    assert not (tmp_path / "keys.json").exists()


def test_the_configuration_is_told_with_origins_and_without_secrets(tmp_path: Path) -> None:
    file = tmp_path / "antwort.yaml"
    lines = [
        "backends:",
        "  main:",
        "    url: http://me:hunter22@127.0.0.1:1/v1",
        "    api_key: sk-very-secret-indeed",
        "auth:",
        "  api_keys:",
        "    - {id: one, key: sk-also-very-secret}",
    ]
    file.write_text("\n".join(lines), encoding="utf-8")
    environ = {"ANTWORT_DATA_DIR": str(tmp_path / "data")}
    app = Antwort(load_config(file, environ=environ), backend=ScriptedBackend([]))
    with running(app) as server:
        headers = {"authorization": "Bearer sk-also-very-secret"}
        answer = httpx.get(f"{server.url}/v1/config", headers=headers, timeout=60)
    found = {one["key"]: (one["value"], one["origin"]) for one in answer.json()["data"]}
    assert found["backends.main.api_key"] == ("********", f"{file}:4")
    assert found["backends.main.url"] == ("http://me:***@127.0.0.1:1/v1", f"{file}:3")
    assert found["data_dir"] == (str(tmp_path / "data"), "environment ANTWORT_DATA_DIR")
    assert found["server.port"][1] == "default"
    assert not [secret for secret in ("hunter22", "secret-indeed", "also-very") if secret in answer.text]
