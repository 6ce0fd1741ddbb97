"""`/v1/conversations`: items that several responses share."""

import time
from collections.abc import Sequence
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from antwort.concurrency.large_work import LargeWork, is_large
from antwort.context import Context
from antwort.engine.history import resolve_references
from antwort.engine.input import read_input
from antwort.engine.links import CheckUrl, check_links, item_links
from antwort.errors import BadRequestError, NotFoundError
from antwort.runs.limits import TenantLimits
from antwort.scopes import CONVERSATIONS_READ, CONVERSATIONS_WRITE
from antwort.server.description import examples
from antwort.storage.base import ConversationRecord, JournalEntry
from antwort.storage.sql.store import Store
from antwort.types import JSON
from antwort.web.pagination import After, Include, Limit, Order, unknown_cursor
from antwort.web.routes import Route
from antwort.wire.answers import Conversation, DeletedConversation, ItemList
from antwort.wire.ids import new_id
from antwort.wire.items import COMPONENT, AnyItem

MOST_ITEMS = 20

Item = Annotated[JSON, Field(json_schema_extra={COMPONENT: "InputItem"})]
Items = Annotated[list[Item], Field(max_length=MOST_ITEMS, description="Items, as in the input of a response.")]
Metadata = Annotated[
    dict[Annotated[str, Field(max_length=64)], Annotated[str, Field(max_length=512)]],
    Field(max_length=16, description="Up to 16 pairs to find it by; keys of 64 and values of 512 characters."),
]


class CreateConversation(BaseModel):
    """A request for a conversation."""

    model_config = ConfigDict(extra="forbid")

    items: Items | None = None
    metadata: Metadata | None = None


class UpdateConversation(BaseModel):
    """New metadata for a conversation, in place of the old."""

    model_config = ConfigDict(extra="forbid")

    metadata: Metadata | None


class CreateItems(BaseModel):
    """Items to add to a conversation."""

    model_config = ConfigDict(extra="forbid")

    items: Annotated[Items, Field(min_length=1)]


