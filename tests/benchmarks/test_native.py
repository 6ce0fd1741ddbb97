"""The mock backend and the load generator keep the books that the figures rest on."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from benchmarks.build import build
from benchmarks.gateway import Bench
from benchmarks.measure import BenchmarkError
from benchmarks.processes import Server, running

COMPLETIONS = "/v1/chat/completions"


def load(bench: Bench, body: dict[str, Any], *options: str, path: str = COMPLETIONS) -> tuple[int, dict[str, Any]]:
    file = bench.folder / "body.json"
    file.write_text(json.dumps(body))
    command = [str(bench.load), str(bench.mock.port), path, str(file), *options]
    done = subprocess.run(command, capture_output=True, timeout=60, check=False)
    return done.returncode, json.loads(done.stdout)


@pytest.mark.parametrize("model", ["burst-20", "paced-20"])
def test_every_frame_of_every_stream_is_counted(bench: Bench, model: str) -> None:
    body = {"model": model, "stream": True, "messages": []}
    code, report = load(bench, body, "--connections", "3", "--requests", "7")
    frames = 1 + 20 + 1 + 1  # the role, the contents, the finish, the end mark
    assert (code, report["requests"], report["errors"], report["problem"]) == (0, 7, 0, "")
    assert report["events"] == 7 * frames


def test_a_whole_answer_has_no_events(bench: Bench) -> None:
    code, report = load(bench, {"model": "json", "messages": []}, "--connections", "4", "--requests", "9")
    assert (code, report["requests"], report["events"], report["errors"]) == (0, 9, 0, 0)
    assert report["bytes"] > 9 * 100


def test_another_status_than_200_is_an_error(bench: Bench) -> None:
    code, report = load(bench, {}, "--requests", "3", path="/nowhere")
    assert (code, report["requests"], report["errors"], report["problem"]) == (1, 3, 3, "status 404")


def test_the_time_limit_ends_the_load(bench: Bench) -> None:
    body = {"model": "paced-5-600000", "stream": True, "messages": []}
    code, report = load(bench, body, "--connections", "2", "--requests", "2", "--seconds", "0.2")
    assert (code, report["errors"], report["problem"]) == (1, 2, "the time limit was reached")


def test_the_mock_streams_in_the_shape_of_chat_completions(bench: Bench) -> None:
    body = {"model": "burst-2", "stream": True, "stream_options": {"include_usage": True}, "messages": []}
    frames = httpx.post(f"{bench.mock_url}/chat/completions", json=body).text.split("\n\n")
    assert frames[-2:] == ["data: [DONE]", ""]
    chunks = [json.loads(frame.removeprefix("data: ")) for frame in frames[:-2]]
    assert {(chunk["object"], chunk["model"]) for chunk in chunks} == {("chat.completion.chunk", "burst-2")}
    assert [choice for chunk in chunks for choice in chunk["choices"]] == [
        {"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None},
        {"index": 0, "delta": {"content": " word1"}, "finish_reason": None},
        {"index": 0, "delta": {"content": " word2"}, "finish_reason": None},
        {"index": 0, "delta": {}, "finish_reason": "stop"},
    ]
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"] == {"prompt_tokens": 12, "completion_tokens": 2, "total_tokens": 14}


def test_the_mock_refuses_to_stream_from_a_model_it_does_not_know(bench: Bench) -> None:
    answer = httpx.post(f"{bench.mock_url}/chat/completions", json={"model": "json", "stream": True})
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "model_not_found")


def test_the_mock_lists_no_models_as_it_takes_any_name(bench: Bench) -> None:
    assert httpx.get(f"{bench.mock_url}/models").json() == {"object": "list", "data": []}


def test_a_missing_compiler_is_named_with_its_cure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.build.BUILD", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BenchmarkError, match="apt-get install gcc"):
        build("mock")


def test_the_mock_calls_a_function_until_it_has_an_output(bench: Bench) -> None:
    asked = bench.stats()["asked"]
    output = {"role": "tool", "tool_call_id": "call_1", "content": "84"}
    first, second = (
        httpx.post(f"{bench.mock_url}/chat/completions", json={"model": "call", "messages": messages}).json()
        for messages in ([], [output])
    )
    (call,) = first["choices"][0]["message"]["tool_calls"]
    assert (call["function"]["name"], json.loads(call["function"]["arguments"])) == (
        "calculate",
        {"expression": "12*7"},
    )
    assert second["choices"][0]["finish_reason"] == "stop"
    stats = bench.stats()
    assert (stats["asked"], stats["streams"]) == (asked + 2, 0)


def test_the_mock_calls_a_function_with_what_it_is_given_and_tells_how_long_requests_were(bench: Bench) -> None:
    bench.stats()
    arguments = json.dumps({"text": 'a "quoted" \\ one'})
    output = {"role": "tool", "tool_call_id": "call_1", "content": "done"}
    bodies = [
        {"model": "call-with", "tools": [{"function": {"name": "say"}}], "messages": messages}
        for messages in (
            [{"role": "user", "content": arguments}],
            [{"role": "user", "content": "no object"}],
            [{"role": "user", "content": arguments}, output],
        )
    ]
    answers = [httpx.post(f"{bench.mock_url}/chat/completions", json=body) for body in bodies]
    called, *said = (answer.json()["choices"][0] for answer in answers)
    [call] = called["message"]["tool_calls"]
    assert call["function"] == {"name": "say", "arguments": arguments}
    assert [choice["finish_reason"] for choice in said] == ["stop", "stop"]
    sizes = [len(answer.request.content) for answer in answers]
    stats = bench.stats()
    assert (stats["first"], stats["last"]) == (sizes[0], sizes[-1])
    stats = bench.stats()
    assert (stats["first"], stats["last"]) == (0, 0)


WEBSOCKET = """
import asyncio, json, sys
from websockets.asyncio.server import serve
async def answer(connection):
    async for text in connection:
        asked = json.loads(text)
        for number in range(asked["events"] - 1):
            await connection.send(json.dumps({"type": "delta", "text": "x" * 70_000 * number}, separators=(",", ":")))
        await connection.send(json.dumps({"type": asked["last"]}, separators=(",", ":")))
