"""Failed logins on a socket: what clients are told, and what the audit log has of it."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import SecretStr
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from antwort import Antwort
from antwort.config import ApiKeyConfig, AuthConfig, Config, ObservabilityConfig
from antwort.errors import AuthenticationError, RateLimitError
from antwort.observability import AuditLog
from antwort.server import observation
from antwort.server.observation import Refusals
from antwort.testing import RunningApp, running


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def app(tmp_path: Path) -> Antwort:
    keys = [ApiKeyConfig(id="good", key=SecretStr("good"))]
    return Antwort(
        Config(
            data_dir=tmp_path,
            auth=AuthConfig(api_keys=keys, max_failures=20),
            observability=ObservabilityConfig(audit_file=tmp_path / "audit.log", audit_refusals=3),
        )
    )


def ask(site: RunningApp, key: str) -> httpx.Response:
    return httpx.get(f"{site.url}/v1/models", headers={"authorization": f"Bearer {key}"})


def test_failed_logins_are_slowed_down_and_do_not_flood_the_audit_log(tmp_path: Path) -> None:
    with running(app(tmp_path)) as site:
        assert ask(site, "good").status_code == 200
        statuses = [ask(site, f"bad-{number}").status_code for number in range(50)]
        assert statuses == [401] * 20 + [429] * 30
        refused = ask(site, "bad")
        assert 0 < int(refused.headers["retry-after"]) <= 60
        assert refused.json()["error"]["code"] == "rate_limit_exceeded"
        assert ask(site, "good").status_code == 200
        with pytest.raises(InvalidStatus) as denied:
            connect(
                f"ws{site.url.removeprefix('http')}/v1/responses",
                proxy=None,
                additional_headers={"authorization": "Bearer bad"},
            )
        assert denied.value.response.status_code == 429
        assert len(lines(tmp_path / "audit.log")) == 3
    *each, together = lines(tmp_path / "audit.log")
    assert [line["event"] for line in each] == ["request.refused"] * 3
    assert together["event"] == "requests.refused"
    assert (together["client"], together["count"]) == ("127.0.0.1", 49)
    assert together["statuses"] == {"401": 17, "429": 32}


async def test_the_number_is_written_when_the_minute_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observation, "MAX_ADDRESSES", 2)
    now = [0.0]
    path = tmp_path / "audit.log"
    audit = AuditLog(path)
    log = Refusals(audit, 1, clock=lambda: now[0])

    def refuse(address: str | None) -> None:
        client = None if address is None else (address, 1)
        log.record({"path": "/", "method": "GET", "client": client}, AuthenticationError("No."), None)

    for address in ("a", "b", "a", "a", "c", "d", "c"):
        refuse(address)
    assert len(log) == 3  # all that are too many count as one
    assert [line["client"] for line in lines(path)] == ["a", "b", "c"]
    now[0] = 30
    log._sum_up()
    assert len(log) == 3
    now[0] = 60
    log._sum_up()
    assert len(log) == 0
    assert [(line.get("client"), line["count"]) for line in lines(path)[3:]] == [("a", 2), (None, 2)]
    refuse("a")
    assert lines(path)[-1]["event"] == "request.refused"
    log.record({"path": "/", "client": ("a", 1)}, RateLimitError("Slow.", retry_after=1), None)
    log.close()
    assert lines(path)[-1] | {"ts": None} == {
        "ts": None, "event": "requests.refused", "client": "a", "count": 1, "statuses": {"429": 1}, "seconds": 0,
    }  # fmt: skip
    audit.close()
