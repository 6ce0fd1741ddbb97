"""Plans: a request, read and decided, and what a sub-agent is to do."""

import copy
from collections.abc import Mapping, Sequence

import msgspec

from antwort.agents import AgentTask
from antwort.config import ApprovalPolicy
from antwort.context import Agent, Context, Sources
from antwort.engine.approvals import ApprovedCall, ResumedCall
from antwort.engine.tool_choice import Choice
from antwort.engine.tools import Target, Toolset
from antwort.errors import FunctionError, did_you_mean
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


AS_USUAL = Shown()


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
    shown: Shown = AS_USUAL
    max_window: int | None = None
    """Bytes that the model is given to read in one turn."""
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

    def options_of(self, target: Target) -> JSON:
        """Return the hosted tool that a function was named by, as its calls get it; empty if it was not.

        It is a copy: functions may change it, and requests that send the same tools share them, whosever they are.
        """
        if self.prepared and (prepared := self.prepared.get(target.name)):
            return copy.deepcopy(prepared)  # what a provider has put into it may be anything
        return msgspec.to_builtins(target.options) if target.options else {}  # JSON, as it was sent

    def is_pending(self) -> bool:
        """Tell whether there are calls of the response before whose outputs come first."""
        return bool(self.approvals or self.resumed)

    @property
    def pending(self) -> list[str]:
        """The calls of the response before whose outputs come first."""
        approved = [call.question.call_id for call in self.approvals]
        return approved + [str(call.record["call_id"]) for call in self.resumed]

    @property
    def root_id(self) -> str:
        """The response of the root agent."""
        return self.response.id if self.parent is None else self.parent.root_id

    @property
    def stored(self) -> bool:
        """Tell whether the response is kept, if only for a while."""
        return self.response.is_kept


class ChildWork(msgspec.Struct, frozen=True):
    """What a sub-agent is to do, and for whom."""

    parent: Plan
    task: AgentTask
    call_id: str
    """The call of the parent that begins it."""
    index: int
    """Which of the agents of that call it is."""

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
        )

    @property
    def tools(self) -> list[JSON]:
        """What the request of the parent names, as far as the task has these functions."""
        named, only = self.parent.create.tools or (), self.task.functions
        if only is None:
            return [*named]
        types = self.parent.toolset.types
        return [tool for tool in named if (tool.get("name") or types.get(str(tool.get("type")))) in only]

    def permitted(self, functions: Sequence[str]) -> Sequence[str]:
        """Return functions that the parent may give; a FunctionError for others: nobody gives what he does not have."""
        for name in functions:
            if name not in self.parent.toolset.targets:
                hint = did_you_mean(name, self.parent.toolset.targets)
                raise FunctionError(f"There is no function '{name}' here that an agent could be given{hint or '.'}")
        return functions


def child_request(work: ChildWork, previous: str | None) -> CreateResponse:
    """Return what a sub-agent is asked as a request."""
    parent, task = work.parent, work.task
    return CreateResponse(
        model=task.model or parent.response.model,
        input=task.prompt,
        instructions=task.instructions,
        agent=task.agent or parent.profile,
        tools=work.tools or (None if parent.create.tools is None else []),
        store=parent.create.store,
        background=parent.response.background or None,
        max_output_tokens=task.max_output_tokens,
        previous_response_id=previous,
        truncation=parent.create.truncation,
        context_management=parent.create.context_management,
        multi_agent=parent.create.multi_agent,
        user=parent.create.user,
        safety_identifier=parent.create.safety_identifier,
        service_tier=parent.create.service_tier,
    )
