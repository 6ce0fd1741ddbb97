"""`/v1/responses`: creating, fetching, streaming again, cancelling, deleting; and what is made of windows."""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeVar

import msgspec
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from antwort.concurrency.deadline import Stragglers
from antwort.concurrency.large_work import MUCH, is_large
from antwort.context import Context
from antwort.context.agents import AgentList
from antwort.context.context import RESPONSES_READ, RESPONSES_WRITE
from antwort.engine.engine import Engine, not_found, shown
from antwort.engine.output.events import Events, replay_response
from antwort.engine.plan import AS_USUAL, Plan, Shown
from antwort.engine.planning.past import NotOverError
from antwort.engine.turns.loop import Loop
from antwort.errors import APIError, BadRequestError, ServiceUnavailableError
from antwort.runs.local import LocalRuns
from antwort.server.api.description import examples
from antwort.server.http.sse import (
    DONE,
    ClientGoneError,
    EventStream,
    Heartbeats,
    Tail,
    frame,
    unless_left,
    while_connected,
)
from antwort.storage.base import ACTIVE
from antwort.types import JSON
from antwort.web.answers import send_json, send_struct
from antwort.web.parameters import (
    After,
    Before,
    Include,
    Limit,
    Obfuscation,
    Order,
    StartingAfter,
    Stream,
    unknown_cursor,
)
from antwort.web.requests import CONTEXT, EXCHANGE, named_headers, read_body, require_json
from antwort.web.routes import AsgiRoute, Route
from antwort.wire.answers import DeletedResponse, InputTokens, ItemList, ResponseList
from antwort.wire.requests import (
    MULTI_AGENT_BETA,
    CompactRequest,
    CountInput,
    CreateResponse,
    decode_compact,
    decode_count,
    decode_create,
)
from antwort.wire.responses import CompactedResponse, ResponseObject, stored_response

T = TypeVar("T")

_SHOW_CALLS = b"antwort-show-calls"
_SHOW_PROGRESS = b"antwort-show-progress"
_SHOW_AGENTS = b"antwort-show-agents"


