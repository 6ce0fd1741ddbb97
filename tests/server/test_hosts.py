"""Hosts a server answers to: pages of strangers may have their names point at it, and are refused by them."""

import base64
import contextlib
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from antwort import Antwort
from antwort.config import Config
from antwort.testing import RunningApp, running

LOCAL = ["localhost", "*.localhost", "127.0.0.0/8", "::1"]


@contextlib.contextmanager
def serving(tmp_path: Path, allowed: list[str], **sections: Any) -> Iterator[RunningApp]:
    settings = {"data_dir": tmp_path, "server": {"allowed_hosts": allowed}, **sections}
    with running(Antwort(Config.model_validate(settings))) as server:
        yield server


def exchanged(server: RunningApp, head: bytes) -> tuple[int, Any]:
    """Send the head of a request as it is, and return the status and the JSON of the answer, if there is any."""
    address = server.url.removeprefix("http://").split(":")
    with socket.create_connection((address[0], int(address[1])), timeout=20) as raw:
        raw.sendall(head + b"\r\n")
        answer = b""
        while b"\r\n\r\n" not in answer:
            answer += raw.recv(65536)
        top, _, body = answer.partition(b"\r\n\r\n")
        length = next((int(line[15:]) for line in top.lower().split(b"\r\n") if line.startswith(b"content-length:")), 0)
        while len(body) < length:
            body += raw.recv(65536)
    return int(top.split()[1]), json.loads(body) if b"application/json" in top else None


def get(server: RunningApp, *hosts: bytes, path: bytes = b"/v1/models", version: bytes = b"1.1") -> tuple[int, Any]:
    lines = b"".join(b"Host: " + host + b"\r\n" for host in hosts)
    return exchanged(server, b"GET " + path + b" HTTP/" + version + b"\r\n" + lines)


def handshake(server: RunningApp, *hosts: bytes) -> tuple[int, Any]:
    lines = b"".join(b"Host: " + host + b"\r\n" for host in hosts)
    return exchanged(
        server,
        b"GET /v1/responses HTTP/1.1\r\n" + lines + b"Upgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " + base64.b64encode(b"k" * 16) + b"\r\n",
    )


@pytest.mark.parametrize(
    ("allowed", "taken", "refused"),
    [
        (
            LOCAL,
            [
                b"localhost",
                b"localhost:8080",
                b"LocalHost:1",
                b"localhost.",
                b"localhost.:8080",
                b"app.localhost:8080",
                b"127.0.0.1",
                b"127.0.0.1:",
                b"127.1.2.3:65535",
                b"[::1]",
                b"[::1]:8080",
                b"[0:0:0:0:0:0:0:1]",
                b"[::ffff:127.0.0.1]:8080",
            ],
            [
                b"evil.example",
                b"evil.example:8080",
                b"localhost.evil.example",
                b"evil-localhost",
                b"127.0.0.1.evil.example",
                b"192.168.0.1:8080",
                b"[2001:db8::1]",
                b"::1",
                b"[::1",
                b"[localhost]",
                b"localhost..",
                b"localhost:8080:9090",
                b"localhost:123456",
                b"localhost/evil.example",
                b"evil.example@localhost",
                b"localhost evil.example",
                b"localhost,evil.example",
                b"l\xf6calhost",
                b"",
            ],
        ),
        (
            ["API.example", "*.Pods.example.", "10.0.0.0/8", "[2001:db8::1]"],
            [b"api.example:443", b"a.pods.example", b"a.b.pods.example", b"10.1.2.3:8080", b"[2001:DB8::1]:8080"],
            [b"pods.example", b"x.api.example", b"xpods.example", b"11.0.0.1", b"[2001:db8::2]", b"localhost"],
        ),
        (["*"], [b"anything.example", b""], []),
        ([], [b"anything.example", b""], []),
    ],
)
def test_a_host_is_answered_to_if_it_is_allowed_whatever_the_port(
    tmp_path: Path, allowed: list[str], taken: list[bytes], refused: list[bytes]
) -> None:
    with serving(tmp_path, allowed) as server:
        for host in [*taken, *taken]:  # the second time it is remembered
            assert get(server, host)[0] == 200, host
        for host in [*refused, *refused]:
            status, body = get(server, host)
            assert (status, body["error"]["code"]) == (403, "host_not_allowed"), host


def test_the_error_names_the_host_and_the_cure(tmp_path: Path) -> None:
    with serving(tmp_path, LOCAL) as server:
        assert get(server, b"Evil.example:8080")[1]["error"] == {
            "message": "This server does not answer to the host 'evil.example'. If that is a name of it, its operator"
            " can add it to server.allowed_hosts.",
            "type": "invalid_request_error",
            "param": None,
            "code": "host_not_allowed",
        }
        long = get(server, b"\x85\x9b" + b"x" * 1000)[1]["error"]["message"]
        assert f"'{'x' * 100}'" in long


