"""Questions as the API shows them."""

from typing import Annotated, Any, Literal, Self

from msgspec import Meta, Struct, structs
from pydantic import ConfigDict

from antwort.provider import BaseModel, Field, Question


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
