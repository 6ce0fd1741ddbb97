"""`/v1/conversations`: items that several responses share."""

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from antwort.concurrency.large_work import LargeWork, is_large
from antwort.context import Context
from antwort.context.context import CONVERSATIONS_READ, CONVERSATIONS_WRITE, RESPONSES_READ
from antwort.engine.calls.items import shown_item
from antwort.engine.planning.input import ID_PREFIXES, read_input
from antwort.engine.planning.input_files import CheckUrl, check_links, item_links
from antwort.engine.window import resolve_references
from antwort.errors import BadRequestError, NotFoundError
from antwort.runs.limits import TenantLimits
from antwort.server.api.description import examples
from antwort.storage.base import ConversationRecord, JournalEntry
from antwort.storage.sql.conversations import already_there
from antwort.storage.sql.store import Store
from antwort.types import JSON
from antwort.web.parameters import After, Before, Include, Limit, Order, unknown_cursor
from antwort.web.routes import Route
from antwort.wire.answers import Conversation, ConversationList, DeletedConversation, ItemList
from antwort.wire.field_errors import wrong_prefix
from antwort.wire.ids import new_id
from antwort.wire.items import COMPONENT, AnyItem

MOST_ITEMS = 20

Item = Annotated[JSON, Field(json_schema_extra={COMPONENT: "InputItem"})]
Items = Annotated[list[Item], Field(max_length=MOST_ITEMS, description="Items, as in the input of a response.")]
Metadata = Annotated[
    dict[Annotated[str, Field(max_length=64)], Annotated[str, Field(max_length=512)] | None],
    Field(
        max_length=16,
        description="Up to 16 pairs to find it by; keys of 64 and values of 512 characters. Null leaves one out.",
    ),
]


def _checked_id(value: str) -> str:
    if not value.startswith("conv"):
        raise wrong_prefix("conversation_id", value, "conv")
    return value


ConversationId = Annotated[str, Field(max_length=64), AfterValidator(_checked_id)]


class _ConversationBody(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, defer_build=True)


class CreateConversation(_ConversationBody):
    """A request for a conversation."""

    items: Items | None = None
    metadata: Metadata | None = None


class UpdateConversation(_ConversationBody):
    """New metadata for a conversation, in place of the old."""

    metadata: Metadata | None


class CreateItems(_ConversationBody):
    """Items to add to a conversation."""

    items: Annotated[Items, Field(min_length=1)]


