"""The shipped app on a socket: what every client meets."""

import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import ByteSize, SecretStr
from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.types import Message, Send

import antwort
from antwort import Antwort
from antwort.config import (
    ApiKeyConfig,
    AuthConfig,
    Config,
    LimitsConfig,
    ObservabilityConfig,
    RateConfig,
    ServerConfig,
    TenantLimitsConfig,
)
from antwort.errors import NotFoundError, did_you_mean
from antwort.provider import Context, Provider, Request, function, route
from antwort.testing import running

KEYS = AuthConfig(
    api_keys=[
        ApiKeyConfig(id="all", key=SecretStr("secret-all"), tenant="acme"),
        ApiKeyConfig(id="few", key=SecretStr("secret-few"), tenant="acme", scopes=["read", "probe"]),
        ApiKeyConfig(id="ops", key=SecretStr("secret-ops"), tenant="ops", scopes=["metrics"]),
    ]
)


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


class Probe(Provider):
    @function
    async def who(self, ctx: Context) -> str:
        """Tell the tenant."""
        return ctx.tenant

    @route("GET", "/v1/probe")
    async def probe(self, ctx: Context) -> dict[str, Any]:
        """Tell the context."""
        return {"tenant": ctx.tenant, "subject": ctx.subject, "request_id": ctx.request_id}

    @route("POST", "/v1/probe/read")
    async def read(self, request: Request) -> dict[str, int]:
        """Count the bytes of the body."""
        return {"bytes": len(await request.body())}

    @route("GET", "/v1/probe/crash")
    async def crash(self) -> None:
        """Crash."""
        raise RuntimeError("hunter22")

    @route("GET", "/v1/probe/admin", scope="admin")
    async def admin(self) -> dict[str, str]:
        """Need a scope."""
        return {"admin": "yes"}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    folder = tmp_path_factory.mktemp("data")
    config = Config(
        data_dir=folder,
        auth=KEYS,
        server=ServerConfig(max_body_bytes=ByteSize(1000), cors_origins=["https://app.example"]),
    )
    with running(Antwort(config, providers=[Probe()])) as server, httpx.Client(base_url=server.url) as client:
        yield client


def assert_envelope(response: httpx.Response) -> dict[str, Any]:
    assert response.headers["content-type"] == "application/json"
    body = response.json()
    assert set(body) == {"error"}
    assert set(body["error"]) == {"message", "type", "param", "code"}
    assert response.headers["x-request-id"]
    error: dict[str, Any] = body["error"]
    return error


@pytest.mark.parametrize(
    ("method", "path", "key", "status"),
    [
        ("GET", "/nowhere", "secret-all", 404),
        ("GET", "/v1/nowhere/at/all", "secret-all", 404),
        ("GET", "/nowhere", None, 401),
        ("GET", "/v1/probe", None, 401),
        ("GET", "/v1/functions", "wrong", 401),
        ("DELETE", "/healthz", None, 405),
        ("PATCH", "/v1/probe", "secret-all", 405),
        ("GET", "/v1/probe/admin", "secret-few", 403),
        ("GET", "/v1/probe/crash", "secret-all", 500),
        ("PROPFIND", "/v1/probe", "secret-all", 405),
        ("GET", "//v1//probe", "secret-all", 404),
        ("GET", "/v1/probe/", "secret-all", 404),
        ("GET", "/%2e%2e/etc/passwd", "secret-all", 404),
    ],
)
def test_every_error_is_in_the_openai_envelope(
    client: httpx.Client, method: str, path: str, key: str | None, status: int
) -> None:
    response = client.request(method, path, headers=bearer(key) if key else {})
    assert response.status_code == status
    assert_envelope(response)


def test_an_error_repeats_little_of_what_was_sent() -> None:
    error = NotFoundError(f"There is no '{'x' * 1_000_000}' here.", param="x" * 1_000_000).envelope()["error"]
    assert str(error["message"]).startswith("There is no 'xxx")
    assert str(error["message"]).endswith("xxx' here.")
    assert len(json.dumps(error)) < 12_000


def test_a_name_beyond_all_others_is_not_held_against_them() -> None:
    name = "a" * 1_000
    assert did_you_mean(name[:190], [name[:195]])
    assert not did_you_mean(name[:990], [name])


def test_a_crash_tells_the_client_nothing_but_where_to_look(client: httpx.Client) -> None:
    response = client.get("/v1/probe/crash", headers=bearer("secret-all"))
    assert "hunter22" not in response.text
    assert "Traceback" not in response.text


def test_probes_need_no_credentials(client: httpx.Client) -> None:
    assert client.get("/healthz").json()["status"] == "ok"
    assert client.get("/readyz").json()["status"] == "ready"
    assert client.get("/metrics").status_code == 200
    assert client.get("/openapi.json").status_code == 401