class ConversationEndpoints:
    """The endpoints of conversations."""

    def __init__(
        self, store: Store, limits: TenantLimits, large_work: LargeWork, check_url: CheckUrl | None = None
    ) -> None:
        self._store = store
        self._limits = limits
        self._large_work = large_work
        self._check_url = check_url
        self._conversations = store.conversations

    def routes(self) -> list[Route]:
        """Return the routes."""
        one = "/v1/conversations/{conversation_id}"
        return [
            Route(
                "POST",
                "/v1/conversations",
                self.create,
                scope=CONVERSATIONS_WRITE,
                examples=examples.CREATE_CONVERSATION,
            ),
            Route(
                "GET",
                one,
                self.retrieve,
                scope=CONVERSATIONS_READ,
                examples=examples.RETRIEVE_CONVERSATION,
            ),
            Route(
                "POST",
                one,
                self.update,
                scope=CONVERSATIONS_WRITE,
                examples=examples.UPDATE_CONVERSATION,
            ),
            Route(
                "DELETE",
                one,
                self.delete,
                scope=CONVERSATIONS_WRITE,
                examples=examples.DELETE_CONVERSATION,
            ),
            Route(
                "POST",
                f"{one}/items",
                self.create_items,
                scope=CONVERSATIONS_WRITE,
                examples=examples.CREATE_ITEMS,
            ),
            Route(
                "GET",
                f"{one}/items",
                self.list_items,
                scope=CONVERSATIONS_READ,
                examples=examples.LIST_ITEMS,
            ),
            Route(
                "GET",
                f"{one}/items/{{item_id}}",
                self.retrieve_item,
                scope=CONVERSATIONS_READ,
                examples=examples.RETRIEVE_ITEM,
            ),
            Route(
                "DELETE",
                f"{one}/items/{{item_id}}",
                self.delete_item,
                scope=CONVERSATIONS_WRITE,
                examples=examples.DELETE_ITEM,
            ),
        ]

    async def create(self, ctx: Context, body: CreateConversation) -> Conversation:
        """Create a conversation, with up to 20 items to begin with."""
        await self._limits.check_room(ctx.tenant)
        entries = await self._entries(ctx, body.items or ())
        record = ConversationRecord(new_id("conv"), ctx.tenant, int(time.time()), body.metadata or {})
        await self._conversations.create(record, entries)
        return _shown(record)

    async def retrieve(self, ctx: Context, conversation_id: str) -> Conversation:
        """Return a conversation."""
        record = await self._conversations.get(ctx.tenant, conversation_id)
        if record is None:
            raise _not_found(conversation_id)
        return _shown(record)

    async def update(self, ctx: Context, conversation_id: str, body: UpdateConversation) -> Conversation:
        """Replace the metadata of a conversation."""
        record = await self._conversations.update(ctx.tenant, conversation_id, body.metadata or {})
        if record is None:
            raise _not_found(conversation_id)
        return _shown(record)

    async def delete(self, ctx: Context, conversation_id: str) -> DeletedConversation:
        """Delete a conversation with its items; responses made in it stay."""
        if not await self._conversations.delete(ctx.tenant, conversation_id):
            raise _not_found(conversation_id)
        return DeletedConversation(id=conversation_id)

    async def create_items(
        self,
        ctx: Context,
        conversation_id: str,
        body: CreateItems,
        include: Include = None,  # noqa: ARG002 - whatever is kept is returned
    ) -> ItemList:
        """Add up to 20 items to a conversation."""
        await self._limits.check_room(ctx.tenant)
        entries = await self._entries(ctx, body.items)
        added = await self._conversations.add(ctx.tenant, conversation_id, entries)
        if added is None:
            raise _not_found(conversation_id)
        return ItemList.of([entry.item for entry in added], has_more=False)

    async def list_items(
        self,
        ctx: Context,
        conversation_id: str,
        *,
        limit: Limit = 20,
        after: After = None,
        order: Order = "desc",
        include: Include = None,  # noqa: ARG002
    ) -> ItemList:
        """List the items of a conversation, the last first."""
        with unknown_cursor():
            page = await self._conversations.items(ctx.tenant, conversation_id, limit=limit, after=after, order=order)
        if page is None:
            raise _not_found(conversation_id)
        return ItemList.of([entry.item for entry in page.data], has_more=page.has_more)

    async def retrieve_item(
        self,
        ctx: Context,
        conversation_id: str,
        item_id: str,
        include: Include = None,  # noqa: ARG002
    ) -> AnyItem:
        """Return an item of a conversation."""
        entry = await self._conversations.item(ctx.tenant, conversation_id, item_id)
        if entry is None or not entry.visible:
            raise _no_item(conversation_id, item_id)
        return entry.item

    async def delete_item(self, ctx: Context, conversation_id: str, item_id: str) -> Conversation:
        """Delete an item and return the conversation it was in."""
        entry = await self._conversations.item(ctx.tenant, conversation_id, item_id)
        if entry is None or not entry.visible:
            raise _no_item(conversation_id, item_id)
        if not await self._conversations.remove(ctx.tenant, conversation_id, item_id):
            raise _no_item(conversation_id, item_id)
        return await self.retrieve(ctx, conversation_id)

    async def _entries(self, ctx: Context, items: Sequence[JSON]) -> list[JournalEntry]:
        """Read items as the input of a response is read; BadRequestError names the one that does not fit."""
        try:
            large = is_large(items)
            read = await self._large_work.run_if(large, read_input, items)
            if self._check_url is not None:
                await check_links(await self._large_work.run_if(large, _links, read), self._check_url)
            return await resolve_references(read, self._store, ctx)
        except BadRequestError as error:
            message = error.message.replace("input[", "items[", 1)
            param = None if error.param is None else error.param.replace("input[", "items[", 1)
            raise BadRequestError(message, param=param, code=error.code) from None


def _links(items: Sequence[JSON]) -> list[tuple[str, str]]:
    return [link for index, item in enumerate(items) for link in item_links(item, f"input[{index}]")]


def _shown(record: ConversationRecord) -> Conversation:
    return Conversation(id=record.id, created_at=record.created_at, metadata=record.metadata)


def _not_found(conversation_id: str) -> NotFoundError:
    return NotFoundError(f"Conversation with id '{conversation_id}' not found.", param="conversation_id")


def _no_item(conversation_id: str, item_id: str) -> NotFoundError:
    return NotFoundError(f"Item with id '{item_id}' not found in conversation '{conversation_id}'.", param="item_id")
