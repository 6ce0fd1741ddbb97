import base64
import gc
import http.client
import json
import socket
import struct
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from openai import OpenAI

from antwort.testing import Dialect, Gate, ScriptError, ScriptServer, call, fail, matching, raw, turn
from antwort.types import JSON

ASK: JSON = {"model": "scripted", "messages": [{"role": "user", "content": "Hi"}]}
TOOL = {"type": "function", "function": {"name": "add", "parameters": {}}}
USAGE = {"stream_options": {"include_usage": True}}


def post(server: ScriptServer, **changes: Any) -> httpx.Response:
    return httpx.post(f"{server.url}/chat/completions", json={**ASK, **changes}, timeout=30)


def chunks(answer: httpx.Response) -> list[Any]:
    """Return the data of all frames."""
    assert answer.headers["content-type"].startswith("text/event-stream")
    frames = answer.text.removesuffix("\n\n").split("\n\n")
    data = [frame.removeprefix("data: ") for frame in frames]
    return [one if one == "[DONE]" else json.loads(one) for one in data]


def deltas(answer: httpx.Response) -> list[JSON]:
    return [one["choices"][0]["delta"] for one in chunks(answer) if one != "[DONE]" and one.get("choices")]


def test_it_speaks_to_the_official_client_streaming_and_not() -> None:
    steps = [
        turn(calls=[call("add", a=1, b=2)], expect=matching(tools=["add"], last="Hi", types=["message"])),
        turn(["It is ", "3."], usage=(7, 2), expect=matching(last={"type": "function_call_output", "output": "3"})),
    ]
    with ScriptServer(steps) as server:
        assert server.url.startswith("http://127.0.0.1:")
        assert server.url.endswith("/v1")
        with OpenAI(base_url=server.url, api_key="none", _strict_response_validation=True) as client:
            asked: Any = ASK["messages"]
            tool: Any = TOOL
            first = client.chat.completions.create(model="scripted", messages=asked, tools=[tool])
            message = first.choices[0].message
            assert message.tool_calls is not None
            assert message.tool_calls[0].id == "call_1_0"
            answers: Any = [message.to_dict(), {"role": "tool", "tool_call_id": "call_1_0", "content": "3"}]
            stream = client.chat.completions.create(
                model="scripted", messages=asked + answers, stream=True, stream_options={"include_usage": True}
            )
            pieces = list(stream)
    assert "".join(piece.choices[0].delta.content or "" for piece in pieces if piece.choices) == "It is 3."
    assert pieces[-1].usage is not None
    assert pieces[-1].usage.total_tokens == 9
    assert server.requests[0]["tools"] == [TOOL]
    assert server.headers[0]["authorization"] == "Bearer none"


def test_rankings_are_served_beside_the_script_and_strictly() -> None:
    asked: JSON = {"model": "r", "query": "green tea", "documents": ["coffee", "Tea!", "tea, green"], "top_n": 2}
    with ScriptServer([]) as server:
        answer = httpx.post(f"{server.url}/rerank", json=asked).json()
        wrong: list[JSON] = [{"query": ""}, {"documents": []}, {"documents": ["a", 1]}, {"top_n": 0}, {"texts": ["a"]}]
        refused = [httpx.post(f"{server.url}/rerank", json=asked | one) for one in wrong]
    assert answer["results"] == [{"index": 2, "relevance_score": 1.0}, {"index": 1, "relevance_score": 0.5}]
    assert [(one.status_code, one.json()["error"]["param"]) for one in refused] == [
        (400, name) for one in wrong for name in one
    ]
    assert server.reranked[0] == asked


def test_models_and_embeddings_are_served_beside_the_script() -> None:
    with ScriptServer([], models=["a", "b"]) as server, OpenAI(base_url=server.url, api_key="none") as client:
        assert [model.id for model in client.models.list()] == ["a", "b"]
        one = client.embeddings.create(model="e", input=["cat", "dog"], dimensions=40)
        other = client.embeddings.create(model="e", input="cat", dimensions=40, encoding_format="float")
        short = httpx.post(f"{server.url}/embeddings", json={"input": "cat", "encoding_format": "base64"}).json()
    cat, dog = (entry.embedding for entry in one.data)
    assert len(cat) == 40
    assert cat == pytest.approx(other.data[0].embedding, abs=1e-6)
    assert cat != dog
    assert sum(value * value for value in cat) == pytest.approx(1)
    assert len(struct.unpack("<16f", base64.b64decode(short["data"][0]["embedding"]))) == 16
    assert [body["input"] for body in server.embedded] == [["cat", "dog"], "cat", "cat"]


# --- strictness ------------------------------------------------------------------------------------------------------


