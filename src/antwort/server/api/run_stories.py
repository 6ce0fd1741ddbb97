"""The story of a run: its agents, what models were asked and said, and each call, as it is told of what is stored."""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from antwort.engine.calls.items import OWN
from antwort.engine.engine import Engine
from antwort.observability import Redactor
from antwort.server.api.shown_texts import MOST_TEXT, Texts
from antwort.storage.base import ACTIVE, TURNS, JournalEntry, Question, ResponseRecord, TurnRecord
from antwort.storage.call_record import CallOutcome, CallRecord
from antwort.types import JSON
from antwort.wire.responses import Usage

MOST_RESPONSES = 500
"""Responses of a run that are told with their turns and calls."""
_LONGEST_CHAIN = 50
"""Responses that continue one another because something was asked."""
_NONE: Mapping[str, CallRecord] = MappingProxyType({})
_NOT_TOLD: JSON = {"images": None, "unasked": None, "gives": None, "answer": None, "shown": None}
"""What else may be large of a call."""


# --- what is told -----------------------------------------------------------------------------------------------------


class TracedQuestion(Struct, kw_only=True):
    """What somebody was asked, and has said."""

    id: str
    kind: Literal["question", "approval"]
    status: Literal["open", "answered", "expired", "cancelled"]
    asked: JSON
    answer: JSON | None
    asked_at: int
    answered_at: int | None
    answered_by: Annotated[str | None, Meta(description="The response that brought the answer, if one did.")]


class TracedCall(Struct, kw_only=True):
    """A call that the server has executed."""

    call_id: str
    name: str
    state: Annotated[
        CallOutcome, Meta(description="How far it has come; `interrupted` if nobody knows what came of it.")
    ]
    status: Annotated[str | None, Meta(description="What came of it, such as `success` or `error`; null before that.")]
    arguments: str
    output: Annotated[str | None, Meta(description="What it has returned: what the model reads, or a program.")]
    item: Annotated[JSON | None, Meta(description="Its item, if it has one of its own kind, such as a search.")]
    began_at: Annotated[float | None, Meta(description="Seconds since 1970.")]
    seconds: Annotated[float | None, Meta(description="How long it took, waiting included; null if it is not over.")]
    waited_seconds: Annotated[int, Meta(description="How long it has waited for somebody.")]
    references: Annotated[Sequence[str], Meta(description="The variables that its arguments name.")]
    sources: Annotated[JSON | None, Meta(description="What an answer may cite of it, by number.")]
    question: TracedQuestion | None
    calls: Annotated[Sequence["TracedCall"], Meta(description="The calls that it has made itself, as programs do.")]
    agents: Annotated[Sequence["TracedResponse"], Meta(description="The agents that it has begun.")]


class TracedTurn(Struct, kw_only=True):
    """A turn of the model, and what came of its calls."""

    number: Annotated[int, Meta(description="From 1; 0 is what was done before the model was asked.")]
    began_at: Annotated[float | None, Meta(description="Seconds since 1970.")]
    seconds: Annotated[float | None, Meta(description="Until the model had answered.")]
    first_token_seconds: Annotated[float | None, Meta(description="Until its first piece, if it was streamed.")]
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    finish_reason: Annotated[str | None, Meta(description="Why it has ended, as the model server says.")]
    error: Annotated[str | None, Meta(description="Why there is no answer.")]
    backends: Annotated[Sequence[str], Meta(description="Those that were asked, one for each try; the last answered.")]
    items: Annotated[Sequence[JSON], Meta(description="What the model has said, calls of the client among it.")]
    calls: Annotated[Sequence[TracedCall], Meta(description="What the server has executed of it.")]


class TracedResponse(Struct, kw_only=True):
    """A response of an agent."""

    id: str
    agent: str
    agent_id: str
    depth: int
    status: str
    waiting: Annotated[bool, Meta(description="Whether it waits for an answer, and nobody works on it.")]
    model: str
    background: bool
    created_at: int
    completed_at: int | None
    previous_response_id: str | None
    usage: Annotated[Usage | None, Meta(description="Of the root agent what all have used.")]
    error: JSON | None
    incomplete_details: JSON | None
    instructions: str | None
    input: Annotated[Sequence[JSON], Meta(description="What it was given.")]
    turns: Annotated[Sequence[TracedTurn] | None, Meta(description="Null if the run has too many agents to tell all.")]
    agents: Annotated[Sequence["TracedResponse"], Meta(description="Agents that belong to no call that is told.")]


class TracedFailure(Struct, kw_only=True):
    """Something that did not work."""

    response_id: str
    agent: str
    turn: int | None
    call_id: str | None
    name: Annotated[str | None, Meta(description="The function, if a call has failed.")]
    kind: Literal["call", "turn", "response"]
    status: str
    message: str


