"""Chat completions that their clients want kept: the answers, what they answer, and what they are found by."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from antwort.errors import NotFoundError
from antwort.storage.base import Kept, Page, Records
from antwort.types import JSON
from antwort.wire.ids import new_id

_HEAD, _ANSWER, _MESSAGES = "chat_completion", "chat_answer", "chat_messages"
_TOGETHER = 100
"""Heads that are looked at in one go."""
_PAGE_BYTES = 8 << 20
"""Bytes after which a page ends: answers may be long, and a page has up to a hundred."""


class NewChat(Struct, frozen=True):
    """A chat completion that is to be kept."""

    id: str
    models: Sequence[str]
    """What its model is called: by whoever asked, and in the answer."""
    metadata: Mapping[str, str]
    answer: msgspec.Raw
    """The completion, as JSON."""
    messages: msgspec.Raw
    """The messages that it answers, as JSON."""


class OldChat(Struct, frozen=True):
    """A kept completion as housekeeping sees it."""

    number: int
    """It follows the order of keeping."""
    tenant: str
    id: str
    created_at: int


def new_chat_id() -> str:
    """Return the id of a new chat completion."""
    return new_id("chatcmpl").replace("_", "-")


class ChatCompletions:
    """The chat completions of all tenants that are kept.

    Each has three records: a small one by which it is found, the answer, and the messages before it. It is there as
    long as its answer is: whatever else a crash leaves of it goes with the first that deletes it.
    """

    def __init__(self, records: Records) -> None:
        self._records = records

    async def keep(self, tenant: str, chat: NewChat) -> None:
        """Keep a completion."""
        head: JSON = {"models": [*chat.models], "metadata": {**chat.metadata}, "size": len(bytes(chat.answer))}
        now = int(time.time())
        await self._records.create(tenant, _HEAD, chat.id, head, created_at=now)
        await self._records.create(tenant, _MESSAGES, chat.id, {"messages": chat.messages}, created_at=now)
        await self._records.create(tenant, _ANSWER, chat.id, {"answer": chat.answer}, created_at=now)

    async def get(self, tenant: str, chat_id: str) -> JSON:
        """Return a completion; a NotFoundError if there is none."""
        head = await self._records.get(tenant, _HEAD, chat_id)
        found = None if head is None else await self._whole(head)
        if found is None:
            raise not_found(chat_id)
        return found

    async def messages(self, tenant: str, chat_id: str) -> list[JSON]:
        """Return the messages that a completion answers; a NotFoundError if there is no such completion."""
        kept = await self._records.get(tenant, _MESSAGES, chat_id)
        if kept is None:
            raise not_found(chat_id)
        found: list[JSON] = kept.value["messages"]
        return found

    async def page(
        self,
        tenant: str,
        *,
        limit: int,
        after: str | None,
        order: str,
        model: str | None,
        metadata: Mapping[str, str],
    ) -> Page:
        """Return completions of a model and with metadata, as `Records.list` does; fewer if they are very large."""
        found: list[JSON] = []
        room, more = _PAGE_BYTES, True
        while more:
            page = await self._records.list(tenant, _HEAD, limit=_TOGETHER, after=after, order=order)
            for head in page.data:
                if not _fits(head.value, model, metadata):
                    continue
                if len(found) == limit or (found and head.value["size"] > room):
                    return Page(found, has_more=True)
                if (whole := await self._whole(head)) is not None:
                    found.append(whole)
                    room -= head.value["size"]
            more = page.has_more
            after = page.data[-1].id if page.data else None
        return Page(found, has_more=False)

    async def update(self, tenant: str, chat_id: str, metadata: Mapping[str, str]) -> JSON:
        """Give a completion other metadata; return what it is then, or raise a NotFoundError if there is none."""
        while True:
            head = await self._records.get(tenant, _HEAD, chat_id)
            if head is None:
                raise not_found(chat_id)
            head.value["metadata"] = {**metadata}
            if await self._records.update(head):
                break
        found = await self._whole(head)
        if found is None:
            raise not_found(chat_id)
        return found

    async def delete(self, tenant: str, chat_id: str) -> bool:
        """Delete a completion with its messages; False if it was not there."""
        was_there = await self._records.delete(tenant, _ANSWER, chat_id)
        await self._records.delete(tenant, _MESSAGES, chat_id)
        await self._records.delete(tenant, _HEAD, chat_id)
        return was_there

    async def walk(self, after: int, limit: int) -> Sequence[OldChat]:
        """Return completions of all tenants in the order of keeping, those with a number above `after`."""
        found = await self._records.scan(_HEAD, after=after, limit=limit)
        return [OldChat(number, head.tenant, head.id, head.created_at) for number, head in found]

    async def _whole(self, head: Kept) -> JSON | None:
        kept = await self._records.get(head.tenant, _ANSWER, head.id)
        return None if kept is None else {**kept.value["answer"], "metadata": head.value["metadata"]}


def not_found(chat_id: str) -> NotFoundError:
    """Return the error for a completion that is not there, or not the tenant's."""
    return NotFoundError(f"Chat completion with id '{chat_id[:64]}' not found.")


def _fits(head: Mapping[str, Any], model: str | None, metadata: Mapping[str, str]) -> bool:
    known = head["metadata"]
    return (model is None or model in head["models"]) and all(known.get(name) == metadata[name] for name in metadata)