def test_a_request_beyond_the_script_gets_a_500_and_fails_the_block() -> None:
    with (
        pytest.raises(ScriptError, match="call 2 is unexpected: all 1 steps were played"),
        ScriptServer(["a"]) as server,
    ):
        post(server)
        answer = post(server)
        assert answer.status_code == 500
        assert answer.headers["x-should-retry"] == "false"
        assert "call 2 is unexpected" in answer.json()["error"]["message"]


def test_a_request_that_is_not_as_expected_and_a_step_left_over_fail_the_block() -> None:
    steps = [turn("a", expect=matching(model="other")), turn("b")]
    told = r"(?s)model: expected \"other\".*step 2 \(text 'b'\) was not played"
    with pytest.raises(ScriptError, match=told), ScriptServer(steps) as server:
        assert post(server).status_code == 500


def test_an_error_in_the_block_is_not_hidden_by_the_script() -> None:
    with pytest.raises(ValueError, match="other") as caught, ScriptServer(["a"]):
        raise ValueError("other")
    assert "was not played" in caught.value.__notes__[0]


def test_a_body_that_is_not_json_is_refused_and_is_no_step() -> None:
    with ScriptServer([]) as server:
        assert httpx.post(f"{server.url}/chat/completions", content=b"{").status_code == 400
        assert httpx.post(f"{server.url}/chat/completions", content=b"[]").status_code == 400


def test_steps_see_the_request_as_the_engine_wrote_it() -> None:
    body = {
        "tools": [TOOL],
        "tool_choice": {"type": "function", "function": {"name": "add"}},
        "temperature": 0.5,
        "max_completion_tokens": 9,
        "reasoning_effort": "low",
        "messages": [
            {"role": "system", "content": "Be kind."},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "c", "function": {"name": "add", "arguments": "{}"}}],
            },
            {"role": "tool", "tool_call_id": "c", "content": "3"},
        ],
    }
    expect = matching(
        types=["message", "function_call", "function_call_output"],
        tool_choice={"type": "function", "name": "add"},
        last={"call_id": "c"},
        text="Be kind.",
        temperature=0.5,
        max_output_tokens=9,
        effort="low",
    )
    with ScriptServer([turn("a", expect=expect)]) as server:
        assert post(server, **body).status_code == 200


# --- dialects --------------------------------------------------------------------------------------------------------


def test_openai_sends_the_role_first_calls_in_pieces_and_usage_last() -> None:
    step = turn("Hi", reasoning="Hm.", calls=[call("add", ['{"a"', ": 1}"])])
    with ScriptServer([step, step]) as server:
        answer, unasked = post(server, stream=True, **USAGE), post(server, stream=True)
    assert deltas(answer) == [
        {"role": "assistant", "content": ""},
        {"reasoning_content": "Hm."},
        {"content": "Hi"},
        {
            "tool_calls": [
                {"index": 0, "id": "call_1_0", "type": "function", "function": {"name": "add", "arguments": '{"a"'}}
            ]
        },
        {"tool_calls": [{"index": 0, "function": {"arguments": ": 1}"}}]},
        {},
    ]
    *_, finish, usage, done = chunks(answer)
    assert finish["choices"][0]["finish_reason"] == "tool_calls"
    assert (usage["choices"], usage["usage"]["total_tokens"], done) == ([], 15, "[DONE]")
    assert not any("usage" in one for one in chunks(unasked)[:-1])


def test_vllm_sends_usage_after_the_finish_in_a_chunk_with_a_choice() -> None:
    with ScriptServer([turn("Hi", dialect="vllm")]) as server:
        *_, finish, usage, done = chunks(post(server, stream=True))
    assert (finish["choices"][0]["finish_reason"], usage["choices"][0]["delta"], done) == ("stop", {}, "[DONE]")
    assert usage["usage"]["prompt_tokens"] == 10


def test_ollama_sends_whole_calls_without_index_or_id_and_arguments_as_objects() -> None:
    calls = [call("add", a=1), call("add", "not JSON")]
    with ScriptServer([turn(reasoning="Hm.", calls=calls, dialect="ollama")]) as server:
        answer = post(server, stream=True)
    assert deltas(answer)[0] == {"reasoning": "Hm."}
    assert deltas(answer)[1]["tool_calls"] == [
        {"type": "function", "function": {"name": "add", "arguments": {"a": 1}}},
        {"type": "function", "function": {"name": "add", "arguments": "not JSON"}},
    ]
    *_, last, done = chunks(answer)
    assert (last["choices"][0]["finish_reason"], last["usage"]["total_tokens"], done) == ("tool_calls", 15, "[DONE]")


