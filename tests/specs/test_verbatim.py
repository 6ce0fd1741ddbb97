"""The stubs, configurations, interfaces and metrics of the specifications, as they stand there, on the shipped server.

Whatever else grows stricter must take these as they are. They are copied to the letter: do not mend them to fit.
"""

import importlib.metadata
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.support.embeddings import EmbeddingServer

from antwort import Antwort, FunctionRegistry, FunctionSpec
from antwort.config import Config, ProviderConfig, load_config
from antwort.testing import RunningApp, ScriptedBackend, running

STUBS = """
{"type": "code_interpreter"}
{"type": "file_search"}
{"type": "web_search_preview"}
"""
"""016, FR-007a: built-in tools, as requests name them."""

FUNCTION_STUB = """
{"type": "function", "name": "web_search"}
"""
"""017, the clarification of the tool type."""

CONFIGURATIONS = {
    "016 brainstorm": """
builtins:
  web_search:
    enabled: true
    search_engine_url: http://searxng:8080
  file_search:
    enabled: true
    vector_db: pgvector  # or qdrant
    embedding_endpoint: http://embedding-service:8080
  code_interpreter:
    enabled: false  # requires sandbox (Spec 11)
""",
    "016": """
providers:
  web_search:
    enabled: true
    backend: searxng
    url: http://searxng:8080
    max_results: 5
  file_search:
    enabled: true
    vector_db: pgvector
    embedding_url: http://llm:8080/v1/embeddings
    chunk_size: 512
  code_interpreter:
    enabled: false
""",
    "017": """
providers:
  web_search:
    enabled: true
    settings:
      backend: searxng
      url: http://searxng:8080
      max_results: 5
""",
    "018": """
providers:
  file_search:
    enabled: true
    settings:
      embedding_url: http://embedding-service:8080/v1/embeddings
      vector_backend: qdrant
      max_results: 10
      qdrant:
        url: http://qdrant:6333
""",
}
TOOLS = {"016 brainstorm": {"web_search", "file_search"}, "016": {"web_search", "file_search"}, "017": {"web_search"},
         "018": {"file_search"}}  # fmt: skip
"""What each of them enables."""

METRICS = """
antwort_builtin_tool_executions_total{provider, tool_name, status}
antwort_builtin_tool_duration_seconds{provider, tool_name}
antwort_builtin_api_requests_total{provider, method, path, status}
antwort_builtin_api_duration_seconds{provider, method, path}
antwort_websearch_queries_total{backend, status}
antwort_websearch_results_returned{backend}
"""
"""016, FR-010 and FR-011; 017, FR-012."""

FILE_SEARCH_METRICS = "search latency, query embedding latency, results returned count"
"""018, FR-014, in words."""

ROUTES = """
- POST `/v1/vector_stores` (create store + vector DB collection)
- GET `/v1/vector_stores` (list stores)
- GET `/v1/vector_stores/{id}` (get store details)
- DELETE `/v1/vector_stores/{id}` (delete store + vector DB collection)
"""
"""018, FR-008."""

FUNCTIONS = """
- `store_set(key, value)` - Store a variable
- `store_get(key)` - Retrieve a variable
- `store_ref(key)` - Get a reference handle
- `store_list()` - List all variables
- `store_summarize(key)` - Get a summary of a variable
- `shell(command)` - Execute a shell command
- `read_file(path)` - Read a file
- `write_file(path, content)` - Write a file
- `edit_file(path, edits)` - Edit a file
- `spawn_agent(prompt, context)` - Spawn a sub-agent
- `spawn_many(configs)` - Spawn multiple sub-agents
- `return_result(value)` - Return a result to parent and terminate
- `call_llm(prompt, context)` - Make a one-shot LLM call (no agent loop)
- `ask_user(question)` - Ask the human user a question (blocks until response)
- `notify_user(message)` - Send a notification (non-blocking)
- `final_answer(result)` - Present the final result to the user and terminate
"""
"""The built-in functions of the RLM specification."""

REGISTERED = """
{
  "name": "search_web",
  "description": "Search the web for information",
  "parameters": {
    "query": { "type": "string", "description": "Search query" }
  }
}
"""
"""Its example of a custom function, but for the handler, with quotes around the names."""

DEFINITION = """
{
  "name": "ask_user",
  "description": "Ask the human user a question. The user is a function in this system. Use this when you need human input or judgment.",
  "input_schema": {
    "type": "object",
    "properties": {
      "question": { "type": "string", "description": "The question to ask" }
    },
    "required": ["question"]
  }
}
"""  # noqa: E501
"""Its example of a tool definition, with quotes around the names."""

INTERFACE = """
  register(spec: FunctionSpec): void;
  unregister(name: string): void;
  get(name: string): FunctionSpec;
  list(scope?: string): FunctionSpec[];
  toToolDefinitions(): ToolDefinition[];  // For LLM API
  execute(name: string, params: unknown): Promise<unknown>;
"""
"""Its interface of the registry."""

PROVIDER = """
├── Name() string
├── Tools() []ToolDefinition        (what the model sees)
├── CanExecute(name string) bool    (can handle this tool?)
├── Execute(ctx, ToolCall) *ToolResult (run the tool)
├── Routes() []Route                (management API endpoints)
└── Close() error
"""
"""The interface of a provider in the brainstorm of 016."""

SEARCH = "http://127.0.0.1:1"
"""Where no search engine is."""


def lines(text: str) -> list[str]:
    return text.strip().splitlines()


