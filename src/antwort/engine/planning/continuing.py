"""A response that answers what the one before it waits for: it belongs to the same run."""

import time
from collections.abc import Container, Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from antwort.context import Context
from antwort.context.context import FUNCTIONS_CALL
from antwort.engine.calls.answers import QuestionAnswer, apply_answer, checked_answer
from antwort.engine.calls.lifecycle import NESTED
from antwort.engine.tools.targets import Sign, is_ours, is_too_old
from antwort.engine.window import (
    APPROVAL_REQUEST,
    APPROVAL_RESPONSE,
    LISTED,
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
_GOES_ON = frozenset({"reasoning", LISTED})
"""Types of items that only a response that goes on has, besides messages and calls."""


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
    carried: Sequence[Question] = ()
    """Calls whose requests are stored nowhere: the client has sent them back, with a yes or no."""
    entries: Sequence[JournalEntry] = ()
    """What the model reads in the place of answers that did not come in time."""


class _WaitingCalls(Struct, frozen=True):
    """What a response waits for."""

    calls: Mapping[str, str]
    """The ids of the calls that wait, by their questions."""
    nested: Mapping[str, str]
    """Those of them that other calls have made."""
    questions: Mapping[str, Question]
    """What is stored of the questions, and of others that are answered."""

    def answers(self, outputs: Mapping[str, str]) -> dict[str, JSON]:
        """Return the answers by question; `outputs` are those of calls."""
        return {
            question_id: checked_answer(self.questions[question_id], {"text": outputs[call_id]})
            for question_id, call_id in self.calls.items()
            if call_id in outputs and question_id in self.questions
        }

    def ended(self, answers: Mapping[str, JSON]) -> list[Question]:
        """Return the questions that nobody answers, and nobody can answer any more."""
        asked = [self.questions[name] for name in self.calls if name in self.questions and name not in answers]
        return [question for question in asked if question.status in {"expired", "cancelled"}]

    def check_all_over(self, over: Container[str]) -> None:
        """Raise a BadRequestError if a question stays open that has to be answered before the run goes on."""
        for question_id, call_id in self.calls.items():
            is_approval = question_id in self.questions and self.questions[question_id].kind == "approval"
            if question_id not in over and (is_approval or question_id in self.nested):
                # The client of an approval has seen its request, and never the call.
                cure = f" Its approval request '{question_id}' needs an `mcp_approval_response`." if is_approval else ""
                raise BadRequestError(f"No tool output found for function call {call_id}.{cure}", param="input")

    def continued(self, run_id: str | None, answered: Sequence[Question], ended: Sequence[Question]) -> Continued:
        """Return what goes on in a run."""
        own = [question for question in answered if question.id not in self.nested]
        nested = [question for question in answered if question.id in self.nested]
        return Continued(
            run_id,
            approvals=[question for question in own if question.kind == "approval"],
            answered=[question for question in answered if question.kind == "question" or question.id in self.nested],
            nested=[*nested, *(question for question in ended if question.id in self.nested)],
            entries=[
                JournalEntry("input", _output_item(question), visible=False)
                for question in ended
                if question.id not in self.nested
            ],
        )


async def answer_waiting(
    store: Store,
    ctx: Context,
    response: ResponseObject,
    history: Sequence[JournalEntry],
    entries: Sequence[JournalEntry],
    *,
    sign: Sign,
) -> Continued:
    """Answer the questions before a response with its input; BadRequestError or ConflictError if that cannot be.

    `sign` is what requests for an approval are signed with that are stored nowhere.
    """
    nested = _nested_questions(history)
    calls = waiting_calls(history) | nested
    verdicts, outputs = _verdicts(entries), _outputs(entries)
    carried = _carried(entries, verdicts, response, ctx, sign) if verdicts else []
    for question in carried:
        del verdicts[question.id]
    if outputs:
        await _check_not_answered(store.questions, ctx.tenant, history, outputs)
    if not calls and not verdicts:
        return Continued(carried=carried)
    if verdicts:
        _check_may_approve(ctx, response)
    stored = await store.questions.get_all(ctx.tenant, [*calls, *verdicts])
    waiting = _WaitingCalls(calls, nested, {question.id: question for question in stored})
    await _check_verdicts(store, waiting, verdicts, is_continued=bool(history))
    answers = waiting.answers(outputs) | {question_id: verdict for question_id, (_, verdict) in verdicts.items()}
    continued = await _answer_stored(store, ctx, response, waiting, answers)
    if continued.run_id is not None:
        _hide_outputs(entries, nested.values())
    return replace(continued, carried=carried)


async def _answer_stored(
    store: Store, ctx: Context, response: ResponseObject, waiting: _WaitingCalls, answers: Mapping[str, JSON]
) -> Continued:
    """Answer questions that are stored; BadRequestError or ConflictError if that cannot be."""
    if answers and not response.is_kept:
        raise BadRequestError("A question can only be answered in a response that is stored.", param="store")
    ended = waiting.ended(answers)
    waiting.check_all_over({*answers, *(question.id for question in ended)})
    answered = await store.questions.answer_all(ctx.tenant, answers, by=response.id) if answers else []
    if not answered and not ended:
        return Continued()
    record = await store.get(ctx.tenant, [*answered, *ended][0].response_id)
    return waiting.continued(None if record is None else record.run_id or record.id, answered, ended)


async def resumed_calls(
    store: Store, tenant: str, history: Sequence[JournalEntry], questions: Iterable[Question]
) -> list[tuple[CallRecord, list[JournalEntry]]]:
    """Return the calls that can go on because calls of their own are answered, with these."""
    answers = {question.id: question for question in questions}
    resumed = []
    for call in resumable_calls(history):
        asked = [answers[name] for name in call.asked or () if name in answers]
        if asked:
            journal = await store.journal(tenant, asked[0].response_id)
            resumed.append((call, _answered_below(call, journal, asked)))
    return resumed


def _answered_below(
    caller: CallRecord, journal: Iterable[JournalEntry], questions: Iterable[Question]
) -> list[JournalEntry]:
    """Return the calls that a call has made, with the answers to their questions."""
    by_call = {question.call_id: question for question in questions}
    entries = []
    for entry in journal:
        call = entry.call
        if entry.direction == NESTED and call is not None and call.parent == caller.call_id:
            entries.append(entry)
            if not call.is_over and call.call_id in by_call:
                apply_answer(call, QuestionAnswer(by_call[call.call_id]))
    return entries


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
    questions: QuestionStore, tenant: str, history: Sequence[JournalEntry], call_ids: Iterable[str]
) -> None:
    """Raise a ConflictError if an output is for a call that has waited in the response before, and has its answer."""
    answered = answered_calls(history)
    for question in await questions.get_all(tenant, [answered[call] for call in call_ids if call in answered]):
        raise already_answered(question)


