"""`/v1/chat/completions` with the functions of the server: a completion is made by the engine as a response is."""

from functools import partial

import msgspec
from starlette.types import Receive, Scope, Send

from antwort.concurrency.large_work import MUCH
from antwort.context import Context
from antwort.context.context import RESPONSES_WRITE
from antwort.engine.engine import Engine
from antwort.engine.plan import Plan
from antwort.errors import APIError
from antwort.runs.local import LocalRuns
from antwort.server.api.description import examples
from antwort.server.api.responses import run_streamed
from antwort.server.chat.keeping import ChatKeeper, WantedChat
from antwort.server.chat.stream import ChatEvents
from antwort.server.http.sse import ClientGoneError, Heartbeats, unless_left, while_connected
from antwort.web.answers import send_struct
from antwort.web.requests import CONTEXT, EXCHANGE, named_headers, read_body, require_json
from antwort.web.routes import AsgiRoute
from antwort.wire.chat.answers import CompletedChat, chat_of
from antwort.wire.chat.reading import read_chat, stops
from antwort.wire.chat.requests import CreateChat, SentChat, decode_chat
from antwort.wire.chat.stored import check_messages
from antwort.wire.responses import ResponseObject
from antwort.wire.translated import Reading


class ChatEndpoint:
    """The endpoint of completions that the engine makes."""

    def __init__(self, engine: Engine, runs: LocalRuns, keeper: ChatKeeper) -> None:
        self._engine = engine
        self._limits = runs.limits
        self._keeper = keeper
        self._heartbeats = Heartbeats(engine.settings.heartbeat)
        self._stragglers = engine.stragglers

    def routes(self) -> list[AsgiRoute]:
        """Return the routes."""
        return [
            AsgiRoute(
                "POST",
                "/v1/chat/completions",
                self.chat_completions,
                "Complete a chat, with the functions of the server.",
                RESPONSES_WRITE,
                body=CreateChat,
                returns=CompletedChat,
                streams=True,
                upstream=True,
                examples=examples.MADE_CHAT,
            )
        ]

    async def chat_completions(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Complete a chat: JSON or a stream.

        It is a response by another name: made by the same loop, under the same limits. With `store`, both are kept,
        with ids of the same digits.
        """
        require_json(named_headers(scope))
        body = await read_body(receive)
        sent, reading = await self._engine.large_work.run_if(len(body) >= MUCH, _read, body)
        del body
        try:
            plan = await self._planned(sent.chat, reading, scope, receive)
        except ClientGoneError:
            return
        except APIError as error:
            raise reading.told(error) from None
        if self._engine.checks.current.input and plan.create.input != reading.create.input:
            # A check has taken something out, and nothing keeps it in another way.
            sent = msgspec.structs.replace(sent, messages=msgspec.Raw(b"[]"))
        keep = partial(self._kept, sent, plan.ctx.tenant) if sent.chat.store else None
        with self._limits.making(plan.ctx.tenant):
            if sent.chat.stream:
                options = sent.chat.stream_options
                usage = options is not None and bool(options.include_usage)
                stream = ChatEvents(send, plan.response, scope.get(EXCHANGE), usage=usage, keep=keep)
                loop = self._engine.loop(plan, self._engine.journal(plan), stream)
                await run_streamed(
                    loop, stream, scope, receive, heartbeats=self._heartbeats, stragglers=self._stragglers
                )
                return
            try:
                response = await while_connected(scope, receive, self._engine.respond(plan), self._stragglers)
            except APIError as error:
                raise reading.told(error) from None
        if response is not None:
            answer = chat_of(response) if keep is None else await keep(response)
            await send_struct(scope, send, answer)

    async def _planned(self, chat: CreateChat, reading: Reading, scope: Scope, receive: Receive) -> Plan:
        ctx: Context = scope[CONTEXT]
        create = reading.create
        opening = partial(unless_left, scope, receive, self._stragglers) if create.tools else None
        plan = await self._engine.plan(create, ctx, opening=opening)
        if self._limits.counts_bytes and plan.stored:
            await self._limits.check_room(ctx.tenant, plan.unkept)
        stop = stops(chat)
        return msgspec.structs.replace(plan, stop=stop) if stop else plan

    async def _kept(self, sent: SentChat, tenant: str, response: ResponseObject) -> CompletedChat:
        """Keep the completion that a response is, and return it."""
        answer = chat_of(response)
        wanted = WantedChat(sent.chat.model or response.model, answer.metadata, sent.messages)
        await self._keeper.keep(tenant, wanted, answer.id, answer.model, msgspec.json.encode(answer))
        return answer


def _read(body: bytes | bytearray) -> tuple[SentChat, Reading]:
    sent = decode_chat(body)
    reading = read_chat(sent.chat)
    if sent.chat.store:  # beside what is known, messages may have what nobody could read again
        check_messages(sent.messages)
    return sent, reading
