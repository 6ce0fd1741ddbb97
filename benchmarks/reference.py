"""The reference R: the least a Python proxy from the Responses API to Chat Completions can do.

Raw ASGI on uvicorn with uvloop and httptools in front, a bare asyncio protocol with keep-alive behind, msgspec for
JSON. It translates each read where it arrives and writes once per read. It has no authentication, validation, storage,
metrics, limits, time-outs or back-pressure: what a gateway costs beyond R is what it does beyond R.

    python benchmarks/reference.py PORT_OF_THE_BACKEND
"""

import asyncio
import itertools
import socket
import sys
import time
from collections.abc import Callable
from typing import Any, cast

import msgspec
import uvicorn
from typing_extensions import override


class Request(msgspec.Struct):
    model: str
    input: str | list[dict[str, Any]]
    stream: bool = False


class Message(msgspec.Struct):
    content: str | None = None


class Choice(msgspec.Struct):
    message: Message | None = None
    delta: Message | None = None


class Usage(msgspec.Struct):
    prompt_tokens: int = 0
    completion_tokens: int = 0


class Completion(msgspec.Struct):
    """A whole completion or a chunk of one."""

    choices: list[Choice]
    usage: Usage | None = None


class TextDelta(msgspec.Struct):
    sequence_number: int
    item_id: str
    delta: str
    type: str = "response.output_text.delta"
    output_index: int = 0
    content_index: int = 0
    logprobs: tuple[()] = ()


encode = msgspec.json.Encoder().encode
decode_request = msgspec.json.Decoder(Request).decode
decode_completion = msgspec.json.Decoder(Completion).decode


def chat_request(request: Request) -> bytes:
    messages = [{"role": "user", "content": request.input}] if isinstance(request.input, str) else request.input
    body: dict[str, Any] = {"model": request.model, "messages": messages}
    if request.stream:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    return encode(body)


def text_part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def message_item(number: int, status: str, *parts: dict[str, Any]) -> dict[str, Any]:
    return {"id": f"msg_{number}", "type": "message", "role": "assistant", "status": status, "content": parts}


def response(number: int, model: str, status: str, output: list[Any], usage: Usage | None = None) -> dict[str, Any]:
    tokens = usage and {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }
    constant: dict[str, Any] = {"error": None, "incomplete_details": None, "instructions": None, "metadata": {}}
    sampling: dict[str, Any] = {
        "parallel_tool_calls": True,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
    }
    identity = {"id": f"resp_{number}", "object": "response", "created_at": int(time.time()), "model": model}
    return {**identity, "status": status, "output": output, "usage": tokens, **constant, **sampling}


class EventStream:
    """The events of one response, made from the frames of the backend."""

    def __init__(self, number: int, model: str) -> None:
        self.number, self.model = number, model
        self.item_id = f"msg_{number}"
        self.where = {"item_id": self.item_id, "output_index": 0, "content_index": 0}
        self.sequence = 0
        self.rest = b""
        self.text: list[str] = []
        self.usage: Usage | None = None
        self.out: list[bytes] = []

    def feed(self, body: bytes) -> bytes:
        """Return the events for one read."""
        if not self.sequence:
            self.start()
        *frames, self.rest = (self.rest + body).split(b"\n\n")
        for frame in frames:
            if frame == b"data: [DONE]":
                self.finish()
                continue
            chunk = decode_completion(frame[6:])
            if chunk.usage:
                self.usage = chunk.usage
            if chunk.choices and (delta := chunk.choices[0].delta) and delta.content:
                self.text.append(delta.content)
                event = TextDelta(self.sequence, self.item_id, delta.content)
                self.sequence += 1
                self.out.append(b"event: response.output_text.delta\ndata: %b\n\n" % encode(event))
        out = b"".join(self.out)
        self.out.clear()
        return out

    def start(self) -> None:
        snapshot = response(self.number, self.model, "in_progress", [])
        self.event("response.created", response=snapshot)
        self.event("response.in_progress", response=snapshot)
        self.event("response.output_item.added", output_index=0, item=message_item(self.number, "in_progress"))
        self.event("response.content_part.added", **self.where, part=text_part(""))

    def finish(self) -> None:
        text = "".join(self.text)
        item = message_item(self.number, "completed", text_part(text))
        self.event("response.output_text.done", **self.where, text=text, logprobs=[])
        self.event("response.content_part.done", **self.where, part=text_part(text))
        self.event("response.output_item.done", output_index=0, item=item)
        self.event("response.completed", response=response(self.number, self.model, "completed", [item], self.usage))
        self.out.append(b"data: [DONE]\n\n")

    def event(self, kind: str, **fields: Any) -> None:
        data = encode({"type": kind, "sequence_number": self.sequence, **fields})
        self.sequence += 1
        self.out.append(b"event: %b\ndata: %b\n\n" % (kind.encode(), data))


