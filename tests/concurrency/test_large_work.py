"""Large requests and long answers: the event loop goes on while they are worked on."""

import asyncio
import contextlib
import json
import threading
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from msgspec.structs import replace
from tests.backends.conftest import DONE, ModelServer, Notes, delta, reply
from typing_extensions import override

from antwort import Antwort
from antwort.backends import ModelRequest, ModelRoute, ModelRouter
from antwort.backends.chat.backend import ChatBackend
from antwort.backends.http.remote import encode_body, in_pieces
from antwort.backends.responses.backend import ResponsesBackend
from antwort.concurrency.large_work import MANY, MUCH, LargeWork, is_large
from antwort.config import BackendConfig, Config
from antwort.context import Context
from antwort.engine.calls.admission import Totals
from antwort.engine.calls.leaving import LeavingCalls
from antwort.engine.output.emitter import Emitter, EmitterOptions
from antwort.engine.planning.input import read_input
from antwort.engine.turns.model_turn import ModelTurns, SaidWindow, model_request
from antwort.errors import BadRequestError
from antwort.server.api.conversations import ConversationEndpoints, CreateConversation
from antwort.testing import ScriptedBackend, lint_stream, running
from antwort.types import JSON
from antwort.wire.requests import CreateResponse, decode_create

ITEMS: list[JSON] = [{"role": "user", "content": f"Number {number}"} for number in range(10_000)]
CALLS: list[JSON] = [
    item
    for number in range(5_000)
    for item in (
        {"type": "function_call", "call_id": f"c{number}", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": f"c{number}", "output": "ok"},
    )
]
PARTS: list[JSON] = [{"role": "user", "content": [{"type": "input_text", "text": "x"}] * 50_000}]
TURNS = 20
"""Turns that the loop takes at least while a thread works. What waits for nothing but itself leaves it none."""


class Ticks:
    """Counts the turns of the loop."""

    def __init__(self) -> None:
        self.count = 0

    async def run(self) -> None:
        while True:
            self.count += 1
            await asyncio.sleep(0)


@contextlib.asynccontextmanager
async def ticking() -> AsyncIterator[Ticks]:
    ticks = Ticks()
    task = asyncio.create_task(ticks.run())
    await asyncio.sleep(0)
    ticks.count = 0
    try:
        yield ticks
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@pytest.mark.parametrize("items", [ITEMS, CALLS, PARTS], ids=["messages", "calls", "parts"])
async def test_the_loop_goes_on_while_a_request_of_many_items_is_planned(tmp_path: Path, items: list[JSON]) -> None:
    app = Antwort(Config(data_dir=tmp_path, providers={}), backend=ScriptedBackend([]))
    async with app:
        async with ticking() as ticks:
            plan = await app.engine.plan(CreateResponse(model="scripted", input=items), Context("t"))
        assert ticks.count >= TURNS
    assert len(plan.window) == len(items)


async def test_the_loop_goes_on_while_items_of_many_parts_are_added_to_a_conversation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worked: list[threading.Thread] = []

    def watched(items: Sequence[JSON]) -> list[JSON]:
        worked.append(threading.current_thread())
        return read_input(items)

    monkeypatch.setattr("antwort.server.api.conversations.read_input", watched)
    async with Antwort(Config(data_dir=tmp_path, providers={}), backend=ScriptedBackend([])) as app:
        engine = app.engine
        conversations = ConversationEndpoints(engine.store, app.runs.limits, engine.large_work)
        for items, large in ((PARTS, True), (ITEMS[:3], False)):
            await conversations.create(Context("t"), CreateConversation(items=items))
            assert (worked.pop() is not threading.current_thread()) == large


@pytest.mark.parametrize("api", ["chat", "responses"])
async def test_the_loop_goes_on_while_a_body_for_the_model_server_is_made(
    server: ModelServer, notes: Notes, api: str
) -> None:
    whole: JSON = {"choices": [{"index": 0, "message": {"content": "Hi"}, "finish_reason": "stop"}]}
    if api == "responses":
        part = {"type": "output_text", "text": "Hi"}
        whole = {"status": "completed", "output": [{"type": "message", "role": "assistant", "content": [part]}]}
    server.scripts.append(reply(whole))
    kind = ResponsesBackend if api == "responses" else ChatBackend
    backend = kind("main", BackendConfig(url=server.url))
    asked = threading.current_thread()
    worked: list[threading.Thread] = []
    body = backend.body

    def watched(request: ModelRequest) -> JSON:
        worked.append(threading.current_thread())
        return body(request)

    backend.body = watched  # type: ignore[method-assign]
    for items, large in ((ITEMS, True), (ITEMS[:3], False)):
        await backend.run(ModelRequest(model="m", items=items), notes)
        assert (worked.pop() is not asked) == large
    await backend.close()
    assert notes.said() == "HiHi"
    sent = server.exchanges[0].json()
    assert len(sent["input" if api == "responses" else "messages"]) == len(ITEMS)


async def test_the_loop_goes_on_during_a_long_burst(server: ModelServer, notes: Notes) -> None:
    deltas = b"".join(delta(content="word ") for _ in range(20_000)) + delta("stop") + DONE
    server.scripts.append(reply(deltas, kind="text/event-stream"))
    backend = ChatBackend("main", BackendConfig(url=server.url))
    async with ticking() as ticks:
        await backend.run(ModelRequest(model="m", items=ITEMS[:1], stream=True), notes)
    await backend.close()
    assert notes.said() == "word " * 20_000
    assert ticks.count >= 20_000 // 256


async def test_the_loop_goes_on_while_a_window_is_shortened(tmp_path: Path) -> None:
    class Small(ScriptedBackend):
        @override
        async def context_window(self, model: str) -> int | None:
            return 4_096

        @override
        async def run(self, request: ModelRequest, sink: Any) -> None:
            asked.append(request)
            sink.text("Hi")
            sink.finish("stop")

    asked: list[ModelRequest] = []
    app = Antwort(Config(data_dir=tmp_path, providers={}), backend=ScriptedBackend([]))
    async with app:
        plan = await app.engine.plan(CreateResponse(model="scripted", input=ITEMS, truncation="auto"), Context("t"))
    parts = replace(app.engine, models=ModelRouter([ModelRoute(Small([]))]), large_work=LargeWork())
    request = ModelRequest(model="scripted", items=plan.window)
    journal, seals = app.engine.journal(plan), app.engine.planner.seals(plan.ctx, plan.response)
    window, leaving = SaidWindow(plan, journal, seals), LeavingCalls(plan, journal, None)
    async with ticking() as ticks:
        await ModelTurns(plan, parts, Emitter(plan.response, None, EmitterOptions()), window, leaving).run(
            request, Notes()
        )
    assert ticks.count >= TURNS
    assert 0 < len(asked[0].items) < len(ITEMS)


def test_a_large_body_is_read_as_a_small_one_is() -> None:
    long = [{"role": "user", "content": "x" * 1_000, "id": f"m{number}"} for number in range(MUCH // 1_000)]
    for body in (
        {"model": "m", "input": long},
        {"model": "m", "input": "x" * MUCH},
        {"input": None, "user": "x" * MUCH},
    ):
        expected = msgspec.convert(body, CreateResponse)
        assert decode_create(json.dumps(body)) == expected
        assert decode_create(bytearray(json.dumps(body).encode())) == expected


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"model": 7, "input": ITEMS * 2}, "model"),
        ({"input": [*ITEMS, *ITEMS, "x"]}, "input[20000]"),
        ({"input": ITEMS * 2, "text": {"nonsense": 1}}, "text.nonsense"),
        ({"input": 7, "user": "x" * MUCH}, "input"),
    ],
)
def test_what_is_wrong_with_a_large_body_is_told_as_ever(body: JSON, param: str) -> None:
    with pytest.raises(BadRequestError) as caught:
        decode_create(json.dumps(body).encode())
    assert (caught.value.param or "").startswith(param.partition("[")[0])


