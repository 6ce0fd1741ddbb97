"""What credentials may do: every route wants a scope, and nothing else opens it."""

import importlib.metadata
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import SecretStr
from websockets.exceptions import InvalidStatus
from websockets.sync.client import ClientConnection, connect

from antwort import Antwort
from antwort.config import (
    ApiKeyConfig,
    AuthConfig,
    Config,
    ObservabilityConfig,
    ProviderConfig,
    ServerConfig,
    load_config,
)
from antwort.errors import ConfigError
from antwort.provider import Hosted, Provider, function, route
from antwort.testing import RunningApp, ScriptedBackend, call, running, turn

OPEN = {"GET /", "GET /v1", "GET /healthz", "GET /readyz", "GET /openapi.json"}
"""What needs no scope: probes for everybody, the description of the API for every credential."""
SCOPES = {
    "DELETE /v1/chat/completions/{completion_id}": {"responses:write"},
    "DELETE /v1/conversations/{conversation_id}": {"conversations:write"},
    "DELETE /v1/conversations/{conversation_id}/items/{item_id}": {"conversations:write"},
    "DELETE /v1/files/{file_id}": {"files:write"},
    "DELETE /v1/prompts/{prompt_id}": {"prompts:write"},
    "DELETE /v1/keys/{key_id}": {"admin:write"},
    "DELETE /v1/responses/{response_id}": {"responses:write"},
    "DELETE /v1/traces/{trace_id}": {"traces:write"},
    "DELETE /v1/variables/{variable_id}": {"variables:write"},
    "DELETE /v1/messages/batches/{message_batch_id}": {"batches:write"},
    "GET /metrics": {"metrics"},
    "GET /v1/config": {"admin"},
    "GET /v1/batches": {"batches:read"},
    "GET /v1/batches/{batch_id}": {"batches:read"},
    "GET /v1/chat/completions": {"responses:read"},
    "GET /v1/chat/completions/{completion_id}": {"responses:read"},
    "GET /v1/chat/completions/{completion_id}/messages": {"responses:read"},
    "GET /v1/conversations": {"conversations:read"},
    "GET /v1/conversations/{conversation_id}": {"conversations:read"},
    "GET /v1/conversations/{conversation_id}/items": {"conversations:read"},
    "GET /v1/conversations/{conversation_id}/items/{item_id}": {"conversations:read"},
    "GET /v1/files": {"files:read"},
    "GET /v1/files/{file_id}": {"files:read"},
    "GET /v1/files/{file_id}/content": {"files:read"},
    "GET /v1/functions": {"functions:call"},
    "GET /v1/keys": {"admin"},
    "GET /v1/messages/batches": {"batches:read"},
    "GET /v1/messages/batches/{message_batch_id}": {"batches:read"},
    "GET /v1/messages/batches/{message_batch_id}/results": {"batches:read"},
    "GET /v1/models": {"responses:write"},
    "GET /v1/models/{model}": {"responses:write"},
    "GET /v1/prompts": {"prompts:read"},
    "GET /v1/prompts/{prompt_id}": {"prompts:read"},
    "GET /v1/prompts/{prompt_id}/versions": {"prompts:read"},
    "GET /v1/providers": {"admin"},
    "GET /v1/responses": {"responses:read"},
    "GET /v1/responses/{response_id}": {"responses:read"},
    "GET /v1/responses/{response_id}/agents": {"responses:read"},
    "GET /v1/responses/{response_id}/input_items": {"responses:read"},
    "GET /v1/responses/{response_id}/trace": {"traces:read"},
    "GET /v1/runs": {"runs:read"},
    "GET /v1/runs/{run_id}": {"runs:read"},
    "GET /v1/shelf": {"shelf"},
    "GET /v1/traces": {"traces:read"},
    "GET /v1/traces/{trace_id}": {"traces:read"},
    "GET /v1/questions": {"questions:read"},
    "GET /v1/questions/{question_id}": {"questions:read"},
    "GET /v1/webhooks/failed": {"webhooks:read"},
    "GET /v1/webhooks/failed/{delivery_id}": {"webhooks:read"},
    "GET /v1/variables": {"variables:read"},
    "GET /v1/variables/{variable_id}": {"variables:read"},
    "GET /v1/variables/{variable_id}/content": {"variables:read"},
    "POST /mcp": {"functions:call"},
    "POST /v1/batches": {"batches:write"},
    "POST /v1/batches/{batch_id}/cancel": {"batches:write"},
    "POST /v1/chat/completions": {"responses:write"},
    "POST /v1/chat/completions/{completion_id}": {"responses:read", "responses:write"},
    "POST /v1/completions": {"responses:write"},
    "POST /v1/conversations": {"conversations:write"},
    "POST /v1/conversations/{conversation_id}": {"conversations:write"},
    "POST /v1/conversations/{conversation_id}/items": {"conversations:write"},
    "POST /v1/decisions": {"responses:write"},
    "POST /v1/embeddings": {"responses:write"},
    "POST /v1/images/generations": {"responses:write"},
    "POST /v1/moderations": {"responses:write"},
    "POST /v1/files": {"files:write"},
    "POST /v1/functions/{function_name}/disable": {"admin:write"},
    "POST /v1/functions/{function_name}/enable": {"admin:write"},
    "POST /v1/prompts": {"prompts:write"},
    "POST /v1/prompts/{prompt_id}/default_version": {"prompts:write"},
    "POST /v1/keys": {"admin:write"},
    "POST /v1/messages": {"messages:write"},
    "POST /v1/messages/batches": {"batches:write"},
    "POST /v1/messages/batches/{message_batch_id}/cancel": {"batches:write"},
    "POST /v1/messages/count_tokens": {"messages:write"},
    "POST /v1/providers/{provider_name}/disable": {"admin:write"},
    "POST /v1/providers/{provider_name}/enable": {"admin:write"},
    "PUT /v1/prompts/{prompt_id}": {"prompts:write"},
    "PUT /v1/prompts/{prompt_id}/set-default-version": {"prompts:write"},
    "POST /v1/responses": {"responses:write"},
    "POST /v1/responses/compact": {"responses:write"},
    "POST /v1/responses/input_tokens": {"responses:write"},
    "POST /v1/responses/{response_id}/cancel": {"responses:read", "responses:write"},
    "POST /v1/runs/{run_id}/retry": {"responses:read", "responses:write"},
    "POST /v1/shelf": {"shelf:write"},
    "POST /v1/questions/{question_id}/answer": {"questions:write"},
    "POST /v1/questions/{question_id}/cancel": {"questions:write"},
    "POST /v1/traces/ingest": {"traces:write"},
    "POST /v1/uploads": {"files:write"},
    "POST /v1/uploads/{upload_id}/cancel": {"files:write"},
    "POST /v1/uploads/{upload_id}/complete": {"files:write"},
    "POST /v1/uploads/{upload_id}/parts": {"files:write"},
    "POST /v1/webhooks/failed/{delivery_id}/drop": {"webhooks:write"},
    "POST /v1/webhooks/failed/{delivery_id}/retry": {"webhooks:write"},
    "PUT /v1/variables": {"variables:write"},
}
INSTEAD: dict[str, set[str]] = {
    "GET /v1/models": {"messages:write"},
    "GET /v1/models/{model}": {"messages:write"},
    "POST /v1/messages": {"responses:write"},
    "POST /v1/messages/count_tokens": {"responses:write"},
}
"""What opens a route as well."""
SETTINGS: dict[str, dict[str, Any]] = {
    name: {"url": "http://localhost:1"} for name in ("web_search", "image_generation")
}
"""What providers cannot do without."""
KEYS = {
    "all": ["*"],
    "none": [],
    "metrics": ["metrics"],
    "write": ["responses:write"],
    "messages": ["messages:write"],
    "read": ["responses:read"],
    "responses": ["responses:*"],
    "talk": ["responses:*", "conversations:*"],
    "call": ["responses:write", "functions:call"],
    "half": ["responses:write", "conversations:read"],
}