@pytest.mark.parametrize("path", ["/", "/v1"])
def test_whoever_opens_the_address_is_told_where_to_go(client: httpx.Client, path: str) -> None:
    index = client.get(path).json()
    assert (index["name"], index["version"]) == ("antwort", antwort.__version__)
    assert "POST /v1/responses" in index["hint"]
    for name in ("responses", "models", "functions", "openapi", "ready", "metrics"):
        assert client.get(index[name]).status_code != 404, name


def test_readyz_is_503_while_the_server_stops() -> None:
    with running(Antwort()) as server:
        server.app.state.phase = "stopping"
        response = httpx.get(f"{server.url}/readyz")
        server.app.state.phase = "running"
    assert response.status_code == 503
    assert assert_envelope(response)["message"] == "The server is stopping."


def test_the_request_id_is_taken_over_or_made(client: httpx.Client) -> None:
    given = client.get("/v1/probe", headers={**bearer("secret-all"), "x-request-id": "my-id.1"})
    assert given.headers["x-request-id"] == "my-id.1"
    assert given.json()["request_id"] == "my-id.1"
    for bad in ("a b", "x" * 200, "<script>"):
        made = client.get("/healthz", headers={"x-request-id": bad})
        assert made.headers["x-request-id"].startswith("req_")


def test_the_context_is_the_callers(client: httpx.Client) -> None:
    answer = client.get("/v1/probe", headers={"x-api-key": "secret-few"}).json()
    assert (answer["tenant"], answer["subject"]) == ("acme", "few")


def test_a_scope_opens_what_needs_it(client: httpx.Client) -> None:
    assert client.get("/v1/probe/admin", headers=bearer("secret-all")).status_code == 200


def test_a_body_that_is_announced_too_large_is_refused_before_it_is_read(client: httpx.Client) -> None:
    response = client.post("/v1/probe/read", headers=bearer("secret-all"), content=b"x" * 1001)
    assert response.status_code == 413
    assert "1,000 bytes (server.max_body_bytes)" in assert_envelope(response)["message"]
    fits = client.post("/v1/probe/read", headers=bearer("secret-all"), content=b"x" * 1000)
    assert fits.json() == {"bytes": 1000}


def test_a_body_without_announced_length_is_refused_while_it_is_read(client: httpx.Client) -> None:
    pieces = (b"x" * 100 for _ in range(11))
    response = client.post("/v1/probe/read", headers=bearer("secret-all"), content=pieces)
    assert response.status_code == 413
    assert_envelope(response)


def test_cors_answers_preflights_without_credentials_and_marks_errors_too(client: httpx.Client) -> None:
    origin = {"origin": "https://app.example"}
    preflight = client.options(
        "/v1/functions",
        headers={**origin, "access-control-request-method": "POST", "access-control-request-headers": "authorization"},
    )
    assert preflight.status_code == 200
    assert preflight.headers["access-control-allow-origin"] == "https://app.example"
    assert "authorization" in preflight.headers["access-control-allow-headers"]
    refused = client.get("/v1/functions", headers=origin)
    assert refused.status_code == 401
    assert refused.headers["access-control-allow-origin"] == "https://app.example"
    foreign = client.get("/healthz", headers={"origin": "https://elsewhere.example"})
    assert "access-control-allow-origin" not in foreign.headers