class ResponseEndpoints:
    """The endpoints of responses."""

    def __init__(self, engine: Engine, runs: LocalRuns) -> None:
        self._engine = engine
        self._plan = engine.plan
        self._runs = runs
        self._heartbeats = Heartbeats(engine.settings.heartbeat)
        self._stragglers = engine.stragglers
        self._thoughts = engine.thoughts

    def routes(self) -> list[Route | AsgiRoute]:
        """Return the routes."""
        return [*self._creating(), *self._stored()]

    def _creating(self) -> list[AsgiRoute]:
        return [
            AsgiRoute(
                "POST",
                "/v1/responses",
                self.create,
                "Create a response.",
                RESPONSES_WRITE,
                body=CreateResponse,
                returns=ResponseObject,
                streams=True,
                upstream=True,
                examples=examples.CREATE_RESPONSE,
            ),
            AsgiRoute(
                "POST",
                "/v1/responses/compact",
                self.compact,
                "Compact a window.",
                RESPONSES_WRITE,
                body=CompactRequest,
                returns=CompactedResponse,
                upstream=True,
                examples=examples.COMPACT,
            ),
            AsgiRoute(
                "POST",
                "/v1/responses/input_tokens",
                self.input_tokens,
                "Count the tokens that a request would send to the model.",
                RESPONSES_WRITE,
                body=CountInput,
                returns=InputTokens,
                upstream=True,
                examples=examples.INPUT_TOKENS,
            ),
        ]

    def _stored(self) -> list[Route]:
        one = "/v1/responses/{response_id}"
        return [
            Route(
                "GET",
                "/v1/responses",
                self.list,
                scope=RESPONSES_READ,
                examples=examples.LIST_RESPONSES,
            ),
            Route(
                "GET",
                one,
                self.retrieve,
                scope=RESPONSES_READ,
                streams=True,
                examples=examples.RETRIEVE_RESPONSE,
            ),
            Route(
                "DELETE",
                one,
                self.delete,
                scope=RESPONSES_WRITE,
                examples=examples.DELETE_RESPONSE,
            ),
            Route(
                "POST",
                f"{one}/cancel",
                self.cancel,
                # It returns the response, also one that was over long before.
                scope=f"{RESPONSES_READ} {RESPONSES_WRITE}",
                examples=examples.CANCEL_RESPONSE,
            ),
            Route(
                "GET",
                f"{one}/agents",
                self.agents,
                scope=RESPONSES_READ,
                examples=examples.AGENTS,
            ),
            Route(
                "GET",
                f"{one}/input_items",
                self.input_items,
                scope=RESPONSES_READ,
                examples=examples.INPUT_ITEMS,
            ),
        ]

    # --- creating: the hot path, in plain ASGI -----------------------------------------------------------------------

    async def create(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Create a response: JSON, a stream, or a background run.

        The same path takes WebSockets: each `response.create` message, with the fields of this body, is answered by the
        events of a stream, one message each, and a connection remembers its last response even if it is not stored.
        """
        headers = named_headers(scope)
        require_json(headers)
        body = await read_body(receive)
        create = decode_create(body) if len(body) < MUCH else await self._engine.large_work.run(decode_create, body)
        del body  # it may be large, and is of no use any more
        ctx: Context = scope[CONTEXT]
        if create.multi_agent is not None:
            check_beta(scope)
        try:
            opening = partial(unless_left, scope, receive, self._stragglers) if create.tools else None
            plan = await self._plan(create, ctx, shown=shown_beside(headers), opening=opening)
        except ClientGoneError:
            return
        except NotOverError:
            if not await self._runs.answer(create, ctx):
                raise
            await self._go_on(create, scope, receive, send)
            return
        limits = self._runs.limits
        if limits.counts_bytes and (plan.stored or plan.conversation is not None):
            await limits.check_room(ctx.tenant, plan.unkept)
        if plan.response.background:
            accepted = await self._runs.accept(plan)
            if not create.stream:
                await send_json(scope, send, accepted)
                return
            await self._tail(ctx.tenant, plan.response.id)(scope, receive, send)
            return
        with limits.making(ctx.tenant):
            if create.stream:
                await self._stream(plan, scope, receive, send)
                return
            response = await while_connected(scope, receive, self._engine.respond(plan), self._stragglers)
        if response is not None:
            await send_struct(scope, send, response)

    async def _read_request(self, decode: Callable[[bytes | bytearray], T], receive: Receive) -> T:
        """Read a body."""
        body = await read_body(receive)
        return await self._engine.large_work.run(decode, body) if len(body) >= MUCH else decode(body)

    async def _go_on(self, create: CreateResponse, scope: Scope, receive: Receive, send: Send) -> None:
        """Show a background response that a request has answered, and that goes on.

        To a request that is not one for the background itself it is shown until it is over, or waits again.
        """
        tenant, response_id = scope[CONTEXT].tenant, create.previous_response_id or ""
        to_rest = not create.background
        if create.stream:
            await self._tail(tenant, response_id, to_rest=to_rest)(scope, receive, send)
            return
        work = self._stored_object(create, tenant, response_id, named_headers(scope), to_rest=to_rest)
        response = await while_connected(scope, receive, work, self._stragglers)
        if response is not None:
            await send_struct(scope, send, response)

    async def _stored_object(
        self, create: CreateResponse, tenant: str, response_id: str, headers: Mapping[bytes, bytes], *, to_rest: bool
    ) -> ResponseObject:
        if to_rest:
            await self._runs.rest(tenant, response_id)
        calls = shown_beside(headers).calls
        return stored_response(await self._engine.retrieve(tenant, response_id, create.include, calls=calls))

    def _tail(self, tenant: str, response_id: str, after: int = -1, *, to_rest: bool = False) -> Tail:
        events = self._runs.events(tenant, response_id, after=after, to_rest=to_rest)
        return Tail(events, self._heartbeats, self._stragglers)

    async def _stream(self, plan: Plan, scope: Scope, receive: Receive, send: Send) -> None:
        stream = EventStream(send, scope.get(EXCHANGE))
        loop = self._engine.loop(plan, self._engine.journal(plan), stream)
        await run_streamed(loop, stream, scope, receive, heartbeats=self._heartbeats, stragglers=self._stragglers)

    # --- windows -----------------------------------------------------------------------------------------------------

    async def compact(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Compact a window: return items that mean the same and are shorter."""
        require_json(named_headers(scope))
        request = await self._read_request(decode_compact, receive)

        work = self._engine.compact(request, scope[CONTEXT])
        compacted = await while_connected(scope, receive, work, self._stragglers)
        if compacted is not None:
            await send_struct(scope, send, compacted)

    async def input_tokens(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Count the tokens that a request would send to the model."""
        require_json(named_headers(scope))
        create = await self._read_request(decode_count, receive)

        work = self._engine.input_tokens(create, scope[CONTEXT])
        count = await while_connected(scope, receive, work, self._stragglers)
        if count is not None:
            await send_struct(scope, send, InputTokens(input_tokens=count))

    # --- everything else ---------------------------------------------------------------------------------------------

    async def retrieve(
        self,
        ctx: Context,
        headers: Headers,
        response_id: str,
        *,
        stream: Stream = False,
        starting_after: StartingAfter = None,
        include: Include = None,
        include_obfuscation: Obfuscation = None,  # noqa: ARG002
    ) -> ResponseObject | Response:
        """Return a response; with `stream=true`, its events, those after `starting_after` only."""
        calls = shown_beside(dict(headers.raw)).calls
        if not stream:
            return stored_response(await self._engine.retrieve(ctx.tenant, response_id, include, calls=calls))
        after = -1 if starting_after is None else starting_after
        record = await self._engine.store.get(ctx.tenant, response_id)
        if record is None:
            raise not_found(response_id)
        # Its events may have been deleted before it: then they are made again of what it came to.
        if record.background and (
            record.status in ACTIVE or await self._engine.store.events(ctx.tenant, response_id, limit=1)
        ):
            return self._tail(ctx.tenant, response_id, after)
        response = await self._engine.retrieve(ctx.tenant, response_id, include, calls=calls)
        large = is_large(response["output"])
        body = await self._engine.large_work.run_if(large, _replayed, response, after, self._thoughts)
        return Response(body, media_type="text/event-stream")

    async def delete(self, ctx: Context, response_id: str) -> DeletedResponse:
        """Delete a response."""
        if not await self._runs.delete(ctx.tenant, response_id):
            raise not_found(response_id)
        return DeletedResponse(id=response_id)

    async def cancel(self, ctx: Context, response_id: str) -> ResponseObject:
        """Cancel a background response."""
        return stored_response(await self._runs.cancel(ctx.tenant, response_id))

    async def list(
        self, ctx: Context, limit: Limit = 20, after: After = None, before: Before = None, order: Order = "desc"
    ) -> ResponseList:
        """List responses, the newest first."""
        with unknown_cursor():
            page = await self._engine.store.list_responses(
                ctx.tenant, limit=limit, after=after, before=before, order=order
            )
        found = [stored_response(shown(found.record, found.output)) for found in page.data]
        return ResponseList.of(found, has_more=page.has_more)

    async def agents(self, ctx: Context, response_id: str) -> AgentList:
        """List the agent of a response and all that were started below it, with status, usage and timing."""
        found = await self._runs.agents.tree(ctx.tenant, response_id)
        if found is None:
            raise not_found(response_id)
        return AgentList(data=found)

    async def input_items(
        self,
        ctx: Context,
        response_id: str,
        *,
        limit: Limit = 20,
        after: After = None,
        order: Order = "desc",
        include: Include = None,  # noqa: ARG002 - whatever is kept is returned
    ) -> ItemList:
        """List the input items of a response, the last first."""
        if await self._engine.store.get(ctx.tenant, response_id) is None:
            raise not_found(response_id)
        entries = await self._engine.store.journal(ctx.tenant, response_id)
        items = [entry.item for entry in entries if entry.direction == "input" and entry.visible]
        if order == "desc":
            items.reverse()
        if after is not None:
            ids = [item["id"] for item in items]
            if after not in ids:
                raise BadRequestError(f"There is no item '{after}' in this list.", param="after")
            items = items[ids.index(after) + 1 :]
        return ItemList.of(items[:limit], has_more=len(items) > limit)


async def run_streamed(
    loop: Loop, stream: EventStream, scope: Scope, receive: Receive, *, heartbeats: Heartbeats, stragglers: Stragglers
) -> None:
    """Make a response whose events go to a stream, as long as somebody reads it."""
    loop.closing_error = _stopping
    with heartbeats.watching(stream):
        await while_connected(scope, receive, _stream_of(loop, stream), stragglers, on_leave=loop.forsake)


async def _stream_of(loop: Loop, stream: EventStream) -> None:
    try:
        await loop.run()
    except asyncio.CancelledError:
        if stream.started and loop.closing_error is not None:  # the server stops, and waits no longer
            await stream.end()
        raise
    await stream.end()


def _stopping() -> APIError:
    return ServiceUnavailableError("The server is stopping. Try again.")


def _replayed(response: JSON, after: int, thoughts: str) -> bytes:
    """Return the events of a response that is over, from one on; those of thoughts have a name of two."""
    frames: list[bytes] = []
    whole = msgspec.to_builtins(stored_response(response))
    replay_response(
        whole, Events(lambda kind, *data: frames.extend(frame(kind, one) for one in data), thoughts=thoughts)
    )
    return b"".join([*frames[after + 1 :], DONE])


def check_beta(scope: Scope) -> None:
    """Raise BadRequestError unless the header of the beta comes with its parameter."""
    given = [value for name, value in scope["headers"] if name == b"openai-beta"]
    if not any(MULTI_AGENT_BETA.encode() in value for value in given):
        message = f"'multi_agent' needs the header 'openai-beta: {MULTI_AGENT_BETA}'."
        raise BadRequestError(message, param="multi_agent", code="missing_beta")


def shown_beside(headers: Mapping[bytes, bytes]) -> Shown:
    """Return what a request wants to see beside what the API has."""
    if _SHOW_CALLS not in headers and _SHOW_PROGRESS not in headers and _SHOW_AGENTS not in headers:
        return AS_USUAL
    return Shown(_is_on(headers, _SHOW_CALLS), _is_on(headers, _SHOW_PROGRESS), _is_on(headers, _SHOW_AGENTS))


def _is_on(headers: Mapping[bytes, bytes], name: bytes) -> bool:
    return headers.get(name, b"").lower() not in {b"0", b"false", b""}
