"""What reads or writes a thing needs that thing's scope, whichever way it is named: every indirect way is walked here.

What a request can name is collected from the description of the API and from the shapes of tools and items. A name that
is new is in none of the tables below, and fails the first test: whoever adds it says what it leads to.
"""

import importlib.metadata
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from msgspec import inspect
from pydantic import SecretStr
from tests.support.embeddings import EmbeddingServer

from antwort import Antwort
from antwort.config import ApiKeyConfig, AuthConfig, Config, ProviderConfig, SandboxConfig
from antwort.testing import RunningApp, ScriptedBackend, call, running, turn
from antwort.testing.script import Script
from antwort.types import JSON
from antwort.wire.item_shapes import ITEM_SHAPES
from antwort.wire.tool_shapes import TOOL_SHAPES

NAMING = re.compile(r"(^|_)(id|ids|reference|conversation|container|environment|file|files)$|^prompt$")
"""Names of fields that may name a thing."""
OWN = {
    "admin": {"path:key_id"},
    "responses": {"path:response_id", "path:run_id", "path:completion_id"},
    "runs": {"path:run_id"},
    "traces": {
        *("path:response_id", "path:trace_id", "query:group_id"),
        *(f"body:data[].{name}" for name in ("id", "trace_id", "parent_id", "group_id")),
    },
    "conversations": {"path:conversation_id", "path:item_id"},
    "prompts": {"path:prompt_id"},
    "batches": {
        *("path:batch_id", "path:message_batch_id", "query:after_id", "query:before_id"),
        "body:requests[].custom_id",  # a name of the client's
    },
    "containers": {"path:container_id", "path:file_id"},
    "vector_stores": {"path:vector_store_id", "path:batch_id", "path:file_id", "body:files"},
    "ingest": {"path:vector_store_id", "query:file_id", "body:points[].file_id", "body:points[].id"},
    "files": {"path:file_id", "path:upload_id", "body:part_ids", "body:file"},
    "questions": {"path:question_id", "query:response_id"},
    "webhooks": {"path:delivery_id"},
    "variables": {"path:variable_id"},
    "workspace": {"path:workspace_id"},
}
"""Things that a route's own scope is about, by its first word. Files of containers and vector stores are copies."""
UNREAD = {
    "body:conversation.id",  # the same as the conversation, which is walked both ways
    "body:prompt_cache_options.comparison_response_id",  # ignored
    "body:prompt",  # the text of /v1/completions, and of prompts; and what names one by its id
    "POST /v1/containers/{container_id}/files body:file",  # the bytes themselves
    "POST /mcp body:id",  # the number of a message
    "tool computer_use_preview.environment",
    "tool shell.environment",
    "tool shell.environment.file_ids",  # refused
    "tool shell.environment.skills[].skill_id",  # refused
    "tool mcp.connector_id",  # tools that are not ours
    "tool mcp.tunnel_id",
    "item message.content[].annotations[].file_id",  # what an answer has cited is text
    "item message.content[].annotations[].container_id",
    "item computer_call_output.output.file_id",  # goes to the model server as it is
    "item file_search_call.results[].file_id",
    "item file_search_call.results[].vector_store_id",
    "item shell_call.environment",
    "item mcp_call.approval_request_id",
    "body:messages[].content[].id",  # calls of the client
    "body:messages[].content[].tool_use_id",
    "body:metadata.user_id",  # ignored
    "body:user_profile_id",
    "body:workspace_id",
    "POST /v1/messages body:container",
    "GET /v1/models query:after_id",  # models, which are of no tenant
    "GET /v1/models query:before_id",
}
"""What names nothing, or a thing that is not read or written."""
OWN_IDS = re.compile(r"item \S+\.(id|call_id|caller_id)$")
"""What items are called themselves, but for `item_reference`."""

SETTINGS: dict[str, dict[str, Any]] = {
    name: {"url": "http://localhost:1"} for name in ("web_search", "image_generation")
}


