"""Requests made up from the API description, right and wrong ones: every answer is one that the description has."""

import contextlib
import os
import random
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import httpx
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis import APIOperation, Case, GenerationMode
from schemathesis.checks import (
    allow_header_conformance,
    ignored_auth,
    object_level_authorization,
    positive_data_acceptance,
)
from schemathesis.config import SchemathesisConfig
from schemathesis.core.result import Ok
from tests.http.sdk import DATABASE

from antwort import Antwort
from antwort.config import Config
from antwort.testing import running

Operation: TypeAlias = APIOperation[Any, Any, Any, Any]

FULL = bool(os.environ.get("ANTWORT_TEST_FULL"))
CASES = 10_000 if FULL else 400
DATABASES = 2  # conftest.py runs every test here on each
SHARDS = 2 if FULL else 1  # each has much to prepare
SHARE = CASES // (DATABASES * SHARDS)
KEY = "sk-schemathesis"
AUTHORIZED = {"authorization": f"Bearer {KEY}"}
EXCLUDED = [
    positive_data_acceptance,  # a model, a tool or a response that fits the schema need not exist
    allow_header_conformance,  # `/v1/responses/compact` is also the address of a response that cannot be
    ignored_auth,  # it asks again for every case; tests/server holds it
    object_level_authorization,
]


