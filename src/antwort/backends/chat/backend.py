"""A model server that speaks Chat Completions."""

import asyncio
import time
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from antwort.backends.base import ModelInfo, ModelRequest, TurnSink
from antwort.backends.chat.dialect import Dialect
from antwort.backends.chat.errors import excerpt, reply_error
from antwort.backends.chat.request import chat_body, encode_body
from antwort.backends.chat.sse import EventStream
from antwort.backends.chat.stream import Turn
from antwort.backends.failures import BROKEN, DEADLINE
from antwort.backends.transport import Reply, Timeouts, Transport
from antwort.config import BackendConfig
from antwort.errors import APIError, BadGatewayError, GatewayTimeoutError

__all__ = ["ChatCompletions"]

MAX_ERROR = 64 * 1024
LIST_TIMEOUT = 10.0
"""Seconds to wait for the list of models, which is never worth more."""
PARTING = 0.25
"""Seconds to wait for the end of a stream whose last event is there, so that its connection can be used again."""


class ChatCompletions:
    """One server. Each turn is one request; nothing is tried again here."""

    def __init__(self, name: str, config: BackendConfig) -> None:
        self.name = name
        self.transport = Transport(name, config)
        self._dialect = Dialect.of(config, self.transport)
        self._extra = config.extra_body

    async def run(self, request: ModelRequest, sink: TurnSink) -> None:
        """Perform one turn. A passed deadline is a GatewayTimeoutError with the code `deadline_exceeded`."""
        body = encode_body(chat_body(request, self._dialect, self.name, self._extra))
        if request.deadline is None:
            await self._exchange(request, body, sink)
            return
        limit = asyncio.timeout(max(0.0, request.deadline - time.monotonic()))
        try:
            async with limit:
                await self._exchange(request, body, sink)
        except TimeoutError:
            if not limit.expired():
                raise
            raise GatewayTimeoutError(
                f"The answer of the backend '{self.name}' was not complete in the time the request has.", code=DEADLINE
            ) from None

    async def models(self) -> Sequence[ModelInfo]:
        """List the models it serves."""
        times = self.transport.timeouts
        limited = Timeouts(times.connect, min(LIST_TIMEOUT, times.first_byte), times.chunk)
        reply = await self.transport.get("/models", timeouts=limited)
        try:
            if reply.status != 200:
                raise await self._refusal(reply, "")
            body = await reply.read()
        finally:
            reply.abort()
        try:
            document = msgspec.json.decode(body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            raise BadGatewayError(
                f"The list of models of the backend '{self.name}' is no JSON: {excerpt(body)}", code=BROKEN
            ) from None
        return tuple(_models(document, self.name))

    async def close(self) -> None:
        """Give connections back."""
        await self.transport.close()

    async def _exchange(self, request: ModelRequest, body: bytes, sink: TurnSink) -> None:
        reply = await self.transport.post("/chat/completions", body)
        try:
            if reply.status != 200:
                raise await self._refusal(reply, request.model)
            if _is_stream(reply, asked=request.stream):
                await self._stream(reply, sink)
            else:
                turn = Turn(self.name, sink)
                turn.take_whole(await reply.read())
                turn.end()
                await sink.flush()
        finally:
            # Nothing remains of a turn that was cancelled or failed: the server must stop working on it.
            reply.abort()

    async def _stream(self, reply: Reply, sink: TurnSink) -> None:
        turn = Turn(self.name, sink)
        events = EventStream(self.name)
        feed, take, chunk, flush = events.feed, turn.take, reply.chunk, sink.flush
        patient = True
        while data := await chunk():
            for payload in feed(data):
                take(payload)
            if turn.done:
                break
            if patient and turn.begun:
                # Until the model begins it may think in silence; from then on pauses are short.
                patient = False
                reply.limit_silence(self.transport.timeouts.chunk)
            await flush()
        if not turn.done:
            for payload in events.end():
                take(payload)
        turn.end()
        await flush()
        await _part(reply)

    async def _refusal(self, reply: Reply, model: str) -> APIError:
        return reply_error(self.name, model, reply.status, reply.headers, await reply.head(MAX_ERROR))


async def _part(reply: Reply) -> None:
    """Read what is left of a stream whose last event is there."""
    try:
        async with asyncio.timeout(PARTING):
            while await reply.chunk():
                pass
    except (TimeoutError, APIError):
        reply.abort()


def _is_stream(reply: Reply, *, asked: bool) -> bool:
    """Tell how an answer came; some servers do not stream although asked to, or always."""
    kind = reply.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "text/event-stream":
        return True
    return asked and kind not in {"application/json", "text/html"}


def _models(document: Any, backend: str) -> Iterator[ModelInfo]:
    """Read a list of models in OpenAI's shape, in Ollama's, or bare."""
    entries = document
    if isinstance(document, dict):
        entries = document.get("data") or document.get("models")
    for entry in entries if isinstance(entries, list) else ():
        fields = entry if isinstance(entry, dict) else {"id": entry}
        name = fields.get("id") or fields.get("model") or fields.get("name")
        created = fields.get("created")
        if isinstance(name, str):
            owner = fields.get("owned_by")
            yield ModelInfo(
                name, owner if isinstance(owner, str) else backend, created if isinstance(created, int) else 0
            )
