"""Sub-agents as functions see them: what one is asked to do, and what came of it."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, Protocol, TypedDict, Unpack

from msgspec import Struct

from antwort.wire.responses import Usage

# --- what a run may spend, as the calls of its agents see it ---------------------------------------------------------


Pause = Literal["over", "parked", "broken_off"]
"""Why nobody works on a response: it is over, waits for somebody, or goes on later, as after an outage."""


class RunLimits(Struct, frozen=True):
    """What all agents of one run may take together; None is no limit."""

    depth: int = 5
    """How deep agents may be nested below the root."""
    agents: int = 1000
    in_flight: int = 16
    """Calls of models at the same time."""
    tokens: int | None = None
    cost: float | None = None
    seconds: float | None = None
    """Time that it is being worked on; waiting for an answer does not count."""
    calls: int | None = None
    """Calls of functions."""
    agent_seconds: float | None = None
    """Time that an agent below the root may take."""


class RunBudget(Protocol):
    """The budget of a run, as a call has it: it can read what is left, but not spend it."""

    @property
    def limits(self) -> RunLimits:
        """What all agents of the run may take together."""

    @property
    def closing(self) -> dict[str, Callable[[Pause], Awaitable[None]]]:
        """What is to be done when nobody works on the root agent's response any more; by what it concerns."""

    def remaining(self) -> dict[str, Any]:
        """Return what is left, by limit; without what is not limited."""


# --- agents ----------------------------------------------------------------------------------------------------------


AgentStatus = Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]


class AgentTask(Struct, frozen=True):
    """What a sub-agent is to do. It has its own window: what it is to know stands here, or in variables."""

    prompt: str
    agent: str | None = None
    """Its profile in the configuration; that of its parent if not given."""
    model: str | None = None
    """That of its profile if not given, else its parent's."""
    instructions: str | None = None
    functions: Sequence[str] | None = None
    """All that it may call; what its parent may if not given."""
    max_output_tokens: int | None = None
    max_turns: int | None = None
    """Turns that it may take; never more than its parent."""
    output_schema: Mapping[str, Any] | None = None
    """The JSON Schema that its result has to fit: it is told so once if it does not, and has failed after that."""
    only_answers: bool = False
    """The model is asked once, without functions: there is no loop."""
    timeout: float | None = None
    """Seconds that it may take; what it has said until then is its result."""
    continues: str | None = None
    """The id of an agent that gets this as further input, after its last answer. It stays as it is.

    So what is not given here is as it was: profile, model, instructions, functions, turns and tokens.
    """


class AgentOptions(TypedDict, total=False):
    """How a sub-agent works; see AgentTask."""

    agent: str | None
    model: str | None
    instructions: str | None
    functions: Sequence[str] | None
    max_output_tokens: int | None
    max_turns: int | None
    output_schema: Mapping[str, Any] | None
    timeout: float | None


class AgentResult(Struct, frozen=True):
    """What came of a sub-agent."""

    id: str
    """The agent: the id of the response it began with."""
    response_id: str
    status: AgentStatus
    text: str = ""
    """What it answered, as far as it got."""
    reason: str | None = None
    """Why there is no whole answer."""
    usage: Usage | None = None
    reference: str | None = None
    """The id of the variable that it has given back; its text is only what stands for that."""
    is_json: bool = False
    """Whether the text, or the variable, is JSON that fits the schema of its task."""

    @property
    def is_answer(self) -> bool:
        """Tell whether the text is all that it wanted to say."""
        return self.status == "completed"


class AgentInfo(Struct, frozen=True):
    """An agent of a run, for whoever looks at the tree."""

    id: str
    response_id: str
    parent_id: str | None
    """The response of the agent that began it; None for the root."""
    call_id: str | None
    """The call that began it."""
    index: int | None
    """Which of the agents of that call it is."""
    name: str
    depth: int
    status: AgentStatus
    model: str
    created_at: int
    completed_at: int | None
    usage: Usage | None
    """What it has used itself, without the agents below it."""
    reason: str | None = None
    """Why there is no whole answer."""


class AgentList(Struct, kw_only=True):
    """The agent of a response and all below it, parents before their children."""

    object: Literal["list"] = "list"
    data: Sequence[AgentInfo]


class SubAgents(Protocol):
    """The sub-agents of the agent that makes a call. What cannot be done is a FunctionError that tells the cure."""

    def check_model(self, model: str) -> None:
        """Raise a FunctionError if the agent may not choose that model for others.

        Functions choose any; this is for those that are told by a model which one to use.
        """

    async def run(self, prompt: str, **options: Unpack[AgentOptions]) -> AgentResult:
        """Let a sub-agent work, and wait for it."""
        [result] = await self.run_all([AgentTask(prompt, **options)])
        return result

    async def ask(self, prompt: str, **options: Unpack[AgentOptions]) -> AgentResult:
        """Ask a model once, without functions."""
        [result] = await self.run_all([AgentTask(prompt, only_answers=True, **options)])
        return result

    async def run_all(self, tasks: Sequence[AgentTask]) -> list[AgentResult]:
        """Let sub-agents work, and wait for all of them; results are in the order of the tasks.

        Called again for the same call, as after a crash, it goes on with those that it has begun.
        """

    async def start(self, tasks: Sequence[AgentTask]) -> list[str]:
        """Let sub-agents work, and return their ids at once."""

    async def wait(self, ids: Sequence[str], *, seconds: float | None = None) -> list[AgentResult]:
        """Wait for sub-agents; those that are not done in time have the status `in_progress`."""

    async def interrupt(self, agent_id: str) -> AgentResult:
        """Stop what a sub-agent is doing; it can be given further input."""

    async def close(self, agent_id: str) -> AgentResult:
        """Stop what a sub-agent is doing, for good: it gets no further input."""

    async def list(self) -> Sequence[AgentInfo]:
        """Return what there is of them."""