class Shelf(Provider):
    @function(hosted=Hosted(types=("shelf",), item="shelf_call"))
    async def look(self) -> str:
        """Look what there is."""
        return "A teapot."

    @route("GET", "/v1/shelf")
    async def get(self) -> dict[str, str]:
        """Declare no scope."""
        return {}

    @route("POST", "/v1/shelf", scope="shelf:write")
    async def put(self) -> dict[str, str]:
        """Declare one."""
        return {}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningApp]:
    scopes = {**KEYS, **{f"only {scope}": [scope] for declared in SCOPES.values() for scope in declared}}
    scopes |= {name: sorted(declared) for name, declared in SCOPES.items()}
    keys = [
        ApiKeyConfig(id=name, key=SecretStr(key_of(name)), tenant="acme", scopes=carried)
        for name, carried in scopes.items()
    ]
    config = Config(
        data_dir=tmp_path_factory.mktemp("data"),
        auth=AuthConfig(api_keys=keys),
        server=ServerConfig(protect_metrics=True),
    )
    with running(Antwort(config, providers=[Shelf()], backend=ScriptedBackend(["Hello."] * 40))) as server:
        yield server


@pytest.fixture
def client(server: RunningApp) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url) as client:
        yield client


def key_of(name: str) -> str:
    return "key-" + name.replace(" ", "-").replace("/", "_").replace("{", "").replace("}", "")


