"""Sub-agents of the agent that makes a call: what it can do with them, and what becomes of them when the run ends."""

import asyncio
import builtins
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec.structs import replace
from typing_extensions import override

from antwort.context import Context, Progress
from antwort.context.agents import AgentInfo, AgentResult, AgentTask, SubAgents
from antwort.context.calls import SuspendedError, Suspension
from antwort.context.values import Values
from antwort.engine.budget import Budget
from antwort.engine.engine import Engine, shown
from antwort.engine.journal import Journal
from antwort.engine.plan import ChildWork, Plan, second_try
from antwort.engine.turns.loop import Loop
from antwort.engine.turns.parts import NOTHING, Earlier
from antwort.engine.window import Recall
from antwort.errors import APIError, FunctionError, FunctionUnavailableError
from antwort.lazy_imports import imported_on_use
from antwort.runs.agents_at_work import (
    AgentsAtWork,
    LatestResponse,
    RunAgents,
    agent_id_of,
    live_info,
    result_of,
    task_of,
)
from antwort.runs.recovery import load_answers
from antwort.runs.run import Lease, ResponseRun, RunEnd, patiently, pauses
from antwort.storage.base import ACTIVE, FencedError, ResponseRecord, StoreUnavailableError
from antwort.types import JSON
from antwort.wire.responses import stored_response

# --- results that have to fit a schema: checked when an agent is done ------------------------------------------------


if TYPE_CHECKING:
    import jsonschema_rs
else:  # only typed results need it
    jsonschema_rs = imported_on_use("jsonschema_rs")

UNFIT = "Your result does not fit the schema: {}. Give it again, all of it, and as JSON."
"""What an agent is told."""
_LARGEST = 200_000
"""Bytes of a value that are looked at."""
_MOST_WORK = 100_000
"""Steps that a check may take, a microsecond each at worst: schemas may be a model's, and all wait meanwhile."""
_PATTERN_SIZE, _PATTERN_STEPS = 10_000, 3
"""Bytes that a pattern may take, and the steps of each character that is held to one."""
_TOO_LARGE = f"it has more than {_LARGEST:,} bytes, or is gone"
_TOO_MUCH = "it is too much to be checked; give less, or give it in parts"
_LONGEST_PROBLEM = 200
_FENCE = "```"
"""What models like to write around JSON."""


def check_schema(schema: Mapping[str, Any]) -> None:
    """Raise a FunctionError if nothing could be held to a schema."""
    _validator(schema)


async def typed(result: AgentResult, task: AgentTask, tenant: str, values: Values | None) -> tuple[AgentResult, str]:
    """Return what came of an agent as its task wants it, and what is wrong with it; that is empty if nothing is.

    What has no whole answer anyway is as it is.
    """
    if task.output_schema is None or not result.is_answer:
        return result, ""
    text = result.text if result.reference is None else await _read(result.reference, tenant, values)
    if text is None:
        return result, _TOO_LARGE
    plain, problem = _checked(task.output_schema, text)
    if problem:
        return result, problem
    return replace(result, text=plain if result.reference is None else result.text, is_json=True), ""


def unfit(result: AgentResult, problem: str) -> AgentResult:
    """Return an agent whose result does not fit as one that has failed; what it has said is there."""
    return replace(result, status="failed", reason=f"Its result does not fit the schema: {problem}.")


async def _read(variable_id: str, tenant: str, values: Values | None) -> str | None:
    variable = None if values is None else await values.get(tenant, variable_id)
    if values is None or variable is None or variable.size > _LARGEST:
        return None
    return b"".join([piece async for piece in values.read(variable)]).decode(errors="replace")


