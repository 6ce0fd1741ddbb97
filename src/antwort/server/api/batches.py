"""`/v1/batches`: many requests in a file, which are answered when there is time, and their answers in another."""

from collections.abc import Sequence
from typing import Annotated, Literal

from msgspec import Struct
from pydantic import BaseModel, ConfigDict, Field

from antwort.context import Context
from antwort.context.context import BATCHES_READ, BATCHES_WRITE
from antwort.engine.planning.input_files import FILES_READ
from antwort.errors import BadRequestError, ConflictError
from antwort.runs.limits import TenantLimits
from antwort.server.api.description import examples
from antwort.server.batches import ENDPOINTS, BatchRunner
from antwort.storage.batches import Batch, BatchOwner, new_batch
from antwort.web.parameters import After, Limit, unknown_cursor
from antwort.web.routes import Route

_DAY = 86_400


class OutputExpiry(BaseModel):
    """When files of answers expire."""

    model_config = ConfigDict(extra="forbid", strict=True, defer_build=True)

    anchor: Annotated[Literal["created_at"], Field(description="Taken and ignored.")]
    seconds: Annotated[int, Field(ge=3600, le=30 * _DAY, description="Taken and ignored.")]


class BatchOrder(BaseModel):
    """A request for a batch."""

    model_config = ConfigDict(extra="forbid", strict=True, defer_build=True)

    input_file_id: Annotated[
        str, Field(min_length=1, max_length=256, description="A file with a JSON object in each line: a request.")
    ]
    endpoint: Annotated[str, Field(max_length=256, description="Where all of them go.")]
    completion_window: Annotated[str, Field(max_length=256, description="The time it may take: `24h`.")]
    metadata: Annotated[
        dict[Annotated[str, Field(max_length=64)], Annotated[str, Field(max_length=512)]] | None,
        Field(max_length=16, description="Up to 16 pairs of text of your own."),
    ] = None
    idempotency_key: Annotated[
        Annotated[str, Field(min_length=1, max_length=256)] | None,
        Field(description="A name for the request: sent again with it, it is answered with the same batch."),
    ] = None
    output_expires_after: Annotated[OutputExpiry | None, Field(description="Taken and ignored.")] = None


class BatchList(Struct, kw_only=True):
    """A page of batches."""

    object: Literal["list"] = "list"
    data: Sequence[Batch]
    first_id: str | None
    last_id: str | None
    has_more: bool


class BatchEndpoints:
    """The endpoints of batches."""

    def __init__(self, runner: BatchRunner, limits: TenantLimits) -> None:
        self._runner = runner
        self._batches = runner.batches.of(Batch)
        self._limits = limits

    def routes(self) -> list[Route]:
        """Return the routes."""
        every, one = "/v1/batches", "/v1/batches/{batch_id}"
        conflicts = [ConflictError]
        return [
            Route("POST", every, self.create, scope=BATCHES_WRITE, errors=conflicts, examples=examples.CREATE_BATCH),
            Route("GET", every, self.list, scope=BATCHES_READ, examples=examples.LIST_BATCHES),
            Route("GET", one, self.retrieve, scope=BATCHES_READ, examples=examples.RETRIEVE_BATCH),
            Route(
                "POST",
                f"{one}/cancel",
                self.cancel,
                scope=BATCHES_WRITE,
                errors=conflicts,
                examples=examples.CANCEL_BATCH,
            ),
        ]

    async def create(self, ctx: Context, body: BatchOrder) -> Batch:
        """Create a batch, and read its file afterwards: what is wrong there is in the `errors` of the batch.

        Its requests are made on behalf of whoever has created it, with the scopes of that credential. If it is an API
        key that is revoked or expires, the batch is `cancelled`, and its `errors` say so.
        """
        if body.endpoint not in ENDPOINTS:
            known = ", ".join(ENDPOINTS)
            raise BadRequestError(
                f"The endpoint '{body.endpoint[:64]}' takes no batches; those that do are {known}.",
                param="endpoint",
                code="invalid_value",
            )
        if body.completion_window != "24h":
            raise BadRequestError(
                f"The completion window '{body.completion_window[:64]}' is not 24h, the only one there is.",
                param="completion_window",
                code="invalid_value",
            )
        ctx.require(FILES_READ, param="input_file_id", purpose="to read a file")
        await self._limits.check_room(ctx.tenant)
        new = new_batch(body.endpoint, body.input_file_id, body.completion_window, _DAY, body.metadata)
        owner = BatchOwner(ctx.subject, sorted(ctx.scopes), ctx.key_id)
        batch = await self._batches.create(ctx.tenant, new, owner, body.idempotency_key)
        self._runner.wake(batch)
        return batch

    async def list(self, ctx: Context, *, limit: Limit = 20, after: After = None) -> BatchList:
        """List batches, the newest first."""
        with unknown_cursor():
            page = await self._batches.page(ctx.tenant, limit=limit, after=after)
        first, last = (page.data[0].id, page.data[-1].id) if page.data else (None, None)
        return BatchList(data=page.data, first_id=first, last_id=last, has_more=page.has_more)

    async def retrieve(self, ctx: Context, batch_id: str) -> Batch:
        """Return a batch."""
        return await self._batches.get(ctx.tenant, batch_id)

    async def cancel(self, ctx: Context, batch_id: str) -> Batch:
        """Cancel a batch: requests that are under way come to their end, others are not made.

        What was answered so far is in its files when it is `cancelled`.
        """
        batch = await self._batches.change(ctx.tenant, batch_id, _cancel)
        self._runner.wake(batch)
        return batch


def _cancel(batch: Batch) -> None:
    if batch.status in {"completed", "failed", "expired"}:
        raise ConflictError(f"The batch is {batch.status}: there is nothing to cancel.")
    if batch.status not in {"cancelling", "cancelled"}:
        batch.enter("cancelling")
