"""Specification 017, web search: each requirement, scenario, edge case and success criterion by name.

The shipped app answers on a real socket, the official SDK asks, and a real SearXNG searches; where failures are wanted,
a server that speaks its JSON.
"""

import inspect
import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import httpx
import pytest
from openai.types.responses import Response
from tests.http.sdk import Served, create, served
from tests.providers.web_search.stage import TYPES, found, outputs, result, searching, staged
from tests.support.searxng import searxng
from tests.support.site import Asked, Reply, Site
from typing_extensions import override

import antwort
from antwort import Antwort, FunctionProvider
from antwort.config import Config, load_config
from antwort.provider import Context
from antwort.providers.web_search import SearchAdapter, SearchResult, WebSearch
from antwort.testing import ProviderContract, call, turn

BOTH_WAYS = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
EVERY_TYPE = pytest.mark.parametrize("kind", TYPES)
TEA: Any = {"results": [result("tea"), result("green-tea"), result("black-tea")]}


def library(asked: Asked) -> Reply:
    """Answer as a search engine behind SearXNG."""
    query = asked.query["q"]
    known = {
        "tea": [
            {"title": "Tea &amp; <b>more</b>", "url": "https://example.org/tea", "content": "A <em>drink</em>."},
            {"title": "Green tea", "url": "https://example.org/green-tea?utm_source=x", "content": "Green."},
        ],
        "many": [{"title": f"Number {n}", "url": f"https://example.org/{n}", "content": f"{n}"} for n in range(30)],
    }
    return Reply(json.dumps({"results": known.get(query, [])}), type="application/json")


class Own(SearchAdapter):
    """An adapter of ours."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, int]] = []

    @override
    async def search(self, ctx: Context, query: str, max_results: int) -> list[SearchResult]:
        self.asked.append((ctx.tenant, query, max_results))
        return [SearchResult("Own", "https://example.org/own", "Found by an adapter of ours.")]


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real SearXNG with one engine."""
    with Site({"/find": library}) as engine, searxng(tmp_path_factory.mktemp("searxng"), {"library": engine}) as url:
        yield url


def series(stage: Served, name: str) -> float:
    """Return the value of a series at /metrics."""
    text = httpx.get(f"{stage.server.url}/metrics").text
    line = re.search(rf"^{re.escape(name)} (\S+)$", text, re.MULTILINE)
    return float(line[1]) if line else 0.0


def texts(response: Response) -> list[str]:
    return [part.text for item in response.output if item.type == "message" for part in item.content]  # type: ignore[union-attr]


# --- user story 1: search the web ------------------------------------------------------------------------------------


@BOTH_WAYS
@EVERY_TYPE
def test_us1_1_a_call_queries_the_backend_and_returns_ranked_results(
    tmp_path: Path, instance: str, kind: str, stream: bool
) -> None:
    with staged(tmp_path, searching(), {"url": instance}) as stage:
        response = create(stage, stream, input="What is tea?", tools=[{"type": kind}])
        [output] = outputs(stage)
    search, message = response.output
    assert search.type == "web_search_call"
    assert search.status == "completed"
    assert search.action.model_dump(exclude_none=True) == {"type": "search", "query": "tea", "queries": ["tea"]}
    assert message.type == "message"
    assert output.index("[1] Tea & more\nURL: https://example.org/tea\nA drink.") < output.index("[2] Green tea")


@BOTH_WAYS
def test_us1_2_the_answer_can_reference_urls_of_the_results(tmp_path: Path, instance: str, stream: bool) -> None:
    answer = "A drink [1], also green (https://example.org/green-tea)."
    with staged(tmp_path, searching(answer=answer), {"url": instance}) as stage:
        response = create(stage, stream, input="What is tea?", tools=[{"type": "web_search"}])
    [part] = [part for item in response.output if item.type == "message" for part in item.content]
    assert part.type == "output_text"
    cited = [(one.type, one.url, one.title, answer[one.start_index : one.end_index]) for one in part.annotations]  # type: ignore[union-attr]
    assert cited == [
        ("url_citation", "https://example.org/tea", "Tea & more", "[1]"),
        ("url_citation", "https://example.org/green-tea", "Green tea", "https://example.org/green-tea"),
    ]