def test_programs_are_answered_where_pages_may_call_with_every_release_of_starlette(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:

    async def old(_self: CORSMiddleware, message: Message, send: Send, request_headers: Headers) -> None:
        assert request_headers["Origin"]
        await send(message)

    monkeypatch.setattr(CORSMiddleware, "send", old)
    for path, status in (("/healthz", 200), ("/v1/functions", 401)):
        answer = client.get(path)
        assert (answer.status_code, answer.headers["vary"]) == (status, "Origin")
        assert "access-control-allow-origin" not in answer.headers


def test_the_api_is_described(client: httpx.Client) -> None:
    document = client.get("/openapi.json", headers=bearer("secret-all")).json()
    assert document["openapi"].startswith("3.1")
    for path in ("/healthz", "/readyz", "/metrics", "/openapi.json", "/v1/functions", "/v1/providers", "/v1/probe"):
        assert path in document["paths"], path
    operations = [op for path in document["paths"].values() for op in path.values()]
    assert len({op["operationId"] for op in operations}) == len(operations)
    assert all(op["summary"] for op in operations)
    assert "security" in document["paths"]["/v1/functions"]["get"]
    assert "security" not in document["paths"]["/healthz"]["get"]


def test_functions_and_providers_are_listed(client: httpx.Client) -> None:
    functions = client.get("/v1/functions", headers=bearer("secret-all")).json()
    assert functions["object"] == "list"
    who = functions["data"][0]
    assert (who["name"], who["provider"], who["scope"]) == ("who", "probe", "core")
    providers = client.get("/v1/providers", headers=bearer("secret-all")).json()["data"]
    probe = providers[0]
    assert (probe["name"], probe["enabled"], probe["functions"]) == ("probe", True, ["who"])
    assert "GET /v1/probe" in probe["routes"]


def test_requests_are_counted_by_route_pattern_and_invented_paths_are_not_labels(client: httpx.Client) -> None:
    client.get("/healthz")
    client.get("/invented/by/somebody", headers=bearer("secret-all"))
    client.request("PROPFIND", "/healthz")
    page = client.get("/metrics").text
    assert 'antwort_http_requests_total{method="GET",path="/healthz",status="200"}' in page
    assert 'antwort_http_requests_total{method="GET",path="unmatched",status="404"}' in page
    assert 'antwort_http_requests_total{method="OTHER"' in page
    assert 'antwort_http_request_duration_seconds_count{method="GET",path="/healthz"}' in page
    assert "invented" not in page


def test_refused_requests_are_counted_where_they_were_refused(client: httpx.Client) -> None:
    client.get("/v1/probe")
    page = client.get("/metrics").text
    assert 'antwort_http_requests_total{method="GET",path="/v1/probe",status="401"}' in page


def test_no_path_label_is_invented_by_clients(client: httpx.Client) -> None:
    page = client.get("/metrics").text
    assert "PROPFIND" not in page


def test_metrics_can_be_protected() -> None:
    config = Config(auth=KEYS, server=ServerConfig(protect_metrics=True))
    with running(Antwort(config)) as server:
        statuses = {
            key: httpx.get(f"{server.url}/metrics", headers=bearer(key) if key else {}).status_code
            for key in ("", "secret-few", "secret-ops", "secret-all")
        }
    assert statuses == {"": 401, "secret-few": 403, "secret-ops": 200, "secret-all": 200}


def test_rate_limits_are_429_with_retry_after_and_headers() -> None:
    limits = LimitsConfig(
        per_key=RateConfig(requests_per_minute=2), per_tenant=TenantLimitsConfig(requests_per_minute=3)
    )
    with running(Antwort(Config(auth=KEYS, limits=limits))) as server:

        def get(key: str) -> httpx.Response:
            return httpx.get(f"{server.url}/openapi.json", headers=bearer(key))

        assert [get("secret-all").status_code for _ in range(3)] == [200, 200, 429]
        assert [get("secret-few").status_code for _ in range(2)] == [200, 429]
        refused = get("secret-all")
        assert get("secret-ops").headers["x-ratelimit-remaining-requests"] == "1"
        assert httpx.get(f"{server.url}/healthz").status_code == 200
    assert int(refused.headers["retry-after"]) >= 1
    error = assert_envelope(refused)
    assert (error["type"], error["code"]) == ("rate_limit_error", "rate_limit_exceeded")


def test_refusals_and_calls_are_in_the_audit_log(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    config = Config(auth=KEYS, observability=ObservabilityConfig(audit_file=file))
    with running(Antwort(config, providers=[Probe()])) as server:
        httpx.get(f"{server.url}/v1/probe", headers={**bearer("secret-wrong-key"), "x-request-id": "r-1"})
    event = json.loads(file.read_text().splitlines()[0])
    assert (event["event"], event["status"], event["path"]) == ("request.refused", 401, "/v1/probe")
    assert event["request_id"] == "r-1"
    assert "secret-wrong-key" not in file.read_text()


def test_a_client_that_leaves_is_counted_and_the_server_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    with running(Antwort(providers=[Probe()])) as server:
        host, port = server.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as raw:
            raw.sendall(b"POST /v1/probe/read HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\nhalf")
        deadline = time.monotonic() + 60
        while "/v1/probe/read" not in httpx.get(f"{server.url}/metrics").text and time.monotonic() < deadline:
            time.sleep(0.005)
        assert 'path="/v1/probe/read",status="499"} 1.0' in httpx.get(f"{server.url}/metrics").text
        assert httpx.get(f"{server.url}/healthz").status_code == 200
    assert "Traceback" not in caplog.text


async def test_the_asgi_lifespan_starts_and_stops_the_app() -> None:
    app = Antwort()
    sent: list[Any] = []
    events = iter([{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}])

    async def receive() -> Any:
        event = next(events)
        if event["type"] == "lifespan.shutdown":
            assert app.state.ready
        return event

    async def send(message: Any) -> None:
        sent.append(message["type"])

    await app.asgi()({"type": "lifespan"}, receive, send)
    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
    assert app.state.phase == "stopping"


async def test_an_app_that_was_not_started_says_so() -> None:
    transport = httpx.ASGITransport(Antwort())
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        response = await client.get("/healthz")
    assert response.status_code == 503
    assert "has not started" in response.json()["error"]["message"]
