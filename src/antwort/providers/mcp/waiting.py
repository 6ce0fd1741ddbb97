"""Calls whose server asks the user something: what is kept of them until he has answered.

Servers of 2026-07-28 end their answer with the question and a state: both are kept in the database, and nothing stays
in memory. Older ones ask while they work: their answer is held open, and lost with this process.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from antwort.provider import JSON, Context, Kept, Records
from antwort.providers.mcp.elicitation import CANCELLED, DECLINED, METHOD, asked_user, can_ask
from antwort.providers.mcp.errors import McpProtocolError

KIND = "mcp_call"
_HELD_FOR = 24 * 3600.0
"""Seconds for which an answer is held open."""
_MOST_HELD = 100
LOST = "The process ended while the call was under way. Nobody knows what came of it: look before you make it again."
Within = Callable[[JSON], Awaitable[JSON]]
"""Answers what an older server asks while it works on a call."""


class _Round(Struct):
    """What is kept of a call that waits."""

    number: int
    requests: dict[str, JSON]
    state: str | None = None
    sent: bool = False
    """Whether the answers were sent: what comes of the call since then, only its server knows."""

    def fields(self, answers: JSON) -> JSON:
        """Return what a call has besides, when it is made again with the answers."""
        fields: JSON = {"inputResponses": answers} if answers else {}
        return fields if self.state is None else {**fields, "requestState": self.state}


class CallUser:
    """The user on whose behalf a call is made, as far as its server wants to know something of him."""

    def __init__(self, ctx: Context, records: Records, label: str, *, repeatable: bool) -> None:
        self._ctx = ctx
        self._records = records
        self._label = label
        self._repeatable = repeatable
        self._kept: Kept | None = None
        self.key = _key(ctx)

    @property
    def is_there(self) -> bool:
        """Whether anybody can be asked."""
        return can_ask(self._ctx)

    async def begin(self) -> tuple[int, JSON]:
        """Return how often the server has asked already, and what the call has besides.

        McpProtocolError for a call that was under way when its process ended, unless it may be made again.
        """
        if not self._ctx.attached:
            return 0, {}
        self._kept = await self._records.get(self._ctx.tenant, KIND, self.key)
        kept = None if self._kept is None else msgspec.convert(self._kept.value, _Round)
        if kept is None or kept.sent:
            if self._repeatable:
                return 0, {}
            raise McpProtocolError(LOST)
        return kept.number, await self._answered(kept)

    async def answer(self, number: int, requests: Mapping[str, JSON], state: str | None) -> JSON:
        """Return what a call has besides, when it is made again; SuspendedError as long as the user says nothing."""
        asked = _Round(number, dict(requests), state)
        if not requests or not self.is_there:
            return asked.fields(dict.fromkeys(requests, DECLINED))
        await self._keep(asked)
        return await self._answered(asked)

    async def answer_within(self, number: int, params: JSON) -> JSON:
        """Return what the user says to a server that waits meanwhile; SuspendedError as long as that is nothing."""
        requests = {"asked": {"method": METHOD, "params": params}}
        return (await asked_user(self._ctx, self._label, requests, f"within{number}"))["asked"]

    async def end(self) -> None:
        """Forget a call that is over."""
        if self._kept is not None:
            await self._records.delete(self._ctx.tenant, KIND, self.key)

    async def _answered(self, asked: _Round) -> JSON:
        answers = await asked_user(self._ctx, self._label, asked.requests, f"round{asked.number}")
        asked.sent = True
        await self._keep(asked)
        return asked.fields(answers)

    async def _keep(self, asked: _Round) -> None:
        value = msgspec.to_builtins(asked)
        if self._kept is None:
            self._kept = await self._records.create(self._ctx.tenant, KIND, self.key, value)
            return
        self._kept.value = value
        if not await self._records.update(self._kept):
            raise McpProtocolError("Somebody else goes on with this call.")


class HeldCalls:
    """Calls of this process whose servers wait within their answers."""

    def __init__(self) -> None:
        self._calls: dict[tuple[str, str], _HeldCall] = {}

    async def outcome(self, make: Callable[[Within], Coroutine[Any, Any, JSON]], user: CallUser, tenant: str) -> JSON:
        """Make a call, or go on with it; SuspendedError while the user says nothing to what its server asks."""
        call = self._calls.pop((tenant, user.key), None)
        if call is None:
            await user.begin()
            call = _HeldCall(make)
        is_held = False
        try:
            while (question := await call.question()) is not None:
                is_held = len(self._calls) < _MOST_HELD
                call.answer(await user.answer_within(call.number, question) if is_held else CANCELLED)
                is_held = False
            return await call.task
        finally:
            if is_held:  # it was left while the user was asked
                self._calls[tenant, user.key] = call
            else:
                call.task.cancel()

    async def close(self) -> None:
        """Give up all that is held."""
        tasks = [call.task for call in self._calls.values()]
        self._calls.clear()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


class _HeldCall:
    """A call that goes on beside whoever has made it."""

    def __init__(self, make: Callable[[Within], Coroutine[Any, Any, JSON]]) -> None:
        self.number = 0
        """How often its server has asked."""
        self._question: JSON | None = None
        self._answer: asyncio.Future[JSON] | None = None
        self._news = asyncio.Event()
        self.task = asyncio.get_running_loop().create_task(make(self._ask))
        self.task.add_done_callback(lambda _: self._news.set())

    async def question(self) -> JSON | None:
        """Return what the server asks, as soon as it does; None when the call is over."""
        await self._news.wait()
        return None if self.task.done() else self._question

    def answer(self, answer: JSON) -> None:
        """Say to the server what the user says."""
        if self._answer is not None and not self._answer.done():
            self._news.clear()
            self._answer.set_result(answer)

    async def _ask(self, params: JSON) -> JSON:
        self.number += 1
        self._question, self._answer = params, asyncio.get_running_loop().create_future()
        self._news.set()
        try:
            return await asyncio.wait_for(self._answer, _HELD_FOR)
        except TimeoutError:
            return CANCELLED


def _key(ctx: Context) -> str:
    """Return the name of a call within its tenant: models may give one id to calls of several runs."""
    named = msgspec.json.encode([ctx.agent_id or ctx.response_id, ctx.call_id])
    return hashlib.blake2b(named, digest_size=24).hexdigest()
