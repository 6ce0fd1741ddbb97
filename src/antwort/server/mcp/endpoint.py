"""`/mcp`: the functions of the server over streamable HTTP, for clients of either era.

Nothing is kept between requests. Older clients are given a session by which their requests are told from those of
others with the same credentials, and which nobody remembers.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from antwort.auth.limits import RateLimiter
from antwort.concurrency.deadline import Stragglers
from antwort.concurrency.large_work import MUCH, LargeWork
from antwort.context import Context
from antwort.context.context import FUNCTIONS_CALL
from antwort.errors import APIError, RateLimitError
from antwort.server.http.sse import Heartbeats, while_connected
from antwort.server.mcp.headers import SESSION, VERSION, session_of, version_of
from antwort.server.mcp.messages import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    PARSE_ERROR,
    RpcError,
    RpcMessage,
    decoded,
    number_of,
    read_message,
)
from antwort.server.mcp.methods import McpMethods, RpcCaller
from antwort.server.mcp.stream import AnswerStream
from antwort.server.sockets.websocket import check_origin
from antwort.types import JSON
from antwort.web.requests import CONTEXT, PRINCIPAL, named_headers, read_body, require_json
from antwort.web.routes import AsgiRoute, Example
from antwort.wire.ids import new_id

PATH = "/mcp"
_BATCHES = b"2025-03-26"
"""The version that has several messages in one request."""
_MOST_TOGETHER = 50
_ALWAYS_REFUSED = {PARSE_ERROR, INVALID_REQUEST}
"""Errors of what is no message at all: those have a status in either era."""


class RpcBody(msgspec.Struct):
    """A message of JSON-RPC."""

    jsonrpc: Annotated[str, Meta(description="`2.0`.")]
    method: Annotated[str, Meta(description="What is asked, such as `tools/list` or `tools/call`.")]
    id: Annotated[str | int | None, Meta(description="The number of the request; a notification has none.")] = None
    params: Annotated[dict[str, Any], Meta(description="What the method takes.")] = {}


_EXAMPLE = Example(
    body={"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "add", "arguments": {"a": 2, "b": 2}}},
    answer={"jsonrpc": "2.0", "id": 1, "result": {"content": [{"type": "text", "text": "4"}]}},
)


_OTHER_ANSWERS = {
    202: "Taken: what was sent wants no answer.",
    400: "What was sent is no message, or its headers say something else; as an error of JSON-RPC.",
    404: "There is no such method; as an error of JSON-RPC.",
}


class McpEndpoint:
    """The endpoint. `origins` are those of web pages that may call it."""

    def __init__(
        self,
        methods: McpMethods,
        limiter: RateLimiter,
        *,
        origins: list[str],
        heartbeats: Heartbeats,
        stragglers: Stragglers,
        large_work: LargeWork,
    ) -> None:
        self._methods = methods
        self._limiter = limiter
        self._origins = origins
        self._heartbeats = heartbeats
        self._stragglers = stragglers
        self._large_work = large_work

    def routes(self) -> Sequence[AsgiRoute]:
        """Return the route."""
        return [
            AsgiRoute(
                "POST",
                PATH,
                self.mcp,
                "Ask as a client of the Model Context Protocol.",
                FUNCTIONS_CALL,
                body=RpcBody,
                returns=dict[str, Any],
                streams=True,
                examples=[_EXAMPLE],
                own_answers=_OTHER_ANSWERS,
            )
        ]

    async def mcp(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a message of the Model Context Protocol.

        The functions of the server are its tools: those that the credentials may have called. A call is answered by
        JSON, or by server-sent events if it tells how far it is, or takes long.
        """
        headers = named_headers(scope)
        check_origin(Headers(raw=scope["headers"]), self._origins)
        require_json(headers)
        body = await read_body(receive)
        takes_events = b"text/event-stream" in headers.get(b"accept", b"")
        stream = AnswerStream(send, takes_events=takes_events)
        value: Any = None
        try:
            value = decoded(body) if len(body) < MUCH else await self._large_work.run(decoded, body)
            if isinstance(value, list):
                _check_batch(value, headers)
                answers = await while_connected(scope, receive, self._answer_all(value, scope), self._stragglers)
                if answers is not None:
                    await _answered(answers or None, scope, receive, send)
                return
            message = read_message(value)
            caller = None if message is None else _caller(message, scope)
        except RpcError as error:
            await stream.end(error.answer(number_of(value)), error.status, [])
            return
        if message is None or caller is None or message.number is None:
            if message is not None and caller is not None:
                self._methods.take(message, caller)
            await _answered(None, scope, receive, send)
            return
        with self._heartbeats.watching(stream):
            work = self._answer(message, caller, stream)
            found = await while_connected(scope, receive, work, self._stragglers)
        if found is not None:
            answer, status = found
            opening = message.method == "initialize" and status == 200
            await stream.end(answer, status, [(SESSION, new_id("session").encode())] if opening else [])

    async def _answer(self, message: RpcMessage, caller: RpcCaller, stream: AnswerStream) -> tuple[JSON, int]:
        try:
            return message.answer(await self._methods.answer(message, caller, stream.tell)), 200
        except RpcError as error:
            if isinstance(error.__cause__, APIError) and error.status == 429:
                raise error.__cause__ from None
            refused = caller.is_stateless or error.code in _ALWAYS_REFUSED
            return error.answer(message.number), error.status if refused else 200

    async def _answer_all(self, values: list[Any], scope: Scope) -> list[JSON]:
        """Answer several messages, one after the other."""
        answers: list[JSON] = []
        counted = 0
        for value in values:
            try:
                message = read_message(value)
                caller = None if message is None else _caller(message, scope)
                if message is None or caller is None:
                    continue
                if message.number is None:
                    self._methods.take(message, caller)
                    continue
                if (counted := counted + 1) > 1:  # the first is that of the body
                    self._count(scope)
                answers.append(message.answer(await self._methods.answer(message, caller, _untold)))
            except RpcError as error:
                answers.append(error.answer(number_of(value)))
        return answers

    def _count(self, scope: Scope) -> None:
        """Count a further request; RpcError if its caller has none left."""
        try:
            self._limiter.check(scope[PRINCIPAL])
        except RateLimitError as error:
            raise RpcError(INTERNAL_ERROR, error.message) from None


def _check_batch(values: list[Any], headers: Mapping[bytes, bytes]) -> None:
    """Raise RpcError unless several messages may come together."""
    if headers.get(VERSION, _BATCHES) != _BATCHES:
        raise RpcError(INVALID_REQUEST, "Send one message: this version has no batches.")
    if not 0 < len(values) <= _MOST_TOGETHER:
        raise RpcError(INVALID_REQUEST, f"Send one message, or up to {_MOST_TOGETHER}.")


def _caller(message: RpcMessage, scope: Scope) -> RpcCaller:
    """Return who sends a message; RpcError if its headers say something else than it does."""
    headers = named_headers(scope)
    version, ctx = version_of(message, headers, scope["headers"]), scope[CONTEXT]
    assert isinstance(ctx, Context)  # noqa: S101 - the gate lets nobody in without
    return RpcCaller(ctx, version, session_of(headers))


async def _answered(answers: list[JSON] | None, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer several messages, or take note of one that wants no answer."""
    if answers is None:
        await Response(status_code=202)(scope, receive, send)
        return
    await Response(msgspec.json.encode(answers), media_type="application/json")(scope, receive, send)


def _untold(_message: JSON) -> None:
    """Tell nobody: the answer is no stream."""
