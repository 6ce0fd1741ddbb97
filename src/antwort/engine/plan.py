"""Plans: a request, read and decided, and what a sub-agent is to do."""

import copy
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import count

import msgspec

from antwort.backends.dialects import text_of
from antwort.config import ApprovalPolicy
from antwort.context import Agent, Context, Sources
from antwort.context.agents import AgentTask
from antwort.engine.tools.parameters import Choice, joined, least
from antwort.engine.tools.targets import ApprovedCall, ResumedCall, Target, Toolset
from antwort.errors import FunctionError, did_you_mean
from antwort.functions import OpenedItem
from antwort.functions.checking import NO_CHECKS, CheckBook, CheckSet
from antwort.storage.base import JournalEntry, Question
from antwort.types import JSON
from antwort.wire.requests import CreateResponse
from antwort.wire.responses import ResponseObject


class Lineage(msgspec.Struct, frozen=True):
    """Where a sub-agent stands in the tree of its run."""

    response_id: str
    """The response that it works for."""
    call_id: str
    """The call of it that began the sub-agent."""
    index: int
    """Which of the agents of that call it is."""
    root_id: str
    """The response of the root agent."""


class Shown(msgspec.Struct, frozen=True):
    """What the client wants to see beside what the API has."""

    calls: bool = False
    """Calls of functions that have no item of their own."""
    progress: bool = False
    """How far functions are."""
    agents: bool = False
    """What sub-agents say and do, in a stream."""


AS_USUAL = Shown()
_FOR_PARENT, _SHARE_FOR_PARENT = 60.0, 5
"""Seconds that are left to an agent when those below it have to end, or this part of its time if that is less."""

_WANTED = "Your result has to be JSON that fits this JSON Schema, and nothing else: {}"


