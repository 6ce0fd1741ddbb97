"""A model server that outlives the servers that ask it. What it answers depends on the request alone."""

import asyncio
import contextlib
import json
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from aiohttp import web

from antwort.server.http.serve import bind, url_of
from antwort.testing.script_server import end
from antwort.types import JSON

PAUSE = 0.01
"""Seconds between two pieces: a turn takes long enough to be cut off somewhere."""


def answer_to(outputs: dict[str, str]) -> str:
    """Return the answer at the end: what the model was told about each of its calls."""
    return f"It is done. {json.dumps(outputs, sort_keys=True)}"


def turn_of(body: JSON) -> tuple[str, str, list[JSON]]:
    """Return thoughts, text and calls: first an order and two questions, then another order, then the answer.

    Of what is called poison only the function that ends the process is called. A tree asks, wants something approved,
    keeps a note, which it reads afterwards, and has leaves, which make one order each. What is slow ships one order,
    who asks charges one meanwhile. A program makes two orders, and what is remote asks another server for one.
    """
    messages = body["messages"]
    name = next(m["content"] for m in reversed(messages) if m["role"] == "user")
    outputs = {m["tool_call_id"]: m["content"] for m in messages if m["role"] == "tool"}
    if not outputs and name.startswith("poison"):
        calls: list[tuple[str, JSON]] = [("explode", {})]
    elif not outputs and name.startswith("tree"):
        prompts = [f"leaf-{name}-{number}" for number in range(2)]
        calls = [("delegate", {"prompts": prompts}), ("ask_user", {"question": name}), ("refund", {"order": name})]
        calls.append(("store_set", {"key": "note", "value": name}))
    elif len(outputs) == 4 and name.startswith("tree"):
        calls = [("store_get", {"key": "note"})]
    elif not outputs and name.startswith("ask"):
        calls = [("ask_user", {"question": name}), ("charge", {"order": name})]
    elif not outputs and name.startswith("slow"):
        calls = [("ship", {"order": name})]
    elif not outputs and name.startswith("leaf"):
        calls = [("charge", {"order": name})]
    elif not outputs and name.startswith("program"):
        orders = [f"print(await charge(order='{name}-{number}'))" for number in range(2)]
        calls = [("run_program", {"code": "\n".join(orders)})]
    elif not outputs and name.startswith("remote"):
        calls = [("deliver", {"order": name})]
    elif name.startswith(("tree", "leaf", "slow", "ask", "program", "remote")):
        return "Everything is there.", answer_to(outputs), []
    elif not outputs:
        calls = [("charge", {"order": f"{name}-1"}), ("look_up", {"key": f"{name}-a"}), ("look_up", {"key": "b"})]
    elif len(outputs) == 3:
        calls = [("charge", {"order": f"{name}-2"})]
    else:
        return "Everything is there.", answer_to(outputs), []
    made = [
        {"id": f"call_{name}_{len(outputs)}_{index}", "name": called, "arguments": json.dumps(arguments)}
        for index, (called, arguments) in enumerate(calls)
    ]
    return "I need to know more.", f"Let me see about {name}, this will take a moment.", made


def chunks_of(body: JSON) -> Iterator[JSON]:
    """Yield the chunks of a turn."""
    thoughts, text, calls = turn_of(body)
    for piece in _pieces(thoughts):
        yield {"reasoning_content": piece}
    for piece in _pieces(text):
        yield {"content": piece}
    for index, call in enumerate(calls):
        function = {"name": call["name"], "arguments": call["arguments"]}
        yield {"tool_calls": [{"index": index, "id": call["id"], "type": "function", "function": function}]}


def _pieces(text: str) -> Iterator[str]:
    size = max(1, len(text) // 6)
    for start in range(0, len(text), size):
        yield text[start : start + size]


async def _chat(request: web.Request) -> web.StreamResponse:
    body = await request.json()
    response = web.StreamResponse(headers={"content-type": "text/event-stream"})
    await response.prepare(request)
    calls = False
    for delta in chunks_of(body):
        calls = calls or "tool_calls" in delta
        await _send(response, [{"index": 0, "delta": delta, "finish_reason": None}])
        await asyncio.sleep(PAUSE)
    await _send(response, [{"index": 0, "delta": {}, "finish_reason": "tool_calls" if calls else "stop"}])
    await _send(response, [], usage={"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15})
    await response.write(b"data: [DONE]\n\n")
    await response.write_eof()
    return response


async def _send(response: web.StreamResponse, choices: list[JSON], **more: Any) -> None:
    chunk = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 0, "model": "steady"}
    await response.write(b"data: %s\n\n" % json.dumps({**chunk, "choices": choices, **more}).encode())


async def _models(_request: web.Request) -> web.Response:
    return web.json_response({"object": "list", "data": [{"id": "steady", "object": "model"}]})


@contextlib.asynccontextmanager
async def _served(sock: socket.socket) -> AsyncIterator[None]:
    app = web.Application()
    app.router.add_post("/v1/chat/completions", _chat)
    app.router.add_get("/v1/models", _models)
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.SockSite(runner, sock).start()
    try:
        yield
    finally:
        await end(runner)


@contextlib.contextmanager
def steady_model() -> Iterator[str]:
    """Run the model server on a thread of its own; give its base URL."""
    ready: Future[tuple[str, asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def main() -> None:
        leave = asyncio.Event()
        with bind("127.0.0.1", 0) as sock:
            async with _served(sock):
                ready.set_result((f"{url_of(sock)}/v1", asyncio.get_running_loop(), leave))
                await leave.wait()

    thread = threading.Thread(target=lambda: asyncio.run(main()), name="steady-model", daemon=True)
    thread.start()
    url, loop, leave = ready.result(30)
    try:
        yield url
    finally:
        loop.call_soon_threadsafe(leave.set)
        thread.join(30)


class ModelProcess:
    """The model server as a process that can be frozen, killed and started again at the same address."""

    def __init__(self) -> None:
        # Bound and not listening: the port stays ours, and who connects while the process is gone is refused.
        self._kept = _shared_port(0)
        self._port = self._kept.getsockname()[1]
        self.url = f"http://127.0.0.1:{self._port}/v1"
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Start it and wait until it listens."""
        command = [sys.executable, "-m", "tests.runs.steady_model", str(self._port)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "listening\n"

    def freeze(self) -> None:
        """Let it stand still, without a word."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """Kill it, in the middle of whatever it says."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait(60)
            assert process.stdout is not None
            process.stdout.close()

    def close(self) -> None:
        """Kill it and give the port back."""
        self.kill()
        self._kept.close()


def _shared_port(port: int) -> socket.socket:
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    sock.bind(("127.0.0.1", port))
    return sock


async def _main(port: int) -> None:
    with _shared_port(port) as sock:
        sock.listen(1024)
        async with _served(sock):
            sys.stdout.write("listening\n")
            sys.stdout.flush()
            await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_main(int(sys.argv[1])))