@BOTH_WAYS
def test_us1_3_no_results_are_a_result_that_says_so(tmp_path: Path, instance: str, stream: bool) -> None:
    with staged(tmp_path, searching("nothing at all", "I found nothing."), {"url": instance}) as stage:
        response = create(stage, stream, input="?", tools=[{"type": "web_search"}])
        [output] = outputs(stage)
    assert "No results were found" in output
    assert response.output[0].status == "completed"  # type: ignore[union-attr]
    assert texts(response) == ["I found nothing."]


# --- user story 2: the backend fails ---------------------------------------------------------------------------------


@BOTH_WAYS
@EVERY_TYPE
def test_us2_1_an_unreachable_backend_is_an_error_result(tmp_path: Path, kind: str, stream: bool) -> None:
    with socket.socket() as deaf:  # a port that nobody listens on, and that nobody else can take meanwhile
        deaf.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{deaf.getsockname()[1]}"
        with staged(tmp_path, searching(answer="Search is down."), {"url": url}) as stage:
            response = create(stage, stream, input="?", tools=[{"type": kind}])
            [output] = outputs(stage)
    assert response.status == "completed"
    assert response.output[0].status == "failed"  # type: ignore[union-attr]
    assert texts(response) == ["Search is down."]
    assert output == "The search backend cannot be reached. Go on without web search."


def test_us2_2_a_disabled_provider_is_not_in_the_tool_list(tmp_path: Path) -> None:
    disabled = {"web_search": {"enabled": False, "settings": {"url": "http://localhost:1"}}}
    with staged(tmp_path, ["Hello."], {}, providers=disabled) as stage:
        create(stage, False, input="hi")
        refused = stage.request("POST", "/responses", json={"input": "hi", "tools": [{"type": "web_search"}]})
        names = [tool["name"] for tool in stage.requests[0].tools]
    assert names == []
    assert refused.status_code == 400
    assert refused.json()["error"]["code"] == "unsupported_tool"


# --- edge cases ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("query", ["", "  \n "])
def test_edge_case_an_empty_query_is_an_error_result(tmp_path: Path, query: str) -> None:
    with (
        Site({"/search": found(result())}) as backend,
        staged(tmp_path, searching(query), {"url": backend.url}) as stage,
    ):
        response = create(stage, False, input="?", tools=[{"type": "web_search"}])
        [output] = outputs(stage)
    assert "empty query" in output
    assert response.output[0].status == "failed"  # type: ignore[union-attr]
    assert backend.asked == []


@pytest.mark.parametrize(("settings", "count"), [({}, 5), ({"max_results": 3}, 3), ({"max_results": 50}, 30)])
def test_edge_case_more_results_than_the_limit_are_cut(
    tmp_path: Path, instance: str, settings: dict[str, Any], count: int
) -> None:
    with staged(tmp_path, searching("many"), {"url": instance, **settings}) as stage:
        create(stage, False, input="?", tools=[{"type": "web_search"}])
        [output] = outputs(stage)
    assert re.findall(r"^\[(\d+)\] Number (\d+)$", output, re.MULTILINE) == [(str(n + 1), str(n)) for n in range(count)]


def test_edge_case_html_in_snippets_is_stripped(tmp_path: Path) -> None:
    hostile = "<p>A <b class='x'>drink</b> &amp; more<script>alert(1)</script></p><img src=x onerror=y>\x00"
    with (
        Site({"/search": found(result("tea", title=hostile, content=hostile))}) as backend,
        staged(tmp_path, searching(), {"url": backend.url}) as stage,
    ):
        create(stage, False, input="?", tools=[{"type": "web_search"}])
        [output] = outputs(stage)
    assert "[1] A drink & more\nURL: https://example.org/tea\nA drink & more\n" in output