async def main():
    async with serve(answer, "127.0.0.1", 0) as server:
        print("Listening on http://127.0.0.1:%d" % server.sockets[0].getsockname()[1], flush=True)
        await server.serve_forever()
asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("last", "errors", "problem"), [("response.completed", 0, ""), ("response.failed", 6, "an error")]
)
def test_the_messages_of_a_websocket_are_counted_to_the_last(
    bench: Bench, last: str, errors: int, problem: str
) -> None:
    with running((sys.executable, "-c", WEBSOCKET), core=bench.cores.server) as server:
        body = {"events": 3, "last": last}
        options = ("--websocket", "--connections", "2", "--requests", "6")
        code, report = load(aimed_at(bench, server), body, *options, path="/")
    assert (code, report["requests"], report["events"]) == (min(errors, 1), 6, 18)
    assert (report["errors"], report["problem"]) == (errors, problem)


KEYS = """
import http.server
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    seen = []
    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        self.seen.append(self.headers["authorization"])
        expected = ["Bearer sk-%06d" % (number % 3) for number in range(len(self.seen))]
        self.send_response(200 if self.seen == expected else 400)
        self.send_header("content-length", "2")
        self.end_headers()
        self.wfile.write(b"{}")
    def log_message(self, *arguments):
        pass
server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
print("Listening on http://127.0.0.1:%d" % server.server_port, flush=True)
server.serve_forever()
"""


def test_keys_take_turns(bench: Bench) -> None:
    with running((sys.executable, "-c", KEYS), core=bench.cores.server) as server:
        code, report = load(aimed_at(bench, server), {}, "--keys", "3", "--requests", "7", path="/")
    assert (code, report["requests"], report["problem"]) == (0, 7, "")


def aimed_at(bench: Bench, server: Server) -> Bench:
    """Return a bench whose load goes to another server."""
    return Bench(bench.cores, bench.folder, server)