@pytest.mark.parametrize("path", [b"/healthz", b"/readyz", b"/metrics", b"/openapi.json", b"/nowhere"])
def test_public_paths_are_no_exception(tmp_path: Path, path: bytes) -> None:
    with serving(tmp_path, LOCAL) as server:
        assert get(server, b"evil.example", path=path)[0] == 403
        assert get(server, b"localhost", path=path)[0] in {200, 404}


@pytest.mark.parametrize(
    ("hosts", "count"),
    [([], "none"), ([b"localhost", b"localhost"], "2"), ([b"localhost", b"evil.example"], "2")],
)
@pytest.mark.parametrize("version", [b"1.0", b"1.1"])
@pytest.mark.parametrize("allowed", [LOCAL, ["*"], []])
def test_a_request_has_to_name_one_host(
    tmp_path: Path, allowed: list[str], hosts: list[bytes], count: str, version: bytes
) -> None:
    with serving(tmp_path, allowed) as server:
        assert get(server, b"localhost", version=version)[0] == 200
        status, body = get(server, *hosts, version=version)
    if version == b"1.0" and not hosts:  # there it need not name any, and no browser speaks it
        assert status == 200
        return
    assert status == 400
    assert body["error"]["message"] == f"A request needs one Host header, and this one has {count}."


@pytest.mark.parametrize("path", [b"/healthz", b"/readyz", b"/v1/models"])
def test_http_1_0_need_not_name_a_host_but_none_of_strangers(tmp_path: Path, path: bytes) -> None:
    with serving(tmp_path, LOCAL) as server:
        assert get(server, path=path, version=b"1.0")[0] == 200
        assert get(server, b"evil.example", path=path, version=b"1.0")[0] == 403
        assert get(server, path=path, version=b"1.1")[0] == 400


def test_without_the_setting_a_request_need_not_name_any(tmp_path: Path) -> None:
    with serving(tmp_path, []) as server:
        assert get(server, version=b"1.0")[0] == 200


def test_handshakes_of_websockets_are_checked_too(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    with serving(tmp_path, LOCAL, observability={"audit_file": file}) as server:
        assert handshake(server, b"LOCALHOST.:8080")[0] == 101
        status, body = handshake(server, b"evil.example:8080")
        assert (status, body["error"]["code"]) == (403, "host_not_allowed")
        assert handshake(server, b"localhost", b"evil.example")[0] == 400
    events = [json.loads(line) for line in file.read_text().splitlines()]
    assert [(event["method"], event["status"]) for event in events] == [("WEBSOCKET", 403), ("WEBSOCKET", 400)]


def test_refusals_have_a_request_id_and_are_counted_and_in_the_audit_log(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    with serving(tmp_path, LOCAL, observability={"audit_file": file}) as server:
        answer = httpx.get(f"{server.url}/v1/models", headers={"host": "evil.example", "x-request-id": "r-1"})
        page = httpx.get(f"{server.url}/metrics").text
    assert (answer.status_code, answer.headers["x-request-id"]) == (403, "r-1")
    assert 'antwort_http_requests_total{method="GET",path="unmatched",status="403"} 1.0' in page
    (event,) = [json.loads(line) for line in file.read_text().splitlines()]
    assert (event["event"], event["status"], event["code"]) == ("request.refused", 403, "host_not_allowed")
    assert (event["method"], event["path"], event["request_id"]) == ("GET", "/v1/models", "r-1")


def test_names_that_clients_invent_are_not_remembered_for_ever(tmp_path: Path) -> None:
    with serving(tmp_path, LOCAL) as server:
        for number in range(300):
            assert get(server, b"localhost:%d" % number)[0] == 200
        assert get(server, b"localhost:299")[0] == 200
        assert get(server, b"evil.example")[0] == 403


async def test_an_app_in_another_server_answers_to_any_host_unless_it_is_told_otherwise(tmp_path: Path) -> None:
    async with (
        Antwort(Config(data_dir=tmp_path / "open")) as open_app,
        Antwort(Config.model_validate({"data_dir": tmp_path / "told", "server": {"allowed_hosts": ["test"]}})) as told,
    ):
        for app, statuses in ((open_app, [200, 200]), (told, [200, 403])):
            async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app.asgi())) as client:
                hosts = ("test", "testserver")
                assert [(await client.get(f"http://{host}/healthz")).status_code for host in hosts] == statuses
