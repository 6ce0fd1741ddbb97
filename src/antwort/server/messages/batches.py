"""`/v1/messages/batches`: many requests for messages, which are made when there is time, and what came of them."""

from collections.abc import AsyncIterator
from typing import Annotated

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from antwort.concurrency.large_work import MUCH, LargeWork
from antwort.context import Context
from antwort.context.context import BATCHES_READ, BATCHES_WRITE
from antwort.errors import BadRequestError
from antwort.runs.limits import TenantLimits
from antwort.server.api.description import examples
from antwort.server.batches import BatchRunner
from antwort.storage.batches import OVER, BatchOfMessages, BatchOwner, new_batch_of_messages
from antwort.web.answers import send_struct
from antwort.web.parameters import unknown_cursor
from antwort.web.requests import CONTEXT, ValueCount, named_headers, read_body, require_json
from antwort.web.routes import AsgiRoute, Route
from antwort.wire.messages.batches import (
    CreateMessageBatch,
    DeletedMessageBatch,
    MessageBatch,
    MessageBatchPage,
    MessageCounts,
    MessageResult,
    moment,
    read_message_batch,
)

MESSAGE_BATCHES = "/v1/messages/batches"
_DAY = 86_400
_BETA = b"anthropic-beta"
_PIECE = 1 << 18
_BESIDE = 256
"""Bytes of a line beside the params."""
_SCHEMES = (b"http", b"https")