def _checked(schema: Mapping[str, Any], text: str) -> tuple[str, str]:
    """Return the JSON in a text, without what models write around it, and what is wrong with it."""
    text = text.strip()
    if text.startswith(_FENCE) and text.endswith(_FENCE):
        text = text.removesuffix(_FENCE).partition("\n")[2]
    if len(text) > _LARGEST:
        return text, _TOO_LARGE
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        return text, f"it is no JSON: {error}"
    if _work(schema, text) > _MOST_WORK:
        return text, _TOO_MUCH
    try:
        _validator(schema).validate(value)  # up to what is wrong first: to find all of it may take very long
    except jsonschema_rs.ValidationError as error:
        return text, _problem_line(error)
    except (ValueError, OverflowError) as error:
        return text, str(error)
    return msgspec.json.encode(value).decode(), ""


def _work(schema: Mapping[str, Any], text: str) -> int:
    """Return about how many steps it takes to hold each part of a value to each part of a schema, at worst."""
    wanted = msgspec.json.encode(schema)
    parts = 1 + text.count(",") + text.count("[") + text.count("{")
    return parts * (wanted.count(b"{") + wanted.count(b",")) + _PATTERN_STEPS * wanted.count(b'"pattern') * len(text)


def _problem_line(error: "jsonschema_rs.ValidationError") -> str:
    path = ".".join(str(part) for part in error.instance_path)
    message = f"{path}: {error.message}" if path else error.message
    return message if len(message) <= _LONGEST_PROBLEM else f"{message[:_LONGEST_PROBLEM]}…"


def _validator(schema: Mapping[str, Any]) -> "jsonschema_rs.Validator":
    plain: JSON = dict(schema)
    try:
        # Patterns may be a model's: these take a time that grows with the text, and with their own size.
        patterns = jsonschema_rs.RegexOptions(size_limit=_PATTERN_SIZE)
        return jsonschema_rs.validator_for(plain, retriever=_refuse, pattern_options=patterns)
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
        cause = str(error).splitlines()[0][:_LONGEST_PROBLEM]
        raise FunctionError(f"The schema of the result is no JSON Schema that can be checked: {cause}") from error


def _refuse(uri: str) -> Any:
    raise ValueError(f"the reference {uri} points outside the schema")


# --- agents ----------------------------------------------------------------------------------------------------------


T = TypeVar("T")


