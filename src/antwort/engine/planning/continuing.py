"""A response that answers what the one before it waits for: it belongs to the same run."""

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from antwort.context import Context
from antwort.context.scopes import FUNCTIONS_CALL
from antwort.engine.calls.answers import Answer, apply_answer, checked_answer
from antwort.engine.calls.lifecycle import NESTED
from antwort.engine.history import (
    APPROVAL_RESPONSE,
    answered_calls,
    resumable_calls,
    waiting_calls,
)
from antwort.errors import BadRequestError, ConflictError
from antwort.storage.base import JournalEntry, Question
from antwort.storage.call_record import CallRecord
from antwort.storage.sql.questions import QuestionStore, already_answered
from antwort.storage.sql.store import Store
from antwort.types import JSON
from antwort.wire.ids import new_id
from antwort.wire.responses import ResponseObject

_OUTPUT = "function_call_output"


class Continued(Struct, frozen=True):
    """What a response continues, if it does."""

    run_id: str | None = None
    """The run that goes on."""
    approvals: Sequence[Question] = ()
    """Calls that were waiting for a yes or no, and have it now."""
    answered: Sequence[Question] = ()
    """Questions that the response brings the answers to."""
    nested: Sequence[Question] = ()
    """What calls have asked that were made by other calls, and is answered now."""
    entries: Sequence[JournalEntry] = ()
    """What the model reads in the place of answers that did not come in time."""


async def answer_waiting(
    store: Store,
    ctx: Context,
    response: ResponseObject,
    history: Sequence[JournalEntry],
    entries: Sequence[JournalEntry],
) -> Continued:
    """Answer the questions before a response with its input; BadRequestError or ConflictError if that cannot be."""
    nested = _nested_questions(history)
    waiting = waiting_calls(history) | nested
    verdicts, said = _verdicts(entries), _said(entries)
    if said:
        await _check_not_answered(store.questions, ctx.tenant, history, said)
    if not waiting and not verdicts:
        return Continued()
    if verdicts:
        ctx.require(FUNCTIONS_CALL, param="input", purpose="to approve a call of a function")
        if not response.is_kept:
            raise BadRequestError("A call can only be approved in a response that is stored.", param="store")
    questions = {q.id: q for q in await store.questions.get_all(ctx.tenant, [*waiting, *verdicts])}
    for question_id, (param, _) in verdicts.items():
        question = questions.get(question_id)
        if question is None or question.kind != "approval" or (history and question_id not in waiting):
            raise BadRequestError(
                f"No approval request found with id '{question_id}'.", param=f"{param}.approval_request_id"
            )
        if not history:
            await _check_is_over(store, question)
    answers = {
        question_id: checked_answer(questions[question_id], {"text": said[call_id]})
        for question_id, call_id in waiting.items()
        if call_id in said and question_id in questions
    }
    answers |= {question_id: verdict for question_id, (_, verdict) in verdicts.items()}
    ended = [questions[q] for q in waiting if q in questions and q not in answers]
    ended = [question for question in ended if question.status in {"expired", "cancelled"}]
    if answers and not response.is_kept:
        raise BadRequestError("A question can only be answered in a response that is stored.", param="store")
    over = {*answers, *(question.id for question in ended)}
    for question_id, call_id in waiting.items():
        is_approval = question_id in questions and questions[question_id].kind == "approval"
        if question_id not in over and (is_approval or question_id in nested):
            # The client of an approval has seen its request, and never the call.
            cure = f" Its approval request '{question_id}' needs an `mcp_approval_response`." if is_approval else ""
            raise BadRequestError(f"No tool output found for function call {call_id}.{cure}", param="input")
    answered = await store.questions.answer_all(ctx.tenant, answers, by=response.id) if answers else []
    if not answered and not ended:
        return Continued()
    record = await store.get(ctx.tenant, [*answered, *ended][0].response_id)
    _hide_outputs(entries, nested.values())
    return Continued(
        None if record is None else record.run_id or record.id,
        [question for question in answered if question.kind == "approval" and question.id not in nested],
        [question for question in answered if question.kind == "question" or question.id in nested],
        [question for question in (*answered, *ended) if question.id in nested],
        [JournalEntry("input", _output(question), visible=False) for question in ended if question.id not in nested],
    )


async def resumed_calls(
    store: Store, tenant: str, history: Sequence[JournalEntry], questions: Iterable[Question]
) -> list[tuple[CallRecord, list[JournalEntry]]]:
    """Return the calls that can go on because calls of their own are answered, with these."""
    answers = {question.id: question for question in questions}
    resumed = []
    for call in resumable_calls(history):
        asked = [answers[name] for name in call.asked or () if name in answers]
        if not asked:
            continue
        journal = await store.journal(tenant, asked[0].response_id)
        nested = [e for e in journal if e.direction == NESTED and e.call and e.call.parent == call.call_id]
        by_call = {question.call_id: question for question in asked}
        for entry in nested:
            question = None if entry.call is None else by_call.get(entry.call.call_id)
            if entry.call is not None and question is not None and not entry.call.is_over:
                apply_answer(entry.call, Answer(question))
        resumed.append((call, nested))
    return resumed


def _nested_questions(history: Sequence[JournalEntry]) -> dict[str, str]:
    """Return what calls of calls have asked in the last response: their ids by the questions'."""
    return {question: call_id for call in resumable_calls(history) for question, call_id in (call.asked or {}).items()}


def _hide_outputs(entries: Iterable[JournalEntry], call_ids: Iterable[str]) -> None:
    """Keep from the model the outputs of calls that it has not made: whoever has made them reads them."""
    hidden = set(call_ids)
    for entry in entries:
        if entry.item.get("call_id") in hidden:
            entry.call, entry.mark = None, "for_clients"


