"""A model that does not stop: its answer is cut off at a limit, and takes little memory until then."""

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.http.sdk import served
from tests.runs.processes import ServerProcess
from tests.support.crossed import crossed

from antwort.backends.dialects import Pieces
from antwort.config import BackendConfig
from antwort.testing import call, turn
from antwort.testing.script import Turn
from antwort.types import JSON

LIMIT = 1000
CUT = ("incomplete", {"reason": "max_output_tokens"})
SHORT = {"max_answer_length": LIMIT}
LONG = ["x" * 400] * 5
CLIENT_TOOL: JSON = {"type": "function", "name": "send", "parameters": {"type": "object", "properties": {}}}
GUARD = 120.0


@pytest.mark.parametrize("over_http", [False, True])
@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_that_is_too_long_is_cut_off_and_incomplete(tmp_path: Path, over_http: bool, stream: bool) -> None:
    with served(tmp_path, [turn(LONG)], over_http=over_http, engine=SHORT) as stage:
        if stream:
            body = stage.stream(model="scripted", input="Hi").response
        else:
            body = stage.request("POST", "/responses", json={"model": "scripted", "input": "Hi"}).json()
    assert (body["status"], body["incomplete_details"]) == CUT
    [message] = body["output"]
    assert (message["status"], message["content"][0]["text"]) == ("incomplete", "x" * LIMIT)


