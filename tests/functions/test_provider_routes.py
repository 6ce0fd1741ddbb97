"""Routes that answer with very much, or for ever: nobody else has to wait for it."""

import asyncio
import contextlib
import itertools
import json
import math
import threading
from collections.abc import AsyncGenerator, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import BaseModel
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send
from tests.concurrency.test_large_work import TURNS, ticking
from typing_extensions import override

from antwort import Antwort
from antwort.concurrency.large_work import Turns
from antwort.config import Config
from antwort.functions.output import Stop, answer_text, may_take_long
from antwort.provider import Provider, route
from antwort.testing import ScriptedBackend, running

GUARD = 60.0


class Own(Response):
    """An answer that does not listen to whether its client is there."""

    def __init__(self, content: AsyncGenerator[bytes, None]) -> None:
        super().__init__()
        self._content = content

    @override
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        async with contextlib.aclosing(self._content) as pieces:
            async for piece in pieces:
                await send({"type": "http.response.body", "body": piece, "more_body": True})


class Flood(Provider):
    """Answers with too much."""

    def __init__(self) -> None:
        super().__init__()
        self.ended = threading.Event()
        self.begun = threading.Event()
        self.others_were_answered = threading.Event()

    async def _pieces(self) -> AsyncGenerator[bytes, None]:
        try:
            while True:
                yield b"x" * 1000
        finally:
            self.ended.set()

    @route("GET", "/v1/flood/stream")
    async def stream(self) -> Response:
        """Stream for ever, and never wait for anything."""
        return StreamingResponse(self._pieces())

    @route("GET", "/v1/flood/own")
    async def own(self) -> Response:
        """Do the same with an answer of one's own."""
        return Own(self._pieces())

    @route("GET", "/v1/flood/numbers")
    async def numbers(self) -> Iterator[int]:
        """Give numbers, as slowly as others are answered."""

        def made() -> Iterator[int]:
            self.begun.set()
            assert self.others_were_answered.wait(GUARD)
            yield from range(100_000)

        return made()

    @route("GET", "/v1/flood/endless")
    async def endless(self) -> Iterator[str]:
        """Never end."""
        return itertools.repeat("x" * 1000)

    @route("GET", "/v1/flood/within")
    async def within(self) -> dict[str, Iterator[str]]:
        """Tell, from within the answer, who writes it."""
        return {"threads": (threading.current_thread().name for _ in range(1))}

    @route("GET", "/v1/flood/odd")
    async def odd(self) -> Iterator[float]:
        """Give something that JSON does not have."""
        return iter([1.0, math.nan])


@pytest.mark.parametrize("path", ["stream", "own"])
def test_a_stream_that_never_waits_lets_others_be_answered_and_ends_with_its_client(tmp_path: Path, path: str) -> None:
    flood = Flood()
    app = Antwort(Config(data_dir=tmp_path), providers=[flood], backend=ScriptedBackend([]))
    with running(app) as server, httpx.Client(base_url=server.url, timeout=GUARD) as other:
        with httpx.stream("GET", f"{server.url}/v1/flood/{path}", timeout=GUARD) as answer:
            for _ in itertools.islice(answer.iter_raw(), 20):
                assert other.get("/healthz").status_code == 200
        assert flood.ended.wait(GUARD)
        assert other.get("/healthz").status_code == 200


def test_others_are_answered_while_a_generator_is_written(tmp_path: Path) -> None:
    flood = Flood()
    app = Antwort(Config(data_dir=tmp_path), providers=[flood], backend=ScriptedBackend([]))
    found: list[httpx.Response] = []
    with running(app) as server, httpx.Client(base_url=server.url, timeout=GUARD) as other:
        asking = threading.Thread(
            target=lambda: found.append(httpx.get(f"{server.url}/v1/flood/numbers", timeout=2 * GUARD))
        )
        asking.start()
        assert flood.begun.wait(GUARD)
        assert other.get("/healthz").status_code == 200
        flood.others_were_answered.set()
        asking.join(GUARD)
    assert found[0].json() == list(range(100_000))


def test_what_has_no_end_or_is_no_json_is_an_error(tmp_path: Path) -> None:
    app = Antwort(Config(data_dir=tmp_path), providers=[Flood()], backend=ScriptedBackend([]))
    with running(app) as server:
        assert httpx.get(f"{server.url}/v1/flood/endless", timeout=GUARD).status_code == 500
        assert httpx.get(f"{server.url}/v1/flood/odd", timeout=GUARD).status_code == 500


def test_an_iterator_within_an_answer_takes_a_thread_of_its_provider_and_of_nobody_else(tmp_path: Path) -> None:
    app = Antwort(Config(data_dir=tmp_path), providers=[Flood()], backend=ScriptedBackend([]))
    with running(app) as server:
        assert httpx.get(f"{server.url}/v1/flood/within", timeout=GUARD).json() == {"threads": ["antwort-worker"]}


async def test_the_loop_has_its_turn_while_a_large_answer_is_written() -> None:
    numbers = list(range(200_000))
    async with ticking() as ticks:
        text = await asyncio.to_thread(answer_text, {"numbers": numbers}, Stop())
    assert ticks.count >= TURNS
    assert json.loads(text) == {"numbers": numbers}


class _Model(BaseModel):
    words: list[str]


@dataclass(slots=True)
class _Slotted:
    words: Iterable[str]


@pytest.mark.parametrize(
    ("value", "large"),
    [
        (None, False),
        ({"a": [1, 2, {"b": "c"}]}, False),
        (_Model(words=["a"] * 100), False),
        ([_Model(words=["a"])] * 100, False),
        (list(range(100_000)), True),
        ({"a": {"b": [["x"] * 100] * 100}}, True),
        ("x" * 1_000_000, True),
        (_Model(words=["a"] * 10_000), True),
        (iter([]), True),
        ({"a": iter([])}, True),
        (_Slotted(["a"] * 100), False),
        (_Slotted(["a"] * 10_000), True),
        (_Slotted(itertools.repeat("a")), True),
    ],
)
def test_what_may_take_long_is_known_at_a_look(value: Any, large: bool) -> None:
    assert may_take_long(value) is large


def test_a_value_in_itself_is_looked_at_once() -> None:
    inner: list[Any] = []
    inner.append(inner)
    assert may_take_long(inner)


async def test_a_loop_that_never_waits_lets_others_run() -> None:
    turns = Turns()
    async with ticking() as ticks:
        while ticks.count < TURNS:
            await turns.give()
