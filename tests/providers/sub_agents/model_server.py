"""A model server that takes 50 ms for an answer, and takes note of how it is asked."""

import asyncio
import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

from aiohttp import web

from antwort.server.http.serve import bind, url_of
from antwort.testing.script_server import end
from antwort.types import JSON

PAUSE = 0.05
"""Seconds that an answer takes."""
TOKENS = 15
"""What each answer costs."""

Said = str | tuple[str, JSON]
"""What the model says: a text, or a function that it calls, with its arguments."""
Decide = Callable[["Asked"], Said]


class Asked:
    """A request as the model reads it."""

    def __init__(self, body: JSON) -> None:
        messages = body["messages"]
        self.prompt = str([message["content"] for message in messages if message["role"] == "user"][-1])
        self.outputs = [str(message["content"]) for message in messages if message["role"] == "tool"]


class ModelServer:
    """Answers as is decided by what it reads alone. It lives on a thread of its own, with its event loop."""

    def __init__(self, decide: Decide) -> None:
        self._decide = decide
        self._changed = threading.Condition()
        self.url = ""
        self.asked = 0
        self.in_flight = 0
        self.most_in_flight = 0
        self.cut_off = 0
        """Calls that whoever has asked did not wait for."""
        self.read: list[str] = []
        """What calls have returned, as it was read."""
        self._loop = asyncio.get_running_loop()
        self._free = asyncio.Event()
        self._free.set()

    async def complete(self, request: web.Request) -> web.Response:
        """Answer a request for a completion."""
        asked = Asked(await request.json())
        self.read += asked.outputs
        self._note(1)
        try:
            await asyncio.sleep(PAUSE)
            if asked.prompt != "root":
                await self._free.wait()
        except asyncio.CancelledError:
            self.cut_off += 1
            raise
        finally:
            self._note(-1)
        return web.json_response(_completion(self._decide(asked), self.asked))

    def _note(self, more: int) -> None:
        with self._changed:
            self.asked += max(more, 0)
            self.in_flight += more
            self.most_in_flight = max(self.most_in_flight, self.in_flight)
            self._changed.notify_all()

    def hold(self) -> None:
        """Give no sub-agent an answer from now on."""
        asyncio.run_coroutine_threadsafe(self._hold(), self._loop).result(60)

    async def _hold(self) -> None:
        self._free.clear()

    def release(self) -> None:
        """Answer again."""
        self._loop.call_soon_threadsafe(self._free.set)

    def wait_until(self, reached: Callable[[], bool]) -> None:
        """Wait, outside of its thread, until something is so."""
        with self._changed:
            assert self._changed.wait_for(reached, 60)


def _completion(said: Said, number: int) -> JSON:
    message: dict[str, Any] = {"role": "assistant", "content": said}
    reason = "stop" if isinstance(said, str) else "tool_calls"
    if not isinstance(said, str):
        function = {"name": said[0], "arguments": json.dumps(said[1])}
        calls = [{"id": f"call_{number}", "type": "function", "function": function}]
        message = {"role": "assistant", "content": None, "tool_calls": calls}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 0,
        "model": "slow",
        "choices": [{"index": 0, "message": message, "finish_reason": reason}],
        "usage": {"prompt_tokens": TOKENS - 5, "completion_tokens": 5, "total_tokens": TOKENS},
    }


async def list_models(_: web.Request) -> web.Response:
    """Say which models there are."""
    return web.json_response({"data": [{"id": "steady"}]})


@contextlib.contextmanager
def model_server(decide: Decide) -> Iterator[ModelServer]:
    """Run a model server; give it with its address."""
    ready: Future[tuple[ModelServer, asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def main() -> None:
        model = ModelServer(decide)
        app = web.Application(client_max_size=10 * 1024**2)
        app.router.add_post("/v1/chat/completions", model.complete)
        app.router.add_get("/v1/models", list_models)
        runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
        await runner.setup()
        with bind("127.0.0.1", 0) as sock:
            await web.SockSite(runner, sock).start()
            model.url = f"{url_of(sock)}/v1"
            leave = asyncio.Event()
            ready.set_result((model, asyncio.get_running_loop(), leave))
            await leave.wait()
            await end(runner)

    thread = threading.Thread(target=lambda: asyncio.run(main()), name="model-server", daemon=True)
    thread.start()
    model, loop, leave = ready.result(30)
    try:
        yield model
    finally:
        loop.call_soon_threadsafe(leave.set)
        thread.join(30)