class SubAgent(Lease):
    """Lets a sub-agent work, and returns what comes of it. While it waits for others it holds nothing they need."""

    def __init__(self, at_work: AgentsAtWork, work: ChildWork) -> None:
        self._at_work = at_work
        self._engine = at_work.engine
        self._work = work

    # --- beginning, and going on -------------------------------------------------------------------------------------

    async def result(self, record: ResponseRecord | None) -> AgentResult | None:
        """Begin, or go on with what is stored, and return what comes of it; None if it waits for somebody."""
        if record is not None:
            self._work = replace(self._work, task=task_of(record), index=record.child_index or 0)
            if record.status not in ACTIVE:
                return await self._fitting(await self._at_work.stored.result(record))
        try:
            loop = await (self.begin() if record is None else self.go_on(record))
        except (APIError, FunctionError) as error:  # it cannot even be begun, or be taken up
            return AgentResult("", "", "failed", reason=str(error))
        if loop is None and record is not None:
            return await self._at_work.stored.ended(record.tenant, record.id)
        return None if loop is None else await self.to_end(loop)

    async def begin(self, *, detached: bool = False) -> Loop:
        """Return what makes its response; `detached` if nobody waits for it now."""
        if self._work.task.continues is not None:
            latest = await self._latest(self._work.task.continues)
            self._work = replace(self._work, task=latest.continued(self._work.task), previous=latest.response_id)
        return await self._new(detached=detached)

    async def _latest(self, agent_id: str) -> LatestResponse:
        """Return the last response of the agent that gets further input; a FunctionError if it is not done."""
        ctx, agents = self._work.parent.ctx, self._at_work.of_run(self._work.parent)
        if agents is not None:
            agents.check_owner(ctx, agent_id)
            if agent_id in agents.closed:
                raise _closed(agent_id)
            if agent_id in agents.latest:
                if agents.is_busy(agent_id):
                    raise _at_work(agent_id)
                return agents.latest[agent_id]
        record = await self._at_work.stored.last(ctx, agent_id)
        if record.extra.get("closed"):
            raise _closed(agent_id)
        if record.status in ACTIVE:
            raise _at_work(agent_id)
        return LatestResponse(record.id, task_of(record), record.extra.get("profile"), record.model)

    async def _new(self, *, detached: bool) -> Loop:
        parent = self._work.parent
        agents = self._at_work.of_run(parent)
        recall: Recall | None = None if agents is None else agents.entries
        refused = None
        if parent.checked and self._engine.checks.current.input:
            self._work, refused = await self._engine.input_checks.work(self._work)
        plan = await self._engine.planner.plan_child(self._work, recall=recall)
        if refused is not None:
            plan = replace(plan, refused=refused)
        journal = self._engine.journal(plan)
        if plan.stored:
            journal.record.extra = {
                "task": msgspec.to_builtins(self._work.task),
                "profile": plan.profile,
                "agent": plan.ctx.agent.name,
                "agent_id": plan.ctx.agent_id,
                "depth": plan.ctx.agent.depth,
                "owner": parent.ctx.agent_id,
                "detached": detached,
                "refused": refused,
            }
        return self._loop(plan, journal)

    async def go_on(self, record: ResponseRecord) -> Loop | None:
        """Return what goes on with it from what is stored; None if it is over by now."""
        store = self._engine.store
        claimed = await store.claim(record.tenant, record.id)
        if claimed is None:
            return None
        entries = await store.journal(record.tenant, record.id)
        output = [entry.item for entry in entries if entry.direction == "output" and entry.visible]
        response = stored_response(shown(claimed, output))
        journal = Journal.stored(store, claimed, entries)
        plan = await self._engine.planner.plan_again(claimed, entries, response, self._work)
        answers = await load_answers(store, claimed, entries)
        await take_up_detached(self._at_work, plan)
        return self._loop(plan, journal, Earlier(positions=range(len(output)), resumed=True, answers=answers))

    def _loop(self, plan: Plan, journal: Journal, earlier: Earlier = NOTHING) -> Loop:
        """Return what makes a response. Its model's answers are streamed: they have to begin, and to go on, in time."""
        sink = self._engine.streams.sink_for(plan) if plan.shown.agents else None
        loop = self._engine.loop(plan, journal, sink, earlier)
        loop.streams = True
        return loop

    async def start(self, agents: RunAgents, record: ResponseRecord | None) -> str | None:
        """Begin, or go on, in a task of its own, and return the agent's id; None if it is over."""
        try:
            loop = await (self.begin(detached=True) if record is None else self.go_on(record))
            if loop is not None:
                await loop.journal.save()  # whoever goes on after a crash finds it
        except APIError as error:
            raise FunctionError(error.message) from error
        return None if loop is None else self.continue_with(agents, loop)

    def continue_with(self, agents: RunAgents, loop: Loop) -> str:
        """Let it work in a task of its own, and return the id of the agent."""
        agent_id = loop.plan.ctx.agent_id or loop.response.id

        async def work() -> AgentResult | None:
            try:
                return await self.to_end(loop)
            except asyncio.CancelledError:
                self._remember(loop)
                raise

        agents.take(agent_id, self._latest_response(loop), self._work.parent.ctx.agent_id)
        agents.loops[agent_id] = loop
        agents.tasks[agent_id] = asyncio.get_running_loop().create_task(work(), name=f"agent {agent_id}")
        return agent_id

    # --- the run -----------------------------------------------------------------------------------------------------

    async def to_end(self, loop: Loop) -> AgentResult | None:
        """Bring its response to the end, and return what came of it; None if it waits for somebody."""
        state, loop, error = await ResponseRun(self, self._engine.settings).to_end(loop)
        agent_id, response = loop.plan.ctx.agent_id or loop.response.id, loop.response
        if state is RunEnd.PARKED:
            return None
        if state is RunEnd.LOST:
            return await self._at_work.stored.ended(loop.plan.ctx.tenant, response.id)
        if error is not None:
            return AgentResult(agent_id, response.id, "failed", reason=error.message, usage=response.usage)
        self._remember(loop)
        task = self._work.task
        result = result_of(response, agent_id, loop.journal.entries, task)
        return result if task.output_schema is None else await self._fitting(result, loop)

    @override
    async def work(self, loop: Loop) -> None:
        await self._at_work.work(loop)

    @override
    def progress(self) -> None:
        pass

    @override
    def has_time(self, seconds: float) -> bool:
        return self._work.deadline is None or time.monotonic() + seconds < self._work.deadline

    @override
    async def resume(self, loop: Loop) -> Loop | None:
        looks, ctx = pauses(), loop.plan.ctx
        while True:
            try:
                record = await self._engine.store.get(ctx.tenant, loop.response.id)
                return await (self._new(detached=_is_detached(loop)) if record is None else self.go_on(record))
            except StoreUnavailableError:
                await asyncio.sleep(next(looks))

    @override
    async def fail(self, loop: Loop, error: APIError) -> None:
        response, tenant = loop.response, loop.plan.ctx.tenant
        if not response.background or response.status not in ACTIVE:
            return
        record = await patiently(lambda: self._engine.store.get(tenant, response.id))
        if record is not None and not await patiently(partial(self._at_work.stored.end, record, "failed", error)):
            raise FencedError

    # --- what comes of it --------------------------------------------------------------------------------------------

    async def _fitting(self, result: AgentResult, loop: Loop | None = None) -> AgentResult | None:
        """Return a result that fits the schema of its task; an agent whose result does not is told so once.

        None if it waits for somebody then. `loop` has made the result; without one it is of the store.
        """
        work = self._work
        result, problem = await typed(result, work.task, work.parent.ctx.tenant, self._engine.values)
        if not problem:
            return result
        if work.is_second_try:
            return unfit(result, problem)
        second = SubAgent(self._at_work, work.again(result.id, result.response_id, UNFIT.format(problem)))
        try:
            again = await second._new(detached=loop is not None and _is_detached(loop))
        except (APIError, FunctionError) as error:
            return unfit(result, f"{problem}; it could not be asked again: {error}")
        agents = self._at_work.of_run(work.parent)
        if agents is not None and result.id in agents.loops:
            agents.loops[result.id] = again
        return await second.to_end(again)

    def _remember(self, loop: Loop) -> None:
        """Take note of its response, for its next one."""
        plan, agents = loop.plan, self._at_work.of_run(loop.plan)
        if agents is not None:
            agents.take(plan.ctx.agent_id or "", self._latest_response(loop), self._work.parent.ctx.agent_id)
            if not plan.stored:
                agents.entries[loop.response.id] = self._engine.entries_so_far(plan, loop.journal)

    def _latest_response(self, loop: Loop) -> LatestResponse:
        return LatestResponse(loop.response.id, self._work.task, loop.plan.profile, loop.response.model)


