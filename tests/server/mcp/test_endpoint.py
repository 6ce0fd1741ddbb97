"""`/mcp` as HTTP: who is let in, what headers must say, and what each version of the protocol is answered."""

import asyncio
import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from tests.server.mcp.stage import STATELESS_META, Face, call, first_text, request, serving

from antwort.provider import Context, Progress
from antwort.server.mcp import methods as methods_module

PUBLIC_KEY = {
    "kty": "EC",
    "crv": "P-256",
    "x": "MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4",
    "y": "4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM",
}
STATELESS = {"mcp_protocol_version": "2026-07-28"}


@pytest.fixture(scope="module")
def face(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Face]:
    with serving(tmp_path_factory.mktemp("data"), server={"cors_origins": ["https://app.example"]}) as face:
        yield face


def stateless(method: str, **params: Any) -> Any:
    return request(method, **params, _meta=STATELESS_META)


def error_of(response: httpx.Response) -> tuple[int, int]:
    return response.status_code, response.json()["error"]["code"]


# --- who is let in ---------------------------------------------------------------------------------------------------


def test_nobody_is_let_in_without_a_key(face: Face) -> None:
    refused = face.post(request("tools/list"), key=None)

    assert refused.status_code == 401
    assert refused.headers["www-authenticate"] == "Bearer"


def test_whoever_may_not_have_functions_called_is_refused(face: Face) -> None:
    assert face.post(request("tools/list"), key="key-of-talker").status_code == 403
    assert face.post(request("tools/list"), key="key-of-caller").status_code == 200


def test_a_call_is_made_for_the_tenant_of_the_key(face: Face) -> None:
    assert first_text(face.post(call("whose"))) == "acme, acme"
    assert first_text(face.post(call("whose"), key="key-of-other")) == "other, other"


def test_pages_of_other_sites_are_refused(face: Face) -> None:
    assert face.post(request("ping"), origin="https://evil.example").status_code == 403
    assert face.post(request("ping"), origin="https://app.example").status_code == 200
    assert face.post(request("ping"), origin=face.url).status_code == 200


def test_a_form_of_a_page_is_no_message(face: Face) -> None:
    assert face.post(request("ping"), content_type="text/plain").status_code == 415


def test_there_is_no_stream_to_listen_to_and_no_session_to_end(face: Face) -> None:
    for method in ("GET", "DELETE"):
        found = httpx.request(method, f"{face.url}/mcp", headers={"authorization": "Bearer key-of-acme"})
        assert (found.status_code, found.headers["allow"]) == (405, "POST")


def test_without_it_there_is_no_endpoint(tmp_path: Path) -> None:
    with serving(tmp_path, server={"mcp": {"enabled": False}}) as face:
        assert face.post(request("tools/list")).status_code == 404


def test_with_an_issuer_clients_are_told_where_to_get_a_token(tmp_path: Path) -> None:
    keys = tmp_path / "jwks.json"
    keys.write_text(json.dumps({"keys": [PUBLIC_KEY]}))
    tokens = {"issuer": "https://login.example", "audience": "antwort", "jwks_file": str(keys)}
    with serving(tmp_path, auth={"jwt": tokens, "api_keys": [{"id": "one", "key": "key-of-acme"}]}) as face:
        refused = face.post(request("tools/list"), key=None)
        where = f"{face.url}/.well-known/oauth-protected-resource/mcp"
        assert refused.status_code == 401
        assert refused.headers["www-authenticate"] == f'Bearer resource_metadata="{where}", scope="functions:call"'
        found = httpx.get(where)
        assert found.status_code == 200
        assert found.json() == httpx.get(where.removesuffix("/mcp")).json()
        assert found.json() == {
            "resource": f"{face.url}/mcp",
            "authorization_servers": ["https://login.example"],
            "scopes_supported": ["functions:call"],
            "bearer_methods_supported": ["header"],
            "resource_name": "antwort",
        }
        elsewhere = httpx.get(f"{face.url}/v1/models")
        assert elsewhere.headers["www-authenticate"] == "Bearer"


# --- the stateless era -----------------------------------------------------------------------------------------------


