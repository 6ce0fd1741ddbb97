"""How a response ends, whoever ends it: what is open is closed, the end is stored, then told."""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from typing import Any, Literal

import msgspec

from antwort.concurrency.undisturbed import failure_of
from antwort.engine.calls.lifecycle import interrupt_calls
from antwort.engine.journal import Journal
from antwort.engine.output.emitter import Emitter, LoopOutcome
from antwort.engine.turns.telemetry import TurnMetrics
from antwort.errors import APIError, RateLimitError
from antwort.wire.responses import NO_USAGE, IncompleteDetails, ResponseError, ResponseObject, Usage

logger = logging.getLogger(__name__)


class Ending(msgspec.Struct, frozen=True, eq=False):
    """Ends one response. It is stored before it is told: whoever hears of it can fetch it.

    What is told last of a response in the foreground is sent by whoever has made its sink, with the end of the stream.

    `close` closes the items that are being written and takes them into the journal, since only whoever writes them
    knows them: no item of a response that is over is in progress. Calls that are under way are interrupted here.
    """

    _response: ResponseObject
    _journal: Journal
    _emitter: Emitter
    _metrics: TurnMetrics
    _close: Callable[[], None]

    def complete(self, usage: Usage) -> Coroutine[Any, Any, None]:
        """End it with the answer that is there."""
        self._response.completed_at = int(time.time())
        return self._end("completed", usage)

    async def cut_short(self, why: LoopOutcome, usage: Usage) -> None:
        """End it because a limit is reached: the answer is as long as it is."""
        self._close_all()
        self._response.incomplete_details = IncompleteDetails(why.value)
        await self._end("incomplete", usage)

    async def fail(self, error: APIError, usage: Usage | None = None) -> None:
        """End it without an answer. A reader is told so even if that cannot be stored, unless he only sees what is."""
        response = self._response
        told = response.error = as_told(error)
        self._close_all()
        self._emitter.error(told.code, told.message)
        try:
            await self._end("failed", usage if usage is not None and usage.total_tokens else None)
        except APIError as problem:
            if response.background:
                raise
            logger.warning("response %s failed, and cannot be stored: %s", response.id, problem.message)
            self._tell_end("failed")
            await self._emitter.flush()

    async def fail_unseen(self, error: APIError) -> None:
        """Keep that it failed before anybody was told of it, to whom it is an error of the request."""
        response = self._response
        self._close_all()
        response.status, response.error = "failed", as_told(error)
        self._metrics.count_response("failed")
        try:
            await self._journal.finish(response)
        except APIError as problem:
            logger.warning("response %s failed, and cannot be stored: %s", response.id, problem.message)

    async def cancel(self, usage: Usage | None = None) -> None:
        """End it because nobody waits for it: what there is of it is kept. There is no event for that."""
        self._close_all()
        self._response.status, self._response.usage = "cancelled", usage
        await self._journal.finish(self._response)
        self._metrics.count_response("cancelled")

    def _close_all(self) -> None:
        self._close()
        interrupt_calls(self._journal, self._emitter)

    async def _end(self, status: Literal["completed", "incomplete", "failed"], usage: Usage | None) -> None:
        response = self._response
        response.status, response.usage = status, usage
        if response.background:  # the event is stored in the same transaction
            self._emitter.announce(status)
        if self._journal.is_read:
            try:
                await self._journal.finish(response)
            except asyncio.CancelledError as cancelled:
                if failure_of(cancelled) is None:  # the end is stored
                    self._tell_end(status)
                raise
        self._tell_end(status)
        if response.background or status == "failed":  # else whoever ends the stream sends it with the end mark
            await self._emitter.flush()

    def _tell_end(self, status: str) -> None:
        self._metrics.count_response(status)
        if not self._response.background:
            self._emitter.announce(status)


def as_told(error: APIError) -> ResponseError:
    """Return an error as a response tells it."""
    return ResponseError("rate_limit_exceeded" if isinstance(error, RateLimitError) else "server_error", error.message)


async def end_unanswered(response: ResponseObject, journal: Journal) -> None:
    """End a response that is only to be read, and for which no model is asked; nobody has been told of it yet."""
    response.status, response.completed_at, response.usage = "completed", response.created_at, NO_USAGE
    await journal.finish(response)