async def take_up_detached(at_work: AgentsAtWork, parent: Plan) -> None:
    """Let agents go on that an agent has started without waiting for them, before somebody else went on with it."""
    agents = at_work.of_run(parent)
    if agents is None or not parent.stored:
        return
    for record in await at_work.engine.store.unfinished_below(parent.ctx.tenant, parent.response.id):
        if record.parent_id == parent.response.id and record.extra.get("detached"):
            await take_up(at_work, parent, agents, record)


async def take_up(at_work: AgentsAtWork, parent: Plan, agents: RunAgents, record: ResponseRecord) -> None:
    """Let an agent go on that another process has begun, or that waited for somebody."""
    if record.status in ACTIVE and record.parent_id == parent.response.id:
        work = ChildWork(parent, task_of(record), record.parent_call_id or "", record.child_index or 0)
        agent = SubAgent(at_work, work.begun())
        loop = await agent.go_on(record)
        if loop is not None:
            agent.continue_with(agents, loop)


def _is_detached(loop: Loop) -> bool:
    return bool(loop.journal.record.extra.get("detached"))


def _closed(agent_id: str) -> FunctionError:
    return FunctionError(f"The agent '{agent_id}' is closed. Start another one.")


def _at_work(agent_id: str) -> FunctionError:
    return FunctionError(f"The agent '{agent_id}' is still at work. Wait for it, or interrupt it, first.")