def test_a_request_of_the_stateless_era_says_all_that_is_to_be_known(face: Face) -> None:
    found = face.post(
        request("tools/call", name="add", arguments={"a": 1, "b": 2}, _meta=STATELESS_META),
        **STATELESS,
        mcp_method="tools/call",
        mcp_name="add",
    )

    result = found.json()["result"]
    assert found.headers["content-type"] == "application/json"
    assert "mcp-session-id" not in found.headers
    assert result["resultType"] == "complete"
    assert result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "antwort"
    assert result["content"] == [{"type": "text", "text": "3"}]


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"mcp_protocol_version": "2026-07-28"}, -32020),
        ({"mcp_protocol_version": "2026-07-28", "mcp_method": "tools/list"}, -32020),
        ({"mcp_protocol_version": "2026-07-28", "mcp_method": "tools/call"}, -32020),
        ({"mcp_protocol_version": "2026-07-28", "mcp_method": "tools/call", "mcp_name": "fail"}, -32020),
        ({"mcp_protocol_version": "2026-07-28", "mcp_method": "tools/call", "mcp_name": "=?base64?e?="}, -32020),
        ({"mcp_protocol_version": "2025-11-25", "mcp_method": "tools/call", "mcp_name": "add"}, -32020),
        ({"mcp_method": "tools/call", "mcp_name": "add"}, -32020),
    ],
)
def test_headers_that_say_something_else_than_the_message_are_refused(
    face: Face, headers: dict[str, str], code: int
) -> None:
    body = stateless("tools/call", name="add", arguments={"a": 1, "b": 2})
    assert error_of(face.post(body, **headers)) == (400, code)


def test_a_header_that_is_there_twice_is_refused(face: Face) -> None:
    headers = [
        ("authorization", "Bearer key-of-acme"),
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "tools/list"),
        ("mcp-method", "tools/list"),
    ]
    found = httpx.post(f"{face.url}/mcp", json=stateless("tools/list"), headers=headers)
    assert error_of(found) == (400, -32020)


def test_a_name_may_be_encoded(face: Face) -> None:
    body = stateless("tools/call", name="add", arguments={"a": 1, "b": 2})
    found = face.post(body, **STATELESS, mcp_method="tools/call", mcp_name="=?base64?YWRk?=")
    assert first_text(found) == "3"


def test_versions_that_are_not_spoken_are_refused_with_those_that_are(face: Face) -> None:
    later = {**STATELESS_META, "io.modelcontextprotocol/protocolVersion": "2099-01-01"}
    for body in (request("tools/list", _meta=later), request("tools/list")):
        found = face.post(body, mcp_protocol_version="2099-01-01", mcp_method="tools/list")
        assert error_of(found) == (400, -32022)
        assert found.json()["error"]["data"]["supported"][0] == "2026-07-28"


def test_a_request_that_does_not_say_who_asks_is_refused(face: Face) -> None:
    assert error_of(face.post(request("tools/list"), **STATELESS, mcp_method="tools/list")) == (400, -32602)


def test_methods_that_there_are_not_are_a_404(face: Face) -> None:
    for method in ("initialize", "ping", "logging/setLevel", "tools/nothing"):
        found = face.post(stateless(method), **STATELESS, mcp_method=method)
        assert error_of(found) == (404, -32601), method


def test_a_call_that_tells_how_far_it_is_is_answered_by_a_stream(face: Face) -> None:
    meta = {**STATELESS_META, "progressToken": "t"}
    body = request("tools/call", name="count", arguments={"to": 1}, _meta=meta)
    found = face.post(body, **STATELESS, mcp_method="tools/call", mcp_name="count")

    events = [json.loads(line[6:]) for line in found.text.splitlines() if line.startswith("data: ")]
    assert found.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert [event.get("method", "answer") for event in events] == ["notifications/progress"] * 2 + ["answer"]
    plain = face.post(body, **STATELESS, mcp_method="tools/call", mcp_name="count", accept="application/json")
    assert plain.headers["content-type"] == "application/json"


def test_a_call_that_tells_very_often_how_far_it_is_keeps_nobody_else_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted: list[Progress] = []
    note = methods_module._ProgressNotes._note

    def counted(notes: Any, progress: Progress) -> None:
        noted.append(progress)
        note(notes, progress)

    monkeypatch.setattr(methods_module._ProgressNotes, "_note", counted)

    async def chatter(ctx: Context) -> str:
        """Tell very often how far it is, in no words."""
        for number in range(2000):
            ctx.emit(Progress("\ud800", number // 1000))
        await asyncio.sleep(0)
        return "done"

    with serving(tmp_path, [chatter]) as face:
        found = face.post(request("tools/call", name="chatter", arguments={}, _meta={"progressToken": "t"}))
    assert '"progress":1,"total":1,"message":"?"' in found.text
    assert len(noted) < 100


def test_a_call_whose_client_leaves_is_cancelled(face: Face) -> None:
    face.began.clear()
    face.cancelled.clear()
    body = json.dumps(stateless("tools/call", name="wait", arguments={})).encode()
    parts = urlsplit(face.url)
    head = (
        f"POST /mcp HTTP/1.1\r\nhost: {parts.netloc}\r\nauthorization: Bearer key-of-acme\r\n"
        "content-type: application/json\r\nmcp-protocol-version: 2026-07-28\r\nmcp-method: tools/call\r\n"
        f"mcp-name: wait\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    with socket.create_connection((parts.hostname or "", parts.port or 0)) as connection:
        connection.sendall(head.encode() + body)
        assert face.began.wait(30)
    assert face.cancelled.wait(30)


def test_a_call_is_cancelled_by_the_session_that_has_made_it(face: Face) -> None:
    face.began.clear()
    face.cancelled.clear()
    session = {"mcp_protocol_version": "2025-11-25", "mcp_session_id": "mine"}
    cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "w"}}
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(face.post, {**call("wait"), "id": "w"}, **session)
        assert face.began.wait(30)
        for others in ({"mcp_session_id": "theirs"}, {"mcp_session_id": "mine", "key": "key-of-other"}, {}):
            assert face.post(cancel, **others).status_code == 202
        assert not face.cancelled.is_set()
        assert face.post(cancel, **session).status_code == 202
        assert face.cancelled.wait(30)
        assert error_of(answer.result(30)) == (200, -32000)


# --- the era of greetings --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "given"),
    [
        ("2025-11-25", "2025-11-25"),
        ("2025-06-18", "2025-06-18"),
        ("2025-03-26", "2025-03-26"),
        ("1999-01-01", "2025-11-25"),
    ],
)
def test_a_client_is_greeted_in_its_version_or_the_newest(face: Face, asked: str, given: str) -> None:
    hello = request("initialize", protocolVersion=asked, capabilities={}, clientInfo={"name": "t", "version": "1"})
    found = face.post(hello)

    assert found.json()["result"]["protocolVersion"] == given
    assert found.headers["mcp-session-id"].startswith("session_")