class Trace(Struct, kw_only=True):
    """The story of a run: all that was done for a request, also after questions and approvals."""

    object: Literal["trace"] = "trace"
    id: Annotated[str, Meta(description="The run: the first response of its root agent.")]
    status: str
    failures: Annotated[Sequence[TracedFailure], Meta(description="All that did not work, in the order of telling.")]
    responses: Annotated[Sequence[TracedResponse], Meta(description="Those of the root agent, each with all below it.")]


# --- reading it -----------------------------------------------------------------------------------------------------


class RunReader:
    """Reads what is stored of runs, to tell of it."""

    def __init__(self, engine: Engine, redactor: Redactor) -> None:
        self._engine = engine
        self.redactor = redactor

    async def trace(self, tenant: str, response_id: str, texts: Texts, known: "KnownJournals | None" = None) -> Trace:
        """Return the story of the run that a response belongs to; a NotFoundError if there is none.

        Of responses that are over what is known of them is not read again, and what is read now is known from now on.
        """
        told, left = list[_Told](), MOST_RESPONSES
        for root in await self._roots(tenant, response_id):
            told.append(await self._read(root, texts, left, known))
            left -= len(told[-1].journals)
        return await self._engine.large_work.run(_traced, told, texts)

    async def response(
        self, tenant: str, response_id: str, texts: Texts, most: int
    ) -> tuple[TracedResponse | None, int]:
        """Return one response with all below it, None if there is none; and how many are told with turns and calls.

        That is no more than `most`.
        """
        record = await self._engine.store.get(tenant, response_id)
        if record is None:
            return None, 0
        told = await self._read(record, texts, most)
        return await self._engine.large_work.run(_Tree(told, texts).told), len(told.journals)

    async def _read(
        self, root: ResponseRecord, texts: Texts, most: int, known: "KnownJournals | None" = None
    ) -> "_Told":
        store, tenant = self._engine.store, root.tenant
        below, journals = await store.descendants(tenant, root.id), {}
        for record in [root, *below][:most]:
            if known is not None and record.id in known.journals:
                journals[record.id] = known.journals[record.id]
                continue
            entries, before = await store.journal(tenant, record.id), texts.left
            # They are cut at once: together, those of a run are more than fits into memory.
            journals[record.id] = await self._engine.large_work.run(_cut, entries, texts)
            if known is not None and record.status not in ACTIVE:
                known.journals[record.id] = journals[record.id]
                known.left -= before - texts.left
        return _Told(root, below, journals, await store.questions.of_run(tenant, root.id))

    async def _roots(self, tenant: str, response_id: str) -> list[ResponseRecord]:
        """Return the root agent's responses of a run, which continue one another with answers, oldest first."""
        store, record = self._engine.store, await self._engine.root_of(tenant, response_id)
        roots, known = [record], {record.id}
        while len(roots) < _LONGEST_CHAIN and (brought := await store.questions.answered_by(tenant, roots[0].id)):
            before = await store.get(tenant, brought[0].root_id)
            if before is None or before.id in known:
                break
            roots.insert(0, before)
            known.add(before.id)
        while len(roots) < _LONGEST_CHAIN:
            asked = await store.questions.of_run(tenant, roots[-1].id)
            named = [question.answered_by for question in asked if question.answered_by is not None]
            after = await store.get(tenant, named[-1]) if named and named[-1] not in known else None
            if after is None:
                break
            roots.append(after)
            known.add(after.id)
        return roots


class KnownJournals(Struct):
    """What is known of responses that are over, for whoever tells of a run again and again."""

    journals: dict[str, list[JournalEntry]] = {}
    left: int = MOST_TEXT
    """Characters that all other texts may still have."""


class _Told(Struct):
    """What is stored of a response, with all below it."""

    root: ResponseRecord
    below: Sequence[ResponseRecord]
    journals: dict[str, list[JournalEntry]]
    """Entries by response, cut to what is told of them."""
    questions: Sequence[Question]


def _cut(entries: Sequence[JournalEntry], texts: Texts) -> list[JournalEntry]:
    """Return the entries of a response with no more in them than is told, and their texts as they are shown."""
    return [
        JournalEntry(
            entry.direction,
            {"type": OWN} if entry.item.get("type") == OWN else texts.shown(entry.item),
            call=None if entry.call is None else _cut_call(entry.call, texts),
        )
        for entry in entries
    ]


def _cut_call(call: CallRecord, texts: Texts) -> CallRecord:
    return replace(
        call,
        arguments=texts.text(call.arguments),
        output=None if call.output is None else texts.text(call.output),
        sources=texts.shown(call.sources),
        **_NOT_TOLD,
    )


