"""What somebody has said to a call that waits."""

from antwort.errors import BadRequestError
from antwort.functions import ToolResult
from antwort.storage.base import Question
from antwort.types import JSON

_DECLINED = "The user does not want this call to be made."


class Answer:
    """The end of a question: an answer, or why there is none."""

    def __init__(self, question: Question) -> None:
        self._question = question
        self._said: JSON = question.answer or {}

    @property
    def approved(self) -> bool:
        """Tell whether a call may be made."""
        return self._question.status == "answered" and self._said.get("approve") is True

    def result(self) -> ToolResult:
        """Return what the model reads in place of the call's own result."""
        question = self._question
        if question.status == "expired":
            default = question.body.get("default")
            if question.kind == "question" and default is not None:
                return ToolResult(f"The user did not answer in time. Go on with the default: {default}")
            return ToolResult.error("The user did not answer in time. Go on without an answer.", "timeout")
        if question.status == "cancelled":
            return ToolResult.error("The question was withdrawn. Go on without an answer.", "cancelled")
        if question.kind == "approval":
            reason = str(self._said.get("reason") or "")
            return ToolResult.error(f"{_DECLINED} {reason}".strip(), "denied")
        return ToolResult(str(self._said.get("text", "")))


def checked_answer(question: Question, answer: JSON, param: str = "answer") -> JSON:
    """Return an answer that fits the question; BadRequestError if it does not, which names `param`."""
    if question.kind == "approval":
        approve, reason = answer.get("approve"), answer.get("reason")
        if not isinstance(approve, bool):
            raise BadRequestError(
                f"The call '{question.call_id}' waits for an approval: say `approve`, true or false.",
                param="approve",
                code="invalid_value",
            )
        return {"approve": approve, "reason": reason if isinstance(reason, str) else None}
    text = answer.get("text")
    if not isinstance(text, str) or not text:
        raise BadRequestError(f"Give the answer as `{param}`, a text.", param=param, code="invalid_value")
    choices = question.body.get("choices")
    if choices and text not in choices:
        listed = ", ".join(f"'{choice}'" for choice in choices)
        raise BadRequestError(f"The answer is to be one of {listed}.", param=param, code="invalid_value")
    return {"text": text}
