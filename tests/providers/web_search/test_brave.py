"""Brave Search, by a server that speaks its JSON."""

import json
from typing import Any

import pytest
from tests.providers.web_search.stage import called
from tests.support.site import Reply, Site

from antwort.types import JSON

KEY = "brave-key-that-nobody-may-see"


def found(*results: Any) -> Reply:
    body = {"type": "search", "query": {"original": "tea"}, "web": {"type": "search", "results": list(results)}}
    return Reply(json.dumps(body), type="application/json")


def result(name: str = "tea", **fields: Any) -> JSON:
    return {
        "title": f"<strong>{name}</strong>",
        "url": f"https://example.org/{name}",
        "description": f"About &quot;{name}&quot;",
        "page_age": "2026-02-03T00:00:00",
        **fields,
    }


async def search(reply: Reply, options: JSON | None = None, **settings: Any) -> tuple[str, Site]:
    with Site({"*": reply}) as api:
        values = {"backend": "brave", "url": f"{api.url}/res/v1/web/search", "api_key": KEY, "retries": 0, **settings}
        got, _ = await called(values, "web_search", {"query": "tea"}, options)
    return got.output, api


async def test_results_are_read() -> None:
    output, api = await search(found(result(), result("milk")))
    assert '[1] tea\nURL: https://example.org/tea\nPublished: 2026-02-03\nAbout "tea"' in output
    assert "[2] milk" in output
    [asked] = api.asked
    assert asked.path == "/res/v1/web/search"
    assert asked.headers["x-subscription-token"] == KEY
    assert asked.query == {"q": "tea", "count": "5", "safesearch": "moderate", "text_decorations": "false"}


async def test_language_and_place_are_sent() -> None:
    place = {"type": "approximate", "city": "Bonn", "country": "de", "timezone": "Europe/Berlin"}
    _, api = await search(found(), {"user_location": place}, language="en-GB")
    [asked] = api.asked
    assert (asked.query["search_lang"], asked.query["country"]) == ("en", "DE")
    assert (asked.headers["x-loc-city"], asked.headers["x-loc-timezone"]) == ("Bonn", "Europe/Berlin")


async def test_more_results_are_asked_for_when_some_will_be_dropped() -> None:
    _, api = await search(found(), deny_domains=["a.org"])
    assert api.asked[0].query["count"] == "20"


@pytest.mark.parametrize(
    ("reply", "told"),
    [
        (Reply("", 401), "refuses the key"),
        (Reply("", 422), "refuses the key"),
        (Reply("", 429), "too many requests"),
        (Reply("", 500), "status 500"),
        (Reply("no JSON"), "cannot be read"),
    ],
)
async def test_a_failure_is_told_without_the_key(reply: Reply, told: str) -> None:
    output, _ = await search(reply)
    assert told in output
    assert KEY not in output


@pytest.mark.parametrize("body", ["[]", "null", "{}", '{"web": null}', '{"web": {"results": 7}}'])
async def test_an_answer_without_results_is_empty(body: str) -> None:
    output, _ = await search(Reply(body, type="application/json"))
    assert "No results were found" in output
