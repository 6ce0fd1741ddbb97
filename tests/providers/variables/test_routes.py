"""The routes of variables, on a server: lists, uploads and downloads in a stream, ranges, tenants, quotas."""

import http.client
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

from antwort.context import Context
from antwort.testing import ServedApp, served

KEYS = {"alpha": "key-of-alpha", "beta": "key-of-beta"}
LARGE = bytes(range(256)) * (12 * 1024)  # 3 MiB


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedApp]:
    folder: Path = tmp_path_factory.mktemp("variables")
    config: dict[str, Any] = {
        "data_dir": str(folder),
        "auth": {"api_keys": [{"id": name, "key": key, "tenant": name} for name, key in KEYS.items()]},
        "server": {"max_body_bytes": "1MiB", "max_bodies_bytes": "1MiB"},
        "limits": {"per_tenant": {"max_value_bytes": "4MiB", "max_variable_bytes": "12MiB"}},
        "providers": {"variables": {"enabled": True}},
    }
    with served(config) as app:
        yield app


class Client:
    """Sends bodies of any kind as a tenant."""

    def __init__(self, app: ServedApp, tenant: str) -> None:
        self._netloc = urlsplit(app.url).netloc
        self._key = KEYS[tenant]

    def request(
        self, method: str, path: str, body: Any = None, **headers: str
    ) -> tuple[int, http.client.HTTPMessage, bytes]:
        connection = http.client.HTTPConnection(self._netloc, timeout=60)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body, {"authorization": f"Bearer {self._key}", **named})
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        return answer.status, answer.headers, content

    def put(self, key: str, body: Any, query: str = "", **headers: str) -> dict[str, Any]:
        status, _, content = self.request("PUT", f"/v1/variables?key={quote(key, safe='')}{query}", body, **headers)
        assert status == 200, content
        made: dict[str, Any] = json.loads(content)
        return made

    def made(self, path: str, body: Any) -> str:
        """Create something, and return its id."""
        status, _, content = self.request("POST", path, json.dumps(body), content_type="application/json")
        assert status == 200, content
        return str(json.loads(content)["id"])

    def get(self, path: str) -> dict[str, Any]:
        status, _, content = self.request("GET", path)
        assert status == 200, content
        found: dict[str, Any] = json.loads(content)
        return found


@pytest.fixture
def alpha(app: ServedApp) -> Iterator[Client]:
    client = Client(app, "alpha")
    yield client
    while found := client.get("/v1/variables?all_versions=true")["data"]:
        for one in found:
            client.request("DELETE", f"/v1/variables/{one['id']}?all_versions=true")


@pytest.fixture
def beta(app: ServedApp) -> Client:
    return Client(app, "beta")


def test_a_variable_is_put_got_and_deleted(alpha: Client) -> None:
    made = alpha.put("a/b", b"hello", content_type="text/plain")
    assert made == {
        "id": made["id"],
        "object": "variable",
        "key": "a/b",
        "scope": "tenant",
        "scope_id": "",
        "version": 1,
        "kind": "text",
        "bytes": 5,
        "run_id": None,
        "conversation_id": None,
        "created_at": made["created_at"],
        "expires_at": None,
    }
    assert alpha.get(f"/v1/variables/{made['id']}") == made
    status, headers, content = alpha.request("GET", f"/v1/variables/{made['id']}/content")
    assert (status, content, headers["content-type"]) == (200, b"hello", "text/plain; charset=utf-8")
    status, _, content = alpha.request("DELETE", f"/v1/variables/{made['id']}")
    assert (status, json.loads(content)["deleted"]) == (200, True)
    for method, path in (("GET", ""), ("GET", "/content"), ("DELETE", "")):
        assert alpha.request(method, f"/v1/variables/{made['id']}{path}")[0] == 404


@pytest.mark.parametrize(
    ("content_type", "kind"),
    [("application/json", "json"), ("text/csv; charset=utf-8", "text"), ("image/png", "bytes"), ("a/b+json", "json")],
)
def test_the_content_type_tells_the_kind(alpha: Client, content_type: str, kind: str) -> None:
    assert alpha.put("key", b"{}", content_type=content_type)["kind"] == kind


def test_large_values_are_streamed_past_the_limit_of_bodies(alpha: Client) -> None:
    for body in (LARGE, iter([LARGE[:7], LARGE[7:]])):  # with a length, and in chunks
        made = alpha.put("large", body)
        assert made["bytes"] == len(LARGE)
        assert alpha.request("GET", f"/v1/variables/{made['id']}/content")[2] == LARGE


@pytest.mark.parametrize(
    ("asked", "start", "end"),
    [("bytes=0-9", 0, 10), ("bytes=262140-262150", 262140, 262151), ("bytes=-5", len(LARGE) - 5, len(LARGE))],
)
def test_ranges(alpha: Client, asked: str, start: int, end: int) -> None:
    made = alpha.put("large", LARGE)
    path = f"/v1/variables/{made['id']}/content"
    status, headers, content = alpha.request("GET", path, range=asked)
    assert (status, content) == (206, LARGE[start:end])
    assert headers["content-range"] == f"bytes {start}-{end - 1}/{len(LARGE)}"
    assert alpha.request("GET", path, range=f"bytes={len(LARGE) - 3}-")[2] == LARGE[-3:]
    status, headers, _ = alpha.request("GET", path, range=f"bytes={len(LARGE)}-")
    assert (status, headers["content-range"]) == (416, f"bytes */{len(LARGE)}")
    assert alpha.request("GET", path, range="lines=1-2")[0] == 200


