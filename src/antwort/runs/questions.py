"""Questions: a run that waits for somebody is parked, and goes on when it is answered, or when its time is over."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Sequence

from antwort.concurrency.contained_tasks import end_tasks
from antwort.context import Context
from antwort.context.context import FUNCTIONS_CALL
from antwort.engine.calls.answers import checked_answer
from antwort.engine.planning.continuing import answers_of, is_answer
from antwort.errors import APIError
from antwort.storage.base import Page, Question, StoreUnavailableError
from antwort.storage.sql.questions import QuestionStore, question_not_found
from antwort.types import JSON

logger = logging.getLogger(__name__)

CANCEL_GRACE = 5.0
"""Seconds to wait for a run that was cancelled to leave its function. It writes nothing any more in any case."""
CLOCK = 2.0
"""Seconds between two looks for questions whose time is over."""
GoOn = Callable[[str, str], None]
"""Lets a run go on that was parked: takes the tenant and the response of its root agent."""


class RunQuestions:
    """The questions of all runs; `go_on` is called when one has all that it waits for."""

    def __init__(self, store: QuestionStore) -> None:
        self._store = store
        self.go_on: GoOn = _nobody
        self._clock: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to look for questions whose time is over."""
        self._clock = asyncio.get_running_loop().create_task(self._expire(), name="the clock of questions")

    async def close(self) -> None:
        """Stop looking."""
        clock, self._clock = self._clock, None
        if clock is not None:
            for name in await end_tasks([clock], CANCEL_GRACE):
                logger.warning("%s does not end; it is left behind", name)

    async def get(self, tenant: str, question_id: str) -> Question:
        """Return a question of the tenant; a NotFoundError if there is none."""
        question = await self._store.get(tenant, question_id)
        if question is None:
            raise question_not_found(question_id)
        return question

    async def page(
        self,
        tenant: str,
        *,
        status: str = "",
        response_id: str = "",
        limit: int = 20,
        after: str | None = None,
        before: str | None = None,
        order: str = "desc",
    ) -> Page:
        """Return questions in the order of asking."""
        return await self._store.list_questions(
            tenant, status=status, response_id=response_id, limit=limit, after=after, before=before, order=order
        )

    async def answer(self, tenant: str, question_id: str, answer: JSON) -> Question:
        """Answer an open question: `{"text": …}`, or for an approval `{"approve": …, "reason": …}`.

        The run goes on when all questions of its turn are answered. A ConflictError if this one is not open any more.
        """
        question = await self.get(tenant, question_id)
        given = checked_answer(question, answer)
        return await self._end(tenant, question_id, given)

    async def knows(self, items: Iterable[JSON], tenant: str, response_id: str) -> bool:
        """Tell whether a response and its sub-agents have asked all that the items of an input answer."""
        asked = await self._store.of_run(tenant, response_id)
        known = {name for question in asked for name in (question.id, question.call_id)}
        return all(item.get("call_id", item.get("approval_request_id")) in known for item in items if is_answer(item))

    async def answer_with(self, items: Sequence[JSON], ctx: Context, response_id: str) -> bool:
        """Answer what a response and its sub-agents wait for with the items of an input, all of them or none.

        False if it has asked nothing in the background; else as `answer`, and a BadRequestError if an item is none.
        """
        questions = await self._store.of_run(ctx.tenant, response_id)
        if not questions:
            return False
        answers = answers_of(items, questions, response_id)
        if any(question.id in answers and question.kind == "approval" for question in questions):
            ctx.require(FUNCTIONS_CALL, param="input", purpose="to approve a call of a function")
        _, ready = await self._store.answer_together(ctx.tenant, answers)
        if ready:
            self.go_on(ctx.tenant, response_id)
        return True

    async def cancel(self, tenant: str, question_id: str) -> Question:
        """Withdraw an open question; the model is told so. A ConflictError if it is not open any more."""
        question, ready = await self._store.answer(tenant, question_id, None, status="cancelled")
        if ready:
            self.go_on(tenant, question.root_id)
        return question

    async def _end(self, tenant: str, question_id: str, answer: JSON) -> Question:
        question, ready = await self._store.answer(tenant, question_id, answer)
        if ready:
            self.go_on(tenant, question.root_id)
        return question

    async def go_on_with_answered(self) -> int:
        """Let runs go on that were parked when an answer had come already; return how many there were."""
        ready = [run for run in await self._store.ready() if await self._store.unpark(*run)]
        for tenant, root_id in ready:
            self.go_on(tenant, root_id)
        return len(ready)

    async def take_untold(self, *, retry: float, limit: int = 20) -> Sequence[Question]:
        """Return open questions of all tenants that nobody was told of yet, and lend them for `retry` seconds."""
        return await self._store.take_untold(int(time.time()), retry=retry, limit=limit)

    async def told(self, question: Question) -> None:
        """Take note that people know of a question."""
        await self._store.told(question.tenant, question.id)

    async def _expire(self) -> None:
        while True:
            try:
                for tenant, question_id in await self._store.expired(int(time.time())):
                    await self._expire_one(tenant, question_id)
            except StoreUnavailableError as error:
                logger.warning("questions whose time is over wait for the store: %s", error.message)
            except Exception:
                logger.exception("questions whose time is over could not be ended")
            await asyncio.sleep(CLOCK)

    async def _expire_one(self, tenant: str, question_id: str) -> None:
        try:
            question, ready = await self._store.answer(tenant, question_id, None, status="expired")
        except StoreUnavailableError:
            raise
        except APIError as error:  # somebody has answered it in the last moment
            logger.info("question %s: %s", question_id, error.message)
            return
        if ready:
            self.go_on(tenant, question.root_id)


def _nobody(_tenant: str, _response_id: str) -> None:
    """Let nothing go on: there is nobody yet who executes runs; the next start does."""