@pytest.mark.parametrize("body", [{}, {"a": []}, {"a": [1, {"b": "ü"}], "c": None, "d": {"e": [1, 2]}, "f": "x"}])
def test_a_body_in_pieces_is_the_same(body: JSON) -> None:
    assert json.loads(encode_body(body, in_pieces)) == body


def test_what_is_large_is_told_by_number_and_by_size() -> None:
    assert not is_large([])
    assert not is_large(ITEMS[: MANY - 1])
    assert is_large(ITEMS[:MANY])
    assert is_large([{"content": [{"type": "input_image", "image_url": "x" * MUCH}]}])
    assert is_large([{"output": "x" * MUCH}])
    assert is_large([{"content": "x" * MUCH, "output": "x"}])
    assert is_large([{"content": "x", "output": "x" * MUCH}])
    assert not is_large([{"content": None, "output": 7, "arguments": [1]}])


async def test_a_text_that_is_not_long_makes_a_short_request_until_much_is_added(tmp_path: Path) -> None:
    async with Antwort(Config(data_dir=tmp_path, providers={}), backend=ScriptedBackend([])) as app:
        for text, short in (("Hi", True), ("x" * MUCH, False)):
            plan = await app.engine.plan(CreateResponse(model="scripted", input=text), Context("t"))
            for added, much in ([], False), ([{"output": "x"}], False), ([{"output": "x" * MUCH}], True):
                request = model_request(plan, [*plan.window, *added], plan.choice, Totals())
                assert request.short == (short and not much)


async def test_an_error_of_large_work_is_raised_where_it_was_asked_for() -> None:
    work = LargeWork()
    with pytest.raises(ZeroDivisionError):
        await work.run(lambda: 1 // 0)
    assert await work.run(max, 1, 2) == 2


async def test_large_work_is_done_one_after_the_other() -> None:
    work, running_now, most = LargeWork(), 0, 0

    def job() -> None:
        nonlocal running_now, most
        running_now += 1
        most = max(most, running_now)
        running_now -= 1

    await asyncio.gather(*(work.run(job) for _ in range(20)))
    assert most == 1


@pytest.mark.parametrize("stream", [False, True])
def test_a_large_request_is_answered_streamed_again_and_counted(tmp_path: Path, stream: bool) -> None:
    app = Antwort(Config(data_dir=tmp_path, providers={}), backend=ScriptedBackend(["word " * MUCH]))
    long = [{"role": "user", "content": "x" * 1_000} for _ in range(MUCH // 1_000)]
    with running(app) as served, httpx.Client(base_url=f"{served.url}/v1", timeout=60) as client:
        body = {"model": "scripted", "input": long}
        answer = client.post("/responses", json={**body, "stream": stream})
        response = lint_stream(answer.content).response if stream else answer.json()
        assert response["output"][0]["content"][0]["text"] == "word " * MUCH
        again = client.get(f"/responses/{response['id']}", params={"stream": "true"})
        assert lint_stream(again.content).response["output"] == response["output"]
        assert client.post("/responses/input_tokens", json=body).json()["input_tokens"] > MUCH // 8
