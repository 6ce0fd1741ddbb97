"""Bodies that are passed on: what in them could be fetched, however it is spelled, and what could not."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.http.sdk import served

from antwort.errors import BadRequestError
from antwort.server.api.passthrough import read_forwarded

INSIDE = "http://169.254.169.254/latest"
LIMIT = 10_000


def links(body: Any) -> list[tuple[str, str]]:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return read_forwarded(raw, LIMIT).links


def says(*content: Any, **fields: Any) -> dict[str, Any]:
    return {"model": "scripted", "messages": [{"role": "user", "content": list(content)}], **fields}


PART = "messages[0].content[0]"
FETCHED: list[tuple[str, Any, str]] = [
    ("the usual", says({"type": "image_url", "image_url": {"url": INSIDE}}), f"{PART}.image_url"),
    ("a plain text", says({"type": "image_url", "image_url": INSIDE}), f"{PART}.image_url"),
    ("large letters", says({"TYPE": "image_url", "IMAGE_URL": {"URL": INSIDE}}), f"{PART}.IMAGE_URL"),
    ("an old s", says({"type": "image_url", "image_url\u017f": INSIDE}), f"{PART}.image_url\u017f"),
    ("words in one", says({"type": "imageUrl", "imageUrl": INSIDE}), f"{PART}.imageUrl"),
    ("a list of URLs", says({"type": "image_url", "image_url": [INSIDE]}), f"{PART}.image_url[0]"),
    ("a list of objects", says({"type": "image_url", "image_url": [{"url": INSIDE}]}), f"{PART}.image_url[0]"),
    ("an unknown name in it", says({"type": "x", "image_url": {"link": "/etc/passwd"}}), f"{PART}.image_url"),
    ("no type", says({"image_url": {"url": INSIDE}}), f"{PART}.image_url"),
    ("a text's type", says({"type": "text", "text": "Hi", "image_url": {"url": INSIDE}}), f"{PART}.image_url"),
    ("image", says({"type": "image", "image": INSIDE}), f"{PART}.image"),
    ("a file of the server", says({"type": "image", "image": "/etc/passwd"}), f"{PART}.image"),
    ("a file above", says({"type": "image", "image": " ../secret.png"}), f"{PART}.image"),
    ("a source", says({"type": "image", "source": {"type": "url", "url": INSIDE}}), f"{PART}.source.url"),
    ("a source as text", says({"type": "image", "source": INSIDE}), f"{PART}.source"),
    ("a text of an image", says({"type": "image", "text": INSIDE}), f"{PART}.text"),
    ("the Responses API's", says({"type": "input_image", "image_url": INSIDE}), f"{PART}.image_url"),
    ("a video", says({"type": "video_url", "video_url": {"url": INSIDE}}), f"{PART}.video_url"),
    ("frames", says({"type": "video", "video": [INSIDE, INSIDE]}), f"{PART}.video[0]"),
    ("sound", says({"type": "audio_url", "audio_url": {"url": INSIDE}}), f"{PART}.audio_url"),
    ("sound as data", says({"type": "input_audio", "input_audio": {"data": INSIDE}}), f"{PART}.input_audio.data"),
    ("a file", says({"type": "file", "file": {"file_url": INSIDE}}), f"{PART}.file.file_url"),
    ("a file's data", says({"type": "file", "file": {"file_data": INSIDE}}), f"{PART}.file.file_data"),
    ("a name nobody knows", says({"type": "x", "place": INSIDE}), f"{PART}.place"),
    ("blanks before it", says({"type": "x", "place": "\t\n " + INSIDE}), f"{PART}.place"),
    ("no slashes", says({"type": "x", "place": "http:169.254.169.254"}), f"{PART}.place"),
    ("another scheme", says({"type": "image", "image": "gopher:x"}), f"{PART}.image"),
    ("lists in lists", says([[{"image_url": INSIDE}]]), f"{PART}[0][0].image_url"),
    ("an object", {"messages": [{"content": {"type": "x", "image_url": INSIDE}}]}, "messages[0].content.image_url"),
    ("one message", {"messages": {"content": [{"image_url": INSIDE}]}}, "messages.content[0].image_url"),
    ("Messages", {"Messages": [{"Content": [{"image_url": INSIDE}]}]}, "Messages[0].Content[0].image_url"),
    ("beside the content", {"messages": [{"content": "Hi", "images": [INSIDE]}]}, "messages[0].images[0]"),
    ("an answer's", {"messages": [{"role": "tool", "content": [{"image_url": INSIDE}]}]}, f"{PART}.image_url"),
    ("beside the messages", says("Hi", image_data=[{"data": INSIDE, "id": 1}]), "image_data[0].data"),
    ("a field of its own", says("Hi", image_url=INSIDE), "image_url"),
    ("a server of tools", says("Hi", tools=[{"type": "mcp", "server_url": INSIDE}]), "tools[0].server_url"),
    ("embeddings", {"input": [{"image": INSIDE}]}, "input[0].image"),
    ("embeddings of one", {"input": {"type": "image_url", "image_url": {"url": INSIDE}}}, "input.image_url"),
    ("embeddings in parts", {"input": [{"content": [{"image": INSIDE}]}]}, "input[0].content[0].image"),
    ("a modality", {"input": ["a text", INSIDE], "modality": "image"}, "input[1]"),
    ("a modality in any case", {"Input": INSIDE, "Modality": "audio"}, "Input"),
]  # fmt: skip


@pytest.mark.parametrize(("body", "where"), [case[1:] for case in FETCHED], ids=[case[0] for case in FETCHED])
def test_whatever_somebody_could_fetch_is_found(body: Any, where: str) -> None:
    found = links(body)
    assert found[0][0] == where
    assert len(found) <= 2


SCHEMA = {
    "type": "object",
    "properties": {"url": {"type": "string", "default": INSIDE}, "image_url": {"const": INSIDE, "$ref": INSIDE}},
}
TOOL = {"type": "function", "function": {"name": "get", "description": INSIDE, "parameters": SCHEMA}}
CALL = {"id": "c", "type": "function", "function": {"name": "get", "arguments": json.dumps({"url": INSIDE})}}
CITED = {"type": "url_citation", "url_citation": {"url": INSIDE, "title": "A page"}}
JPEG = "/9j/4AAQSkZJRgABAQ"
PLAIN: list[tuple[str, Any]] = [
    ("a text", {"messages": [{"role": "user", "content": INSIDE}]}),
    ("a text of a text", says({"type": "text", "text": INSIDE})),
    ("texts", says(INSIDE, f"see {INSIDE}")),
    ("the model's own", {"messages": [{"role": "assistant", "content": None, "refusal": INSIDE, "name": INSIDE}]}),
    ("thoughts", {"messages": [{"role": "assistant", "content": "", "reasoning_content": INSIDE}]}),
    ("a call", {"messages": [{"role": "assistant", "tool_calls": [CALL]}]}),
    ("an old call", {"messages": [{"role": "assistant", "function_call": {"name": "f", "arguments": INSIDE}}]}),
    ("a citation", {"messages": [{"role": "assistant", "content": "So.", "annotations": [CITED]}]}),
    ("a result", {"messages": [{"role": "tool", "tool_call_id": INSIDE, "content": json.dumps({"url": INSIDE})}]}),
    ("tools", says("Hi", tools=[TOOL], functions=[TOOL["function"]])),
    ("a tool of the client", says("Hi", tools=[{"type": "custom", "custom": {"name": "c", "description": INSIDE}}])),
    ("a schema", says("Hi", response_format={"type": "json_schema", "json_schema": {"name": "s", "schema": SCHEMA}})),
    ("metadata", says("Hi", metadata={"url": INSIDE, "image": INSIDE})),
    ("settings", says("Hi", user=INSIDE, stop=[INSIDE], safety_identifier=INSIDE, prompt_cache_key=INSIDE)),
    ("a prediction", says("Hi", prediction={"type": "content", "content": INSIDE})),
    ("a voice", says("Hi", modalities=["text", "audio"], audio={"voice": "alloy", "format": "wav"})),
    ("data", says({"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA", "detail": "low"}})),
    ("data in base64", says({"type": "image", "image": JPEG, "source": {"data": JPEG, "media_type": "image/jpeg"}})),
    ("sound in base64", says({"type": "input_audio", "input_audio": {"data": "//uQxAAA", "format": "mp3"}})),
    ("a file", says({"type": "file", "file": {"filename": "/home/me/a.pdf", "file_data": "JVBERi0="}})),
    ("a file's id", says({"type": "file", "file": {"file_id": "file-abc123"}})),
    ("texts to embed", {"input": [INSIDE, "{", "[{\"image\": \"x\"}]"], "encoding_format": "float"}),
    ("a text to embed", {"input": INSIDE, "modality": "text"}),
    ("numbers", {"input": [[1, 2.5, 1e5, 12345678901234567890123]], "dimensions": 8}),
    ("numbers for a URL", says({"image_url": 7, "video_url": None, "audio_url": True})),
]  # fmt: skip


@pytest.mark.parametrize("body", [case[1] for case in PLAIN], ids=[case[0] for case in PLAIN])
def test_what_nobody_fetches_is_left_alone(body: Any) -> None:
    assert links(body) == []


@pytest.mark.parametrize(
    ("body", "name"),
    [
        (b'{"model": "a", "messages": [], "model": "b"}', "model"),
        (b'{"model": "a", "messages": [], "mod\\u0065l": "a"}', "model"),
        (b'{"model": "a", "Model": "b"}', "Model"),
        (b'{"messages": [], "messages": [{"content": "Hi"}]}', "messages"),
        (b'{"messages": [{"content": "Hi", "content": [{"image_url": "http://10.0.0.1/"}]}]}', "content"),
        (b'{"messages": [{"content": [{"image_url": {"url": "https://a.example/", "url": "file:///"}}]}]}', "url"),
    ],
)
def test_nothing_is_named_twice_as_readers_differ_about_which_one_counts(body: bytes, name: str) -> None:
    with pytest.raises(BadRequestError, match=f"'{name}' stands twice") as caught:
        read_forwarded(body, LIMIT)
    assert (caught.value.code, caught.value.param) == ("duplicate_name", name)


def test_depth_is_no_way_around_and_no_failure() -> None:
    deep = b'{"messages": ' + b'{"a": [' * 200 + b'{"image_url": "file:///"}' + b"]}" * 200 + b"}"
    assert [url for _, url in links(deep)] == ["file:///"]
    for depth in (1_000, 20_000, 200_000):
        with pytest.raises(BadRequestError, match="not valid JSON"):
            read_forwarded(b'{"messages": ' + b'{"a": [' * depth + b"]}" * depth + b"}", 1_000_000)


def test_values_are_counted_where_objects_are_read() -> None:
    tokens = b",".join([b"1"] * (2 * LIMIT))
    assert links(b'{"input": [' + tokens + b"]}") == []
    assert links(b'{"input": ["{\\"", ' + tokens + b"]}") == []
    with pytest.raises(BadRequestError) as caught:
        read_forwarded(b'{"input": [{}, ' + tokens + b"]}", LIMIT)
    assert caught.value.code == "too_many_values"


@pytest.mark.parametrize("path", ["/chat/completions", "/embeddings"])
def test_a_body_with_such_a_url_reaches_no_model_server(tmp_path: Path, path: str) -> None:
    with served(tmp_path, [], over_http=True) as stage:
        for name, body, where in FETCHED:
            answer = stage.request("POST", path, json={"model": "scripted", **body})
            assert answer.status_code == 400, name
            error = answer.json()["error"]
            assert (error["param"], error["code"]) == (where, "invalid_url"), name
        twice = b'{"model": "scripted", "model": "scripted", "messages": [], "input": "Hi"}'
        answer = stage.request("POST", path, content=twice, headers={"content-type": "application/json"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "duplicate_name")
        assert stage.requests == []


def test_a_body_with_none_is_passed_on(tmp_path: Path) -> None:
    chats = [(name, body) for name, body in PLAIN if "messages" in body]
    with served(tmp_path, ["Hello."] * len(chats), over_http=True) as stage:
        for name, body in chats:
            answer: httpx.Response = stage.request("POST", "/chat/completions", json={"model": "scripted", **body})
            assert answer.status_code == 200, (name, answer.text)