_REPORTS = 20
"""How often the progress of many agents is reported."""


class AgentRuns:
    """The sub-agents of all runs of an app."""

    def __init__(self, engine: Engine) -> None:
        at_work = self._at_work = AgentsAtWork(engine)
        self.watch, self.stop = at_work.watch, at_work.stop
        self.tree, self.cancel_tree = at_work.stored.tree, at_work.stored.cancel_tree

    def of(self, ctx: Context) -> SubAgents:
        """Return what a call can do with sub-agents; a FunctionUnavailableError if it belongs to no response."""
        if not isinstance(ctx.origin, Plan) or not isinstance(ctx.budget, Budget):
            raise FunctionUnavailableError("Agents can only be started by a call of a response.")
        return CallAgents(self._at_work, ctx, ctx.origin, ctx.budget)

    async def adopt(self, root: Plan) -> None:
        """Take charge of the agents of a run that another process has begun: they go on, and end with it."""
        budget = root.ctx.budget
        if isinstance(budget, Budget) and budget.shared:
            self._at_work.open_run(root, budget)
            try:
                await take_up_detached(self._at_work, root)
            except BaseException:
                await budget.close("broken_off")
                raise


class CallAgents(SubAgents):
    """The sub-agents of the agent that makes one call."""

    def __init__(self, at_work: AgentsAtWork, ctx: Context, parent: Plan, budget: Budget) -> None:
        self._at_work = at_work
        self._ctx = ctx
        self._parent = parent
        self._budget = budget

    @override
    def check_model(self, model: str) -> None:
        self._at_work.engine.planner.check_model(self._parent, model)

    @override
    async def run_all(self, tasks: Sequence[AgentTask]) -> list[AgentResult]:
        works = self._works(tasks)
        begun = await self._begun(tasks, works)
        report = _reporter(self._ctx, len(tasks))
        if any(task.output_schema is not None for task in tasks):
            self._open()  # what they say is needed if it does not fit
        elif self._parent.stored:
            self._at_work.end_with(self._parent, self._budget)

        async def one(number: int) -> AgentResult | None:
            work = works[number]
            before = begun.get(second_try(work.index)) or begun.get(work.index)
            result = await SubAgent(self._at_work, work.begun()).result(before)
            report()
            return result

        results = await in_turn(one, len(tasks), most=2 * self._budget.limits.in_flight)
        done = [result for result in results if result is not None]
        if len(done) < len(results):
            raise SuspendedError(Suspension("agents"))
        return done

    @override
    async def start(self, tasks: Sequence[AgentTask]) -> builtins.list[str]:
        works = self._works(tasks)
        begun = await self._begun(tasks, works)
        agents, ids = self._open(), []
        for work in works:
            before = begun.get(work.index)
            agent_id = None
            if before is None or before.status in ACTIVE:
                agent_id = await SubAgent(self._at_work, work.begun()).start(agents, before)
            if agent_id is not None:
                ids.append(agent_id)
            elif before is not None:
                ids.append(agent_id_of(before))
        return ids

    def _works(self, tasks: Sequence[AgentTask]) -> builtins.list[ChildWork]:
        """Return tasks with their numbers in the call: one that goes on finds by them what it has begun."""
        ctx, works = self._ctx, []
        for task in tasks:
            if task.output_schema is not None:
                check_schema(task.output_schema)
            works.append(ChildWork(self._parent, task, ctx.call_id or "", next(ctx.child_numbers)))
        return works

    async def _begun(self, tasks: Sequence[AgentTask], works: Sequence[ChildWork]) -> dict[int, ResponseRecord]:
        """Return what the call has begun before, by index; all else is counted as new agents."""
        begun = await self._at_work.stored.begun(self._ctx)
        # Those that only answer cannot go on from there, and do not count as deeper.
        depth = self._ctx.agent.depth + any(not task.only_answers for task in tasks)
        self._budget.take_agents(sum(work.index not in begun for work in works), depth)
        return begun

    def _open(self) -> RunAgents:
        return self._at_work.open_run(self._parent, self._budget)

    @override
    async def wait(self, ids: Sequence[str], *, seconds: float | None = None) -> builtins.list[AgentResult]:
        agents = self._open()
        for agent_id in ids:
            if agent_id not in agents.tasks or agents.waits(agent_id):
                await take_up(self._at_work, self._parent, agents, await self._stored(agent_id))
            agents.check_owner(self._ctx, agent_id)
        waiting = [agents.tasks[agent_id] for agent_id in ids if agent_id in agents.tasks]
        if waiting:
            await asyncio.wait(waiting, timeout=seconds)
        if seconds is None and any(agents.waits(agent_id) for agent_id in ids):
            raise SuspendedError(Suspension("agents"))
        return [await self._outcome(agents, agent_id) for agent_id in ids]

    @override
    async def interrupt(self, agent_id: str) -> AgentResult:
        agents = self._open()
        agents.check_owner(self._ctx, agent_id)
        task = agents.tasks.get(agent_id)
        if task is not None and not task.done():
            task.cancel()
            await asyncio.wait({task})
        if self._parent.stored:
            record = await self._stored(agent_id)
            if record.status in ACTIVE:
                await self._at_work.stored.cancel(record)
                if agents.waits(agent_id):
                    del agents.tasks[agent_id]  # what is stored tells more
        return await self._outcome(agents, agent_id)

    @override
    async def close(self, agent_id: str) -> AgentResult:
        result = await self.interrupt(agent_id)
        self._open().close(agent_id, result)
        if self._parent.stored:
            await self._at_work.stored.close(await self._stored(agent_id))
        return result

    async def _stored(self, agent_id: str) -> ResponseRecord:
        return await self._at_work.stored.last(self._ctx, agent_id)

    async def _outcome(self, agents: RunAgents, agent_id: str) -> AgentResult:
        known = agents.outcome(agent_id)
        if known is not None:
            return known
        record, at_work = await self._stored(agent_id), self._at_work
        found = await at_work.stored.result(record)
        result, problem = await typed(found, task_of(record), record.tenant, at_work.engine.values)
        return unfit(result, problem) if problem else result

    @override
    async def list(self) -> Sequence[AgentInfo]:
        if self._parent.stored:
            return await self._at_work.stored.children(self._ctx)
        agents = self._at_work.of_run(self._parent)
        return [] if agents is None else [live_info(loop) for loop in agents.loops_of(self._ctx)]


def _reporter(ctx: Context, number: int) -> Callable[[], None]:
    """Return what is called with each agent that is done; it reports so a few times only."""
    done = 0
    step = max(1, number // _REPORTS)

    def report() -> None:
        nonlocal done
        done += 1
        if number > 1 and (done % step == 0 or done == number):
            ctx.emit(Progress(f"{done} of {number} agents are done", done / number))

    return report


async def in_turn(one: Callable[[int], Awaitable[T]], number: int, *, most: int) -> list[T]:
    """Do something with each index, at most so many at a time, and return what came of it in order."""
    results: dict[int, T] = {}
    indexes = iter(range(number))

    async def work() -> None:
        for index in indexes:
            results[index] = await one(index)

    workers = [asyncio.ensure_future(work()) for _ in range(min(number, most))]
    try:
        await asyncio.gather(*workers)
    except BaseException:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
        raise
    return [results[index] for index in range(number)]