def bearer(name: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key_of(name)}"}


def described(client: httpx.Client) -> dict[str, Any]:
    paths = client.get("/openapi.json", headers=bearer("none")).json()["paths"]
    return {f"{method.upper()} {path}": found for path, methods in paths.items() for method, found in methods.items()}


def asked(client: httpx.Client, name: str, key: str) -> httpx.Response:
    method, _, path = name.partition(" ")
    return client.request(method, path.replace("{", "").replace("}", ""), headers=bearer(key))


def create(client: httpx.Client, key: str, **fields: Any) -> httpx.Response:
    return client.post("/v1/responses", json={"input": "Hi", **fields}, headers=bearer(key))


def refused(answer: httpx.Response) -> dict[str, Any]:
    assert answer.status_code == 403, answer.text
    error: dict[str, Any] = answer.json()["error"]
    assert error.get("code", error["type"]) in {"insufficient_permissions", "permission_error"}
    return error


def test_every_route_declares_the_scope_it_needs(client: httpx.Client) -> None:
    found = {name: set(operation["security"][0]["bearer"]) for name, operation in described(client).items()
             if operation.get("security")}  # fmt: skip
    assert {name for name, scopes in found.items() if not scopes} == {"GET /openapi.json"}
    assert set(described(client)) == set(SCOPES) | OPEN
    assert {name: scopes for name, scopes in found.items() if scopes} == SCOPES


@pytest.mark.parametrize("name", SCOPES)
def test_nothing_opens_a_route_but_its_scopes(client: httpx.Client, name: str) -> None:
    assert "lack the scope" in refused(asked(client, name, "none"))["message"]
    for other in ("metrics", "read", "write", "messages"):
        carried = set(KEYS[other])
        opens = SCOPES[name] <= carried or INSTEAD.get(name, {""}) <= carried
        assert (asked(client, name, other).status_code == 403) is not opens
    for key in ("all", name):
        assert asked(client, name, key).status_code not in {401, 403}