class Backend(asyncio.Protocol):
    """A keep-alive connection to the backend, for one request at a time."""

    transport: asyncio.Transport
    translate: Callable[[bytes], bytes]
    waiter: asyncio.Future[None] | None = None

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self.finished = True
        self.wake()

    def post(self, body: bytes, translate: Callable[[bytes], bytes]) -> None:
        self.translate = translate
        self.buffer, self.ready = b"", b""
        self.status, self.left, self.finished = 0, 0, False
        self.transport.write(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
        )

    async def read(self) -> bytes:
        """Return what was translated since the last read, or nothing at the end of the answer."""
        if not self.ready and not self.finished:
            self.waiter = asyncio.get_running_loop().create_future()
            await self.waiter
        ready, self.ready = self.ready, b""
        return ready

    @override
    def data_received(self, data: bytes) -> None:
        self.buffer += data
        if not self.status and not self.read_head():
            return
        if body := self.dechunk() if self.left < 0 else self.take():
            self.ready += self.translate(body)
        self.wake()

    def wake(self) -> None:
        if self.waiter and not self.waiter.done() and (self.ready or self.finished):
            self.waiter.set_result(None)

    def read_head(self) -> bool:
        head, end, body = self.buffer.partition(b"\r\n\r\n")
        if end:
            lines = head.lower().split(b"\r\n")
            headers = dict(line.split(b": ", 1) for line in lines[1:])
            self.status = int(lines[0].split()[1])
            self.left = int(headers.get(b"content-length", -1))  # without a length it is chunked
            self.buffer = body
        return bool(end)

    def take(self) -> bytes:
        body, self.buffer = self.buffer, b""
        self.left -= len(body)
        self.finished = not self.left
        return body

    def dechunk(self) -> bytes:
        buffer, at, parts = self.buffer, 0, []
        while not self.finished and (line := buffer.find(b"\r\n", at)) >= 0:
            size = int(buffer[at:line], 16)
            end = line + 2 + size
            if len(buffer) < end + 2:
                break
            parts.append(buffer[line + 2 : end])
            at = end + 2
            self.finished = not size
        self.buffer = buffer[at:]
        return b"".join(parts)


class Proxy:
    """The ASGI application."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.idle: list[Backend] = []
        self.numbers = itertools.count(1)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if (scope["method"], scope["path"]) != ("POST", "/v1/responses"):
            await answer(send, 404, b"{}")
            return
        body, more = b"", True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        request = decode_request(body)
        backend = await self.connection()
        await (self.stream if request.stream else self.complete)(request, backend, send)
        self.idle.append(backend)

    async def connection(self) -> Backend:
        while self.idle:
            backend = self.idle.pop()
            if not backend.transport.is_closing():
                return backend
        return (await asyncio.get_running_loop().create_connection(Backend, "127.0.0.1", self.port))[1]

    async def complete(self, request: Request, backend: Backend, send: Any) -> None:
        body, number = b"", next(self.numbers)
        backend.post(chat_request(request), bytes)
        while part := await backend.read():
            body += part
        if backend.status != 200:
            await answer(send, 502, body)
            return
        completion = decode_completion(body)
        message = completion.choices[0].message
        item = message_item(number, "completed", text_part((message and message.content) or ""))
        await answer(send, 200, encode(response(number, request.model, "completed", [item], completion.usage)))

    async def stream(self, request: Request, backend: Backend, send: Any) -> None:
        backend.post(chat_request(request), EventStream(next(self.numbers), request.model).feed)
        part = await backend.read()
        if backend.status != 200:
            await answer(send, 502, b"{}")
            return
        headers = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        while part:
            await send({"type": "http.response.body", "body": part, "more_body": True})
            part = await backend.read()
        await send({"type": "http.response.body"})


async def answer(send: Any, status: int, body: bytes) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def main() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=2048) as sock:
        print(f"Listening on http://127.0.0.1:{sock.getsockname()[1]}", flush=True)
        config = uvicorn.Config(
            Proxy(int(sys.argv[1])),
            loop="uvloop",
            http="httptools",
            lifespan="off",
            access_log=False,
            proxy_headers=False,
            log_level="error",
            timeout_graceful_shutdown=1,
        )
        uvicorn.Server(config).run(sockets=[sock])


if __name__ == "__main__":
    main()
