"""The loop: model turn, calls, model turn, until there is an answer or a limit is reached."""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import msgspec

from antwort.backends.base import ModelRequest, TurnSink
from antwort.backends.errors import BrokenOffError, StalledError, may_pass, worth_a_line
from antwort.concurrency.deadline import Deadline
from antwort.concurrency.undisturbed import in_any_case
from antwort.context.agents import Pause, RunLimits
from antwort.engine.budget import Budget
from antwort.engine.calls.admission import Admission, Totals
from antwort.engine.calls.answers import questions_of
from antwort.engine.calls.checked_calls import check_calls
from antwort.engine.calls.dispatch import Dispatch
from antwort.engine.calls.leaving import LeavingCalls
from antwort.engine.calls.lifecycle import CallLifecycle
from antwort.engine.journal import Journal
from antwort.engine.output.checked_turn import AnswerRefusedError, CheckedTurn
from antwort.engine.output.coalescer import Coalescer
from antwort.engine.output.emitter import (
    CUT_SHORT,
    AnswerTooLongError,
    CallIds,
    Emitter,
    EmitterOptions,
    LoopOutcome,
    ModelCall,
)
from antwort.engine.output.events import EventSink
from antwort.engine.output.stop_sequences import AnswerStoppedError, StopSequences
from antwort.engine.plan import Plan
from antwort.engine.planning.continuing import brought_by, check_answers
from antwort.engine.tools.tool_search import loaded_since
from antwort.engine.turns import telemetry
from antwort.engine.turns.agent_events import MarkedStream, RunEvents
from antwort.engine.turns.compaction import Compactor, compactable
from antwort.engine.turns.ending import Ending, as_told
from antwort.engine.turns.model_turn import ModelTurns, SaidWindow, model_request, next_request
from antwort.engine.turns.parts import Earlier, EngineParts
from antwort.engine.window import COMPACTION, Seals
from antwort.errors import APIError, BadRequestError
from antwort.functions import Refuse
from antwort.functions.checking import checked_text
from antwort.storage.base import ACTIVE, FencedError, JournalEntry, StoreUnavailableError, TurnRecord
from antwort.wire.client_tools import CALLS
from antwort.wire.requests import wants_summary
from antwort.wire.responses import ResponseObject, Usage

logger = logging.getLogger(__name__)
_STOPPED = "It was stopped before the model had answered."
"""What is kept of a turn that somebody has cancelled, or whose time was over."""

# To look up a member of an enum takes some hundred nanoseconds in Python 3.11.
_ONWARD, _ANSWERED, _PARKED = LoopOutcome.ONWARD, LoopOutcome.ANSWERED, LoopOutcome.PARKED
_FAULTS = 500
"""From this status on an error is not the request's, and a response that fails with it is looked for later."""
_TOO_LATE = 0.01
"""Seconds before the deadline in which nothing is begun any more: a call that took until then may end a bit early."""