def test_routes_of_the_providers_that_are_shipped_declare_theirs(tmp_path: Path) -> None:
    shipped = [
        point.name
        for point in importlib.metadata.entry_points(group="antwort.providers")
        if point.dist is not None and point.dist.name == "antwort"
    ]
    providers = {name: ProviderConfig(enabled=True, settings=SETTINGS.get(name, {})) for name in shipped}
    app = Antwort(Config(data_dir=tmp_path, providers=providers))
    found = {str(route): route.scope for known in app.registry.registrations() for route in known.routes}
    assert "GET /v1/vector_stores" in found
    assert all(found.values()), found
    assert {scope for scope in found.values() if scope} == {
        "containers:read",
        "containers:write",
        "files:read",
        "files:write",
        "ingest",
        "questions:read",
        "questions:write",
        "variables:read",
        "variables:write",
        "vector_stores:read",
        "vector_stores:write",
        "webhooks:read",
        "webhooks:write",
        "workspace:read",
        "workspace:write",
    }


def test_a_star_opens_a_family_and_writing_does_not_imply_reading(client: httpx.Client) -> None:
    made = create(client, "responses").json()["id"]
    assert client.get(f"/v1/responses/{made}", headers=bearer("responses")).status_code == 200
    assert "'responses:read'" in refused(client.get(f"/v1/responses/{made}", headers=bearer("write")))["message"]
    assert "'responses:write'" in refused(client.delete(f"/v1/responses/{made}", headers=bearer("read")))["message"]
    assert client.get("/v1/conversations/conv_1", headers=bearer("responses")).status_code == 403


def test_history_is_not_read_through_the_model(client: httpx.Client) -> None:
    made = create(client, "all").json()
    item = made["output"][0]["id"]
    talk = client.post("/v1/conversations", json={}, headers=bearer("all")).json()["id"]
    error = refused(create(client, "write", previous_response_id=made["id"]))
    assert (error["param"], "'responses:read'" in error["message"]) == ("previous_response_id", True)
    assert "'conversations:read'" in refused(create(client, "write", conversation=talk))["message"]
    assert "'conversations:write'" in refused(create(client, "half", conversation={"id": talk}))["message"]
    reference = [{"type": "item_reference", "id": item}, {"role": "user", "content": "And?"}]
    assert refused(create(client, "write", input=reference))["param"] == "input[0]"
    refused(client.post("/v1/conversations", json={"items": reference[:1]}, headers=bearer("POST /v1/conversations")))
    compact = {"model": made["model"], "previous_response_id": made["id"]}
    refused(client.post("/v1/responses/compact", json=compact, headers=bearer("write")))
    assert create(client, "responses", previous_response_id=made["id"]).status_code == 200
    assert create(client, "talk", conversation=talk).status_code == 200
    assert create(client, "talk", input=reference).status_code == 200


def test_functions_are_for_those_who_may_call_them(tmp_path: Path) -> None:
    keys = [
        ApiKeyConfig(id=name, key=SecretStr(key_of(name)), tenant="acme", scopes=KEYS[name])
        for name in ("write", "call")
    ]
    backend = ScriptedBackend(["None.", "None.", turn(calls=[call("look")]), "A teapot."])
    config = Config(data_dir=tmp_path, auth=AuthConfig(api_keys=keys))
    with (
        running(Antwort(config, providers=[Shelf()], backend=backend)) as server,
        httpx.Client(base_url=server.url) as client,
    ):
        assert create(client, "write").status_code == 200
        assert not backend.requests[-1].tools
        for named in ({"type": "shelf"}, {"type": "function", "name": "look"}):
            error = refused(create(client, "write", tools=[named]))
            assert (error["param"], "'functions:call'" in error["message"]) == ("tools[0]", True)
        mine = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}}
        assert create(client, "write", tools=[mine]).status_code == 200  # the client's own, of the same name
        made = create(client, "call", tools=[{"type": "shelf"}]).json()
    assert [item["type"] for item in made["output"]] == ["shelf_call", "message"]