# --- functional requirements -----------------------------------------------------------------------------------------


def test_fr_001_the_provider_is_a_function_provider() -> None:
    assert isinstance(WebSearch.from_settings({"url": "http://localhost:8888"}), FunctionProvider)


def test_fr_002_web_search_has_a_required_query(tmp_path: Path) -> None:
    with staged(tmp_path, ["Hello."], {"url": "http://localhost:8888"}) as stage:
        create(stage, False, input="hi")
        tools = {tool["name"]: tool for tool in stage.requests[0].tools}
    parameters = tools["web_search"]["parameters"]
    assert parameters["required"] == ["query"]
    assert parameters["properties"]["query"]["type"] == "string"


def test_fr_003_results_are_structured_text_with_title_url_and_snippet(tmp_path: Path) -> None:
    with (
        Site({"/search": found(*TEA["results"])}) as backend,
        staged(tmp_path, searching(), {"url": backend.url}) as stage,
    ):
        create(stage, False, input="?", tools=[{"type": "web_search"}])
        [output] = outputs(stage)
    entries = re.findall(r"^\[(\d)\] (.+)\nURL: (.+)\n(.+)$", output, re.MULTILINE)
    assert entries == [
        (str(n), f"All about {name}", f"https://example.org/{name}", f"What there is to know about {name}.")
        for n, name in enumerate(["tea", "green-tea", "black-tea"], 1)
    ]


def test_fr_004_the_number_of_results_is_a_setting_and_5_by_default() -> None:
    assert WebSearch.from_settings({"url": "http://x"}).settings.max_results == 5
    assert WebSearch.from_settings({"url": "http://x", "max_results": 9}).settings.max_results == 9


def test_fr_005_an_adapter_searches_with_context_query_and_limit(tmp_path: Path) -> None:
    adapter = Own()
    assert list(inspect.signature(SearchAdapter.search).parameters) == ["self", "ctx", "query", "max_results"]
    provider = WebSearch(WebSearch.from_settings({"url": "http://x", "max_results": 3}).settings, adapter=adapter)
    with served(tmp_path, searching(), providers=[provider]) as stage:
        create(stage, False, input="?", tools=[{"type": "web_search"}])
        [output] = outputs(stage)
    assert adapter.asked == [("default", "tea", 3)]
    assert "[1] Own\nURL: https://example.org/own\nFound by an adapter of ours." in output


def test_fr_006_searxng_is_asked_by_its_json_api(tmp_path: Path) -> None:
    settings = {"language": "en", "safe_search": "strict", "categories": ["news", "it"]}
    with (
        Site({"/search": found(result())}) as backend,
        staged(tmp_path, searching("tea & milk"), {"url": backend.url, **settings}) as stage,
    ):
        create(stage, False, input="?", tools=[{"type": "web_search"}])
    [asked] = backend.asked
    assert asked.query == {
        "q": "tea & milk",
        "format": "json",
        "safesearch": "2",
        "categories": "news,it",
        "language": "en",
    }


@pytest.mark.parametrize("suffix", ["", "/", "/search"])
def test_fr_007_the_url_of_the_instance_is_a_setting(tmp_path: Path, suffix: str) -> None:
    with (
        Site({"/search": found(result())}) as backend,
        staged(tmp_path, searching(), {"url": backend.url + suffix}) as stage,
    ):
        create(stage, False, input="?", tools=[{"type": "web_search"}])
        [output] = outputs(stage)
    assert "All about tea" in output


def test_fr_008_the_configuration_of_the_specification_is_read(tmp_path: Path) -> None:
    (tmp_path / "antwort.yaml").write_text(
        "providers:\n  web_search:\n    enabled: true\n    settings:\n      backend: searxng\n"
        "      url: http://searxng:8080\n      max_results: 5\n"
    )
    app = Antwort(load_config(tmp_path / "antwort.yaml", environ={}))
    [registration] = app.registry.registrations()
    assert isinstance(registration.provider, WebSearch)
    assert registration.provider.settings.url == "http://searxng:8080"


