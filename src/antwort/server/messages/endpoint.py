"""`/v1/messages`: a message is made by the engine as a response is, and told in Anthropic's words."""

from collections.abc import Callable
from functools import partial
from typing import TypeVar

import msgspec
from starlette.types import Receive, Scope, Send

from antwort.concurrency.large_work import MUCH
from antwort.context import Context
from antwort.context.context import EITHER, MESSAGES_WRITE, RESPONSES_WRITE
from antwort.engine.engine import Engine
from antwort.engine.plan import Plan
from antwort.errors import APIError
from antwort.runs.local import LocalRuns
from antwort.server.api.description import examples
from antwort.server.api.responses import run_streamed
from antwort.server.http.sse import ClientGoneError, Heartbeats, unless_left, while_connected
from antwort.server.messages.stream import MessageEvents
from antwort.web.answers import send_struct
from antwort.web.requests import CONTEXT, EXCHANGE, named_headers, read_body, require_json
from antwort.web.routes import AsgiRoute
from antwort.wire.messages.answers import MessageAnswer, MessageTokens, message_of
from antwort.wire.messages.reading import read_message
from antwort.wire.messages.requests import (
    CountMessages,
    CreateMessage,
    ThinkingOff,
    ThinkingShown,
    decode_count_messages,
    decode_create_message,
)
from antwort.wire.translated import Reading

M = TypeVar("M", bound=CountMessages)
_BETA = b"anthropic-beta"
_SCOPE = f"{MESSAGES_WRITE}{EITHER}{RESPONSES_WRITE}"


class MessageEndpoints:
    """The endpoints of messages."""

    def __init__(self, engine: Engine, runs: LocalRuns) -> None:
        self._engine = engine
        self._limits = runs.limits
        self._heartbeats = Heartbeats(engine.settings.heartbeat)
        self._stragglers = engine.stragglers

    def routes(self) -> list[AsgiRoute]:
        """Return the routes."""
        return [
            AsgiRoute(
                "POST",
                "/v1/messages",
                self.create,
                "Create a message, as at Anthropic.",
                _SCOPE,
                body=CreateMessage,
                returns=MessageAnswer,
                streams=True,
                upstream=True,
                examples=examples.CREATE_MESSAGE,
            ),
            AsgiRoute(
                "POST",
                "/v1/messages/count_tokens",
                self.count_tokens,
                "Count the tokens that a request for a message would send to the model.",
                _SCOPE,
                body=CountMessages,
                returns=MessageTokens,
                upstream=True,
                examples=examples.COUNT_MESSAGES,
            ),
        ]

    async def create(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Create a message: JSON or a stream.

        It is a response by another name: made by the same loop, under the same limits, and kept as one whose id has the
        same digits, unless `store` is false. Errors are in Anthropic's envelope.
        """
        request, reading = await self._read(decode_create_message, scope, receive)
        try:
            plan = await self._planned(request, reading, scope, receive)
        except ClientGoneError:
            return
        except APIError as error:
            raise reading.told(error) from None
        thinking = request.thinking
        thoughts = not isinstance(thinking, ThinkingOff)
        omitted = isinstance(thinking, ThinkingShown) and thinking.display == "omitted"
        with self._limits.making(plan.ctx.tenant):
            if request.stream:
                await self._stream(plan, scope, receive, send, thoughts=thoughts, omitted=omitted)
                return
            loop = self._engine.loop(plan, self._engine.journal(plan, remembered=False), None)
            try:
                response = await while_connected(scope, receive, loop.run(), self._stragglers)
            except APIError as error:
                raise reading.told(error) from None
        if response is not None:
            message = message_of(response, loop.stopped_by, thoughts=thoughts, omitted=omitted)
            await send_struct(scope, send, message)

    async def count_tokens(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Count the tokens that a request for a message would send to the model."""
        _, reading = await self._read(decode_count_messages, scope, receive)
        work = self._engine.input_tokens(reading.create, scope[CONTEXT])
        try:
            count = await while_connected(scope, receive, work, self._stragglers)
        except APIError as error:
            raise reading.told(error) from None
        if count is not None:
            await send_struct(scope, send, MessageTokens(count))

    async def _read(self, decode: Callable[..., M], scope: Scope, receive: Receive) -> tuple[M, Reading]:
        """Read a body, and what it means."""
        headers = named_headers(scope)
        require_json(headers)
        body = await read_body(receive)

        if len(body) < MUCH:
            return self._decoded(decode, body, beta=_BETA in headers)
        return await self._engine.large_work.run(partial(self._decoded, decode, body, beta=_BETA in headers))

    def _decoded(self, decode: Callable[..., M], body: bytes | bytearray, *, beta: bool) -> tuple[M, Reading]:
        request = decode(body, beta=beta)
        return request, read_message(request, self._engine.sealer.knows)

    async def _planned(self, request: CreateMessage, reading: Reading, scope: Scope, receive: Receive) -> Plan:
        ctx: Context = scope[CONTEXT]
        create = reading.create
        if request.top_k is not None and "top_k" in (await self._engine.models.resolve(create.model)).route.parameters:
            create.extra_body = {"top_k": request.top_k}
        opening = partial(unless_left, scope, receive, self._stragglers) if create.tools else None
        plan = await self._engine.plan(create, ctx, opening=opening)
        if self._limits.counts_bytes and plan.stored:
            await self._limits.check_room(ctx.tenant, plan.unkept)
        return msgspec.structs.replace(plan, stop=request.stop_sequences) if request.stop_sequences else plan

    async def _stream(
        self, plan: Plan, scope: Scope, receive: Receive, send: Send, *, thoughts: bool, omitted: bool
    ) -> None:
        stream = MessageEvents(send, plan.response, scope.get(EXCHANGE), thoughts=thoughts, omitted=omitted)
        loop = self._engine.loop(plan, self._engine.journal(plan), stream)
        stream.stopped_by = lambda: loop.stopped_by
        await run_streamed(loop, stream, scope, receive, heartbeats=self._heartbeats, stragglers=self._stragglers)