def socket_of(server: RunningApp, key: str) -> ClientConnection:
    url = server.url.replace("http://", "ws://") + "/v1/responses"
    return connect(url, additional_headers=bearer(key), proxy=None)


@pytest.mark.parametrize("key", ["none", "metrics", "read"])
def test_a_websocket_is_for_those_who_may_create(server: RunningApp, key: str) -> None:
    with pytest.raises(InvalidStatus) as info, socket_of(server, key):
        pass
    assert info.value.response.status_code == 403
    assert b"responses:write" in (info.value.response.body or b"")


def test_a_websocket_continues_what_was_said_on_it_and_nothing_else(server: RunningApp, client: httpx.Client) -> None:
    stored = create(client, "all").json()["id"]
    with socket_of(server, "write") as connection:

        def made(**fields: Any) -> dict[str, Any]:
            connection.send(json.dumps({"type": "response.create", "input": "Hi", **fields}))
            while True:
                event: dict[str, Any] = json.loads(connection.recv())
                if event["type"] in {"response.completed", "response.failed", "error"}:
                    return event

        said = made(store=False)["response"]["id"]
        assert made(store=False, previous_response_id=said)["type"] == "response.completed"
        refusal = made(previous_response_id=stored)
        assert (refusal["status"], refusal["error"]["code"]) == (403, "insufficient_permissions")


def test_what_credentials_do_not_open_is_in_the_audit_log(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    key = ApiKeyConfig(id="write", key=SecretStr(key_of("write")), tenant="acme", scopes=KEYS["write"])
    config = Config(
        data_dir=tmp_path, auth=AuthConfig(api_keys=[key]), observability=ObservabilityConfig(audit_file=file)
    )
    app = Antwort(config, providers=[Shelf()], backend=ScriptedBackend([]))
    with running(app) as server, httpx.Client(base_url=server.url, headers={"x-request-id": "r-1"}) as client:
        for name in ("GET /v1/providers", "GET /v1/shelf", "POST /v1/shelf"):
            refused(asked(client, name, "write"))
        refused(create(client, "write", previous_response_id="resp_1"))
        with socket_of(server, "write") as connection:
            connection.send(json.dumps({"type": "response.create", "input": "Hi", "previous_response_id": "resp_1"}))
            assert json.loads(connection.recv())["status"] == 403
        assert client.get("/v1/models", headers=bearer("write")).status_code == 200
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [(line["method"], line["path"]) for line in lines] == [
        ("GET", "/v1/providers"),
        ("GET", "/v1/shelf"),
        ("POST", "/v1/shelf"),
        ("POST", "/v1/responses"),
        ("WEBSOCKET", "/v1/responses"),
    ]
    for line in lines:
        assert (line["event"], line["status"], line["code"]) == ("request.refused", 403, "insufficient_permissions")
        assert (line["tenant"], line["subject"], line["client"]) == ("acme", "write", "127.0.0.1")
    assert [line["request_id"] for line in lines[:4]] == ["r-1"] * 4


@pytest.mark.parametrize(
    ("scope", "told"),
    [
        ("responses:reed", "there is no scope 'responses:reed'; did you mean 'responses:read'?"),
        ("responses:read responses:write", "give one scope each, without blanks and commas"),
        ("responses:read,responses:write", "give one scope each, without blanks and commas"),
        ("", "give one scope each, without blanks and commas"),
    ],
)
def test_a_key_with_a_scope_that_cannot_be_is_refused_with_its_line(tmp_path: Path, scope: str, told: str) -> None:
    file = tmp_path / "antwort.yaml"
    lines = ["auth:", "  api_keys:", "    - id: typo", "      key: secret", "      scopes:", "        - notes"]
    file.write_text("\n".join([*lines, f'        - "{scope}"', ""]), encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_config(file, environ={})
    assert told in caught.value.message
    assert "auth.api_keys.0.scopes.1" in str(caught.value)
    assert f"{file}:7" in str(caught.value)