def test_fr_009_the_provider_reads_its_settings_map() -> None:
    config = Config.model_validate(
        {
            "providers": {
                "web_search": {"enabled": True, "settings": {"search_engine_url": "http://a", "max_results": 7}}
            }
        }
    )
    [registration] = Antwort(config).registry.registrations()
    assert isinstance(registration.provider, WebSearch)
    assert (registration.provider.settings.url, registration.provider.settings.max_results) == ("http://a", 7)


FAILURES = {
    "403": Reply("<h1>Forbidden</h1>", 403),
    "429": Reply("<h1>Too Many Requests</h1>", 429),
    "500": Reply("<h1>Internal Server Error</h1>", 500),
    "503": Reply("busy", 503),
    "html": Reply("<html>SearXNG</html>"),
    "broken": Reply('{"results": [', type="application/json"),
    "other": Reply('["results"]', type="application/json"),
    "null": Reply('{"results": null}', type="application/json"),
    "large": Reply(b" " * 10_000_000, type="application/json"),
    "silent": Reply(silent=True),
    "redirect": Reply(status=302, headers={"location": "/elsewhere"}),
    "engines": found(unresponsive_engines=[["one", "too many requests"], ["two", "Suspended: timeout"]]),
}


@BOTH_WAYS
@pytest.mark.parametrize("failure", FAILURES)
def test_fr_010_a_failure_of_the_backend_is_an_error_result_not_a_server_error(
    tmp_path: Path, failure: str, stream: bool
) -> None:
    with (
        Site({"/search": FAILURES[failure]}) as backend,
        staged(tmp_path, searching(answer="No search today."), {"url": backend.url, "retries": 0}) as stage,
    ):
        response = create(stage, stream, input="?", tools=[{"type": "web_search"}])
        [output] = outputs(stage)
        status = "rate_limited" if failure == "429" else "error"
        counted = series(stage, f'antwort_websearch_queries_total{{backend="searxng",status="{status}"}}')
    assert response.status == "completed"
    assert response.output[0].status == "failed"  # type: ignore[union-attr]
    assert texts(response) == ["No search today."]
    assert backend.place not in output
    assert counted == 1


def test_fr_011_an_empty_query_is_rejected_with_an_error_result(tmp_path: Path) -> None:
    test_edge_case_an_empty_query_is_an_error_result(tmp_path, "")


def test_fr_012_queries_and_results_are_counted_under_these_names(tmp_path: Path) -> None:
    script = [*searching(), *searching("nothing")]
    pages = {"/search": lambda asked: found(*TEA["results"]) if asked.query["q"] == "tea" else found()}
    with Site(pages) as backend, staged(tmp_path, script, {"url": backend.url}) as stage:
        create(stage, False, input="?", tools=[{"type": "web_search"}])
        create(stage, False, input="?", tools=[{"type": "web_search"}])
        assert series(stage, 'antwort_websearch_queries_total{backend="searxng",status="success"}') == 2
        assert series(stage, 'antwort_websearch_results_returned_count{backend="searxng"}') == 2
        assert series(stage, 'antwort_websearch_results_returned_sum{backend="searxng"}') == 3
        assert series(stage, 'antwort_websearch_results_returned_bucket{backend="searxng",le="0.0"}') == 1
        assert series(stage, 'antwort_websearch_duration_seconds_count{backend="searxng"}') == 2


# --- success criteria ------------------------------------------------------------------------------------------------


@BOTH_WAYS
def test_sc_001_the_model_searches_reads_and_cites(tmp_path: Path, instance: str, stream: bool) -> None:
    test_us1_2_the_answer_can_reference_urls_of_the_results(tmp_path, instance, stream)