def test_one_that_is_as_long_as_it_may_be_is_whole(tmp_path: Path) -> None:
    with served(tmp_path, [turn(["x" * (LIMIT // 2)] * 2)], engine=SHORT) as stage:
        assert stage.stream(model="scripted", input="Hi").response["status"] == "completed"


def test_the_answer_of_a_background_run_is_cut_off_too(tmp_path: Path) -> None:
    with served(tmp_path, [turn(LONG)], engine=SHORT) as stage:
        stream = stage.stream(model="scripted", input="Hi", background=True)
    assert (stream.response["status"], stream.response["incomplete_details"]) == CUT
    assert stream.text == "x" * LIMIT


@pytest.mark.parametrize(
    "said",
    [turn("Fine.", reasoning=LONG), turn(refusal=LONG), turn(calls=[call("send", {"text": "x" * 2 * LIMIT})])],
    ids=["thoughts", "refusal", "call"],
)
def test_thoughts_refusals_and_arguments_count(tmp_path: Path, said: Turn) -> None:
    with served(tmp_path, [said], engine=SHORT) as stage:
        body = stage.stream(model="scripted", input="Hi", tools=[CLIENT_TOOL]).response
    assert (body["status"], body["incomplete_details"]) == CUT
    assert len(json.dumps(body["output"])) < 2 * LIMIT


def test_a_call_whose_arguments_are_cut_off_is_not_made(tmp_path: Path) -> None:
    made: list[str] = []

    async def note(text: str) -> None:
        """Note a text."""
        made.append(text)

    step = turn(calls=[call("note", {"text": "x" * 2 * LIMIT})])
    with served(tmp_path, [step], functions=[note], engine=SHORT) as stage:
        assert stage.stream(model="scripted", input="Hi").response["status"] == "incomplete"
    assert made == []


def test_a_text_in_many_pieces_is_the_same_text() -> None:
    given = [f"{number}," for number in range(50_000)]
    pieces = Pieces()
    assert not pieces
    for piece in given:
        pieces.add(piece)
    assert pieces
    assert pieces.text() == pieces.text() == "".join(given)
    for odd in ("\r\n", "\r", "\ud800", "\U0001f600", "end"):
        pieces.add(odd)
    assert pieces.text().endswith("49999,\r\n\r\ud800\U0001f600end")


@pytest.mark.parametrize("background", [False, True])
def test_log_probabilities_count(tmp_path: Path, background: bool) -> None:
    asked: JSON = {"model": "scripted", "input": "Hi", "include": ["message.output_text.logprobs"]}
    with served(tmp_path, [turn(["x"] * 100, logprobs=True)] * 2, engine=SHORT) as stage:
        body = stage.stream(**asked, background=background).response
        unasked = stage.stream(model="scripted", input="Hi", background=background).response
    assert (body["status"], body["incomplete_details"], unasked["status"]) == (*CUT, "completed")
    assert len(body["output"][0]["content"][0]["logprobs"]) < LIMIT / 40


# --- a model that never stops, before a real server ------------------------------------------------------------------


async def _talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, choice: JSON) -> None:
    """Answer a request with the same chunk again and again, as long as anybody listens."""
    with contextlib.suppress(ConnectionError):
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head)
        await reader.readexactly(int(length[1]) if length else 0)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")
        event = b"data: %s\n\n" % json.dumps({"choices": [choice]}).encode()
        while True:
            writer.write(event * (1 + 2**16 // len(event)))
            await writer.drain()
    writer.close()


@contextlib.asynccontextmanager
async def endless_model(piece: str, **fields: Any) -> AsyncIterator[int]:
    """Give the port of a model that says a piece for ever."""
    choice = {"delta": {"content": piece}, **fields}
    async with await asyncio.start_server(lambda r, w: _talk(r, w, choice), "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]


def size_of(folder: Path) -> int:
    """Return the bytes of all files in a folder, but for the reserve for a full disk, which is always there."""
    files = [file for file in folder.rglob("*") if file.is_file() and not file.name.endswith("-reserve")]
    return sum(file.stat().st_size for file in files)


def megabytes(pid: int, name: str) -> float:
    """Return what the kernel says of the memory of a process."""
    found = re.search(rf"{name}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) / 1024


async def _grown(folder: Path, port: int, **fields: Any) -> float:
    """Have a model answer a streamed request to a server of its own; return the megabytes that took."""
    server = ServerProcess(folder, f"http://127.0.0.1:{port}/v1")
    server.start()
    try:
        async with httpx.AsyncClient(timeout=GUARD) as client:
            await client.get(f"{server.url}/healthz")
            before = megabytes(server.pid, "VmRSS")
            asked = {"model": "steady", "input": "Hi", "stream": True, **fields}
            async with client.stream("POST", f"{server.url}/v1/responses", json=asked) as answer:
                assert answer.status_code == 200
                async for _ in answer.aiter_raw():
                    pass
        return megabytes(server.pid, "VmHWM") - before
    finally:
        server.terminate()


@pytest.mark.parametrize("piece", ["x" * 4096, "xyz"], ids=["large pieces", "small pieces"])
async def test_an_endless_answer_takes_little_memory_and_little_room(tmp_path: Path, piece: str) -> None:
    limit = int(BackendConfig(url="http://localhost").max_answer_bytes) / 1024**2
    async with endless_model(piece) as port, asyncio.timeout(GUARD):
        grown = await _grown(tmp_path, port)
    assert grown < limit, "an answer is kept several times"  # 524 MB and more were taken by one
    assert size_of(tmp_path) < 16 * 1024**2


@pytest.mark.parametrize(
    ("background", "include"), crossed([False, True], [[], ["message.output_text.logprobs"]]), ids=str
)
async def test_endless_log_probabilities_take_little_memory(
    tmp_path: Path, include: list[str], background: bool
) -> None:
    entry = {"token": "a", "logprob": -1, "top_logprobs": [{"token": "b", "logprob": -1}] * 20}
    async with endless_model("a", logprobs={"content": [entry] * 20}) as port, asyncio.timeout(GUARD):
        asked = {"include": include, "top_logprobs": 20 if include else 0, "background": background}
        grown = await _grown(tmp_path, port, **asked)
    assert (
        grown < 2.5 * int(BackendConfig(url="http://localhost").max_answer_bytes) / 1024**2
    )  # it was 1,700 MB and more