def test_what_is_too_large_is_a_413(alpha: Client) -> None:
    status, _, content = alpha.request("PUT", "/v1/variables?key=x", b"x" * (4 * 1024**2 + 1))
    assert status == 413
    assert "max_value_bytes" in json.loads(content)["error"]["message"]
    assert alpha.get("/v1/variables")["data"] == []


def test_the_quota_is_a_429_until_something_is_deleted(alpha: Client) -> None:
    made = [alpha.put(f"key {number}", bytes([number]) * 4 * 1024**2) for number in range(3)]
    status, headers, content = alpha.request("PUT", "/v1/variables?key=more", b"more")
    assert (status, json.loads(content)["error"]["code"]) == (429, "storage_quota_exceeded")
    assert headers["x-should-retry"] == "false"
    alpha.request("DELETE", f"/v1/variables/{made[0]['id']}")
    assert alpha.put("more", b"more")["version"] == 1


def test_lists_are_filtered_and_paged(alpha: Client) -> None:
    for number in range(5):
        alpha.put("counted", str(number).encode())
    conversation, run = alpha.made("/v1/conversations", {}), alpha.made("/v1/responses", {"input": "Hi"})
    alpha.put("of a conversation", b"1", f"&scope=conversation&scope_id={conversation}")
    alpha.put("of a run", b"1", f"&scope=run&scope_id={run}")
    listed = alpha.get("/v1/variables")
    assert [one["key"] for one in listed["data"]] == ["of a run", "of a conversation", "counted"]
    assert listed["data"][2]["version"] == 5
    first = alpha.get("/v1/variables?all_versions=true&key=counted&limit=3&order=asc")
    assert [one["version"] for one in first["data"]] == [1, 2, 3]
    assert first["has_more"]
    rest = alpha.get(f"/v1/variables?all_versions=true&key=counted&limit=3&order=asc&after={first['last_id']}")
    assert ([one["version"] for one in rest["data"]], rest["has_more"]) == ([4, 5], False)
    for query, key in (
        (f"conversation_id={conversation}", "of a conversation"),
        (f"run_id={run}", "of a run"),
        ("scope=run", "of a run"),
    ):
        assert [one["key"] for one in alpha.get(f"/v1/variables?{query}")["data"]] == [key]
    assert alpha.request("GET", f"/v1/variables?conversation_id={conversation}&scope=run")[0] == 400


def test_what_cannot_be_is_a_400(alpha: Client) -> None:
    for query in ("key=", f"key={'x' * 257}", "", "key=a&scope=run", "key=a&scope_id=x", "key=a&expires_in=0"):
        assert alpha.request("PUT", f"/v1/variables?{query}", b"x")[0] == 400


def test_tenants_do_not_see_each_other(alpha: Client, beta: Client) -> None:
    made = alpha.put("key", b"secret")
    assert beta.get("/v1/variables")["data"] == []
    for method, path in (("GET", ""), ("GET", "/content"), ("DELETE", "")):
        assert beta.request(method, f"/v1/variables/{made['id']}{path}")[0] == 404


def test_what_a_client_uploads_a_function_reads(app: ServedApp, alpha: Client) -> None:
    conversation = alpha.made("/v1/conversations", {})
    alpha.put("report", b"the text", f"&scope=conversation&scope_id={conversation}", content_type="text/plain")
    ctx = Context("alpha", run_id="resp_1", agent_id="resp_1", conversation_id=conversation)
    assert app.call("store_get", {"key": "report"}, ctx).output == "the text"


def test_a_download_of_nothing(alpha: Client) -> None:
    made = alpha.put("empty", b"")
    status, _, content = alpha.request("GET", f"/v1/variables/{made['id']}/content")
    assert (status, content) == (200, b"")


NONE_OF_THOSE = b'{"error":{"message":"There are 5 bytes, and none of those."'


@pytest.mark.parametrize(
    ("asked", "status", "content", "part"),
    [
        (f"bytes={'9' * 5000}-", 200, b"hello", None),
        (f"bytes=-{'9' * 5000}", 200, b"hello", None),
        (f"bytes=0-{'9' * 20}", 206, b"hello", "bytes 0-4/5"),
        (f"bytes={'9' * 20}-", 416, NONE_OF_THOSE, "bytes */5"),
        ("bytes=-0", 416, NONE_OF_THOSE, "bytes */5"),
        ("bytes=4-2", 416, NONE_OF_THOSE, "bytes */5"),
        ("bytes=0-0,2-3", 200, b"hello", None),
    ],
)
def test_odd_ranges_do_no_harm(alpha: Client, asked: str, status: int, content: bytes, part: str | None) -> None:
    made = alpha.put("greeting", b"hello", content_type="text/plain")
    found, headers, body = alpha.request("GET", f"/v1/variables/{made['id']}/content", range=asked)
    assert (found, body[: len(content)]) == (status, content)
    assert headers.get("content-range") == part
