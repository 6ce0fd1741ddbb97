"""What somebody has said to a call that waits."""

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