async def load_continued(store: Store, tenant: str, response_id: str, history: Sequence[JournalEntry]) -> Continued:
    """Return what a response has brought answers for, as far as it has to be done."""
    answered = await store.questions.answered_by(tenant, response_id)
    nested = _nested_questions(history)
    return Continued(
        approvals=[question for question in answered if question.kind == "approval" and question.id not in nested],
        nested=[question for question in answered if question.id in nested],
    )


async def brought_by(questions: QuestionStore, tenant: str, response_id: str) -> set[str]:
    """Return the questions that a response has brought the answers to, by what is stored."""
    return {question.id for question in await questions.answered_by(tenant, response_id)}


async def check_answers(questions: QuestionStore, response_id: str, answered: Sequence[Question]) -> None:
    """Raise a ConflictError if another response has answered one of the questions that this one has answered."""
    for tenant in {question.tenant for question in answered}:
        brought = await brought_by(questions, tenant, response_id)
        for question in answered:
            if question.id not in brought:
                raise already_answered(await questions.get(tenant, question.id) or question)


async def _check_not_answered(
    questions: QuestionStore, tenant: str, history: Sequence[JournalEntry], said: Iterable[str]
) -> None:
    """Raise a ConflictError if an output is for a call that has waited in the response before, and has its answer."""
    answered = answered_calls(history)
    for question in await questions.get_all(tenant, [answered[name] for name in said if name in answered]):
        raise already_answered(question)


async def _check_is_over(store: Store, question: Question) -> None:
    """Raise ConflictError if the response that has asked waits by itself."""
    record = await store.get(question.tenant, question.response_id)
    if record is not None and record.background:
        raise ConflictError(
            f"The response '{question.response_id}' waits in the background: answer with `previous_response_id`, or "
            f"with `POST /v1/questions/{question.id}/answer`.",
            code="response_waits",
        )


def is_answer(item: JSON) -> bool:
    """Tell whether an item of an input may answer what a run waits for."""
    return item.get("type") in {_OUTPUT, APPROVAL_RESPONSE}


def answers_of(items: Sequence[JSON], questions: Iterable[Question], response_id: str) -> dict[str, JSON]:
    """Return what an input says to the questions of a run that waits, by their ids; `response_id` is its root agent's.

    BadRequestError if an item is no answer to one of them, or does not fit, ConflictError if it comes too late.
    """
    # Those of the response itself count before those of its sub-agents, and open ones before others.
    known = sorted(questions, key=lambda question: (question.response_id != response_id, question.status != "open"))
    answers: dict[str, JSON] = {}
    for index, item in enumerate(items):
        param = f"input[{index}]"
        if not is_answer(item):
            raise BadRequestError(
                f"The response '{response_id}' waits for answers, and takes nothing else meanwhile: leave out the item "
                f"of type '{item['type']}'.",
                param=param,
                code="invalid_value",
            )
        question = _asked(item, known, param)
        if question.id in answers:
            raise BadRequestError(f"There are two answers to '{question.id}'.", param=param)
        if question.status != "open":
            raise already_answered(question)
        if question.kind == "approval":
            answers[question.id] = {"approve": item["approve"], "reason": item.get("reason")}
        else:
            answers[question.id] = checked_answer(question, {"text": _text(item.get("output"))}, f"{param}.output")
    return answers


def _asked(item: JSON, questions: Iterable[Question], param: str) -> Question:
    """Return the question that an item answers."""
    if item["type"] == APPROVAL_RESPONSE:
        question_id = item["approval_request_id"]
        for question in questions:
            if question.kind == "approval" and question.id == question_id:
                return question
        param = f"{param}.approval_request_id"
        raise BadRequestError(f"No approval request found with id '{question_id}'.", param=param)
    call_id, cure = item["call_id"], ""
    for question in questions:
        if question.call_id == call_id and question.kind == "question":
            return question
        if question.call_id == call_id:
            cure = f" Its approval request '{question.id}' needs an `mcp_approval_response`."
    message = f"No tool call found for function call output with call_id {call_id}.{cure}"
    raise BadRequestError(message, param=f"{param}.call_id")


def _verdicts(entries: Iterable[JournalEntry]) -> Mapping[str, tuple[str, JSON]]:
    """Return what an input says about calls to approve, by question, with the parameter."""
    verdicts: dict[str, tuple[str, JSON]] = {}
    for index, entry in enumerate(entries):
        item = entry.item
        if item["type"] == APPROVAL_RESPONSE:
            question_id, param = str(item["approval_request_id"]), f"input[{index}]"
            if question_id in verdicts:
                raise BadRequestError(f"There are two answers to '{question_id}'.", param=param)
            verdicts[question_id] = param, {"approve": item["approve"], "reason": item.get("reason")}
    return verdicts


def _said(entries: Iterable[JournalEntry]) -> dict[str, str]:
    """Return the outputs of calls in an input, as texts."""
    outputs = [entry.item for entry in entries if entry.item["type"] == _OUTPUT]
    return {str(item["call_id"]): _text(item.get("output")) for item in outputs}


def _text(output: object) -> str:
    if isinstance(output, str):
        return output
    parts = output if isinstance(output, list) else []
    return "".join(str(part.get("text", "")) for part in parts if isinstance(part, dict))


def _output(question: Question) -> JSON:
    output = Answer(question).result().output
    return {
        "type": _OUTPUT,
        "id": new_id("fco"),
        "call_id": question.call_id,
        "output": output,
        "status": "completed",
    }
