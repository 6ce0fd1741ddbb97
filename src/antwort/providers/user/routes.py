"""`/v1/questions`: what runs wait for, and how it is answered."""

from typing import Annotated, Literal

from msgspec import structs, to_builtins

from antwort.provider import (
    BadRequestError,
    ConflictError,
    Context,
    Example,
    Field,
    NotFoundError,
    Provider,
    Questions,
    ServiceUnavailableError,
    route,
)
from antwort.providers.user.settings import UserSettings
from antwort.providers.user.wire import ANSWERED, ASKED, AnswerQuestion, QuestionList, QuestionObject

_ONE = "/v1/questions/{question_id}"
_READ, _WRITE = "questions:read", "questions:write"

_PATH = {"question_id": ASKED.id}
_LIST = QuestionList(data=[ASKED], first_id=ASKED.id, last_id=ASKED.id, has_more=False)
_WITHDRAWN = structs.replace(ASKED, status="cancelled")

Limit = Annotated[int, Field(ge=1, le=100, description="How many at most.")]
Cursor = Annotated[str | None, Field(description="The id of a question in the list.")]
Order = Annotated[Literal["asc", "desc"], Field(description="By time of asking.")]
Status = Annotated[
    Literal["open", "answered", "expired", "cancelled"] | None, Field(description="Only questions in this state.")
]
ResponseId = Annotated[str | None, Field(description="Only questions of this response, and of its sub-agents.")]


class QuestionRoutes:
    """The routes of questions."""

    def __init__(self, provider: Provider[UserSettings]) -> None:
        self._provider = provider

    @property
    def _questions(self) -> Questions:
        questions = self._provider.services.questions
        if questions is None:
            raise ServiceUnavailableError("There are no questions here: no app runs.")
        return questions

    @route("GET", "/v1/questions", scope=_READ, examples=[Example(to_builtins(_LIST))])
    async def list_questions(  # noqa: PLR0917 - the parameters of the query
        self,
        ctx: Context,
        status: Status = None,
        response_id: ResponseId = None,
        limit: Limit = 20,
        after: Cursor = None,
        before: Cursor = None,
        order: Order = "desc",
    ) -> QuestionList:
        """List questions and calls to approve, the newest first."""
        try:
            page = await self._questions.page(
                ctx.tenant,
                status=status or "",
                response_id=response_id or "",
                limit=limit,
                after=after,
                before=before,
                order=order,
            )
        except NotFoundError as error:  # the list itself is there
            raise BadRequestError(error.message, param=error.param or "after", code="invalid_value") from None
        data = [QuestionObject.of(question) for question in page.data]
        return QuestionList(
            data=data,
            first_id=data[0].id if data else None,
            last_id=data[-1].id if data else None,
            has_more=page.has_more,
        )

    @route("GET", _ONE, scope=_READ, examples=[Example(to_builtins(ASKED), parameters=_PATH)])
    async def retrieve_question(self, ctx: Context, question_id: str) -> QuestionObject:
        """Return a question."""
        return QuestionObject.of(await self._questions.get(ctx.tenant, question_id))

    @route(
        "POST",
        f"{_ONE}/answer",
        scope=_WRITE,
        errors=[ConflictError],
        examples=[Example(to_builtins(ANSWERED), body={"answer": ANSWERED.answer}, parameters=_PATH)],
    )
    async def answer_question(self, ctx: Context, question_id: str, body: AnswerQuestion) -> QuestionObject:
        """Answer a question, or approve a call; the run goes on when all questions of its turn are answered.

        A question is answered once. One of a response that was not made in the background is answered by the response
        that continues it.
        """
        if body.answer is not None and body.approve is not None:
            raise BadRequestError("Give either `answer` or `approve`.", param="answer", code="invalid_value")
        given = {"text": body.answer, "approve": body.approve, "reason": body.reason}
        return QuestionObject.of(await self._questions.answer(ctx.tenant, question_id, given))

    @route(
        "POST",
        f"{_ONE}/cancel",
        scope=_WRITE,
        errors=[ConflictError],
        examples=[Example(to_builtins(_WITHDRAWN), parameters=_PATH)],
    )
    async def cancel_question(self, ctx: Context, question_id: str) -> QuestionObject:
        """Withdraw a question: the model goes on without an answer."""
        return QuestionObject.of(await self._questions.cancel(ctx.tenant, question_id))