def test_no_session_is_needed(face: Face) -> None:
    assert first_text(face.post(call("add", a=1, b=2), mcp_protocol_version="2025-06-18")) == "3"
    assert first_text(face.post(call("add", a=1, b=2), mcp_session_id="of-another-server")) == "3"


def test_errors_of_older_versions_are_no_errors_of_http(face: Face) -> None:
    assert error_of(face.post(call("nothing"))) == (200, -32602)
    assert error_of(face.post(request("tools/nothing"))) == (200, -32601)


def test_wrong_arguments_are_a_result_since_the_version_that_says_so(face: Face) -> None:
    newer = face.post(call("add", a=1), mcp_protocol_version="2025-11-25")
    older = face.post(call("add", a=1), mcp_protocol_version="2025-06-18")

    assert newer.json()["result"]["isError"] is True
    assert error_of(older) == (200, -32602)


def test_each_request_of_several_counts(tmp_path: Path) -> None:
    limits = {"per_tenant": {"requests_per_minute": 1, "burst": 3}}
    with serving(tmp_path, limits=limits) as face:
        found = face.post([{"jsonrpc": "2.0", "method": "notifications/x"}, *(request("ping", n) for n in range(5))])
        assert ["result" in answer for answer in found.json()] == [True, True, True, False, False]
        assert "Rate limit reached for this tenant" in found.json()[3]["error"]["message"]
        assert face.post(request("ping")).status_code == 429


def test_several_messages_together_are_for_the_version_that_has_them(face: Face) -> None:
    batch = [call("add", 1, a=1, b=2), {"jsonrpc": "2.0", "method": "notifications/initialized"}, request("ping", 2), 3]
    found = face.post(batch, mcp_protocol_version="2025-03-26")

    assert [(answer["id"], "result" in answer) for answer in found.json()] == [(1, True), (2, True), (None, False)]
    assert face.post(batch[1:2]).status_code == 202
    assert error_of(face.post(batch, mcp_protocol_version="2025-06-18")) == (400, -32600)
    assert error_of(face.post([])) == (400, -32600)
    assert error_of(face.post([request("ping")] * 51)) == (400, -32600)


def test_notifications_and_answers_are_taken(face: Face) -> None:
    assert face.post({"jsonrpc": "2.0", "method": "notifications/initialized"}).status_code == 202
    assert face.post({"jsonrpc": "2.0", "id": 7, "result": {}}).status_code == 202


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"{", -32700),
        (b"[" * 100_000, -32700),
        (b"\xff", -32700),
        (b"7", -32600),
        (b'{"method": "ping", "id": 1}', -32600),
        (b'{"jsonrpc": "2.0", "id": 1}', -32600),
        (b'{"jsonrpc": "2.0", "id": true, "method": "ping"}', -32600),
        (b'{"jsonrpc": "2.0", "id": null, "method": "ping"}', -32600),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": []}', -32602),
    ],
)
def test_what_is_no_message_is_refused(face: Face, body: bytes, code: int) -> None:
    headers = {"authorization": "Bearer key-of-acme", "content-type": "application/json"}
    assert error_of(httpx.post(f"{face.url}/mcp", content=body, headers=headers)) == (400, code)


def test_a_call_without_a_name_or_with_arguments_that_are_none_is_refused(face: Face) -> None:
    assert error_of(face.post(request("tools/call"))) == (200, -32602)
    assert error_of(face.post(request("tools/call", name="add", arguments=[1]))) == (200, -32602)