class Loop:
    """Makes one response. Whatever happens, the response ends in a state that tells the truth, and is stored so.

    Nothing that it has refers back to it, so that all of it is gone when it is over: it may hold very much.
    """

    parked = False
    """Whether the response waits for somebody: it is not over, and nobody works on it."""
    broke_off = False
    """Whether the model server has ended its last answer in the middle: it was there, and worked for nothing."""
    called_off = False
    """Whether it is cut off because its reader said so: it is as long as it is, like one that met a limit."""
    closing_error: Callable[[], APIError] | None = None
    """What the reader of a response that is cut off is told. None if there is nobody left to be told anything."""
    streams = False
    """Whether the answers of the model are streamed."""
    stopped_by: str | None = None
    """The stop sequence at which the last answer of the model has ended."""
    _agents: RunEvents | None = None
    """The stream of the whole run, if its reader wants to see sub-agents."""
    _asked: ModelRequest | None = None
    """What a turn has asked of the model last."""
    _last_used = 0
    """Tokens in the window after the last turn, as the model server has counted; 0 if nobody has."""

    def __init__(
        self, parts: EngineParts, plan: Plan, journal: Journal, sink: EventSink | None, earlier: Earlier
    ) -> None:
        self._parts = parts
        self.plan = plan
        self.journal = journal
        marked = None
        if plan.shown.agents and plan.parent is None and sink is not None:
            sink = marked = MarkedStream(sink, plan.response.id)
        self._sink = sink
        self._earlier = earlier
        budget = plan.ctx.budget
        self._budget = budget if isinstance(budget, Budget) else Budget(RunLimits())
        self._unconfirmed = plan.answered
        response = self.response = plan.response
        seals = self._seals = Seals(parts.sealer, plan.ctx.tenant, response.model)
        self._choice = plan.choice
        self._checks = checks = plan.checks_of(parts.checks)
        options = EmitterOptions(
            sources=plan.ctx.sources,
            client_tools=plan.toolset.client_tools,
            call_ids=CallIds(plan.window, journal.said),
            seal=seals.seal_thoughts if "reasoning.encrypted_content" in plan.include else None,
            seal_opaque=seals.seal_opaque,
            whole_calls=response.background or checks.holds_calls,
            as_summary=parts.thoughts_as_summary and wants_summary(plan.create),
            thoughts=parts.thoughts,
            longest_answer=parts.longest_answer,
        )
        emitter = self.emitter = Emitter(response, sink, options, earlier.sequence, earlier.positions)
        emitter.client_functions = plan.choice.permitted(plan.toolset.clients)
        if marked is not None:  # nobody else keeps it: it is there for sub-agents as long as this is
            self._agents = parts.streams.open(RunEvents(emitter, marked))
        self._window = SaidWindow(plan, journal, seals)
        self._leaving = LeavingCalls(plan, journal, parts.values)
        self._model = ModelTurns(plan, parts, emitter, self._window, self._leaving)
        self._coalescer = Coalescer(emitter) if response.background and sink is not None else None
        if sink is not None or plan.stop:  # what is streamed can be broken off
            self.streams = True
        self._noted = len(response.output)
        self._totals = Totals()
        self.on_progress: Callable[[], None] = _unheard
        """Called when the response got further: a function has returned, or the window was compacted."""
        if earlier.resumed:
            self._restore()

    def _restore(self) -> None:
        """Go on from what is stored."""
        entries = self.journal.entries
        self._totals = Totals.restored(self.journal.record.extra.get("totals", {}), entries)
        if self.plan.toolset.deferred:
            self._note_loaded()
        if self._totals.turns:
            self._relax()
        self._leaving.restore()
        self._window.compacted = any(e.direction == "output" and e.item["type"] == COMPACTION for e in entries)

    def forsake(self) -> None:
        """Take note that the reader has left."""
        self.closing_error = None

    async def run(self) -> ResponseObject:
        """Make the response. For a caller that does not stream, an error of the model server is raised as it is.

        If the store or the model server is away, a background response is not over: the error is raised, and whoever
        runs it may go on from what is stored.
        """
        try:
            await (self._run_traced() if self._parts.tracer.enabled else self._run())
        except asyncio.CancelledError:
            if self.response.status in ACTIVE:  # its end is not being stored yet
                await self._cancel()
            if self._budget.closing:
                await in_any_case(
                    self._close_run(self._pause()), f"agents of response {self.response.id} stay unfinished"
                )
            raise
        except FencedError:
            logger.info("response %s was taken over by somebody else", self.response.id)
            await self._close_run("broken_off")  # it may be over here, but whose it is now may be at its agents
            raise
        except APIError as error:
            if self.response.background and (isinstance(error, StoreUnavailableError) or may_pass(error)):
                raise  # it is unfinished in the store; whoever runs it goes on when store and model are back
            if worth_a_line(error, broke_off=self.broke_off):
                logger.warning("response %s failed: %s", self.response.id, error.message)
            await self._fail(error)
        except RecursionError:  # functions keep theirs to themselves: what can just be read was too deep to be written
            await self._fail(BadRequestError("The request is nested too deeply."))
        except Exception:
            logger.exception("response %s failed", self.response.id)
            await self._fail(APIError("The server had an error while making the response."))
        finally:
            if self._budget.closing:
                await self._close_run(self._pause())
        return self.response

    def _pause(self) -> Pause:
        return "broken_off" if self.response.status in ACTIVE else "over"

    async def _close_run(self, pause: Pause) -> None:
        """Do what is to be done when nobody works on the response of a root agent any more."""
        if self._budget.closing and self.plan.parent is None:
            await self._budget.close(pause)

    async def _run_traced(self) -> None:
        with telemetry.open_agent_span(self._parts.tracer, self.plan) as span:
            await self._run()
            telemetry.record_end(span, self.response)

    async def _run(self) -> None:
        response = self.response
        response.status = "in_progress"
        if self._sink is not None:
            self._tell_begin()
        for opened in self.plan.opened:
            if opened.renews or not self._earlier.resumed:
                self.journal.note(JournalEntry("output", self.emitter.opened(opened), mark="for_clients"))
        if response.background:
            self.journal.tell(response)
            await self.journal.save()
            if self._unconfirmed:
                await self._confirm()
            await self.emitter.flush()
        deadline = Deadline(self.plan.ctx.remaining(), self._parts.stragglers)
        try:
            with deadline:
                outcome = await self._work()
        except TimeoutError:
            if not deadline.expired:
                raise
            outcome = LoopOutcome.DEADLINE
        if outcome is _PARKED:
            self.parked = True
            return
        if self._unconfirmed:
            await self._confirm()
        if outcome is _ANSWERED:
            await self._ending().complete(self._usage())
        else:
            await self._ending().cut_short(outcome, self._usage())

    def _tell_begin(self) -> None:
        if not self.response.background:
            self.emitter.announce("created")
        if not self._earlier.resumed:
            self.emitter.announce("in_progress")

    def _work(self) -> Coroutine[Any, Any, LoopOutcome]:
        """Return what is to be done, from where the response stands."""
        if self.plan.refused is not None:
            return self._decline(self.plan.refused)
        if self._earlier.resumed:
            return self._continue()
        return self._begin_with_approved() if self.plan.is_pending() else self._turns()

    async def _decline(self, reason: str) -> LoopOutcome:
        """Say why nothing is done; no model is asked."""
        self.emitter.refuse(reason)
        self._note_output()
        return _ANSWERED

    async def _begin_with_approved(self) -> LoopOutcome:
        """Make the calls that were approved, then turns."""
        outcome = await self._execute_approved()
        return await self._turns() if outcome is _ONWARD else outcome

    async def _execute_approved(self) -> LoopOutcome:
        """Make the calls that this response brings the approval or the answers of; return how it goes on from there.

        Two responses may bring it at the same time. The later one has it, unless the first is stored by then.
        """
        if self._unconfirmed:
            await self._confirm()
        await self.journal.save()
        brought = await brought_by(self._parts.store.questions, self.plan.ctx.tenant, self.response.id)
        dispatch = self._dispatch()
        await dispatch.execute_approved(
            msgspec.structs.replace(call, confirmed=call.carried or call.question.id in brought)
            for call in self.plan.approvals
        )
        await dispatch.resume(self.plan.resumed)
        return await self._outcome(dispatch)

    async def _confirm(self) -> None:
        """Raise a ConflictError if another response has answered the same questions; once this is stored, none can.

        Nothing that others see is done before: of two that were sent at the same time, the later one has it.
        """
        await self.journal.save()
        await check_answers(self._parts.store.questions, self.response.id, self._unconfirmed)
        self._unconfirmed = ()

    async def _turns(self) -> LoopOutcome:
        """Perform turns until there is nothing left to do; return how that ended."""
        if self.plan.compact_only:
            if not self._window.compacted:
                await self._compact()
            return _ANSWERED
        while (limit := self._limit_reached()) is None:
            calls = await self._model_turn()
            if calls is None:
                return await self._last_words()
            if (stopped := CUT_SHORT.get(self.emitter.finish_reason)) is not None:
                return stopped
            outcome = await self._perform(calls) if calls else _ANSWERED
            if outcome is not _ONWARD:
                return outcome
        return limit

    async def _perform(self, calls: Sequence[ModelCall]) -> LoopOutcome:
        """Make the calls of a turn that are ours; return how it goes on from there."""
        server = [call for call in calls if not call.is_client]
        if server:
            if self._totals.without_tools:  # it was told so, and was offered none
                return LoopOutcome.MAX_TOOL_CALLS
            if self._unconfirmed:
                await self._confirm()
            dispatch = self._dispatch()
            await dispatch.execute(server, self._choice)
            if self.plan.toolset.deferred:
                self._note_loaded()
            if dispatch.is_last:
                return await self._outcome(dispatch)
        if len(server) < len(calls):
            return _ANSWERED  # the others are the client's to make
        choice = self._choice
        if choice.upstream is not None and (choice.among is None or any(call.name in choice.among for call in calls)):
            self._relax()
        return await self._last_words() if self._budget.is_low() else _ONWARD

    def _note_loaded(self) -> None:
        """Take note of the deferred functions that the model has found."""
        self._totals.loaded = loaded_since(self.plan.toolset, self.journal.said())

    def _limit_reached(self) -> LoopOutcome | None:
        """Return which limit allows no further turn."""
        plan, totals = self.plan, self._totals
        if totals.turns >= plan.max_turns:
            return LoopOutcome.MAX_TURNS
        if totals.repetition.is_stuck:
            return LoopOutcome.REPEATED_CALLS
        if plan.max_output_tokens is not None and totals.written >= plan.max_output_tokens:
            return LoopOutcome.MAX_OUTPUT_TOKENS
        return LoopOutcome.DEADLINE if self._is_too_late() else None

    def _is_too_late(self) -> bool:
        deadline = self.plan.ctx.deadline
        return deadline is not None and deadline - time.monotonic() < _TOO_LATE

    async def _outcome(self, dispatch: Dispatch) -> LoopOutcome:
        """Return how it goes on after calls: one may wait for somebody, or have given the answer."""
        if dispatch.waiting:
            # A call that took until the deadline may end before that is noticed: then nobody waits any more.
            return LoopOutcome.DEADLINE if self._is_too_late() else await self._wait(dispatch)
        return _ANSWERED if await self._answered(dispatch) else _ONWARD

    async def _last_words(self) -> LoopOutcome:
        """Let a root agent whose budget is spent say what was found, if anything was; return why it ends."""
        if self.plan.parent is None and self._totals.tool_calls:
            self._totals.without_tools = True
            await self._model_turn(last=True)
        return LoopOutcome.BUDGET

    async def _model_turn(self, *, last: bool = False) -> list[ModelCall] | None:
        """Perform a turn of the model and return its calls; None if the budget of the run is spent.

        The `last` turn of a run is performed all the same: a share is kept for it.
        """
        self._totals.turns += 1
        if self.plan.compact_at is not None:
            await self._make_room()
        emitter, budget, model = self.emitter, self._budget, self.response.model
        if self.plan.parent is not None:
            await self._parts.agents_pace.turn(self.plan.ctx.tenant)
        if not (budget.begin() or await self._begins_late(last=last)):
            return None
        emitter.begin_turn()
        begun, started = self.journal.begin_turn(), time.perf_counter()
        try:
            await self._ask()
        except AnswerTooLongError:
            self._cut_off()
        except BaseException as error:
            self._note_failed(started, begun, error)
            raise
        finally:
            usage = emitter.turn_usage
            budget.settle(model, usage)
            telemetry.note_turn(begun, emitter, started, self._asked)
        self._parts.metrics.count_turn(model, started, emitter.first_piece_at, usage)
        if self._checks.call:
            await check_calls(self._checks.call, emitter, self.plan)
        calls = emitter.end_turn()
        if usage is not None:
            self._totals.usage = self._totals.usage.plus(usage)
            self._last_used = usage.total_tokens
        else:
            said = self.response.output[self._noted :]
            estimate = await self._model.estimated(self._request(), said)
            budget.count_unreported(model, estimate)
            self._totals.usage = self._totals.usage.plus(estimate)
        if calls or self.journal.is_read:
            self._note_output()
        # What the turn has said leaves before anything takes time; else together with the end. Items of background
        # responses are stored before they are told, together with what follows.
        if self._sink is not None and (calls or self.plan.stored) and not self.response.background:
            await emitter.flush()
        return calls

    def _ask(self) -> Coroutine[Any, Any, None]:
        """Ask the model; what it says comes to the emitter."""
        coalescer = self._coalescer
        if self._checks.output:
            return self._ask_checked()
        if self.plan.stop:
            return self._ask_until_stop()
        if coalescer is None:
            return self._model.run(self._request(), self.emitter)
        return coalescer.take(self._model.run(self._request(), coalescer))

    async def _ask_until_stop(self) -> None:
        """Perform a turn that ends at a stop sequence; no response in the background has any."""
        turn = StopSequences(self.plan.stop, self.emitter)
        try:
            await self._model.run(self._request(), turn)
        except AnswerStoppedError:
            self.emitter.finish("stop")
        self.stopped_by = turn.found

    async def _ask_checked(self) -> None:
        """Perform a turn whose texts are checked before they are told: a refusal stands for what is not let through."""
        sink: TurnSink = self._coalescer or self.emitter
        turn = CheckedTurn(self._checks.output, self.plan.for_checks(), sink, self._parts.longest_answer)
        work = self._run_checked(turn)
        try:
            await (work if self._coalescer is None else self._coalescer.take(work))
        except AnswerRefusedError as refused:
            self.emitter.refuse(refused.reason)

    async def _run_checked(self, turn: CheckedTurn) -> None:
        stops = StopSequences(self.plan.stop, turn) if self.plan.stop else None
        try:
            await self._model.run(self._request(), stops or turn)
        except AnswerStoppedError:
            turn.finish("stop")
        except AnswerTooLongError:
            self._cut_off()
        await turn.end()
        if stops is not None:
            self.stopped_by = stops.found

    async def _begins_late(self, *, last: bool) -> bool:
        """Wait until the budget of the run allows a turn; return whether it does."""
        if not self.plan.checked:  # what it is to check may be under way, and waits for it
            return self._budget.begin_within()
        return await self._budget.wait() or (last and self._budget.begin_last())

    def _cut_off(self) -> None:
        """End an answer that has become too long."""
        self.emitter.finish("length")
        logger.warning(
            "response %s: an answer was cut off after %d characters (engine.max_answer_length)",
            self.response.id,
            self._parts.longest_answer,
        )

    def _note_failed(self, started: float, begun: TurnRecord | None, error: BaseException) -> None:
        """Take note of a turn that has failed."""
        if begun is not None:
            stopped = isinstance(error, asyncio.CancelledError)
            plain = _STOPPED if stopped else type(error).__name__
            begun.error = error.message if isinstance(error, APIError) else plain
        self.broke_off = self.emitter.has_spoken or isinstance(error, BrokenOffError | StalledError)
        self._parts.metrics.count_failed_turn(time.perf_counter() - started, error)

    # --- the model's side --------------------------------------------------------------------------------------------

    def _request(self) -> ModelRequest:
        plan, window, asked = self.plan, self._window.items(), self._asked
        if asked is None:
            asked = model_request(plan, window, self._choice, self._totals, stream=self.streams)
        else:
            asked = next_request(asked, plan, window, self._choice, self._totals)
        self._asked = asked
        return asked

    def _relax(self) -> None:
        """Take note that what was required of the model is satisfied."""
        relaxed = self._choice.relaxed()
        if relaxed is not self._choice:
            self._choice = relaxed
            self.emitter.client_functions = relaxed.permitted(self.plan.toolset.clients)

    async def _make_room(self) -> None:
        """Compact the window if it is time. Without a summary the window stays as it is."""
        request = self._request()
        if not await self._model.is_full(request, self._last_used) or not compactable(request.items):
            return
        try:
            await self._compact()
        except APIError as error:
            logger.warning("response %s goes on uncompacted: %s", self.response.id, error.message)
        await self._model.note_compacted(self._request())

    async def _compact(self) -> None:
        """Put a summary by the model in the place of what is over of all that was read and said."""
        compactor = Compactor(self._parts.models, self._parts.metrics, self._parts.tracer, self._parts.large_work)
        budget, used = self._budget, None
        if not (budget.begin() or await budget.wait()):
            raise APIError("The budget of the run is spent.")
        try:
            compacted = await compactor.compact(
                self._window.items(),
                self._seals,
                model=self.response.model,
                tenant=self.plan.ctx.tenant,
                instructions=self.plan.instructions,
                limit=self.plan.compact_at,
                room=await self._model.room(),
            )
            used = compacted.usage
        finally:
            budget.settle(self.response.model, used)
        self._window.compacted, self._last_used = True, 0
        self._totals.usage = self._totals.usage.plus(compacted.usage)
        self._totals.summarised += compacted.usage.output_tokens
        self.journal.note(JournalEntry("output", self.emitter.compaction(compacted.encrypted_content)))
        self.on_progress()
        self._keep_totals()
        if self.journal.begun or self.response.background:
            await self.journal.save()
        await self.emitter.flush()

    def _note_output(self) -> None:
        """Take the items the model has written since the last time into the journal."""
        for item in self.response.output[self._noted :]:
            if not isinstance(item, dict):
                self.journal.note(JournalEntry("output", msgspec.to_builtins(item)))
        self._noted = len(self.response.output)

    def _dispatch(self) -> Dispatch:
        plan, journal, totals, models = self.plan, self.journal, self._totals, self._parts.models
        life = CallLifecycle(
            plan,
            journal,
            self.emitter,
            totals,
            Admission(plan, totals),
            1 if plan.create.parallel_tool_calls is False else self._parts.parallel_calls,
            self._earlier.answers,
            self._keep_totals,
            self.on_progress,
            journal.store is not None or self._sink is not None,
            self._leaving,
            self._parts.longest_arguments,
            self._model.result_room,
            models.some_see and models.takes_images(self.response.model),
            None if plan.stored else self._seals.sign_approval,
            self._checks,
        )
        return Dispatch(life)

    async def _answered(self, dispatch: Dispatch) -> bool:
        """Say what a function has given as the answer, if one has."""
        if (answer := dispatch.answer) is None:
            return False
        if self._checks.output:
            said = await checked_text(self._checks.output, answer, self.plan.for_checks())
            if isinstance(said, Refuse):
                await self._decline(said.reason)
                return True
            answer = said
        self.emitter.text(answer)
        self.emitter.end_turn()
        self._note_output()
        return True

    async def _wait(self, dispatch: Dispatch) -> LoopOutcome:
        """Let calls wait for somebody: a background response is parked, another one ends with calls to be answered."""
        questions = questions_of(dispatch.waiting, self.plan)
        parks = self.response.background
        self._keep_totals()
        parks_run = parks and self.plan.parent is None
        if parks_run and self._budget.closing:  # others may still work for long: people see the question meanwhile
            self.journal.ask(questions, park=False)
            await self.journal.save()
            await self.emitter.flush()
            await self._budget.close("parked")
        self.journal.ask(questions, park=parks_run)
        if not parks:
            return _ANSWERED
        await self.journal.save()
        await self.emitter.flush()
        return _PARKED

    # --- after a crash -----------------------------------------------------------------------------------------------

    async def _continue(self) -> LoopOutcome:
        """Finish what was started, then go on, unless the client is to answer first."""
        dispatch = self._dispatch()
        await dispatch.finish_started()
        outcome = await self._outcome(dispatch)
        if outcome is _ONWARD and self.plan.is_pending():
            outcome = await self._execute_approved()
        if outcome is not _ONWARD:
            return outcome
        entries = self.journal.entries
        if any(e.direction == "output" and e.is_plain and e.item["type"] in CALLS for e in entries):
            return _ANSWERED
        return await self._turns()

    def note_readers(self, is_read: bool) -> None:
        """Take note whether somebody reads a background response: what nobody reads is stored in larger groups."""
        if self._coalescer is not None:
            self._coalescer.note_readers(is_read)

    def forget(self, key: str) -> None:
        """Forget something that was noted about the run, with the next write."""
        self.journal.record.extra.pop(key, None)

    def _keep_totals(self) -> None:
        """Store with the next write how far the response has come, if somebody might have to continue it."""
        if self.response.background or self._budget.shared:
            stored = self._totals.stored()
            if self.plan.parent is None:
                stored["seconds"] = round(self._budget.seconds, 3)
            self.journal.tell(self.response, totals=stored)

    def _usage(self) -> Usage:
        """Return what is told to be used: by the root agent what all have used."""
        return self._budget.usage if self._budget.shared and self.plan.parent is None else self._totals.usage

    # --- endings -----------------------------------------------------------------------------------------------------

    @property
    def _told(self) -> bool:  # whether a reader has seen anything yet; until then an error can be an HTTP status
        return self._sink is not None and self._sink.started

    def _ending(self) -> Ending:
        if self._agents is not None:
            self._agents.close()
        if self._budget.shared:
            self._keep_totals()  # whoever goes on with the run counts from them what it has spent
        return Ending(self.response, self.journal, self.emitter, self._parts.metrics, self._close)

    def _close(self) -> None:
        """Close whatever was cut off."""
        self.emitter.end_turn(cut=True)
        self._note_output()

    async def _fail(self, error: APIError) -> None:
        if self.journal.begun or self._told or self.plan.parent is not None:
            await self._ending().fail(error, self._usage())
        elif self.plan.stored and error.status >= _FAULTS:
            await self._fail_unseen(error)
        else:
            self._parts.metrics.count_response("failed")
        if not self._told:
            try:
                raise error
            finally:
                del error  # kept in a name, it would keep this frame, which keeps it

    async def _fail_unseen(self, error: APIError) -> None:
        """Keep that it failed before it had begun, for those who look for what failed."""
        await self._ending().fail_unseen(error)
        if self._told:  # the stream has begun meanwhile, with a sign of life
            self.emitter.error(as_told(error).code, error.message)
            self.emitter.announce("failed")
            await self.emitter.flush()

    async def _cancel(self) -> None:
        """Keep what there is of a response that is cut off, and tell its reader, if there still is one, how it ends."""
        if self.response.background:
            return  # its run goes on elsewhere, or was cancelled in the store
        if self.called_off:
            end = self._ending().cut_short(LoopOutcome.CANCELLED, self._usage())
        elif self.closing_error is not None and self._told:
            end = self._fail(self.closing_error())
        else:
            end = self._ending().cancel(self._usage())
        try:
            await asyncio.shield(asyncio.ensure_future(end))  # whoever is in a hurry may cancel once more
        except Exception as error:  # noqa: BLE001 - what is raised is that it was cancelled
            logger.warning("response %s was cut off, and that cannot be stored: %s", self.response.id, error)


def _unheard() -> None:
    """Tell nobody."""
