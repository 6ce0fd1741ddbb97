"""Questions that the webhook was given up telling of: a list, each once, whoever of several servers gives it up.

What is kept of one names its question, and has nothing of what is asked: it is gone with the question.
"""

import time
from collections.abc import AsyncIterator
from typing import Annotated, Literal, NamedTuple, Self

from msgspec import Meta, Struct

from antwort.provider import ConflictError, Kept, NotFoundError, Page, Question, Records

_KIND = "failed_delivery"
_AT_WORK = 5.0
"""Seconds beyond the timeout after which a try that nobody has ended is taken for one that a crash has cut off."""


class FailedTry(NamedTuple):
    """Why a message did not get through."""

    message: str
    status: int | None = None
    """That of the answer, if there was one."""

    @property
    def final(self) -> bool:
        """Whether the other side wants to be told no more: 410 Gone. What else it says may be mended, here or there."""
        return self.status == 410


class FailedDelivery(Struct, kw_only=True):
    """A message to the webhook that was given up."""

    id: Annotated[str, Meta(description="The id of the message, which is that of the question.")]
    object: Literal["webhook.failed_delivery"] = "webhook.failed_delivery"
    created_at: Annotated[int, Meta(description="When it was given up.")]
    event: Annotated[Literal["question.created"], Meta(description="What it was to tell.")] = "question.created"
    response_id: Annotated[str, Meta(description="The response that has asked.")]
    asked_at: Annotated[int, Meta(description="When the question was asked, and first told.")]
    tried_at: Annotated[int, Meta(description="When it was tried last.")]
    status: Annotated[int | None, Meta(description="The status of the last answer, if there was one.")] = None
    error: Annotated[str | None, Meta(description="Why the last try failed.")] = None
    retries: Annotated[int, Meta(description="How often it was tried again by hand.")] = 0
    delivered: Annotated[bool, Meta(description="Whether it has got through now: it is in the list no more then.")]

    @classmethod
    def of(cls, kept: Kept, *, delivered: bool = False) -> Self:
        """Return one as it is shown."""
        value = kept.value
        return cls(
            id=kept.id,
            created_at=kept.created_at,
            response_id=value["response_id"],
            asked_at=value["asked_at"],
            tried_at=value["tried_at"],
            status=value["status"],
            error=value["error"],
            retries=value["retries"],
            delivered=delivered,
        )


class FailedDeliveries:
    """Keeps what was given up."""

    def __init__(self, records: Records) -> None:
        self._records = records

    async def give_up(self, question: Question, failure: FailedTry) -> bool:
        """Keep a question that was not told; False if it is kept already."""
        now = int(time.time())
        value = {
            "response_id": question.response_id,
            "asked_at": question.created_at,
            "retries": 0,
            "busy_until": 0,
            **_tried(failure, now),
        }
        try:
            await self._records.create(question.tenant, _KIND, question.id, value, created_at=now)
        except ConflictError:
            return False
        return True

    async def has(self, question: Question) -> bool:
        """Tell whether a question was given up."""
        return await self._records.get(question.tenant, _KIND, question.id) is not None

    async def all(self) -> AsyncIterator[Kept]:
        """Yield those of all tenants, the oldest first."""
        number = 0
        while found := await self._records.scan(_KIND, after=number):
            for number, kept in found:  # noqa: B007 - the last one is where to go on
                yield kept

    async def page(self, tenant: str, *, limit: int, after: str | None, before: str | None, order: str) -> Page:
        """Return a part of the list; a NotFoundError if there is none to go on from."""
        return await self._records.list(tenant, _KIND, limit=limit, after=after, before=before, order=order)

    async def get(self, tenant: str, name: str) -> Kept:
        """Return one of the tenant's; a NotFoundError if there is none."""
        kept = await self._records.get(tenant, _KIND, name)
        if kept is None:
            raise delivery_not_found(name)
        return kept

    async def take(self, tenant: str, name: str, lasts: float) -> Kept:
        """Return one that is about to be tried again, and is nobody else's meanwhile; a ConflictError if it is."""
        kept = await self.get(tenant, name)
        now = time.time()
        free = kept.value["busy_until"] <= now
        kept.value["busy_until"] = int(now + lasts + _AT_WORK)
        if not free or not await self._records.update(kept):
            raise ConflictError(f"The delivery '{name}' is being tried again already.", code="delivery_in_progress")
        return kept

    async def tried_again(self, kept: Kept, failure: FailedTry | None) -> None:
        """Take note of a try; the next one may come. What was dropped meanwhile stays away."""
        again = {"retries": kept.value["retries"] + 1, "busy_until": 0}
        kept.value |= again | _tried(failure, int(time.time()))
        await self._records.update(kept)

    async def drop(self, tenant: str, name: str) -> None:
        """Forget one."""
        await self._records.delete(tenant, _KIND, name)


def delivery_not_found(name: str) -> NotFoundError:
    """Return the error for one that is not in the list, or not any more."""
    return NotFoundError(f"Failed delivery with id '{name}' not found.", param="delivery_id")


def _tried(failure: FailedTry | None, now: int) -> dict[str, object]:
    return {"tried_at": now, "status": failure and failure.status, "error": failure and failure.message}