def test_llamacpp_thinks_in_tags_and_forgets_the_end_mark() -> None:
    with ScriptServer(
        [turn("Hi", reasoning=["Hm", "."], dialect="llamacpp"), turn(reasoning="Hm.", dialect="llamacpp")]
    ) as server:
        answer, silent = post(server, stream=True), post(server, stream=True)
    content = [delta["content"] for delta in deltas(answer) if delta.get("content")]
    assert content == ["<think>Hm", ".", "</think>Hi"]
    assert [delta["content"] for delta in deltas(silent) if delta.get("content")] == ["<think>Hm.", "</think>"]
    assert chunks(answer)[-1] != "[DONE]"


def test_a_dialect_can_be_varied() -> None:
    dialect = Dialect.like("ollama", done=False, call_index=True)
    with ScriptServer([turn(calls=[call("add")], dialect=dialect)]) as server:
        answer = post(server, stream=True)
    assert deltas(answer)[0]["tool_calls"][0]["index"] == 0
    assert chunks(answer)[-1] != "[DONE]"


@pytest.mark.parametrize(
    ("dialect", "message"),
    [
        ("openai", {"content": "Hi", "reasoning_content": "Hm.", "refusal": "No."}),
        ("ollama", {"content": "Hi", "reasoning": "Hm.", "refusal": "No."}),
        ("llamacpp", {"content": "<think>Hm.</think>Hi", "refusal": "No."}),
    ],
)
def test_an_answer_that_is_not_streamed_has_the_dialect_too(dialect: str, message: JSON) -> None:
    with ScriptServer([turn(["H", "i"], reasoning="Hm.", refusal="No.", dialect=dialect)]) as server:
        body = post(server).json()
    assert body["choices"][0]["message"] == {"role": "assistant", **message}
    assert body["usage"]["total_tokens"] == 15


def test_log_probabilities_come_if_they_are_asked_for() -> None:
    with ScriptServer([turn(["H", "i"], logprobs=True)] * 3) as server:
        whole, streamed, unasked = post(server, logprobs=True), post(server, logprobs=True, stream=True), post(server)
    logs = [one["choices"][0]["logprobs"]["content"][0] for one in chunks(streamed)[1:3]]
    assert whole.json()["choices"][0]["logprobs"]["content"] == logs
    assert [log["token"] for log in logs] == ["H", "i"]
    assert "logprobs" not in unasked.json()["choices"][0]


# --- trouble ---------------------------------------------------------------------------------------------------------


def test_errors_have_a_status_headers_and_the_envelope() -> None:
    step = turn(error=fail(429, "Slow down.", code="busy", headers={"retry-after": "2"}))
    with ScriptServer([step, step]) as server:
        for stream in (False, True):
            answer = post(server, stream=stream)
            assert (answer.status_code, answer.headers["retry-after"]) == (429, "2")
            error = {"message": "Slow down.", "type": "rate_limit_error", "param": None, "code": "busy"}
            assert answer.json() == {"error": error}


def test_an_error_may_be_a_page_of_html() -> None:
    page = fail(502, body="<html>Bad Gateway</html>", headers={"content-type": "text/html"})
    with ScriptServer([turn(error=page), turn(error=fail(503, body="down"))]) as server:
        answer, plain = post(server), post(server)
    assert (answer.status_code, answer.text) == (502, "<html>Bad Gateway</html>")
    assert answer.headers["content-type"] == "text/html"
    assert (plain.status_code, plain.headers["content-type"]) == (503, "text/plain; charset=utf-8")


def test_an_error_in_the_middle_of_a_stream_is_a_frame_and_then_the_end() -> None:
    step = turn(["a", "b"], error=fail(500, "It broke.", after=1))
    with ScriptServer([step, step]) as server:
        streamed, whole = post(server, stream=True), post(server)
        assert (streamed.status_code, whole.status_code) == (200, 500)
    *_, delta, error = chunks(streamed)
    assert delta["choices"][0]["delta"] == {"content": "a"}
    assert error["error"]["message"] == "It broke."


def test_raw_bytes_are_sent_as_they_are() -> None:
    steps = [raw(b"data: {broken", b"\n\n"), raw(b"<html>", status=404, headers={"content-type": "text/html"})]
    with ScriptServer(steps) as server:
        stream, page = post(server, stream=True), post(server)
    assert (stream.status_code, stream.content) == (200, b"data: {broken\n\n")
    assert stream.headers["content-type"] == "text/event-stream"
    assert (page.status_code, page.content, page.headers["content-type"]) == (404, b"<html>", "text/html")


@pytest.mark.parametrize("stream", [True, False])
def test_a_connection_closed_before_the_first_byte(stream: bool) -> None:
    refused = pytest.raises(httpx.RemoteProtocolError, match="without sending a response")
    with ScriptServer([turn("a", close_after=0)]) as server, refused:
        post(server, stream=stream)


