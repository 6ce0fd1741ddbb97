"""How many JSON values a request may have, wherever it is read."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.sync.client import connect

from antwort import Antwort
from antwort.config import Config, EngineConfig, ServerConfig
from antwort.errors import BadRequestError
from antwort.testing import ScriptedBackend, running
from antwort.types import JSON
from antwort.web.requests import ValueCount, check_values

MOST = ServerConfig().max_values
ASK: JSON = {"model": "scripted", "input": "Hi"}
TEXT = 'a,b{[\n"\\' * (MOST // 2)
"""A text with more marks than there may be values, and with all that is written with escapes."""


def parts(count: int) -> list[JSON]:
    return [{"role": "user", "content": [{"type": "input_text", "text": "x"}] * count}]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/responses", {**ASK, "tools": [{"type": "function", "name": f"f{n}"} for n in range(100_000)]}),
        ("/v1/responses", {**ASK, "text": {"format": {"schema": {f"p{n}": {"type": "null"} for n in range(MOST)}}}}),
        ("/v1/responses", {**ASK, "input": parts(MOST)}),
        ("/v1/responses", {**ASK, "metadata": {str(n): "" for n in range(MOST + 1)}}),
        ("/v1/responses/compact", {**ASK, "input": parts(MOST)}),
        ("/v1/responses/input_tokens", {**ASK, "input": parts(MOST)}),
        ("/v1/conversations", {"items": parts(MOST)}),
        ("/v1/chat/completions", {"model": "scripted", "messages": parts(MOST)}),
    ],
    ids=["tools", "schema", "parts", "metadata", "compact", "input_tokens", "conversations", "chat"],
)
def test_a_request_of_too_many_values_is_refused(tmp_path: Path, path: str, body: JSON) -> None:
    with (
        running(Antwort(Config(data_dir=tmp_path), backend=ScriptedBackend([]))) as site,
        httpx.Client(base_url=site.url, timeout=60) as client,
    ):
        for content in (json.dumps(body).encode(), iter([json.dumps(body).encode()])):  # with its length, and without
            found = client.post(path, content=content, headers={"content-type": "application/json"})
            assert (found.status_code, found.json()["error"]["code"]) == (400, "too_many_values")
            assert "server.max_values" in found.json()["error"]["message"]


def test_a_long_text_has_any_number_of_marks(tmp_path: Path) -> None:
    with (
        ScriptedBackend(["One", "Two"]) as model,
        running(Antwort(Config(data_dir=tmp_path), backend=model)) as site,
        httpx.Client(base_url=site.url, timeout=60) as client,
        connect(f"ws{site.url.removeprefix('http')}/v1/responses", proxy=None, max_size=None) as socket,
    ):
        assert client.post("/v1/responses", json={**ASK, "input": TEXT}).status_code == 200
        socket.send(json.dumps({"type": "response.create", **ASK, "input": TEXT}))
        while (event := json.loads(socket.recv(60)))["type"] != "response.completed":
            assert event["type"] != "error"


def test_texts_to_embed_may_have_any_number_of_tokens(tmp_path: Path) -> None:
    with (
        running(Antwort(Config(data_dir=tmp_path), backend=ScriptedBackend([]))) as site,
        httpx.Client(base_url=site.url, timeout=60) as client,
    ):
        found = client.post("/v1/embeddings", json={"model": "scripted", "input": [1] * (MOST + 1)})
        assert found.json()["error"]["code"] == "unsupported_model"  # it was read, and this model embeds nothing


def test_a_message_of_too_many_values_is_refused_and_the_connection_goes_on(tmp_path: Path) -> None:
    with (
        ScriptedBackend(["One"]) as model,
        running(Antwort(Config(data_dir=tmp_path), backend=model)) as site,
        connect(f"ws{site.url.removeprefix('http')}/v1/responses", proxy=None, max_size=None) as socket,
    ):
        socket.send(json.dumps({"type": "response.create", **ASK, "input": parts(MOST)}))
        event = json.loads(socket.recv(60))
        assert (event["status"], event["error"]["code"]) == (400, "too_many_values")
        socket.send(json.dumps({"type": "response.create", **ASK}))
        while json.loads(socket.recv(60))["type"] != "response.completed":
            pass


def test_values_are_counted_alike_wherever_a_text_is_cut() -> None:
    text = rb'{"a,\"[": ["\\", "{\\\"", {"b\u0022,": [1, null]}, "\n,"], "c": ",,,"}'
    marks = sum(1 for _ in _marks(json.loads(text)))
    for first in range(len(text)):
        for second in range(first, len(text)):
            values = ValueCount(marks)
            for piece in (text[:first], text[first:second], text[second:]):
                values.take(piece)
            with pytest.raises(BadRequestError, match="more than"):
                values.take(b",")


def _marks(value: Any) -> Iterator[str]:
    """Give what begins and parts the values of a document."""
    if isinstance(value, dict | list):
        yield "["
        yield from [","] * (len(value) - 1)
        for each in value.values() if isinstance(value, dict) else value:
            yield from _marks(each)


def test_a_whole_text_is_counted_across_its_portions() -> None:
    text = json.dumps([TEXT, "é" * 100_000, *range(50)])
    check_values(text, 52)
    with pytest.raises(BadRequestError, match="more than 51 JSON values"):
        check_values(text, 51)


@pytest.mark.parametrize("kind", ["custom", "function"])
def test_a_request_brings_as_many_tools_as_the_setting_says(tmp_path: Path, kind: str) -> None:
    config = Config(data_dir=tmp_path, providers={}, engine=EngineConfig(max_tools=3))
    tools = [{"type": kind, "name": f"f{number}"} for number in range(4)]
    with (
        ScriptedBackend(["One"]) as model,
        running(Antwort(config, backend=model)) as site,
        httpx.Client(base_url=site.url, timeout=60) as client,
    ):
        refused = client.post("/v1/responses", json={**ASK, "tools": tools})
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "tools")
        assert "more than 3 entries (engine.max_tools)" in refused.json()["error"]["message"]
        assert client.post("/v1/responses", json={**ASK, "tools": tools[:3]}).status_code == 200
