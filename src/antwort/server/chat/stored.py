"""`/v1/chat/completions/…`: completions that are kept, with what they answer."""

from functools import partial
from typing import Annotated

import msgspec
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from antwort.concurrency.large_work import LargeWork
from antwort.context import Context
from antwort.context.context import RESPONSES_READ, RESPONSES_WRITE
from antwort.errors import BadRequestError
from antwort.server.api.description import examples
from antwort.storage.chat_completions import ChatCompletions, not_found
from antwort.types import JSON
from antwort.web.parameters import After, Limit, Order, unknown_cursor
from antwort.web.routes import Route
from antwort.wire.chat.stored import (
    DeletedCompletion,
    StoredCompletion,
    StoredCompletionList,
    StoredMessageList,
    page_of,
    stored_message,
)

Model = Annotated[
    str | None,
    Field(max_length=512, description="Only completions of this model, as it was asked for or as the answer names it."),
]
MetadataFilter = Annotated[
    dict[str, str] | None, Field(description="Only completions with this metadata: `metadata[topic]=tea`.")
]

_DIGITS = 10


class UpdateCompletion(BaseModel):
    """New metadata for a completion, in place of the old."""

    model_config = ConfigDict(extra="forbid", strict=True, defer_build=True)

    metadata: Annotated[
        dict[Annotated[str, Field(max_length=64)], Annotated[str, Field(max_length=512)] | None] | None,
        Field(max_length=16, description="Up to 16 pairs of text of your own. Null leaves one out."),
    ]


class StoredCompletionEndpoints:
    """The endpoints of chat completions that are kept."""

    def __init__(self, chats: ChatCompletions, large_work: LargeWork) -> None:
        self._chats = chats
        self._large_work = large_work

    def routes(self) -> list[Route]:
        """Return the routes."""
        every, one = "/v1/chat/completions", "/v1/chat/completions/{completion_id}"
        read, completion = partial(Route, scope=RESPONSES_READ), StoredCompletion
        return [
            read("GET", every, self.list, returns=StoredCompletionList, examples=examples.LIST_CHATS),
            read("GET", one, self.retrieve, returns=completion, examples=examples.RETRIEVE_CHAT),
            read("GET", f"{one}/messages", self.messages, returns=StoredMessageList, examples=examples.CHAT_MESSAGES),
            Route(
                "POST",
                one,
                self.update,
                scope=f"{RESPONSES_READ} {RESPONSES_WRITE}",  # it returns the completion
                returns=completion,
                examples=examples.UPDATE_CHAT,
            ),
            Route("DELETE", one, self.delete, scope=RESPONSES_WRITE, examples=examples.DELETE_CHAT),
        ]

    async def list(
        self,
        ctx: Context,
        *,
        model: Model = None,
        metadata: MetadataFilter = None,
        limit: Limit = 20,
        after: After = None,
        order: Order = "asc",
    ) -> Response:
        """List the completions that are kept, the oldest first. A page of very large ones has fewer than `limit`."""
        with unknown_cursor():
            page = await self._chats.page(
                ctx.tenant, limit=limit, after=after, order=order, model=model, metadata=metadata or {}
            )
        return await self._answer(page_of(page.data, has_more=page.has_more))

    async def retrieve(self, ctx: Context, completion_id: str) -> Response:
        """Return a completion that was created with `store`."""
        return await self._answer(await self._chats.get(ctx.tenant, completion_id))

    async def messages(
        self, ctx: Context, completion_id: str, *, limit: Limit = 20, after: After = None, order: Order = "asc"
    ) -> Response:
        """List the messages that a completion answers, the first one first."""
        messages = await self._chats.messages(ctx.tenant, completion_id)
        numbers = range(len(messages)) if order == "asc" else range(len(messages) - 1, -1, -1)
        if after is not None:
            numbers = numbers[_index_of(after, completion_id, numbers) + 1 :]
        found = [stored_message(completion_id, number, messages[number]) for number in numbers[:limit]]
        return await self._answer(page_of(found, has_more=len(numbers) > limit))

    async def update(self, ctx: Context, completion_id: str, body: UpdateCompletion) -> Response:
        """Give a completion other metadata, in place of what it has."""
        metadata = {name: value for name, value in (body.metadata or {}).items() if value is not None}
        return await self._answer(await self._chats.update(ctx.tenant, completion_id, metadata))

    async def delete(self, ctx: Context, completion_id: str) -> DeletedCompletion:
        """Delete a completion with its messages."""
        if not await self._chats.delete(ctx.tenant, completion_id):
            raise not_found(completion_id)
        return DeletedCompletion(id=completion_id)

    async def _answer(self, value: JSON) -> Response:
        """Answer with what may be large: it is written on a thread."""
        body = await self._large_work.run(msgspec.json.encode, value)
        return Response(body, media_type="application/json")


def _index_of(message_id: str, completion_id: str, numbers: range) -> int:
    """Return where a message is in a list; BadRequestError if it is not in it."""
    name, _, number = message_id.rpartition("-")
    if name != completion_id or not (number.isascii() and number.isdigit() and len(number) < _DIGITS):
        raise _no_message(message_id)
    try:
        return numbers.index(int(number))
    except ValueError:
        raise _no_message(message_id) from None


def _no_message(message_id: str) -> BadRequestError:
    return BadRequestError(
        f"There is no message '{message_id[:100]}' in this list.", param="after", code="invalid_value"
    )