def _carried_on(later: Iterable[_Told]) -> dict[str, CallRecord]:
    """Return calls that a response has asked about and a later one has made, by their ids."""
    entries = (entry for told in later for entry in told.journals.get(told.root.id, ()))
    return {entry.call.call_id: entry.call for entry in entries if entry.call is not None and entry.call.said_before}


def _traced(told: Sequence[_Told], texts: Texts) -> Trace:
    """Return the story of a run, of what is stored of it."""
    responses = [_Tree(one, texts, _carried_on(told[number + 1 :])).told() for number, one in enumerate(told)]
    failures = [failure for response in responses for failure in failures_of(response)]
    return Trace(id=responses[0].id, status=responses[-1].status, failures=failures, responses=responses)


# --- one response with all below it -----------------------------------------------------------------------------------


class _Tree:
    """Tells of a root agent's response, and of the agents below it."""

    def __init__(self, told: _Told, texts: Texts, carried_on: Mapping[str, CallRecord] = _NONE) -> None:
        self._carried_on = carried_on
        self._root = told.root
        self._children: dict[str, list[ResponseRecord]] = {}
        for record in told.below:
            self._children.setdefault(record.parent_id or "", []).append(record)
        self._journals = told.journals
        self._questions = {(question.response_id, question.call_id): question for question in told.questions}
        self._texts = texts

    def told(self) -> TracedResponse:
        """Return the whole of it."""
        return self._response(self._root)

    def _response(self, record: ResponseRecord) -> TracedResponse:
        body, entries = record.json, self._journals.get(record.id)
        begun: dict[str, list[TracedResponse]] = {}
        for child in self._children.get(record.id, ()):
            begun.setdefault(child.parent_call_id or "", []).append(self._response(child))
        turns = None if entries is None else self._turns(record, entries, begun)
        texts, extra = self._texts, record.extra
        return TracedResponse(
            id=record.id,
            agent=str(extra.get("agent") or body.get("agent") or "root"),
            agent_id=str(extra.get("agent_id") or record.id),
            depth=int(extra.get("depth", 0)),
            status=record.status,
            waiting=record.is_waiting,
            model=record.model,
            background=record.background,
            created_at=record.created_at,
            completed_at=body.get("completed_at"),
            previous_response_id=record.previous_response_id,
            usage=msgspec.convert(body.get("usage"), Usage | None),
            error=texts.shown(body.get("error")),
            incomplete_details=body.get("incomplete_details"),
            instructions=texts.shown(body.get("instructions")),
            input=[entry.item for entry in entries or () if entry.direction == "input"],
            turns=turns,
            agents=[child for children in begun.values() for child in children],  # those that no call has taken
        )

    def _turns(
        self, record: ResponseRecord, entries: Sequence[JournalEntry], begun: dict[str, list[TracedResponse]]
    ) -> list[TracedTurn]:
        """Return the turns of a response, with the calls of each; what no turn has said comes first."""
        turns = [_turn(number, turn, self._texts) for number, turn in enumerate(_turns_of(record), 1)]
        before, nested = _turn(0, None, self._texts), self._nested(record, entries, begun)
        for entry, number in _with_turns(record, entries):
            if entry.direction != "output":
                continue
            while number > len(turns):
                turns.append(_turn(len(turns) + 1, None, self._texts))
            turn = turns[number - 1] if number else before
            if entry.call is None:
                turn.items = [*turn.items, entry.item]
            else:
                turn.calls = [*turn.calls, self._call(record, entry, entry.call, nested, begun)]
        return [before, *turns] if before.items or before.calls else turns

    def _nested(
        self, record: ResponseRecord, entries: Iterable[JournalEntry], begun: dict[str, list[TracedResponse]]
    ) -> dict[str, list[TracedCall]]:
        """Return the calls that calls have made, by who has."""
        made: dict[str, list[tuple[JournalEntry, CallRecord]]] = {}
        for entry in entries:
            if entry.direction == "nested" and entry.call is not None and entry.call.parent is not None:
                made.setdefault(entry.call.parent, []).append((entry, entry.call))
        told: dict[str, list[TracedCall]] = {}
        for parent, calls in sorted(made.items(), key=lambda pair: -pair[0].count(".")):  # the innermost first
            told[parent] = [self._call(record, entry, call, told, begun) for entry, call in calls]
        return told

    def _call(
        self,
        record: ResponseRecord,
        entry: JournalEntry,
        call: CallRecord,
        nested: dict[str, list[TracedCall]],
        begun: dict[str, list[TracedResponse]],
    ) -> TracedCall:
        question = self._questions.get((record.id, call.call_id))
        state: CallOutcome = call.state.value
        status = call.status
        if call.is_waiting and record.id == self._root.id and record.status not in ACTIVE:
            # What came of it is where it was made, or in what was answered; that it came to an end is told here, too.
            if (made := self._carried_on.get(call.call_id)) is not None:
                state, status = made.state.value, made.status
            elif question is not None and (question.kind, question.status) == ("question", "answered"):
                state, status = "ended", "success"
        return TracedCall(
            call_id=call.call_id,
            name=call.name,
            state=state,
            status=status,
            arguments=call.arguments,
            output=call.output,
            item=None if entry.item.get("type") == OWN else entry.item,
            began_at=call.began_at,
            seconds=call.seconds,
            waited_seconds=call.waited,
            references=call.references,
            sources=call.sources,
            question=None if question is None else _question(question, self._texts),
            calls=nested.pop(call.call_id, []),
            agents=begun.pop(call.call_id, []),
        )