class MessageBatchEndpoints:
    """The endpoints of batches of messages."""

    def __init__(self, runner: BatchRunner, limits: TenantLimits, large_work: LargeWork, max_values: int) -> None:
        self._runner = runner
        self._batches = runner.batches.of(BatchOfMessages)
        self._limits = limits
        self._large_work = large_work
        self._max_values = max_values

    def routes(self) -> list[Route | AsgiRoute]:
        """Return the routes."""
        one = f"{MESSAGE_BATCHES}/{{message_batch_id}}"
        return [
            AsgiRoute(
                "POST",
                MESSAGE_BATCHES,
                self.create,
                "Create a batch of requests for messages, as at Anthropic.",
                BATCHES_WRITE,
                body=CreateMessageBatch,
                returns=MessageBatch,
                examples=examples.CREATE_MESSAGE_BATCH,
            ),
            Route("GET", MESSAGE_BATCHES, self.list, scope=BATCHES_READ, examples=examples.LIST_MESSAGE_BATCHES),
            Route("GET", one, self.retrieve, scope=BATCHES_READ, examples=examples.RETRIEVE_MESSAGE_BATCH),
            Route("DELETE", one, self.delete, scope=BATCHES_WRITE, examples=examples.DELETE_MESSAGE_BATCH),
            Route("POST", f"{one}/cancel", self.cancel, scope=BATCHES_WRITE, examples=examples.CANCEL_MESSAGE_BATCH),
            Route(
                "GET",
                f"{one}/results",
                self.results,
                scope=BATCHES_READ,
                media_type="application/x-jsonl",
                returns=MessageResult,
                examples=examples.MESSAGE_RESULTS,
            ),
        ]

    async def create(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Create a batch of requests for messages.

        Its requests are made on behalf of whoever has created it, with the scopes of that credential. What is wrong
        with the `params` of one is told in its result.
        """
        headers = named_headers(scope)
        require_json(headers)
        ctx: Context = scope[CONTEXT]
        await self._limits.check_room(ctx.tenant)
        body = await read_body(receive)
        total, content = await self._large_work.run_if(len(body) >= MUCH, read_message_batch, body, self._check)
        del body
        batch = new_batch_of_messages(_DAY)
        batch.request_counts.total = total
        batch.input_file_id = await self._runner.files.keep_requests(ctx.tenant, batch, _pieces(content))
        passed_on = {name.decode(): headers[name].decode("latin-1") for name in (_BETA,) if name in headers}
        owner = BatchOwner(ctx.subject, sorted(ctx.scopes), ctx.key_id, passed_on)
        self._runner.wake(await self._batches.create(ctx.tenant, batch, owner))
        await send_struct(scope, send, _told(batch, _base(scope)))

    async def list(
        self,
        ctx: Context,
        request: Request,
        *,
        limit: Annotated[int, Field(ge=1, le=1000, description="How many to return.")] = 20,
        after_id: Annotated[str | None, Field(description="The page begins with what follows this batch.")] = None,
        before_id: Annotated[str | None, Field(description="The page ends before this batch.")] = None,
    ) -> MessageBatchPage:
        """List batches of messages, the newest first."""
        with unknown_cursor("_id"):
            page = await self._batches.page(ctx.tenant, limit=limit, after=after_id, before=before_id)
        found = [_told(batch, _base(request.scope)) for batch in page.data]
        first, last = (found[0].id, found[-1].id) if found else (None, None)
        return MessageBatchPage(data=found, has_more=page.has_more, first_id=first, last_id=last)

    async def retrieve(self, ctx: Context, request: Request, message_batch_id: str) -> MessageBatch:
        """Return a batch of messages."""
        return _told(await self._batches.get(ctx.tenant, message_batch_id), _base(request.scope))

    async def cancel(self, ctx: Context, request: Request, message_batch_id: str) -> MessageBatch:
        """Cancel a batch of messages: requests that are under way come to their end, others are not made."""
        batch = await self._batches.change(ctx.tenant, message_batch_id, _cancel)
        self._runner.wake(batch)
        return _told(batch, _base(request.scope))

    async def delete(self, ctx: Context, request: Request, message_batch_id: str) -> DeletedMessageBatch:
        """Delete a batch of messages that has ended, with its results."""
        del request  # clients of the beta send a parameter with it
        batch = await self._batches.get(ctx.tenant, message_batch_id)
        if batch.status not in OVER:
            raise BadRequestError(
                f"The batch '{batch.id}' has not ended. Cancel it, and delete it when it has.", code="batch_in_progress"
            )
        await self._runner.files.forget_own(ctx.tenant, batch)
        await self._batches.delete(ctx.tenant, batch.id)
        return DeletedMessageBatch(id=batch.id)

    async def results(self, ctx: Context, request: Request, message_batch_id: str) -> Response:
        """Return what came of each request of a batch that has ended, as lines of JSON in any order."""
        del request
        batch = await self._batches.get(ctx.tenant, message_batch_id)
        if batch.status not in OVER:
            raise BadRequestError(
                f"The batch '{batch.id}' has not ended, and has no results before.", code="batch_in_progress"
            )
        pieces = self._runner.files.answers(ctx.tenant, batch)
        first = await anext(pieces, b"")  # what cannot be read is told at once
        return StreamingResponse(_going_on(first, pieces), media_type="application/x-jsonl")

    def _check(self, params: bytes, where: str) -> None:
        """Refuse params that no request could have."""
        most = self._runner.limits.line_bytes - _BESIDE
        if len(params) > most:
            raise BadRequestError(f"'{where}' has more than {most:,} bytes.", param=where, code="invalid_value")
        if len(params) > self._max_values:  # each takes a byte
            values = ValueCount(self._max_values)
            for start in range(0, len(params), _PIECE):
                values.take(params[start : start + _PIECE])


def _cancel(batch: BatchOfMessages) -> None:
    if batch.status in OVER:
        raise BadRequestError(f"The batch '{batch.id}' has ended: there is nothing to cancel.", code="batch_ended")
    if batch.status != "cancelling":
        batch.enter("cancelling")


def _told(batch: BatchOfMessages, base: str) -> MessageBatch:
    """Return a batch as clients see it; `base` is the URL of the server, as they know it."""
    ended = batch.status in OVER
    counts, made = batch.request_counts, MessageCounts(processing=batch.request_counts.total)
    if ended:
        errored = counts.total - counts.completed - batch.canceled - batch.expired
        made = MessageCounts(
            succeeded=counts.completed, errored=errored, canceled=batch.canceled, expired=batch.expired
        )
    return MessageBatch(
        id=batch.id,
        processing_status="ended" if ended else "canceling" if batch.status == "cancelling" else "in_progress",
        request_counts=made,
        ended_at=None if batch.ended_at is None else moment(batch.ended_at),
        created_at=moment(batch.created_at),
        expires_at=moment(batch.created_at + _DAY),
        cancel_initiated_at=None if batch.cancelling_at is None else moment(batch.cancelling_at),
        results_url=f"{base}{MESSAGE_BATCHES}/{batch.id}/results" if ended else None,
    )


def _base(scope: Scope) -> str:
    """Return the URL under which a client has reached the server; a proxy in front of it may have told the scheme."""
    headers = named_headers(scope)
    told = headers.get(b"x-forwarded-proto", b"").lower()
    scheme = told.decode() if told in _SCHEMES else scope["scheme"]
    return f"{scheme}://{headers.get(b'host', b'').decode('latin-1')}"


async def _pieces(content: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(content), _PIECE):
        yield content[start : start + _PIECE]


async def _going_on(first: bytes, pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for piece in pieces:
        yield piece