class Plan(msgspec.Struct, frozen=True):
    """A request, read and decided, with all that the model is to read; that comes last, and is empty until then."""

    create: CreateResponse
    ctx: Context
    response: ResponseObject
    """The response as it is before anything has happened; whoever makes it changes it."""
    instructions: str | None
    toolset: Toolset
    choice: Choice
    max_turns: int
    max_tool_calls: int | None
    max_output_tokens: int | None
    max_input: int | None
    """Characters of the input above which a text becomes a variable."""
    include: frozenset[str]
    conversation: str | None
    """The conversation that the response belongs to."""
    compact_at: int | None
    """Tokens from which on the window is compacted; 0 leaves the number to the model's own size."""
    profile: str | None
    """The agent of the configuration that answers, if one was asked for, by `agent` or as the model."""
    approval: ApprovalPolicy | None = None
    """Which calls the agent makes only after a yes, as far as its profile says so."""
    approvals_above: Sequence[ApprovalPolicy | None] = ()
    """What is said about that of the agents that it works for: what one of them may not do alone, it may not either."""
    approvals: Sequence[ApprovedCall] = ()
    """Calls of the response before that have their yes or no now: they come first."""
    answered: Sequence[Question] = ()
    """Questions of the response before that this one brings the answers to, unless another one brings others."""
    resumed: Sequence[ResumedCall] = ()
    """Calls of the response before whose own calls have their answers now: they go on first."""
    parent: Lineage | None = None
    """What it works for, if it is a sub-agent."""
    prepared: Mapping[str, JSON] = {}
    """Hosted tools that are other than the request has named them, by the model's names of their functions."""
    opened: Sequence[OpenedItem] = ()
    """Items that come before all that the model says: of tools that stand for functions."""
    shown: Shown = AS_USUAL
    max_window: int | None = None
    """Bytes that the model is given to read in one turn."""
    stop: Sequence[str] = ()
    """Texts at which the answer ends."""
    input: list[JournalEntry] = []
    history: list[JournalEntry] = []
    carried: list[JournalEntry] = []
    """What came before and is stored nowhere: a response that is stored takes it along, as input."""
    window: list[JSON] = []
    """History and input as the model reads them."""
    short: bool = False
    """Whether the window is known to be short, without a look at it."""
    compact_only: bool = False
    """The request wants its window compacted, and no answer."""
    refused: str | None = None
    """Why a check refuses what the request brings: no model is asked then."""
    checked: bool = True
    """Whether checks look at what is said and done: at all but what checks have begun themselves."""

    def checks_of(self, book: CheckBook) -> CheckSet:
        """Return the checks that look at it."""
        return book.current if self.checked else NO_CHECKS

    def for_checks(self) -> Context:
        """Return what checks get: what they let models say counts for the run, is kept nowhere, and is not checked."""
        response = msgspec.structs.replace(self.response, store=False, background=False, output=[])
        create = msgspec.structs.replace(self.create, store=False, background=None, input=None, tools=None)
        origin = msgspec.structs.replace(self, create=create, response=response, shown=AS_USUAL, checked=False)
        return msgspec.structs.replace(self.ctx, origin=origin, call_id="", child_numbers=count())

    def options_of(self, target: Target) -> JSON:
        """Return the hosted tool that a function was named by, as its calls get it; empty if it was not.

        It is a copy: functions may change it, and requests that send the same tools share them, whosever they are.
        """
        if self.prepared and (prepared := self.prepared.get(target.name)):
            return copy.deepcopy(prepared)  # what a provider has put into it may be anything
        return msgspec.to_builtins(target.options) if target.options else {}  # JSON, as it was sent

    def question(self) -> str:
        """Return what the user has said last, as text."""
        said = (item for item in reversed(self.window) if item.get("role") == "user")
        return text_of(next(said, {}).get("content"))

    def is_pending(self) -> bool:
        """Tell whether there are calls of the response before whose outputs come first."""
        return bool(self.approvals or self.resumed)

    @property
    def pending(self) -> list[str]:
        """The calls of the response before whose outputs come first."""
        approved = [call.question.call_id for call in self.approvals]
        return approved + [call.record.call_id for call in self.resumed]

    @property
    def root_id(self) -> str:
        """The response of the root agent."""
        return self.response.id if self.parent is None else self.parent.root_id

    @property
    def stored(self) -> bool:
        """Tell whether the response is kept, if only for a while."""
        return self.response.is_kept

    @property
    def unkept(self) -> str:
        """How to send the request so that nothing of it is kept."""
        named = (("background", self.response.background), ("conversation", self.conversation))
        changes = [f"without '{name}'" for name, given in named if given]
        if self.response.store:
            changes.append("with 'store': false")
        return f"send it {' and '.join(changes)}"