class ConversationEndpoints:
    """The endpoints of conversations."""

    def __init__(
        self,
        store: Store,
        limits: TenantLimits,
        large_work: LargeWork,
        check_url: CheckUrl | None = None,
        checked_items: Callable[[Sequence[JSON], Context], Awaitable[Sequence[JSON]]] | None = None,
    ) -> None:
        self._checked_items = checked_items
        self._store = store
        self._limits = limits
        self._large_work = large_work
        self._check_url = check_url
        self._conversations = store.conversations

    def routes(self) -> list[Route]:
        """Return the routes."""
        every, one = "/v1/conversations", "/v1/conversations/{conversation_id}"
        items, item = f"{one}/items", f"{one}/items/{{item_id}}"
        read, write = partial(Route, scope=CONVERSATIONS_READ), partial(Route, scope=CONVERSATIONS_WRITE)
        return [
            write("POST", every, self.create, examples=examples.CREATE_CONVERSATION),
            read("GET", every, self.list_all, examples=examples.LIST_CONVERSATIONS),
            read("GET", one, self.retrieve, examples=examples.RETRIEVE_CONVERSATION),
            write("POST", one, self.update, examples=examples.UPDATE_CONVERSATION),
            write("DELETE", one, self.delete, examples=examples.DELETE_CONVERSATION),
            write("POST", items, self.create_items, examples=examples.CREATE_ITEMS),
            read("GET", items, self.list_items, examples=examples.LIST_ITEMS),
            read("GET", item, self.retrieve_item, examples=examples.RETRIEVE_ITEM),
            write("DELETE", item, self.delete_item, examples=examples.DELETE_ITEM),
        ]

    async def create(self, ctx: Context, body: CreateConversation) -> Conversation:
        """Create a conversation, with up to 20 items to begin with."""
        await self._limits.check_room(ctx.tenant)
        entries = await self._entries(ctx, body.items or ())
        record = ConversationRecord(new_id("conv"), ctx.tenant, int(time.time()), _without_nulls(body.metadata))
        await self._conversations.create(record, entries)
        return _conversation_object(record)

    async def retrieve(self, ctx: Context, conversation_id: ConversationId) -> Conversation:
        """Return a conversation."""
        record = await self._conversations.get(ctx.tenant, conversation_id)
        if record is None:
            raise _not_found(conversation_id)
        return _conversation_object(record)

    async def list_all(
        self, ctx: Context, limit: Limit = 20, after: After = None, before: Before = None, order: Order = "desc"
    ) -> ConversationList:
        """List conversations, the newest first."""
        with unknown_cursor():
            page = await self._conversations.list_conversations(
                ctx.tenant, limit=limit, after=after, before=before, order=order
            )
        found = [_conversation_object(record) for record in page.data]
        first, last = (found[0].id, found[-1].id) if found else (None, None)
        return ConversationList(data=found, first_id=first, last_id=last, has_more=page.has_more)

    async def update(self, ctx: Context, conversation_id: ConversationId, body: UpdateConversation) -> Conversation:
        """Replace the metadata of a conversation."""
        record = await self._conversations.update(ctx.tenant, conversation_id, _without_nulls(body.metadata))
        if record is None:
            raise _not_found(conversation_id)
        return _conversation_object(record)

    async def delete(self, ctx: Context, conversation_id: ConversationId) -> DeletedConversation:
        """Delete a conversation with its items; responses made in it stay."""
        if not await self._conversations.delete(ctx.tenant, conversation_id):
            raise _not_found(conversation_id)
        return DeletedConversation(id=conversation_id)

    async def create_items(
        self,
        ctx: Context,
        conversation_id: ConversationId,
        body: CreateItems,
        include: Include = None,  # noqa: ARG002 - whatever is kept is returned
    ) -> ItemList:
        """Add up to 20 items to a conversation."""
        await self._limits.check_room(ctx.tenant)
        entries = await self._entries(ctx, body.items)
        added = await self._conversations.add(ctx.tenant, conversation_id, entries, renaming=False)
        if added is None:
            raise _not_found(conversation_id)
        return ItemList.of([entry.item for entry in added], has_more=False)

    async def list_items(
        self,
        ctx: Context,
        conversation_id: ConversationId,
        *,
        limit: Limit = 20,
        after: After = None,
        order: Order = "desc",
        include: Include = None,
    ) -> ItemList:
        """List the items of a conversation, the last first."""
        page = await self._conversations.items(ctx.tenant, conversation_id, limit=limit, after=after, order=order)
        if page is None:
            raise _not_found(conversation_id)
        return ItemList.of([shown_item(entry, include) for entry in page.data], has_more=page.has_more)

    async def retrieve_item(
        self,
        ctx: Context,
        conversation_id: ConversationId,
        item_id: str,
        include: Include = None,
    ) -> AnyItem:
        """Return an item of a conversation."""
        entry = await self._conversations.item(ctx.tenant, conversation_id, item_id)
        if entry is None or not entry.visible:
            raise _no_item(conversation_id, item_id)
        return shown_item(entry, include)

    async def delete_item(self, ctx: Context, conversation_id: ConversationId, item_id: str) -> Conversation:
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
            if self._checked_items is not None:
                items = await self._checked_items(items, ctx)
            large = is_large(items)
            read = await self._large_work.run_if(large, read_input, items)
            if self._check_url is not None:
                await check_links(await self._large_work.run_if(large, _links, read), self._check_url)
            _check_ids(items)
            return await resolve_references(await self._existing(ctx, items, read), self._store, ctx)
        except (BadRequestError, NotFoundError) as error:
            message = error.message.replace("input[", "items[", 1)
            param = None if error.param is None else error.param.replace("input", "items", 1)
            raise type(error)(message, param=param, code=error.code) from None

    async def _existing(self, ctx: Context, items: Sequence[JSON], read: Sequence[JSON]) -> list[JSON]:
        """Return items, with those that exist already in the place of what was sent under their ids."""
        if not (ctx.grants(RESPONSES_READ) and ctx.grants(CONVERSATIONS_READ)):  # it may be an item of either
            return [*read]
        found = []
        for sent, item in zip(items, read, strict=True):
            known = await self._store.find_item(ctx.tenant, item["id"]) if sent.get("id") else None
            found.append(item if known is None or not known.is_plain else known.item)
        return found


def _check_ids(items: Sequence[JSON]) -> None:
    """Refuse ids that are not those of items of their type, and one that is there twice."""
    seen: set[str] = set()
    for index, item in enumerate(items):
        if (given := item.get("id")) in seen:
            raise already_there(str(given))
        if given:
            seen.add(str(given))
        prefix = ID_PREFIXES.get(item.get("type") or "message")
        if prefix is not None and given and not str(given).startswith(prefix):
            raise wrong_prefix(f"items[{index}].id", str(given), prefix)


def _without_nulls(metadata: Mapping[str, str | None] | None) -> dict[str, str]:
    return {name: value for name, value in (metadata or {}).items() if value is not None}


def _links(items: Sequence[JSON]) -> list[tuple[str, str]]:
    return [link for index, item in enumerate(items) for link in item_links(item, f"input[{index}]")]


def _conversation_object(record: ConversationRecord) -> Conversation:
    return Conversation(id=record.id, created_at=record.created_at, metadata=record.metadata)


def _not_found(conversation_id: str) -> NotFoundError:
    return NotFoundError(f"Conversation with id '{conversation_id}' not found.")


def _no_item(conversation_id: str, item_id: str) -> NotFoundError:
    return NotFoundError(f"Item with id '{item_id}' not found in conversation '{conversation_id}'.")
