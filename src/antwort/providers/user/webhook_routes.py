"""`/v1/webhooks/failed`: messages that were given up are listed, tried again or dropped."""

from collections.abc import Callable
from typing import Annotated, Literal

from msgspec import Struct, structs, to_builtins

from antwort.provider import BadRequestError, ConflictError, Context, Example, Field, NotFoundError, Provider, route
from antwort.providers.user.failed_deliveries import FailedDeliveries, FailedDelivery
from antwort.providers.user.routes import ASKED, UserSettings
from antwort.providers.user.webhook import Webhook


class FailedDeliveryList(Struct, kw_only=True):
    """A part of the list of messages that were given up."""

    object: Literal["list"] = "list"
    data: list[FailedDelivery]
    first_id: str | None
    last_id: str | None
    has_more: bool


_ALL = "/v1/webhooks/failed"
_ONE = f"{_ALL}/{{delivery_id}}"
_READ, _WRITE = "webhooks:read", "webhooks:write"
_FAILED = FailedDelivery(
    id=ASKED.id,
    created_at=ASKED.created_at + 259_200,
    response_id=ASKED.response_id,
    asked_at=ASKED.created_at,
    tried_at=ASKED.created_at + 259_200,
    status=503,
    error="It answered with the status 503.",
    delivered=False,
)
_DELIVERED = structs.replace(
    _FAILED, tried_at=_FAILED.tried_at + 3600, status=None, error=None, retries=1, delivered=True
)
_LIST = FailedDeliveryList(data=[_FAILED], first_id=ASKED.id, last_id=ASKED.id, has_more=False)
_PATH = {"delivery_id": ASKED.id}

Limit = Annotated[int, Field(ge=1, le=100, description="How many at most.")]
Cursor = Annotated[str | None, Field(description="The id of a delivery in the list.")]
Order = Annotated[Literal["asc", "desc"], Field(description="By the time at which they were given up.")]


class FailedDeliveryRoutes:
    """The routes of messages that were given up."""

    def __init__(self, provider: Provider[UserSettings], webhook: Callable[[], Webhook]) -> None:
        self._provider = provider
        self._webhook = webhook

    @property
    def _failed(self) -> FailedDeliveries:
        return FailedDeliveries(self._provider.services.records)

    @route("GET", _ALL, scope=_READ, examples=[Example(to_builtins(_LIST))])
    async def list_failed_deliveries(
        self,
        ctx: Context,
        limit: Limit = 20,
        after: Cursor = None,
        before: Cursor = None,
        order: Order = "desc",
    ) -> FailedDeliveryList:
        """List messages to the webhook that were given up, the last ones first."""
        try:
            page = await self._failed.page(ctx.tenant, limit=limit, after=after, before=before, order=order)
        except NotFoundError as error:  # the list itself is there
            raise BadRequestError(error.message, param=error.param or "after", code="invalid_value") from None
        data = [FailedDelivery.of(kept) for kept in page.data]
        return FailedDeliveryList(
            data=data,
            first_id=data[0].id if data else None,
            last_id=data[-1].id if data else None,
            has_more=page.has_more,
        )

    @route("GET", _ONE, scope=_READ, examples=[Example(to_builtins(_FAILED), parameters=_PATH)])
    async def retrieve_failed_delivery(self, ctx: Context, delivery_id: str) -> FailedDelivery:
        """Return a message that was given up; what it asks is the question with the same id."""
        return FailedDelivery.of(await self._failed.get(ctx.tenant, delivery_id))

    @route(
        "POST",
        f"{_ONE}/retry",
        scope=_WRITE,
        errors=[ConflictError],
        examples=[Example(to_builtins(_DELIVERED), parameters=_PATH)],
    )
    async def retry_failed_delivery(self, ctx: Context, delivery_id: str) -> FailedDelivery:
        """Try a message once more, at once, with the question as it is now; one that gets through leaves the list."""
        return await self._webhook().deliver_again(ctx.tenant, delivery_id)

    @route("POST", f"{_ONE}/drop", scope=_WRITE, examples=[Example(to_builtins(_FAILED), parameters=_PATH)])
    async def drop_failed_delivery(self, ctx: Context, delivery_id: str) -> FailedDelivery:
        """Take a message off the list, and tell nobody of it; its question stays."""
        kept = await self._failed.get(ctx.tenant, delivery_id)
        await self._failed.drop(ctx.tenant, delivery_id)
        return FailedDelivery.of(kept)