@dataclass
class Things:
    """One of each, all of one tenant."""

    file: str
    picture: str
    conversation: str
    prompt: str
    response: str
    item: str
    vector_store: str
    container: str
    workspace: str
    variable: str


@dataclass
class Way:
    """A way to a thing: what names it, what the route itself needs, what the thing needs, and a request that goes."""

    name: str
    carried: list[str]
    needed: list[str]
    request: Callable[[Things], tuple[str, str, Any]]
    status: int = 200
    """What comes of it if everything is carried."""

    def key(self, left_out: str = "") -> str:
        """Return a key with all scopes but one."""
        return re.sub(r"\W+", "-", f"key {self.name} {self.carried} {self.needed} {left_out}")


def response(**fields: Any) -> Callable[[Things], tuple[str, str, Any]]:
    """Return a request for a response with fields in which `$name` stands for the id of a thing."""

    def request(things: Things) -> tuple[str, str, Any]:
        return "POST", "/v1/responses", filled({"input": "Hi", **fields}, things)

    return request


def message(*content: JSON) -> JSON:
    """Return the body of a message."""
    return {"model": "scripted", "messages": [{"role": "user", "content": [*content]}]}


def called(*content: JSON) -> JSON:
    """Return the body of a message with the result of a call."""
    call = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": [*content]}
    said = [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    return {"model": "scripted", "messages": [{"role": "user", "content": "Look!"}, *said]}


def asking(method: str, path: str, body: Any = None) -> Callable[[Things], tuple[str, str, Any]]:
    return lambda things: (method, filled(path, things), filled(body, things))


def filled(value: Any, things: Things) -> Any:
    """Put the ids of things in their places."""
    if isinstance(value, str):
        return re.sub(r"\$(\w+)", lambda found: str(getattr(things, found[1])), value)
    if isinstance(value, dict):
        return {name: filled(one, things) for name, one in value.items()}
    return [filled(one, things) for one in value] if isinstance(value, list) else value


def said(*parts: JSON) -> list[JSON]:
    return [{"type": "message", "role": "user", "content": [*parts]}]


def output_of(kind: str) -> list[JSON]:
    """Return a call of the client's, and an output that is a file."""
    said_as = "arguments" if kind == "function_call" else "input"
    return [
        {"type": kind, "call_id": "call_1", "name": "fetch", said_as: "{}"},
        {"type": f"{kind}_output", "call_id": "call_1", "output": [FILE]},
    ]


ASK, CALL = "responses:write", "functions:call"
FILE: JSON = {"type": "input_file", "file_id": "$file"}
REFERENCE: JSON = {"type": "item_reference", "id": "$item"}
BOTH = ["responses:read", "conversations:read"]
STORE, FORM = "/v1/vector_stores/$vector_store", "/v1/containers/$container/files"
WORKSPACE = "/v1/workspaces/$conversation"
CONVERSATION = ["conversations:read", "conversations:write"]
REFUSED = {"insufficient_permissions", "permission_error"}
PICTURE: JSON = {"type": "image", "source": {"type": "file", "file_id": "$picture"}}
DOCUMENT: JSON = {"type": "document", "source": {"type": "content", "content": [PICTURE]}}
MESSAGES = {
    "messages[].content[]": message(PICTURE),
    "messages[].content[].source.content[]": message(DOCUMENT),
    "messages[].content[].content[]": called(PICTURE),
    "messages[].content[].content[].source.content[]": called(DOCUMENT),
}
WAYS = [
    *(Way(f"POST {path} body:{where}.source.file_id", [ASK], ["files:read"],
          asking("POST", path, body if path.endswith("tokens") else {**body, "max_tokens": 9}))
      for path in ("/v1/messages", "/v1/messages/count_tokens") for where, body in MESSAGES.items()),
    Way("POST /v1/responses body:previous_response_id", [ASK], ["responses:read"],
        response(previous_response_id="$response")),
    Way("POST /v1/responses body:conversation", [ASK], CONVERSATION, response(conversation="$conversation")),
    Way("POST /v1/responses body:conversation", [ASK], CONVERSATION, response(conversation={"id": "$conversation"})),
    Way("POST /v1/responses/compact body:previous_response_id", [ASK], ["responses:read"],
        asking("POST", "/v1/responses/compact", {"model": "m", "previous_response_id": "$response"})),
    Way("POST /v1/responses/input_tokens body:previous_response_id", [ASK], ["responses:read"],
        asking("POST", "/v1/responses/input_tokens", {"input": "Hi", "previous_response_id": "$response"})),
    Way("POST /v1/responses body:prompt.id", [ASK], ["prompts:read"], response(prompt={"id": "$prompt"})),
    Way("POST /v1/responses/input_tokens body:prompt.id", [ASK], ["prompts:read"],
        asking("POST", "/v1/responses/input_tokens", {"input": "Hi", "prompt": {"id": "$prompt"}})),
    Way("POST /v1/responses/input_tokens body:conversation", [ASK], CONVERSATION,
        asking("POST", "/v1/responses/input_tokens", {"input": "Hi", "conversation": "$conversation"})),
    Way("POST /v1/batches body:input_file_id", ["batches:write"], ["files:read"],
        asking("POST", "/v1/batches",
               {"input_file_id": "$file", "endpoint": "/v1/responses", "completion_window": "24h"})),
    Way("item item_reference.id", [ASK], BOTH, response(input=[REFERENCE])),
    Way("item item_reference.id", ["conversations:write"], BOTH,
        asking("POST", "/v1/conversations", {"items": [REFERENCE]})),
    Way("item item_reference.id", ["conversations:write"], BOTH,
        asking("POST", "/v1/conversations/$conversation/items", {"items": [REFERENCE]})),
    Way("item message.content[].file_id", [ASK], ["files:read"], response(input=said(FILE))),
    Way("item message.content[].file_id", [ASK], ["files:read"],
        response(input=said({"type": "input_image", "file_id": "$picture", "detail": "auto"}))),
    Way("item function_call_output.output[].file_id", [ASK], ["files:read"],
        response(input=output_of("function_call"))),
    Way("item custom_tool_call_output.output[].file_id", [ASK], ["files:read"],
        response(input=output_of("custom_tool_call"))),
    Way("item mcp_approval_response.approval_request_id", [ASK], [CALL],
        response(input=[{"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True}]), 400),
    Way("tool file_search.vector_store_ids", [ASK, CALL], ["vector_stores:read"],
        response(tools=[{"type": "file_search", "vector_store_ids": ["$vector_store"]}])),
    Way("tool file_search.vector_store_ids", [ASK, CALL], ["vector_stores:read"],
        response(tools=[{"type": "function", "name": "file_search"}])),
    Way("tool code_interpreter.container", [ASK, CALL], ["containers:read", "containers:write"],
        response(tools=[{"type": "code_interpreter", "container": "$container"}])),
    Way("tool code_interpreter.container.file_ids", [ASK, CALL], ["files:read"],
        response(tools=[{"type": "code_interpreter", "container": {"type": "auto", "file_ids": ["$file"]}}])),
    Way("tool shell.environment.container_id", [ASK, CALL], ["workspace:read", "workspace:write"],
        response(tools=[{"type": "shell",
                         "environment": {"type": "container_reference", "container_id": "$workspace"}}])),
    Way("tool shell.environment.container_id", [ASK, CALL, "workspace:*"], CONVERSATION,
        response(tools=[{"type": "shell",
                         "environment": {"type": "container_reference", "container_id": "$conversation"}}])),
    Way("POST /v1/vector_stores body:file_ids", ["vector_stores:write"], ["files:read"],
        asking("POST", "/v1/vector_stores", {"file_ids": ["$file"]})),
    Way("POST /v1/vector_stores/{vector_store_id}/files body:file_id", ["vector_stores:write"], ["files:read"],
        asking("POST", f"{STORE}/files", {"file_id": "$file"})),
    Way("POST /v1/vector_stores/{vector_store_id}/file_batches body:file_ids", ["vector_stores:write"], ["files:read"],
        asking("POST", f"{STORE}/file_batches", {"file_ids": ["$file"]})),
    Way("POST /v1/vector_stores/{vector_store_id}/file_batches body:files[].file_id", ["vector_stores:write"],
        ["files:read"], asking("POST", f"{STORE}/file_batches", {"files": [{"file_id": "$file"}]})),
    Way("POST /v1/containers body:file_ids", ["containers:write"], ["files:read"],
        asking("POST", "/v1/containers", {"name": "new", "file_ids": ["$file"]})),
    Way("POST /v1/containers/{container_id}/files body:file_id", ["containers:write"], ["files:read"],
        asking("POST", FORM, {"file_id": "$file"})),
    Way("GET /v1/variables query:conversation_id", ["variables:read"], ["conversations:read"],
        asking("GET", "/v1/variables?conversation_id=$conversation")),
    Way("GET /v1/variables query:run_id", ["variables:read"], BOTH, asking("GET", "/v1/variables?run_id=$response")),
    Way("GET /v1/variables query:run_id", ["variables:read"], BOTH, asking("GET", "/v1/variables?scope=agent")),
    Way("PUT /v1/variables query:scope_id", ["variables:write"], ["conversations:write"],
        asking("PUT", "/v1/variables?key=k&scope=conversation&scope_id=$conversation", "text")),
    Way("PUT /v1/variables query:scope_id", ["variables:write"], [ASK],
        asking("PUT", "/v1/variables?key=k&scope=conversation&scope_id=$response", "text")),
    Way("PUT /v1/variables query:scope_id", ["variables:write"], [ASK],
        asking("PUT", "/v1/variables?key=k&scope=run&scope_id=$response", "text")),
    Way("PUT /v1/variables query:scope_id", ["variables:write"], [ASK],
        asking("PUT", "/v1/variables?key=k&scope=agent&scope_id=$response", "text")),
    Way("tool image_generation.input_image_mask.file_id", [ASK, CALL], ["files:read"],
        response(tools=[{"type": "image_generation", "input_image_mask": {"file_id": "$picture"}}])),
    Way("a variable of a conversation", ["variables:read"], ["conversations:read"],
        asking("GET", "/v1/variables/$variable")),
    Way("a variable of a conversation", ["variables:read"], ["conversations:read"],
        asking("GET", "/v1/variables/$variable/content")),
    Way("the workspace of a conversation", ["workspace:read"], ["conversations:read"], asking("GET", WORKSPACE)),
    Way("the workspace of a conversation", ["workspace:read"], ["conversations:read"],
        asking("GET", f"{WORKSPACE}/files")),
    Way("the workspace of a conversation", ["workspace:read"], ["conversations:read"],
        asking("GET", f"{WORKSPACE}/files/content?path=notes.txt")),
    Way("the workspace of a conversation", ["workspace:write"], ["conversations:write"],
        asking("PUT", f"{WORKSPACE}/files?path=more.txt", "text")),
    Way("the workspace of a conversation", ["workspace:write"], ["conversations:write"],
        asking("DELETE", f"{WORKSPACE}/files?path=more.txt")),
    Way("the workspace of a response", ["workspace:write"], [ASK],
        asking("PUT", "/v1/workspaces/$response/files?path=more.txt", "text")),
    # What goes away comes last.
    Way("a variable of a conversation", ["variables:write"], ["conversations:write"],
        asking("DELETE", "/v1/variables/$variable")),
    Way("the workspace of a conversation", ["workspace:write"], ["conversations:write"], asking("DELETE", WORKSPACE)),
]  # fmt: skip
"""Every way to a thing that the scope of a route does not open by itself."""
BESIDES = {"item code_interpreter_call.container_id", "item shell_call.environment.container_id"}
"""Ways that are not refused, but lead nowhere: tests of their own are below."""


def collected(description: JSON) -> set[str]:
    """Return everything by which a request can name a thing."""
    found = set()
    for path, methods in description["paths"].items():
        for method, operation in methods.items():
            name = f"{method.upper()} {path}"
            found |= {f"{name} {one['in']}:{one['name']}" for one in operation.get("parameters", ())
                      if NAMING.search(one["name"])}  # fmt: skip
            for content in operation.get("requestBody", {}).get("content", {}).values():
                schemas = description["components"]["schemas"]
                found |= {f"{name} body:{field}" for field in fields_of_schema(content["schema"], schemas)}
    for kind, shapes in (("tool", TOOL_SHAPES), ("item", ITEM_SHAPES)):
        for name in shapes:
            found |= {f"{kind} {name}{field}" for field in fields_of_shape(inspect.type_info(shapes[name]))}
    return found


def fields_of_schema(schema: JSON, schemas: JSON, path: str = "", seen: tuple[str, ...] = ()) -> set[str]:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return set() if name in seen else fields_of_schema(schemas[name], schemas, path, (*seen, name))
    found = set()
    for kind in ("anyOf", "oneOf", "allOf"):
        for one in schema.get(kind, ()):
            found |= fields_of_schema(one, schemas, path, seen)
    if isinstance(schema.get("items"), dict):
        found |= fields_of_schema(schema["items"], schemas, f"{path}[]", seen)
    for name, one in schema.get("properties", {}).items():
        here = f"{path}.{name}" if path else name
        found |= fields_of_schema(one, schemas, here, seen) | ({here} if NAMING.search(name) else set())
    return found


def fields_of_shape(info: inspect.Type, path: str = "", seen: frozenset[type] = frozenset()) -> set[str]:
    if isinstance(info, inspect.Metadata):
        return fields_of_shape(info.type, path, seen)
    if isinstance(info, inspect.UnionType):
        return set().union(*(fields_of_shape(one, path, seen) for one in info.types))
    if isinstance(info, inspect.ListType | inspect.VarTupleType):
        return fields_of_shape(info.item_type, f"{path}[]", seen)
    if not isinstance(info, inspect.StructType) or info.cls in seen:
        return set()
    found = set()
    for one in info.fields:
        here = f"{path}.{one.encode_name}"
        found |= fields_of_shape(one.type, here, seen | {info.cls})
        found |= {here} if NAMING.search(one.encode_name) else set()
    return found


@pytest.fixture(scope="module")
def embeddings() -> Iterator[EmbeddingServer]:
    with EmbeddingServer() as server:
        yield server


def config(folder: Path, keys: list[ApiKeyConfig], embeddings: EmbeddingServer | None = None) -> Config:
    """Return a configuration with every provider that is shipped."""
    settings = dict(SETTINGS)
    if embeddings is not None:
        settings["file_search"] = {"embedding_url": embeddings.url, "ingestion_workers": 0}
    shipped = [
        point.name
        for point in importlib.metadata.entry_points(group="antwort.providers")
        if point.dist is not None and point.dist.name == "antwort"
    ]
    providers = {name: ProviderConfig(enabled=True, settings=settings.get(name, {})) for name in shipped}
    sandbox = SandboxConfig(unbounded="allow")
    return Config(data_dir=folder, auth=AuthConfig(api_keys=keys), sandbox=sandbox, providers=providers)


def key(name: str, *scopes: str) -> ApiKeyConfig:
    return ApiKeyConfig(id=name, key=SecretStr(name), tenant="acme", scopes=[*scopes])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, embeddings: EmbeddingServer) -> Iterator[RunningApp]:
    keys = {"owner": key("owner", "*")}
    for way in WAYS:
        keys[way.key()] = key(way.key(), *way.carried, *way.needed)
        for scope in way.needed:
            others = [one for one in way.needed if one != scope]
            keys[way.key(scope)] = key(way.key(scope), *way.carried, *others)
    made = config(tmp_path_factory.mktemp("data"), list(keys.values()), embeddings)
    with running(Antwort(made, backend=ScriptedBackend(["Hello."] * 200))) as server:
        yield server


@pytest.fixture
def client(server: RunningApp) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=60) as client:
        yield client


@pytest.fixture(scope="module")
def things(server: RunningApp) -> Things:
    headers = {"authorization": "Bearer owner"}
    with httpx.Client(base_url=server.url, headers=headers, timeout=60) as client:

        def made(method: str, path: str, **sent: Any) -> JSON:
            answer = client.request(method, path, **sent)
            assert answer.status_code == 200, answer.text
            found: JSON = answer.json()
            return found

        def uploaded(name: str, content: bytes) -> str:
            form = {"data": {"purpose": "user_data"}, "files": {"file": (name, content)}}
            return str(made("POST", "/v1/files", **form)["id"])

        conversation = made("POST", "/v1/conversations", json={})["id"]
        response = made("POST", "/v1/responses", json={"input": "Hello?"})
        for name in ("notes.txt", "more.txt"):
            made("PUT", f"/v1/workspaces/{conversation}/files?path={name}", content=b"a secret")
        made("PUT", "/v1/workspaces/mine/files?path=notes.txt", content=b"a secret")
        where = f"scope=conversation&scope_id={conversation}"
        return Things(
            file=uploaded("secret.txt", b"a secret"),
            picture=uploaded("secret.png", b"\x89PNG a secret"),
            conversation=conversation,
            prompt=made("POST", "/v1/prompts", json={"template": "Be brief."})["id"],
            response=response["id"],
            item=response["output"][0]["id"],
            vector_store=made("POST", "/v1/vector_stores", json={"name": "all"})["id"],
            container=made("POST", "/v1/containers", json={"name": "all"})["id"],
            workspace="mine",
            variable=made("PUT", f"/v1/variables?key=secret&{where}", content=b"a secret")["id"],
        )


def sent(client: httpx.Client, way: Way, things: Things, secret: str) -> httpx.Response:
    method, path, body = way.request(things)
    content: Any = {"json": body} if isinstance(body, dict) else {"content": body}
    return client.request(method, path, headers={"authorization": f"Bearer {secret}"}, **content)


def test_whatever_a_request_can_name_is_walked_or_said_to_be_its_own(client: httpx.Client) -> None:
    description = client.get("/openapi.json", headers={"authorization": "Bearer owner"}).json()
    own = {
        f"{method.upper()} {path} {name}"
        for path, methods in description["paths"].items()
        for method, operation in methods.items()
        for scopes in operation.get("security", [{}])[0].values()
        for name in OWN.get(scopes[0].partition(":")[0] if scopes else "", ())
    }
    walked = {way.name for way in WAYS} | BESIDES
    found = collected(description)
    assert {way for way in walked if not way.startswith(("a ", "the "))} - found == set()  # the names are right
    new = {
        name
        for name in found - walked - own - UNREAD
        if name.partition(" ")[2].partition(" ")[2] not in UNREAD and not OWN_IDS.match(name)
    }
    assert new == set(), "say in a table of this file what it leads to, and which scope that needs"


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
def test_a_thing_that_is_named_needs_its_own_scope(client: httpx.Client, things: Things, way: Way) -> None:
    for scope in way.needed:
        answer = sent(client, way, things, way.key(scope))
        assert answer.status_code == 403, f"without {scope}: {answer.status_code} {answer.text}"
        error = answer.json()["error"]
        code = error.get("code", error["type"])  # of the other API
        assert (code in REFUSED, f"'{scope}'" in error["message"]) == (True, True), error
    answer = sent(client, way, things, way.key())
    assert answer.status_code == way.status, answer.text


def test_a_list_shows_what_may_be_read(client: httpx.Client, things: Things) -> None:
    def listed(path: str, way: Way, left_out: str) -> list[JSON]:
        headers = {"authorization": f"Bearer {way.key(left_out)}"}
        found: list[JSON] = client.get(path, headers=headers).json()["data"]
        return found

    headers = {"authorization": "Bearer owner"}
    client.put("/v1/variables?key=plain", content=b"1", headers=headers)
    client.put(f"/v1/variables?key=own&scope=conversation&scope_id={things.conversation}", content=b"1",
               headers=headers)  # fmt: skip
    client.put(f"/v1/workspaces/{things.conversation}/files?path=notes.txt", content=b"1", headers=headers)
    variables = next(way for way in WAYS if way.name == "GET /v1/variables query:run_id")
    assert {one["scope"] for one in listed("/v1/variables", variables, "responses:read")} == {"tenant"}
    assert {one["scope"] for one in listed("/v1/variables", variables, "")} > {"tenant"}
    workspaces = next(way for way in WAYS if way.name == "the workspace of a conversation")
    shown = {one["id"] for one in listed("/v1/workspaces", workspaces, "conversations:read")}
    assert (things.conversation in shown, "mine" in shown) == (False, True)
    assert things.conversation in {one["id"] for one in listed("/v1/workspaces", workspaces, "")}


@pytest.mark.parametrize("scope", ["conversation", "run", "agent"])
@pytest.mark.parametrize("owner", ["conv_none", "resp_none", "nothing"])
def test_nothing_is_written_into_what_is_not_there(client: httpx.Client, scope: str, owner: str) -> None:
    path = f"/v1/variables?key=k&scope={scope}&scope_id={owner}"
    answer = client.put(path, content=b"x", headers={"authorization": "Bearer owner"})
    assert (answer.status_code, answer.json()["error"]["param"]) == (404, "scope_id")


# --- through the functions of a response ------------------------------------------------------------------------------

PLAIN, TRUSTED = key("plain", ASK, CALL), key("trusted", "*")


def outputs(backend: ScriptedBackend) -> list[str]:
    """Return what the model has read of its calls."""
    return [str(item["output"]) for item in backend.requests[-1].items if item["type"] == "function_call_output"]


@pytest.mark.parametrize(("secret", "offered"), [("plain", False), ("searching", True), ("trusted", True)])
def test_vector_stores_are_searched_for_those_who_may_read_them(
    tmp_path: Path, embeddings: EmbeddingServer, secret: str, offered: bool
) -> None:
    keys = [PLAIN, TRUSTED, key("searching", ASK, CALL, "vector_stores:read")]
    backend = ScriptedBackend([turn(calls=[call("file_search", query="secret")]), "Done."])
    with (
        running(Antwort(config(tmp_path, keys, embeddings), backend=backend)) as server,
        httpx.Client(base_url=server.url, timeout=60) as client,
    ):
        store = client.post("/v1/vector_stores", json={}, headers={"authorization": "Bearer trusted"}).json()["id"]
        point = {"text": "a secret", "file_id": "file-1", "filename": "a.txt", "chunk_index": 0}
        written = client.post(
            f"/v1/vector_stores/{store}/points",
            json={"points": [point]},
            headers={"authorization": "Bearer trusted"},
        )
        assert written.status_code == 200, written.text
        client.post("/v1/responses", json={"input": "Hi"}, headers={"authorization": f"Bearer {secret}"})
    names = [tool["name"] for tool in backend.requests[0].tools]
    assert ("file_search" in names, "store_get" in names) == (offered, True)
    assert ("a secret" in "".join(outputs(backend))) is offered


@pytest.mark.parametrize(
    ("secret", "reads", "writes"),
    [("plain", False, False), ("reading", True, False), ("writing", False, True), ("trusted", True, True)],
)
def test_variables_of_the_tenant_are_for_those_who_may_read_and_write_them(
    tmp_path: Path, secret: str, reads: bool, writes: bool
) -> None:
    keys = [
        PLAIN,
        TRUSTED,
        key("reading", ASK, CALL, "variables:read"),
        key("writing", ASK, CALL, "variables:write"),
    ]
    owner = {"authorization": "Bearer trusted"}
    backend = ScriptedBackend([])
    with (
        running(Antwort(config(tmp_path, keys), backend=backend)) as server,
        httpx.Client(base_url=server.url, timeout=60) as client,
    ):
        known = client.put("/v1/variables?key=known", content=b"a secret", headers=owner).json()["id"]
        calls = [
            call("store_get", key="known"),
            call("store_get", key=known),
            call("store_list"),
            call("store_set", key="own", value="mine"),
            call("store_get", key="own"),
            call("store_set", key="new", value="theirs", scope="tenant"),
        ]
        backend.script = Script([turn(calls=calls), "Done."])
        client.post("/v1/responses", json={"input": "Hi"}, headers={"authorization": f"Bearer {secret}"})
        found = client.get("/v1/variables?scope=tenant", headers=owner).json()["data"]
    by_key, by_id, listed, _, own, _ = outputs(backend)
    assert ["a secret" in text for text in (by_key, by_id)] == [reads, reads]
    assert ("known" in listed) is reads
    assert own == "mine"
    assert ("new" in {one["key"] for one in found}) is writes


@pytest.mark.parametrize(("secret", "reached"), [("plain", False), ("trusted", True)])
def test_what_a_client_sends_back_as_a_call_opens_no_container_and_no_workspace(
    tmp_path: Path, secret: str, reached: bool
) -> None:
    owner = {"authorization": "Bearer trusted"}
    backend = ScriptedBackend([])
    with (
        running(Antwort(config(tmp_path, [PLAIN, TRUSTED]), backend=backend)) as server,
        httpx.Client(base_url=server.url, timeout=60) as client,
    ):
        container = client.post("/v1/containers", json={"name": "theirs"}, headers=owner).json()["id"]
        form = {"file": ("secret.txt", b"a secret")}
        assert client.post(f"/v1/containers/{container}/files", files=form, headers=owner).status_code == 200
        path = "/v1/workspaces/theirs/files?path=secret.txt"
        assert client.put(path, content=b"a secret", headers=owner).status_code == 200
        sent_back = [
            {"type": "code_interpreter_call", "id": "ci_1", "code": "1", "container_id": container, "outputs": [],
             "status": "completed"},
            {"type": "shell_call", "id": "sh_1", "call_id": "call_1", "status": "completed",
             "action": {"commands": ["ls"], "timeout_ms": None, "max_output_length": None},
             "environment": {"type": "container_reference", "container_id": "theirs"}},
            {"role": "user", "content": "Go on."},
        ]  # fmt: skip
        code = "import os\nprint(open('secret.txt').read() if os.path.exists('secret.txt') else 'nothing')"
        backend.script = Script(
            [
                turn(calls=[call("code_interpreter", code=code)]),
                turn(calls=[call("shell", command="cat secret.txt || echo nothing")]),
                "Done.",
            ]
        )
        tools = [{"type": "code_interpreter"}, {"type": "shell", "environment": {"type": "container_auto"}}]
        answer = client.post(
            "/v1/responses",
            json={"input": sent_back, "tools": tools, "store": False},
            headers={"authorization": f"Bearer {secret}"},
        )
        assert answer.status_code == 200, answer.text
    told = outputs(backend)[-2:]
    assert [("a secret" in text, "nothing" in text) for text in told] == [(reached, not reached)] * 2, told