def _turns_of(record: ResponseRecord) -> list[TurnRecord]:
    return msgspec.convert(record.extra.get(TURNS, []), list[TurnRecord])


def _with_turns(record: ResponseRecord, entries: Sequence[JournalEntry]) -> Iterable[tuple[JournalEntry, int]]:
    """Yield entries, each with the number of the turn that it is of; 0 if it was before the first.

    Of a response that is not over calls may be stored before the turn that has made them: they know its number, and
    what stands before them was said in it, too.
    """
    starts, number, least = [turn.position for turn in _turns_of(record)], 0, [0] * len(entries)
    if record.status in ACTIVE:
        ahead = 0
        for position in range(len(entries) - 1, -1, -1):
            call = entries[position].call
            ahead = call.turn if call is not None and not call.said_before else ahead
            least[position] = ahead
    for position, entry in enumerate(entries):
        while number < len(starts) and starts[number] <= position:
            number += 1
        yield entry, max(number, least[position]) if number == len(starts) else number


def _turn(number: int, turn: TurnRecord | None, texts: Texts) -> TracedTurn:
    return TracedTurn(
        number=number,
        began_at=None if turn is None else turn.began / 1000,
        seconds=None if turn is None or turn.took < 0 else turn.took / 1000,
        first_token_seconds=None if turn is None or turn.first < 0 else turn.first / 1000,
        input_tokens=0 if turn is None else turn.read,
        cached_tokens=0 if turn is None else turn.cached,
        output_tokens=0 if turn is None else turn.written,
        finish_reason=None if turn is None else turn.finish,
        error=None if turn is None or turn.error is None else texts.text(turn.error),
        backends=() if turn is None else turn.tried,
        items=(),
        calls=(),
    )


def _question(question: Question, texts: Texts) -> TracedQuestion:
    return TracedQuestion(
        id=question.id,
        kind=question.kind,
        status=question.status,
        asked=texts.shown(question.body),
        answer=texts.shown(question.answer),
        asked_at=question.created_at,
        answered_at=question.answered_at,
        answered_by=question.answered_by,
    )


# --- what did not work ------------------------------------------------------------------------------------------------


def failures_of(response: TracedResponse) -> Iterable[TracedFailure]:
    """Yield what did not work in a response and below it; its own end last, as what comes of the rest."""
    for turn in response.turns or ():
        if turn.error is not None:
            yield _failure(response, "turn", "error", turn.error, turn=turn.number)
        for call in turn.calls:
            yield from _of_call(response, turn.number, call)
    for agent in response.agents:
        yield from failures_of(agent)
    if response.status in {"failed", "incomplete"}:
        why = (response.error or {}).get("message") or (response.incomplete_details or {}).get("reason") or ""
        yield _failure(response, "response", response.status, str(why))


def _of_call(response: TracedResponse, turn: int, call: TracedCall) -> Iterable[TracedFailure]:
    for made in call.calls:
        yield from _of_call(response, turn, made)
    for agent in call.agents:
        yield from failures_of(agent)
    output = call.output
    if output is not None and (call.state == "interrupted" or call.status != "success"):
        yield _failure(
            response, "call", call.status or call.state, output, turn=turn, call_id=call.call_id, name=call.name
        )


def _failure(
    response: TracedResponse,
    kind: Literal["call", "turn", "response"],
    status: str,
    message: str,
    *,
    turn: int | None = None,
    call_id: str | None = None,
    name: str | None = None,
) -> TracedFailure:
    return TracedFailure(
        response_id=response.id,
        agent=response.agent,
        turn=turn,
        call_id=call_id,
        name=name,
        kind=kind,
        status=status,
        message=message,
    )