class ChildWork(msgspec.Struct, frozen=True):
    """What a sub-agent is to do, and for whom."""

    parent: Plan
    task: AgentTask
    call_id: str
    """The call of the parent that begins it."""
    index: int
    """Which of the agents of that call it is."""
    deadline: float | None = None
    """When its time is over, by `time.monotonic`; of one that has begun."""
    previous: str | None = None
    """The response that it continues."""

    @property
    def is_second_try(self) -> bool:
        """Whether it is done again by an agent whose result did not fit: such work has the numbers below zero."""
        return self.index < 0

    def again(self, agent_id: str, response_id: str, problem: str) -> "ChildWork":
        """Return it for an agent whose result did not fit: it is told why."""
        task = msgspec.structs.replace(self.task, prompt=problem, continues=agent_id)
        return msgspec.structs.replace(self, task=task, index=second_try(self.index), previous=response_id)

    def begun(self) -> "ChildWork":
        """Return it as it begins: it ends in time for its parent to go on, with what has come of it."""
        ctx, now = self.parent.ctx, time.monotonic()
        left = ctx.remaining()
        limits = [] if left is None else [left - min(_FOR_PARENT, left / _SHARE_FOR_PARENT)]
        most = None if ctx.budget is None else ctx.budget.limits.agent_seconds
        limits += [seconds for seconds in (self.task.timeout, most) if seconds is not None]
        return msgspec.structs.replace(self, deadline=now + min(limits)) if limits else self

    @property
    def lineage(self) -> Lineage:
        """Where it stands in the tree."""
        return Lineage(self.parent.response.id, self.call_id, self.index, self.parent.root_id)

    def context(self, name: str | None, response_id: str) -> Context:
        """Return the context of the sub-agent."""
        ctx = self.parent.ctx
        depth = ctx.agent.depth + 1
        can_spawn = ctx.budget is not None and depth < ctx.budget.limits.depth
        return ctx.with_(
            response_id=response_id,
            agent_id=self.task.continues or response_id,
            agent=Agent(name or "agent", depth, can_spawn=can_spawn),
            sources=Sources(),
            deadline=self.deadline,
        )

    @property
    def tools(self) -> list[JSON]:
        """What the request of the parent names, as far as it may use that, and the task has these functions."""
        return self.among(self.parent.create.tools or ())

    def among(self, tools: Sequence[JSON]) -> list[JSON]:
        """Return those tools of a request that the parent may use, and the task has."""
        only, types, permits = self.task.functions, self.parent.toolset.types, self._permits
        named = [(tool, tool.get("name") or types.get(str(tool.get("type"))) or "") for tool in tools]
        return [tool for tool, name in named if permits(name) and (only is None or name in only)]

    @property
    def _permits(self) -> Callable[[str], bool]:
        return self.parent.choice.relaxed().permits

    def functions(self, own: Sequence[str] | None, *, is_other: bool) -> Sequence[str] | None:
        """Return all that the sub-agent may call; None leaves that to what is offered to every request.

        It has what its parent may call, or, if it is another agent that the parent may start, what its own profile has.
        A FunctionError if its task names functions that neither has: nobody gives what he does not have.
        """
        if self.task.functions is None:
            return own if is_other else self._given
        known = [*self._given, *(own or ())] if is_other else self._given
        for name in self.task.functions:
            if name not in known:
                hint = did_you_mean(name, known)
                raise FunctionError(f"There is no function '{name}' here that an agent could be given{hint or '.'}")
        return self.task.functions

    @property
    def _given(self) -> Sequence[str]:
        """The functions of ours that the parent may call."""
        permits = self._permits
        targets = self.parent.toolset.targets.values()
        return [target.spec.name for target in targets if target.spec is not None and permits(target.name)]

    def under_parent(self, plan: Plan) -> Plan:
        """Return the plan of the sub-agent with what holds for its parent: its place, its approvals, its limits."""
        parent = self.parent
        above = parent.approvals_above
        return msgspec.structs.replace(
            plan,
            instructions=plan.create.instructions if self.task.only_answers else plan.instructions,
            parent=self.lineage,
            checked=parent.checked,
            approvals_above=above if parent.approval in above else (*above, parent.approval),
            max_turns=min(plan.max_turns, parent.max_turns, self.task.max_turns or parent.max_turns),
            max_tool_calls=least(plan.max_tool_calls, parent.max_tool_calls),
            max_output_tokens=least(plan.max_output_tokens, parent.max_output_tokens),
        )


def second_try(index: int) -> int:
    """Return the number of the second try of an agent's work, or, of that, the number of the first."""
    return -1 - index


def child_request(work: ChildWork) -> CreateResponse:
    """Return what a sub-agent is asked as a request."""
    parent, task = work.parent, work.task
    wanted = "" if task.output_schema is None else _WANTED.format(msgspec.json.encode(task.output_schema).decode())
    return CreateResponse(
        model=task.model or parent.response.model,
        input=task.prompt,
        instructions=joined(task.instructions, wanted or None),
        agent=task.agent or parent.profile,
        tools=work.tools or (None if parent.create.tools is None else []),
        store=parent.create.store,
        background=parent.response.background or None,
        max_output_tokens=task.max_output_tokens,
        previous_response_id=work.previous,
        truncation=parent.create.truncation,
        context_management=parent.create.context_management,
        multi_agent=parent.create.multi_agent,
        user=parent.create.user,
        safety_identifier=parent.create.safety_identifier,
        service_tier=parent.create.service_tier,
    )