def test_sc_002_results_of_a_searxng_instance_are_formatted(tmp_path: Path, instance: str) -> None:
    test_us1_1_a_call_queries_the_backend_and_returns_ranked_results(tmp_path, instance, "web_search", False)


def test_sc_002_an_instance_without_json_is_an_error_that_names_the_setting(tmp_path: Path) -> None:
    folder = tmp_path / "searxng"
    folder.mkdir()
    with (
        Site({"/find": library}) as engine,
        searxng(folder, {"library": engine}, formats=("html",)) as url,
        staged(tmp_path, searching(), {"url": url}) as stage,
    ):
        create(stage, False, input="?", tools=[{"type": "web_search"}])
        [output] = outputs(stage)
    assert "must add 'json' to 'search.formats' in SearXNG's settings.yml" in output


def test_sc_003_after_a_failure_the_server_goes_on(tmp_path: Path) -> None:
    replies = [Reply("down", 500), found(result())]
    with (
        Site({"/search": lambda _asked: replies.pop(0)}) as backend,
        staged(tmp_path, searching() * 2, {"url": backend.url, "retries": 0}) as stage,
    ):
        statuses = [
            create(stage, False, input="?", tools=[{"type": "web_search"}]).output[0].status  # type: ignore[union-attr]
            for _ in range(2)
        ]
    assert statuses == ["failed", "completed"]


@EVERY_TYPE
def test_sc_004_the_tool_is_registered_and_appears_in_model_requests(tmp_path: Path, kind: str) -> None:
    with staged(tmp_path, ["Hello.", "Hello."], {"url": "http://localhost:8888"}) as stage:
        create(stage, False, input="hi")
        create(stage, False, input="hi", tools=[{"type": kind}])
        named = [[tool["name"] for tool in request.tools] for request in stage.requests]
        assert stage.server.app.registry.for_tool_type(kind).name == "web_search"  # type: ignore[union-attr]
    assert named == [["web_search", "open_page", "find_in_page"]] * 2


class TestContract(ProviderContract):
    """What holds for every provider."""

    provider = WebSearch
    settings: ClassVar = {"url": "http://localhost:8888", "open_pages": "none"}
    calls: ClassVar = {"web_search": {"query": "{canary}"}}

    @override
    def make(self) -> WebSearch:
        return WebSearch(WebSearch.from_settings(self.settings).settings, adapter=Own())


def test_a_turn_may_search_twice(tmp_path: Path) -> None:
    steps = [turn(calls=[call("web_search", query="a"), call("web_search", query="b")]), turn("Done [1] [2].")]
    pages = {"/search": lambda asked: found(result(asked.query["q"]))}
    with Site(pages) as backend, staged(tmp_path, steps, {"url": backend.url}) as stage:
        response = create(stage, True, input="?", tools=[{"type": "web_search"}])
    assert [item.type for item in response.output] == ["web_search_call", "web_search_call", "message"]


WITHOUT = """
import asyncio, sys
import antwort
from antwort import Antwort
from antwort.config import Config
from antwort.errors import ConfigError

async def main():
    async with Antwort(Config(data_dir="data")) as app:
        assert app.registry.for_tool_type("web_search") is None
        print((await app.run("Hello!")).status)
    try:
        Antwort(Config(data_dir="data", providers={"web_search": {"enabled": True, "settings": {"url": "http://x"}}}))
    except ConfigError as error:
        print(error)

assert antwort.__file__.startswith(sys.argv[1]), antwort.__file__
asyncio.run(main())
"""


def test_the_feature_is_one_folder_and_goes_with_it(tmp_path: Path) -> None:
    package = Path(antwort.__file__).parent
    copy = tmp_path / "source" / "antwort"
    shutil.copytree(package, copy, ignore=shutil.ignore_patterns("__pycache__", "web_search"))
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, str(copy)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(copy.parent), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    status, error = done.stdout.splitlines()
    assert status == "completed"
    assert "web_search" in error
