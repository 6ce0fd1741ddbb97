"""What calls ask somebody, and what is said to them."""

import time
from collections.abc import Iterable

from antwort.engine.plan import Plan
from antwort.errors import BadRequestError
from antwort.functions import ToolResult
from antwort.storage.base import JournalEntry, Question
from antwort.storage.call_record import CallRecord
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


def apply_answer(record: CallRecord, answer: Answer) -> None:
    """Take what was said to a call that waits: its result, or that it may be made now."""
    if answer.approved:
        record.approve()
        return
    result = answer.result()
    record.end(result.output, result.status)


def is_waiting(entry: JournalEntry) -> bool:
    """Tell whether an entry is a call that waits for somebody."""
    return entry.call is not None and entry.call.is_waiting


def questions_of(entries: Iterable[JournalEntry], plan: Plan) -> list[Question]:
    """Return what calls wait for that somebody has to say."""
    questions = []
    for entry in entries:
        call = entry.call
        if call is None or (wait := call.waiting) is None or call.question is None:
            continue
        if wait.kind == "question" or wait.kind == "approval":  # noqa: PLR1714 - so it is known to be one
            questions.append(
                Question(
                    id=call.question,
                    tenant=plan.ctx.tenant,
                    response_id=plan.response.id,
                    call_id=call.call_id,
                    root_id=plan.root_id,
                    kind=wait.kind,
                    body=wait.body,
                    created_at=call.waiting_since or int(time.time()),
                    expires_at=call.expires_at,
                )
            )
    return questions


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
