"""A model that does what its user says: the calls it is told to make, then the answer it is told to give.

Run as a program it listens on a free port. The last message of the user is JSON: `{"calls": [[name, arguments], …],
"say": text, "words": n, "pause": seconds}`. While there are calls without an output behind that message, it makes all
of them; then it says the text, in so many words, with a pause before it, and behind it the outputs of the calls as a
JSON list. So whoever asks knows every byte of the answer. A message that is no such JSON is repeated. A text that is
`"without"` is left out of all that it says and calls, so that it says what nobody has said to it. Its `"answers"` are
those to the questions of a decision, which come behind the order.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from antwort.server.http.serve import bind
from antwort.types import JSON
from benchmarks.processes import LISTENING

MODEL = "obedient"


async def completions(request: Request) -> Response:
    body = await request.json()
    order, outputs = last_order(body["messages"])
    if "response_format" in body:
        order = {"say": json.dumps(first_order(body["messages"])["answers"])}
    calls = order.get("calls", []) if not outputs else []
    if not calls:
        await asyncio.sleep(order.get("pause", 0))
    text = "" if calls else said(order, outputs)
    if sign := order.get("without"):
        calls, text = json.loads(json.dumps(calls).replace(sign, "")), text.replace(sign, "")
    if body.get("stream"):
        return StreamingResponse(events(calls, text, order.get("words", 1)), media_type="text/event-stream")
    message: JSON = {"role": "assistant", "content": text}
    if calls:
        message["tool_calls"] = [tool_call(number, call) for number, call in enumerate(calls)]
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}
    return JSONResponse({"id": "1", "object": "chat.completion", "created": 0, "model": MODEL, "choices": [choice]})


def last_order(messages: list[JSON]) -> tuple[JSON, list[str]]:
    """Return what the user wants, and the outputs of calls since."""
    outputs: list[str] = []
    for message in reversed(messages):
        if message["role"] == "tool":
            outputs.insert(0, text_of(message["content"]))
        elif message["role"] == "user":
            return read_order(text_of(message["content"])), outputs
    return {}, outputs


def first_order(messages: list[JSON]) -> JSON:
    """Return what the user has said first."""
    return read_order(next(text_of(message["content"]) for message in messages if message["role"] == "user"))


def read_order(text: str) -> JSON:
    try:
        order = json.loads(text)
    except ValueError:
        order = None
    return order if isinstance(order, dict) else {"say": text}


def text_of(content: Any) -> str:
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def said(order: JSON, outputs: list[str]) -> str:
    text = " ".join([order.get("say", "")] * order.get("words", 1))
    return text + (json.dumps(outputs) if outputs else "")


def tool_call(number: int, call: list[Any]) -> JSON:
    name, arguments = call
    return {
        "index": number,
        "id": f"call_{number}",
        "type": "function",
        "function": {"name": name, "arguments": json.dumps(arguments)},
    }


async def events(calls: list[list[Any]], text: str, words: int) -> AsyncIterator[str]:
    for delta in deltas(calls, text, words):
        yield event({"index": 0, "delta": delta, "finish_reason": None})
    yield event({"index": 0, "delta": {}, "finish_reason": "tool_calls" if calls else "stop"})
    yield "data: [DONE]\n\n"


def deltas(calls: list[list[Any]], text: str, words: int) -> Iterator[JSON]:
    for number, call in enumerate(calls):
        yield {"tool_calls": [tool_call(number, call)]}
    step = max(1, len(text) // max(1, words))
    for start in range(0, len(text), step):
        yield {"content": text[start : start + step]}


def event(choice: JSON) -> str:
    chunk = {"id": "1", "object": "chat.completion.chunk", "created": 0, "model": MODEL, "choices": [choice]}
    return f"data: {json.dumps(chunk)}\n\n"


async def models(_request: Request) -> Response:
    return JSONResponse({"object": "list", "data": [{"id": MODEL, "object": "model", "created": 0, "owned_by": "us"}]})


def main() -> None:
    app = Starlette(routes=[Route("/v1/chat/completions", completions, methods=["POST"]), Route("/v1/models", models)])
    listening = bind("127.0.0.1", 0)
    print(f"{LISTENING}{listening.getsockname()[1]}", flush=True)
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", timeout_keep_alive=600))
    server.run(sockets=[listening])


if __name__ == "__main__":
    main()