@pytest.fixture(scope="module")
def model() -> ScriptedBackend:
    return ScriptedBackend(["Hello."] * 20)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, model: ScriptedBackend) -> Iterator[RunningApp]:
    """The shipped server, with every provider that comes with it."""
    with EmbeddingServer() as embeddings:
        settings: dict[str, dict[str, Any]] = {
            "web_search": {"url": SEARCH},
            "image_generation": {"url": SEARCH},
            "file_search": {"embedding_url": embeddings.url, "ingestion_workers": 0},
        }
        shipped = [
            point.name
            for point in importlib.metadata.entry_points(group="antwort.providers")
            if point.dist is not None and point.dist.name == "antwort"
        ]
        providers = {name: ProviderConfig(enabled=True, settings=settings.get(name, {})) for name in shipped}
        config = Config(data_dir=tmp_path_factory.mktemp("data"), providers=providers)
        with running(Antwort(config, backend=model)) as server:
            yield server


@pytest.mark.parametrize("stub", [*lines(STUBS), *lines(FUNCTION_STUB)])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_stub_becomes_a_function_that_the_model_is_offered(
    server: RunningApp, model: ScriptedBackend, stub: str, stream: bool
) -> None:
    body = f'{{"input": "Hi", "stream": {json.dumps(stream)}, "tools": [{stub}]}}'
    answer = httpx.post(f"{server.url}/v1/responses", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 200, answer.text
    assert "response.failed" not in answer.text
    asked = model.requests[-1]
    name = json.loads(stub).get("name") or json.loads(stub)["type"].removesuffix("_preview")
    assert [tool["type"] for tool in asked.tools if tool["name"] == name] == ["function"]


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_a_configuration_of_the_specifications_is_taken_as_it_is(tmp_path: Path, name: str) -> None:
    file = tmp_path / "antwort.yaml"
    file.write_text(CONFIGURATIONS[name], encoding="utf-8")
    app = Antwort(load_config(file, environ={}))
    known = {spec.name for spec in app.registry.list()}
    assert TOOLS[name] <= known
    assert "code_interpreter" not in known
    settings: Any = {
        known.provider.name: getattr(known.provider, "settings", None) for known in app.registry.registrations()
    }
    if "web_search" in TOOLS[name]:
        assert str(settings["web_search"].url).rstrip("/") == "http://searxng:8080"
        assert settings["web_search"].max_results == 5
    if "file_search" in TOOLS[name]:
        assert settings["file_search"].vector_backend == ("qdrant" if name == "018" else "pgvector")


def test_the_metrics_have_the_names_and_labels_of_the_specifications(server: RunningApp) -> None:
    assert httpx.get(f"{server.url}/v1/vector_stores").status_code == 200
    families = {}
    for family in server.app.metrics.registry.collect():
        families[family.name] = {name for sample in family.samples for name in sample.labels} - {"le"}
    page = httpx.get(f"{server.url}/metrics").text
    for line in lines(METRICS):
        name, labels = re.fullmatch(r"(\w+)\{(.*)\}", line).groups()  # type: ignore[union-attr]
        assert f"# TYPE {name} " in page, name
        shown = families[name.removesuffix("_total")]
        assert not shown or shown == set(labels.split(", ")), (name, shown)
    for name in ("search_duration_seconds", "embedding_duration_seconds", "results_returned"):
        assert f"# TYPE antwort_filesearch_{name} histogram" in page, FILE_SEARCH_METRICS


def test_the_routes_of_file_search_are_those_of_the_specification(server: RunningApp) -> None:
    store = httpx.post(f"{server.url}/v1/vector_stores", json={"name": "kept"}).json()["id"]
    for line in lines(ROUTES):
        method, path = re.match(r"- (\w+) `([^`]+)`", line).groups()  # type: ignore[union-attr]
        body: Any = {"json": {"name": "docs"}} if method == "POST" else {}
        answer = httpx.request(method, server.url + path.replace("{id}", store), **body)
        assert answer.status_code == 200, (line, answer.text)


@pytest.mark.parametrize("line", lines(FUNCTIONS))
def test_every_built_in_function_has_its_name_and_its_parameters(server: RunningApp, line: str) -> None:
    name, parameters = re.match(r"- `(\w+)\((.*?)\)` - ", line).groups()  # type: ignore[union-attr]
    spec = server.app.registry.get(name)
    named = [one for one in parameters.split(", ") if one]
    assert set(named) <= set(spec.parameters["properties"]), spec.parameters
    assert set(spec.parameters.get("required", ())) <= set(named)
    assert spec.description


async def test_the_example_of_a_custom_function_is_registered_and_executed() -> None:
    async def handler(params: dict[str, Any]) -> list[str]:
        return [params["query"]]

    registry = FunctionRegistry()
    registry.register({**json.loads(REGISTERED), "handler": handler})
    assert (await registry.execute("search_web", {"query": "antwort"})).value == ["antwort"]


def test_a_function_becomes_the_tool_definition_of_the_example() -> None:
    wanted = json.loads(DEFINITION)

    async def handler(question: str) -> str:
        return question

    registry = FunctionRegistry()
    parameters = wanted["input_schema"]["properties"]
    registry.register(FunctionSpec(wanted["name"], wanted["description"], parameters, handler))
    assert registry.to_tool_definitions("anthropic") == [wanted]


@pytest.mark.parametrize("text", [INTERFACE, PROVIDER])
def test_the_interfaces_have_the_names_of_the_specifications(server: RunningApp, text: str) -> None:
    who: Any = server.app.registry if text is INTERFACE else server.app.registry.registrations()[0].provider
    for line in lines(text):
        name = re.search(r"\w+(?=\()", line).group()  # type: ignore[union-attr]
        assert hasattr(who, re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()), name
