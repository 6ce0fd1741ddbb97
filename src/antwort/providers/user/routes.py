"""`/v1/questions`: what runs wait for, and how it is answered."""

from typing import Annotated, Any, Literal, Self

from msgspec import Meta, Struct, structs, to_builtins
from pydantic import ConfigDict

from antwort.provider import (
    BadRequestError,
    BaseModel,
    ConflictError,
    Context,
    Duration,
    Example,
    Field,
    NotFoundError,
    Provider,
    Question,
    Questions,
    SecretStr,
    ServiceUnavailableError,
    Settings,
    route,
)


class QuestionObject(Struct, kw_only=True):
    """Something that a run waits for somebody to say."""

    id: str
    object: Literal["question"] = "question"
    created_at: int
    kind: Annotated[Literal["question", "approval"], Meta(description="A question to answer, or a call to approve.")]
    status: Literal["open", "answered", "expired", "cancelled"]
    response_id: Annotated[str, Meta(description="The response that has asked.")]
    run_id: Annotated[str, Meta(description="The response that goes on with the answer: that of the root agent.")]
    call_id: str
    body: Annotated[
        dict[str, Any],
        Meta(
            description="`question`, `choices` and `default`; of a call to approve `name`, `arguments` and"
            " `server_label`."
        ),
    ]
    expires_at: int | None = None
    answered_at: int | None = None
    answer: str | None = None
    approve: bool | None = None
    reason: str | None = None

    @classmethod
    def of(cls, question: Question) -> Self:
        """Return a question as it is shown."""
        said = question.answer or {}
        return cls(
            id=question.id,
            created_at=question.created_at,
            kind=question.kind,
            status=question.status,
            response_id=question.response_id,
            run_id=question.root_id,
            call_id=question.call_id,
            body=question.body,
            expires_at=question.expires_at,
            answered_at=question.answered_at,
            answer=said.get("text"),
            approve=said.get("approve"),
            reason=said.get("reason"),
        )


class QuestionList(Struct, kw_only=True):
    """A part of the list of questions."""

    object: Literal["list"] = "list"
    data: list[QuestionObject]
    first_id: str | None
    last_id: str | None
    has_more: bool


class AnswerQuestion(BaseModel):
    """An answer: `answer` to a question, `approve` for a call."""

    model_config = ConfigDict(extra="forbid", strict=True, defer_build=True)

    answer: str | None = Field(default=None, description="The answer to a question.")
    approve: bool | None = Field(default=None, description="Whether a call may be made.")
    reason: str | None = Field(default=None, description="Why not; the model reads it.")


ASKED = QuestionObject(
    id="question_0f2b7c1d9e",
    created_at=1_767_225_600,
    kind="question",
    status="open",
    response_id="resp_5d41402abc",
    run_id="resp_5d41402abc",
    call_id="call_7b52009b64",
    body={"question": "Which colour?", "choices": ["blue", "red"]},
)
ANSWERED = structs.replace(ASKED, status="answered", answered_at=1_767_229_200, answer="blue")


class WebhookSettings(Settings):
    """Who is told about new questions."""

    url: str = Field(description="The URL that gets a POST for each new question.", pattern=r"^https?://")
    secret: SecretStr = Field(
        min_length=16,
        description="What messages are signed with: `whsec_` and base64, or another text of 16 characters or more.",
    )
    timeout: Duration = Field(default=10.0, description="Time it may take to answer.")
    retry: Duration = Field(
        default=15.0,
        description="Time after which it is told again if it has not taken a message; later the pauses grow to 1h.",
    )
    give_up_after: Duration = Field(
        default=3 * 86_400.0, description="Time after a question was asked when a try that fails is the last one."
    )
    keep_failed: Duration = Field(
        default=30 * 86_400.0, description="Time for which messages that were given up are listed, to be sent again."
    )


class UserSettings(Settings):
    """What operators can set."""

    webhook: WebhookSettings | None = Field(default=None, description="Who is told about new questions.")

    expires_in: Duration | None = Field(
        default=None,
        description="How long a question waits for its answer, such as 3d, unless the model says so; for ever if none.",
    )


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