@dataclass
class Bench:
    """A server under test, what was sent to it, and the ids that its answers had."""

    url: str
    session: requests.Session
    chance: random.Random
    calls: int = 0
    known: dict[frozenset[str], list[dict[str, str]]] = field(default_factory=dict)
    """What paths can be filled with, by the names of the parameters."""
    statuses: set[int] = field(default_factory=set)

    def prepare(self) -> None:
        """Make something of every kind, so that there is something to ask for."""
        for _ in range(5):
            response = self._make("/v1/responses", {"input": "Hello!"})["id"]
            conversation = self._make("/v1/conversations", {})["id"]
            message = {"role": "user", "content": "Hello!"}
            items = self._make(f"/v1/conversations/{conversation}/items", {"items": [message] * 3})["data"]
            self._know(response_id=response)
            self._know(conversation_id=conversation)
            for item in items:
                self._know(conversation_id=conversation, item_id=item["id"])

    def _make(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        answer = self.session.post(f"{self.url}{path}", json=body, headers=AUTHORIZED, timeout=60)
        assert answer.status_code == 200, answer.text
        made: dict[str, Any] = answer.json()
        return made

    def _know(self, **parameters: str) -> None:
        self.known.setdefault(frozenset(parameters), []).append(parameters)

    def call(self, case: Case[Any]) -> None:
        """Send a case and check its answer."""
        known = self.known.get(frozenset(case.path_parameters))
        if known and _is_positive(case) and self.chance.random() < 0.8:
            case.path_parameters.update(self.chance.choice(known))
        response = case.call(base_url=self.url, session=self.session, headers=AUTHORIZED, timeout=60)
        self.calls += 1
        self.statuses.add(response.status_code)
        case.validate_response(response, excluded_checks=EXCLUDED, headers=AUTHORIZED)


def _is_positive(case: Case[Any]) -> bool:
    return case.meta is None or case.meta.generation.mode is GenerationMode.POSITIVE


@contextlib.contextmanager
def bench(tmp_path: Path, number: int) -> Iterator[Bench]:
    auth = {"api_keys": [{"id": "test", "key": KEY}]}
    config = {"data_dir": tmp_path, "auth": auth, "storage": {"url": DATABASE.get()}}
    app = Antwort(Config.model_validate(config))
    with running(app) as server, requests.Session() as session:
        yield Bench(server.url, session, random.Random(number))


def _operations(url: str) -> list[Operation]:
    document = httpx.get(f"{url}/openapi.json", headers=AUTHORIZED).raise_for_status().json()
    schema = schemathesis.openapi.from_dict(document, config=SchemathesisConfig())
    found = list(schema.get_all_operations())
    assert all(isinstance(result, Ok) for result in found)
    return [result.ok() for result in found if isinstance(result, Ok)]


def _takes_something(operation: Operation) -> bool:
    return bool(len(operation.path_parameters) or len(operation.query) or len(operation.body))


def _run(bench: Bench, operation: Operation, mode: GenerationMode, cases: int, number: int) -> None:
    @seed(number)
    @settings(
        max_examples=cases,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def check(case: Case[Any]) -> None:
        bench.call(case)

    check()


@pytest.mark.parametrize("shard", range(SHARDS))
def test_every_answer_is_described(tmp_path: Path, shard: int) -> None:
    with bench(tmp_path, shard) as served:
        everything = _operations(served.url)
        assert len(everything) > 20
        for operation in everything:
            if not _takes_something(operation):
                _run(served, operation, GenerationMode.POSITIVE, 1, shard)
        operations = [operation for operation in everything if _takes_something(operation)]
        if not FULL:  # to prepare what is asked of each takes longer than to ask it
            operations = operations[str(DATABASE.get()).startswith("postgres") :: DATABASES]
        modes = (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)
        share = -(-SHARE // (len(operations) * len(modes)))
        served.prepare()
        operations.sort(key=lambda operation: operation.method == "delete")
        for mode in modes:
            for operation in operations:
                _run(served, operation, mode, share, shard)
        assert served.calls >= SHARE
        assert served.statuses >= {200, 400, 404}


DEEP = b"[" * 20_000
HUGE = b"9" * 5_000
HOSTILE = [
    ("GET", "/v1/responses/%00", {}, b""),
    ("GET", "/v1/responses/resp_%ff%fe", {}, b""),
    ("GET", "/v1/responses/..%2f..%2fetc", {}, b""),
    ("GET", "/v1/responses/%2e%2e/%2e%2e", {}, b""),
    ("GET", "/v1/responses/%", {}, b""),
    ("GET", "/v1/responses/%ed%a0%80", {}, b""),
    ("GET", "/v1/models/a%2fb%00", {}, b""),
    ("GET", "/v1/conversations/%00/items/%00", {}, b""),
    ("DELETE", "/v1/conversations/x%00", {}, b""),
    ("GET", "/v1/responses?after=%00", {}, b""),
    ("GET", "/v1/responses?after=%ff", {}, b""),
    ("GET", "/v1/responses?limit=" + "9" * 5_000, {}, b""),
    ("GET", "/v1/responses?limit=1e2&order=DESC", {}, b""),
    ("GET", "/v1/responses?limit=&&&=;", {}, b""),
    ("GET", f"/v1/responses/x?stream=true&starting_after={10**30}", {}, b""),
    ("POST", "/v1/responses", {"content-type": "application/json"}, b'{"input": "a\\u0000b"}'),
    ("POST", "/v1/responses", {"content-type": "application/json"}, b'{"input": "\\ud800"}'),
    ("POST", "/v1/responses", {"content-type": "application/json"}, b'{"input": "\xff"}'),
    ("POST", "/v1/responses", {"content-type": "application/json"}, b'{"input": ' + DEEP),
    ("POST", "/v1/responses", {"content-type": "application/json"}, b'{"max_output_tokens": ' + HUGE + b"}"),
    ("POST", "/v1/responses", {"content-type": "application/json"}, b'{"temperature": 1e999}'),
    ("POST", "/v1/responses", {"content-type": "application/json"}, b'{"metadata": {"a": NaN}}'),
    ("POST", "/v1/responses", {"content-type": "text/plain"}, b'{"input": "a"}'),
    ("POST", "/v1/responses", {"content-type": "\xe4/\xf6"}, b'{"input": "a"}'),
    ("POST", "/v1/responses", {"content-type": ";;"}, b'{"input": "a"}'),
    ("POST", "/v1/responses", {"content-type": "multipart/form-data"}, b"--"),
    ("POST", "/v1/responses", {}, b""),
    ("POST", "/v1/responses/compact", {}, b"null"),
    ("POST", "/v1/responses/input_tokens", {}, b'"x"'),
    ("POST", "/v1/conversations", {}, b'{"metadata": {"a\\u0000": "b\\u0000"}}'),
    ("POST", "/v1/conversations", {}, b'{"items": ' + DEEP),
    ("POST", "/v1/conversations", {}, b'{"items": [{"role": "user", "content": "\\u0000"}]}'),
    ("POST", "/v1/conversations", {"content-type": "application/x-www-form-urlencoded"}, b"items=1"),
    ("POST", "/v1/chat/completions", {}, b'{"model": ' + DEEP),
    ("POST", "/v1/embeddings", {}, b'{"model": ' + HUGE + b"}"),
    ("HEAD", "/v1/responses", {}, b""),
    ("HEAD", "/v1/chat/completions", {}, b""),
    ("OPTIONS", "/v1/responses", {}, b""),
    ("TRACE", "/v1/responses", {}, b""),
    ("PROPFIND", "/v1/responses", {}, b""),
    ("GET", "//v1//responses", {}, b""),
    ("GET", "/v1/responses/", {}, b""),
]


def test_hostile_requests_get_errors_of_their_own(tmp_path: Path) -> None:
    with bench(tmp_path, 0) as served:
        for method, path, headers, body in HOSTILE:
            status, answer = _raw(served.url, method, path, {**AUTHORIZED, **headers}, body)
            shown = f"{method} {path[:80]} {body[:40]!r}: {status} {answer[:300]!r}"
            assert status < 500, shown
            if status >= 400 and method != "HEAD":
                assert b'"error":{"message":' in answer, shown


def _raw(url: str, method: str, path: str, headers: dict[str, str], body: bytes) -> tuple[int, bytes]:
    """Send a request that no client library would send."""
    host, _, port = url.removeprefix("http://").partition(":")
    lines = [f"{method} {path} HTTP/1.1", f"host: {host}", f"content-length: {len(body)}", "connection: close"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.sendall("\r\n".join([*lines, "", ""]).encode("latin-1") + body)
        answer = b"".join(iter(lambda: connection.recv(65_536), b""))
    return int(answer.split(b" ", 2)[1]), answer.partition(b"\r\n\r\n")[2]
