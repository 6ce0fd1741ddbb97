"""A model that makes the calls it is told to make, and repeats whatever it reads: any number of clients can ask it."""

import contextlib
import json
from collections.abc import AsyncIterator, Iterable
from typing import Any

from aiohttp import web

from antwort.testing.script_server import end
from antwort.types import JSON


def calls_for(calls: Iterable[tuple[str, JSON]]) -> str:
    """Return what is to be said to the model so that it makes calls, all in one turn."""
    return json.dumps([{"name": name, "arguments": json.dumps(arguments)} for name, arguments in calls])


async def _complete(request: web.Request) -> web.Response:
    messages = (await request.json())["messages"]
    asked = next(message["content"] for message in reversed(messages) if message["role"] == "user")
    read = [message["content"] for message in messages if message["role"] == "tool"]
    message: dict[str, Any] = {"role": "assistant", "content": "\n".join(read) if read else asked}
    if asked.startswith("[") and not read:
        calls = enumerate(json.loads(asked))
        message["content"] = None
        message["tool_calls"] = [{"id": f"call_{n}", "type": "function", "function": call} for n, call in calls]
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if "tool_calls" in message else "stop"}
    return web.json_response({"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]})


@contextlib.asynccontextmanager
async def parrot() -> AsyncIterator[str]:
    """Serve the model; the URL ends with `/v1`."""
    app = web.Application()
    app.router.add_post("/v1/chat/completions", _complete)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    finally:
        await end(runner)
