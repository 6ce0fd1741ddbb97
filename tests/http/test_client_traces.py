"""`/v1/traces`: what exporters of agents elsewhere send, whatever they send and in whichever order."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import SecretStr
from tests.http.sdk import Served, served

from antwort.config import ApiKeyConfig, AuthConfig
from antwort.errors import FunctionError
from antwort.runs import limits as limits_of_tenants
from antwort.storage.sql import client_traces
from antwort.testing import Turn, call, turn
from antwort.types import JSON

SPLIT: Any = {"type": "function", "name": "split"}
SECRET = "api_key=sk-proj-abcdefghijklmnopqrstuvwxyz0123456789"


async def split(a: int) -> int:
    """Split a number."""
    raise FunctionError(f"{a} cannot be split.")


def trace(name: str = "t1", **fields: Any) -> JSON:
    return {"object": "trace", "id": name, "workflow_name": "Work", "group_id": None, "metadata": None, **fields}


def span(name: str, *, of: str = "t1", parent: str | None = None, at: int = 0, **fields: Any) -> JSON:
    """A span that begins so many seconds after noon, and takes a second."""
    return {
        "object": "trace.span",
        "id": name,
        "trace_id": of,
        "parent_id": parent,
        "started_at": f"2026-11-19T12:00:{at:02}.000000+00:00",
        "ended_at": f"2026-11-19T12:00:{at + 1:02}.000000+00:00",
        "span_data": {"type": "custom", "name": name, "data": {}},
        "error": None,
        **fields,
    }


def sent(stage: Served, *items: JSON, key: str = "none") -> httpx.Response:
    headers = {"authorization": f"Bearer {key}", "openai-beta": "traces=v1"}
    return stage.request("POST", "/traces/ingest", json={"data": items}, headers=headers)


def told(stage: Served, name: str = "t1", **query: Any) -> JSON:
    found = stage.request("GET", f"/traces/{name}", params=query)
    assert found.status_code == 200, found.text
    body: JSON = found.json()
    return body


def shape(spans: list[JSON]) -> list[Any]:
    """Return the ids of spans, each with those within it."""
    return [[one["id"], *shape(one["spans"])] if one["spans"] else one["id"] for one in spans]


def listed(stage: Served, **query: Any) -> list[str]:
    found = stage.request("GET", "/traces", params=query)
    assert found.status_code == 200, found.text
    return [one["id"] for one in found.json()["data"]]


def test_spans_come_in_any_order_and_again(tmp_path: Path) -> None:
    with served(tmp_path, []) as stage:
        assert sent(stage, span("c", parent="b", at=3), span("b", parent="a", at=2)).json()["spans"] == 2
        early = told(stage)
        assert (early["name"], early["span_count"], shape(early["spans"])) == (None, 2, [["b", "c"]])
        everything = [trace(group_id="g"), span("a", at=1), span("d", parent="b", at=1), span("b", parent="a", at=2)]
        assert sent(stage, *everything).json() == {"object": "traces.ingested", "traces": 1, "spans": 3}
        assert sent(stage, *everything).status_code == 200
        whole = told(stage)
        assert shape(whole["spans"]) == [["a", ["b", "d", "c"]]]
        assert (whole["name"], whole["group_id"], whole["span_count"], whole["failed_spans"]) == ("Work", "g", 4, 0)
        assert whole["ended_at"] - whole["started_at"] == 3
        [root] = whole["spans"]
        assert (root["type"], root["name"], root["seconds"], root["data"]["name"]) == ("custom", "a", 1.0, "a")


def test_a_span_changes_until_it_is_over(tmp_path: Path) -> None:
    with served(tmp_path, []) as stage:
        begun = span("a", ended_at=None)
        assert sent(stage, trace(), begun).status_code == 200
        assert [told(stage)["spans"][0][key] for key in ("seconds", "error")] == [None, None]
        assert sent(stage, span("a", error={"message": "Broken."})).status_code == 200
        assert sent(stage, begun, span("a"), span("a", error={"message": "Otherwise."})).status_code == 200
        found = told(stage)
        assert (found["span_count"], found["failed_spans"]) == (1, 1)
        assert [(one["span_id"], one["message"]) for one in found["failures"]] == [("a", "Broken.")]


def test_responses_of_the_server_are_where_they_belong(tmp_path: Path) -> None:
    steps: list[Turn | str] = [turn(calls=[call("split", a=7)]), "It cannot be split."]
    with served(tmp_path, steps, functions=[split]) as stage:
        name = stage.request("POST", "/responses", json={"input": "Split 7!", "tools": [SPLIT]}).json()["id"]
        answered = span("r", parent="a", span_data={"type": "response", "response_id": name, "usage": None})
        elsewhere = span("x", parent="a", span_data={"type": "response", "response_id": "resp_of_others"})
        agent = span("a", span_data={"type": "agent", "name": "Boss", "tools": ["split"]})
        assert sent(stage, trace(), agent, answered, elsewhere).status_code == 200
        found = told(stage)
        [boss] = found["spans"]
        assert (boss["type"], boss["name"]) == ("agent", "Boss")
        response, other = boss["spans"]
        alone = stage.request("GET", f"/responses/{name}/trace").json()
        assert response["response"] == alone["responses"][0]
        assert response["response"]["turns"][0]["calls"][0]["output"] == "7 cannot be split."
        assert other["response"] is None
        [failure] = found["failures"]
        assert (failure["span_id"], failure["name"], failure["message"]) == ("r", "split", "7 cannot be split.")
        assert failure["failure"] == alone["failures"][0]
        assert told(stage, max_length=3)["spans"][0]["spans"][0]["response"]["id"] == name


def test_lists_have_filters_and_pages(tmp_path: Path) -> None:
    with served(tmp_path, []) as stage:
        for number in range(5):
            metadata = {
                "group": "odd",
                "of": "x",
                "failed": 1,
            }  # not what is looked for
            group = "odd" if number % 2 else None
            error = {"message": "No."} if number == 3 else None
            assert sent(
                stage,
                trace(f"t{number}", workflow_name=f"Wörk_{number % 3}", group_id=group, metadata=metadata),
                span("a", of=f"t{number}", error=error),
            ).is_success
        assert listed(stage) == ["t4", "t3", "t2", "t1", "t0"]
        assert listed(stage, group_id="odd") == ["t3", "t1"]
        assert listed(stage, group_id="ODD") == []
        assert listed(stage, name="Wörk_1") == ["t4", "t1"]
        assert listed(stage, name="Wörk%1") == listed(stage, name="wörk_1") == listed(stage, name="Wörk_") == []
        assert listed(stage, failed=True) == ["t3"]
        assert listed(stage, failed=False, group_id="odd", name="Wörk_1", order="asc") == ["t1"]
        assert listed(stage, created_after=2**40) == listed(stage, created_before=1) == []
        assert listed(stage, limit=2, after="t3") == ["t2", "t1"]
        assert listed(stage, limit=2, before="t1") == ["t3", "t2"]
        refused = stage.request("GET", "/traces", params={"after": "t9"})
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "after")
        assert stage.request("DELETE", "/traces/t3").json()["deleted"]
        assert stage.request("DELETE", "/traces/t3").status_code == 404
        assert stage.request("GET", "/traces/t3").status_code == 404
        assert listed(stage, limit=2) == ["t4", "t2"]


def test_nobody_sees_what_others_have_sent(tmp_path: Path) -> None:
    keys = [
        ApiKeyConfig(id=name, key=SecretStr(f"{name}-0123456789"), tenant=tenant, scopes=scopes)
        for name, tenant, scopes in (
            ("ada", "a", ["traces:*", "responses:*"]),
            ("bob", "b", ["traces:*"]),
            ("reader", "a", ["traces:read"]),
            ("writer", "a", ["traces:write"]),
        )
    ]
    with served(tmp_path, ["Hi, Ada."], auth=AuthConfig(api_keys=keys)) as stage:
        ada, bob, reader, writer = ({"authorization": f"Bearer {key.id}-0123456789"} for key in keys)
        name = stage.request("POST", "/responses", json={"input": "Hi"}, headers=ada).json()["id"]
        turned = span("r", span_data={"type": "response", "response_id": name})
        assert stage.request("POST", "/traces/ingest", json={"data": [trace(), turned]}, headers=ada).is_success
        mine = [trace(workflow_name="Mine"), turned]
        assert stage.request("POST", "/traces/ingest", json={"data": mine}, headers=bob).is_success
        found = stage.request("GET", "/traces/t1", headers=bob).json()
        assert (found["name"], found["span_count"], found["spans"][0]["response"]) == ("Mine", 1, None)
        found = stage.request("GET", "/traces/t1", headers=reader).json()
        assert (found["name"], found["spans"][0]["response"]["id"]) == ("Work", name)
        assert stage.request("DELETE", "/traces/t1", headers=bob).is_success
        assert [stage.request("GET", "/traces/t1", headers=each).status_code for each in (ada, bob)] == [200, 404]
        assert stage.request("POST", "/traces/ingest", json={"data": []}, headers=reader).status_code == 403
        assert stage.request("DELETE", "/traces/t1", headers=reader).status_code == 403
        assert stage.request("GET", "/traces", headers=writer).status_code == 403
        assert stage.request("GET", "/traces/t1", headers=writer).status_code == 403


def test_circles_and_endless_chains_are_told_as_a_tree(tmp_path: Path) -> None:
    with served(tmp_path, []) as stage:
        circle = [span("a", parent="c"), span("b", parent="a"), span("c", parent="b"), span("d", parent="d")]
        assert sent(stage, trace(), *circle, span("e", parent="nobody")).is_success
        assert shape(told(stage)["spans"]) == ["e", ["a", ["b", "c"]], "d"]
        chain = [span(f"s{number}", of="t2", parent=f"s{number - 1}") for number in range(1000)]
        assert sent(stage, *chain).is_success
        found = told(stage, "t2")
        depth, spans, count = 0, found["spans"], 0
        while spans:
            depth, count = depth + 1, count + len(spans)
            spans = [inner for one in spans for inner in one["spans"]]
        assert (depth, count) == (51, 1000)


def test_what_is_too_large_is_cut_and_secrets_are_masked(tmp_path: Path) -> None:
    with served(tmp_path, []) as stage:
        values = list(range(20_000))
        large = {"type": "function", "name": "f", "input": "x" * 300_000, "output": SECRET, "more": values}
        deep: Any = 1
        for _ in range(300):
            deep = {"in": deep}
        broken = span("b", at=1, error={"message": SECRET, "data": {"password": "hunter2"}}, span_data={"deep": deep})
        assert sent(stage, trace(metadata={"token": "hunter2"}), span("a", span_data=large), broken).is_success
        assert stage.request("GET", "/traces/t1", params={"max_length": -1}).status_code == 400
        found = told(stage, max_length=200_000)
        cut, other = found["spans"]
        assert cut["data"]["input"] == f"{'x' * 100_000}… (200,000 characters more)"
        assert cut["data"]["output"] == "api_key=***"
        assert len(cut["data"]["more"]) < 5_000
        assert (other["type"], other["name"], other["error"]["data"]) == ("custom", None, {"password": "***"})
        assert "hunter2" not in json.dumps(found)
        assert "sk-proj" not in json.dumps(found)
        assert found["failures"][0]["message"] == "api_key=***"
        assert 1_900 < len(told(stage)["spans"][0]["data"]["input"]) < 2_100


def test_a_trace_has_no_end_of_spans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_traces, "MOST_SPANS", 250)
    with served(tmp_path, []) as stage:
        spans = [span(f"s{number}") for number in range(251)]
        assert sent(stage, trace(), *spans[:250]).is_success
        assert sent(stage, *spans[:250]).is_success
        refused = sent(stage, trace("t2"), spans[250])
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, "too_many_spans")
        assert listed(stage) == ["t1"]
        assert told(stage)["span_count"] == 250
        assert stage.request("DELETE", "/traces/t1").is_success
        assert sent(stage, spans[250]).is_success
        assert shape(told(stage)["spans"]) == ["s250"]


def test_a_full_tenant_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for how_long in ("PATIENCE", "REMEMBERED", "REMEMBERED_NEAR"):
        monkeypatch.setattr(limits_of_tenants, how_long, 0)
    limits = {"per_tenant": {"max_stored_bytes": 1000}}
    with served(tmp_path, [], limits=limits) as stage:
        assert sent(stage, trace(), span("a", span_data={"type": "custom", "text": "x" * 2000})).is_success
        refused = sent(stage, trace("t2"))
        assert (refused.status_code, refused.json()["error"]["code"]) == (429, "storage_quota_exceeded")


BAD: list[tuple[Any, str | None]] = [
    ({}, "data"),
    ({"data": {}}, "data"),
    ({"data": [7]}, "data[0]"),
    ({"data": [{}]}, "data[0].object"),
    ({"data": [trace(), {"object": "trace.event"}]}, "data[1].object"),
    ({"data": [{"object": "trace"}]}, "data[0].id"),
    ({"data": [trace("a/b")]}, "data[0].id"),
    ({"data": [trace("a\n")]}, "data[0].id"),
    ({"data": [trace("../../v1/files")]}, "data[0].id"),
    ({"data": [trace("x" * 129)]}, "data[0].id"),
    ({"data": [trace(group_id="a\0")]}, "data[0].group_id"),
    ({"data": [trace(metadata=[])]}, "data[0].metadata"),
    ({"data": [trace(), span("a b")]}, "data[1].id"),
    ({"data": [span("a", of="")]}, "data[0].trace_id"),
    ({"data": [span("a", parent="")]}, "data[0].parent_id"),
    ({"data": [span("a", started_at="yesterday")]}, "data[0].started_at"),
    ({"data": [span("a", ended_at=7)]}, "data[0].ended_at"),
    ({"data": [span("a", span_data="x")]}, "data[0].span_data"),
    ({"data": [span("a", error="x")]}, "data[0].error"),
    ({"data": [trace()] * 1001}, "data"),
    ([], None),
]


def test_what_does_not_fit_is_named_and_nothing_is_kept(tmp_path: Path) -> None:
    with served(tmp_path, []) as stage:
        for body, param in BAD:
            refused = stage.request("POST", "/traces/ingest", json=body)
            assert refused.status_code == 400, body
            assert refused.json()["error"]["param"] == param
        deep = f'{{"data": [{{"object": "trace", "id": "t", "metadata": {"[" * 5000}{"]" * 5000}}}]}}'
        huge = f'{{"data": [{{"object": "trace", "id": "t", "metadata": {{"a": {"9" * 5000}}}}}]}}'
        for content in (deep, huge, "{", '{"data": [{"object": "trace", "id": "t", "metadata": {"a": "\\ud800"}}]}'):
            headers = {"content-type": "application/json"}
            refused = stage.request("POST", "/traces/ingest", content=content, headers=headers)
            assert (refused.status_code, refused.json()["error"]["type"]) == (400, "invalid_request_error")
        assert stage.request("POST", "/traces/ingest", content="data=1").status_code in {400, 415}
        assert stage.request("POST", "/traces/ingest?stream=true", json={"data": []}).status_code == 400
        assert listed(stage) == []


def test_odd_moments_and_names_are_kept(tmp_path: Path) -> None:
    odd = [
        span("a", started_at="2026-11-19T12:00:00Z", ended_at="2026-11-19T13:00:00+01:00"),
        span("b", started_at="0001-01-01T00:00:00+14:00", ended_at="9999-12-31T23:59:59-14:00"),
        span("c", started_at=None, ended_at=None, span_data={}),
        span("d", span_data={"type": ["x"], "name": {"y": 1}, "response_id": 7, "data": "\0"}, error={}),
        span("e", span_data={"type": "response", "response_id": "x" * 5000}),
        span("f", span_data={"type": "response", "response_id": "resp_\0"}),
    ]
    with served(tmp_path, []) as stage:
        assert sent(stage, trace(workflow_name="<script>", group_id="\u202e%_'\""), *odd).is_success
        found = {one["id"]: one for one in told(stage)["spans"]}
        assert found["a"]["seconds"] == 0
        assert found["b"]["seconds"] > 300_000_000_000
        assert [found["c"][key] for key in ("started_at", "seconds", "type", "name")] == [None, None, "custom", None]
        assert found["d"]["data"]["data"] == "\0"
        assert [found[name]["response"] for name in "ef"] == [None, None]
        assert listed(stage, group_id="\u202e%_'\"") == ["t1"]