def test_a_connection_closed_in_the_middle_of_a_stream() -> None:
    with ScriptServer([turn(["a", "b"], close_after=1)]) as server:
        body = {**ASK, "stream": True}
        with httpx.stream("POST", f"{server.url}/chat/completions", json=body) as answer:
            got = b""
            with pytest.raises(httpx.RemoteProtocolError, match="incomplete chunked read"):
                for piece in answer.iter_raw():
                    got += piece
    assert b'"content": "a"' in got
    assert b'"content": "b"' not in got


def test_a_gate_holds_the_stream_and_sees_the_client_leave() -> None:
    gate = Gate()
    with ScriptServer([turn(["a", gate, "b"])]) as server:
        body = {**ASK, "stream": True}
        with httpx.stream("POST", f"{server.url}/chat/completions", json=body) as answer:
            gate.wait_reached()
            assert '"content": "a"' in next(answer.iter_text())
        gate.wait_abandoned()
    assert server.cancelled == [1]


@pytest.mark.parametrize("hang_after", [0, 1])
def test_a_turn_that_hangs_does_not_hold_the_server(hang_after: int) -> None:
    gate = Gate()
    gate.open()
    with ScriptServer([turn(["a", "b"], wait_for=gate, hang_after=hang_after)]) as server:
        client = http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=30)
        client.request("POST", "/v1/chat/completions", json.dumps({**ASK, "stream": True}))
        gate.wait_reached()
        if hang_after:
            assert b'"content": ""' in client.getresponse().readline()
        client.close()
    assert server.cancelled == [1]


def test_it_tells_of_each_request_and_of_the_end_of_the_script() -> None:
    lines: list[str] = []
    with ScriptServer(["a", "b"], on_request=lines.append, on_finished=lambda: lines.append("finished")) as server:
        post(server, stream=True)
        post(server, tools=[TOOL])
    assert lines == [
        "scripted stream 1 messages 0 tools -> step 1: text 'a'",
        "scripted json 1 messages 1 tools -> step 2: text 'b'",
        "finished",
    ]


def test_a_port_in_use_is_an_error_of_the_block() -> None:
    with ScriptServer([]) as server:
        port = int(server.url.split(":")[2].removesuffix("/v1"))
        with pytest.raises(Exception, match="Address already in use"), ScriptServer([], port=port):
            pytest.fail("it started")


def test_a_script_can_be_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "script.yaml"
    path.write_text('- raw: ["data: x\\n\\n"]\n  status: 201\n- text: a\n  dialect: {like: llamacpp, done: true}\n')
    with ScriptServer.from_yaml(path) as server:
        assert (post(server).status_code, chunks(post(server, stream=True))[-1]) == (201, "[DONE]")


def test_requests_at_the_same_time_get_the_steps_that_fit() -> None:
    gate = Gate()
    steps = [turn("A", by=matching(last="alpha"), wait_for=gate), turn("B", by=matching(last="beta"))]

    def ask(text: str) -> str:
        answer = post(server, messages=[{"role": "user", "content": text}])
        return str(answer.json()["choices"][0]["message"]["content"])

    with ScriptServer(steps) as server, ThreadPoolExecutor() as threads:
        alpha = threads.submit(ask, "alpha")
        gate.wait_reached()
        assert ask("beta") == "B"
        gate.open()
        assert alpha.result() == "A"


def test_what_chat_completions_cannot_carry_is_left_out() -> None:
    with ScriptServer([turn("Hi.", summary="So.", opaque="x1")] * 2) as server:
        for stream in (False, True):
            body = {"model": "scripted", "messages": [{"role": "user", "content": "Hi"}], "stream": stream}
            found = httpx.post(f"{server.url}/chat/completions", json=body, timeout=60).text
            assert "Hi." in found
            assert "So." not in found
            assert "x1" not in found


def test_the_connection_of_a_client_that_does_not_read_ends_with_the_server() -> None:
    server = ScriptServer([turn(["much " * 20_000] * 200)])
    server.start()
    try:
        address, body = urlsplit(server.url), json.dumps({**ASK, "stream": True}).encode()
        assert address.hostname is not None
        with socket.create_connection((address.hostname, address.port or 0), timeout=60) as client:
            head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n"
            client.sendall(f"{head}content-type: application/json\r\n\r\n".encode() + body)
            assert client.recv(12) == b"HTTP/1.1 200"
            server.stop()
            with warnings.catch_warnings(record=True) as complaints:
                warnings.simplefilter("always")
                gc.collect()
    finally:
        server.stop()
    assert [str(one.message) for one in complaints] == []