def _check_may_approve(ctx: Context, response: ResponseObject) -> None:
    """Raise an error if a request may not say yes or no to a call."""
    ctx.require(FUNCTIONS_CALL, param="input", purpose="to approve a call of a function")
    if not response.is_kept:
        raise BadRequestError("A call can only be approved in a response that is stored.", param="store")


async def _check_verdicts(
    store: Store, waiting: _WaitingCalls, verdicts: Mapping[str, tuple[str, JSON]], *, is_continued: bool
) -> None:
    """Raise an error if a yes or no is to no approval, or to one that is not for this response to answer."""
    for question_id, (param, _) in verdicts.items():
        question = waiting.questions.get(question_id)
        is_expected = not is_continued or question_id in waiting.calls
        if question is None or question.kind != "approval" or not is_expected:
            raise BadRequestError(
                f"No approval request found with id '{question_id}'.", param=f"{param}.approval_request_id"
            )
        if not is_continued:
            await _check_is_over(store, question)


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


def _verdicts(entries: Iterable[JournalEntry]) -> dict[str, tuple[str, JSON]]:
    """Return what an input says about calls to approve, by question, with the parameter.

    What the model has gone on from already is over: it stands in a history that the client keeps itself. So is what was
    asked again since, as tools were listed anew.
    """
    verdicts: dict[str, tuple[str, JSON]] = {}
    for index, entry in enumerate(entries):
        item = entry.item
        if item.get("role") == "assistant" or item["type"] in _GOES_ON or item["type"].endswith("_call"):
            verdicts.clear()
        if item["type"] == APPROVAL_RESPONSE:
            question_id, param = str(item["approval_request_id"]), f"input[{index}]"
            if question_id in verdicts:
                raise BadRequestError(f"There are two answers to '{question_id}'.", param=param)
            verdicts[question_id] = param, {"approve": item["approve"], "reason": item.get("reason")}
    return verdicts


def _carried(
    entries: Iterable[JournalEntry],
    verdicts: Mapping[str, tuple[str, JSON]],
    response: ResponseObject,
    ctx: Context,
    sign: Sign,
) -> list[Question]:
    """Return those calls to approve whose requests are in the input, too, as they were made here.

    A response in the background has to know after a crash what was approved: it takes none.
    """
    ours = {
        item["id"]: item
        for item in (entry.item for entry in entries)
        if item["type"] == APPROVAL_REQUEST and item["id"] in verdicts and is_ours(item, sign)
    }
    if response.background or not ours:
        return []
    for question_id in ours:
        if is_too_old(question_id):
            param = f"{verdicts[question_id][0]}.approval_request_id"
            raise BadRequestError(f"The approval request '{question_id}' is too old to be answered.", param=param)
    ctx.require(FUNCTIONS_CALL, param="input", purpose="to approve a call of a function")
    now = int(time.time())
    return [
        Question(
            id=question_id,
            tenant=ctx.tenant,
            response_id=response.id,
            call_id=new_id("call"),
            root_id=response.id,
            kind="approval",
            body={name: item[name] for name in ("name", "arguments", "server_label")},
            created_at=now,
            expires_at=None,
            status="answered",
            answer=verdicts[question_id][1],
        )
        for question_id, item in ours.items()
    ]


def _outputs(entries: Iterable[JournalEntry]) -> dict[str, str]:
    """Return the outputs of calls in an input, as texts."""
    outputs = [entry.item for entry in entries if entry.item["type"] == _OUTPUT]
    return {str(item["call_id"]): _text(item.get("output")) for item in outputs}


def _text(output: object) -> str:
    if isinstance(output, str):
        return output
    parts = output if isinstance(output, list) else []
    return "".join(str(part.get("text", "")) for part in parts if isinstance(part, dict))


def _output_item(question: Question) -> JSON:
    output = QuestionAnswer(question).result().output
    return {
        "type": _OUTPUT,
        "id": new_id("fco"),
        "call_id": question.call_id,
        "output": output,
        "status": "completed",
    }
