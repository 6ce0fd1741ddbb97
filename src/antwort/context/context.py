"""Who is calling, on whose behalf, and until when: the argument that every function and route handler may ask for."""

import time
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from itertools import count
from typing import Any, Literal, NoReturn, Unpack

from msgspec import Struct, field, json
from msgspec.structs import replace

from antwort.context.agents import AgentOptions, AgentResult, AgentTask, SubAgents
from antwort.context.budget import RunBudget
from antwort.context.calls import CallResult, FunctionCalls
from antwort.context.http_client import HttpClient, NoHttpClient
from antwort.context.scopes import granted, owner_scope
from antwort.context.sources import Sources
from antwort.context.suspension import SuspendedError, Suspension
from antwort.context.variables import VariableView
from antwort.errors import FunctionUnavailableError, PermissionDeniedError

ANONYMOUS_TENANT = "default"
"""The one tenant of a server that runs without authentication."""


class Principal(Struct, frozen=True):
    """An authenticated caller. `scopes` are what the credentials grant; `*` grants everything."""

    tenant: str
    subject: str
    scopes: frozenset[str] = frozenset({"*"})
    method: str = "none"
    """How the caller proved who they are: `none`, `api_key`, `jwt`."""
    key_id: str | None = None
    """The public id of the credential, for rate limits and the audit log; never the secret."""

    def grants(self, scope: str) -> bool:
        """Tell whether the credentials carry a scope."""
        return granted(self.scopes, scope)


class Agent(Struct, frozen=True):
    """The agent on whose behalf a function runs. The default is a root agent that may do everything."""

    name: str = "root"
    depth: int = 0
    can_spawn: bool = True

    @property
    def is_root(self) -> bool:
        """Tell whether this agent talks to the user, rather than to a parent agent."""
        return self.depth == 0


class Progress(Struct, frozen=True):
    """A sign of life from a running function: what it is doing and, where known, how far it got."""

    message: str
    fraction: float | None = None


_NO_HTTP = NoHttpClient()


def _discard(_progress: Progress) -> None:
    """Drop progress nobody listens to."""


async def _unheard(_text: str) -> None:
    """Drop what is said where there is no response."""


async def _unseen(_kind: str, _data: Mapping[str, Any], _part: str | None) -> None:
    """Drop an event of an item that nobody sees."""


class Fence(Struct, frozen=True):
    """What it takes to write for a stored response. It holds until somebody else takes the response over."""

    response_id: str
    epoch: int


class Context(Struct, frozen=True):
    """Passed to handlers that declare a parameter of this type; never a global.

    The tenant has no default: whoever builds a context must say for whom.
    """

    tenant: str
    subject: str = "anonymous"
    scopes: frozenset[str] = frozenset()
    request_id: str | None = None
    response_id: str | None = None
    call_id: str | None = None
    run_id: str | None = None
    """The run that the response belongs to: the id of the response it began with."""
    agent_id: str | None = None
    """Which agent of the run it is: the id of the response the agent began with."""
    conversation_id: str | None = None
    """The conversation, or the first response of the chain, that the response belongs to."""
    agent: Agent = Agent()
    deadline: float | None = None
    """When the work must be done, on the clock of `time.monotonic()`."""
    emit: Callable[[Progress], None] = _discard
    """Where progress goes."""
    say: Callable[[str], Awaitable[None]] = _unheard
    """Says something to the user while the call is under way: a message of the response, told at once and kept.

    The model does not read it.
    """
    send_event: Callable[[str, Mapping[str, Any], str | None], Awaitable[None]] = _unseen
    """Where events of the item go that shows the call; functions send them by `event`."""
    sees_images: bool = False
    """Whether the model that calls is known to take images (`backends.<name>.images`)."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """The hosted tool as the request named it, with its settings; empty if the request did not name it."""
    opened_name: str | None = None
    """The function that is called, with its label, if it is one that a tool of the request stands for."""
    sources: Sources = field(default_factory=Sources)
    """Where a function notes what an answer may cite."""
    budget: RunBudget | None = None
    """What the run may spend, over all its agents."""
    attached: bool = False
    """Whether the call was begun before, by a process that ended or before the run was parked, and goes on now."""
    child_numbers: Iterator[int] = field(default_factory=count)
    """Which number the next sub-agent of the call has; the same ones after a crash, if it does the same again."""
    origin: object = None
    """What the engine knows about the response that the call belongs to; for its own services."""
    fence: Fence | None = None
    """What it takes to write for the response, if it is stored: whoever has lost it writes no variables either."""
    http: HttpClient = _NO_HTTP
    """The client for the world outside; the registry fills it in."""
    bind_variables: Callable[["Context"], VariableView] | None = None
    """Gives a call its variables; the registry fills it in, and functions reach them through `variables`."""
    bind_agents: Callable[["Context"], SubAgents] | None = None
    """Gives a call its sub-agents; the registry fills it in, and functions reach them through `agents`."""
    follows_references: bool = False
    """Whether the agent has a function that follows references, so that a long result can become one."""
    inline: int | None = None
    """Characters of a result that are given as they are, before it becomes a reference; None is what is configured."""
    references: Collection[str] | None = None
    """The ids that are references in the arguments of the call; None if a model has written them: all that are there.

    What another function calls with may be anybody's words.
    """
    question: Callable[[], str] = str
    """Tells what the user has said last, as text; empty if nobody has, or outside of a response."""
    measure_room: Callable[[], Awaitable[int | None]] | None = None
    """Tells how long a result may be; functions ask `room`."""
    function_calls: FunctionCalls | None = None
    """Calls that the call can make itself; functions reach it through `calls` and `call_function`."""

    @classmethod
    def of(cls, principal: Principal, *, request_id: str | None = None) -> "Context":
        """Build the context of a request."""
        return cls(principal.tenant, principal.subject, principal.scopes, request_id=request_id)

    def remaining(self) -> float | None:
        """Return the seconds left until the deadline, never negative; None without one."""
        return None if self.deadline is None else max(0.0, self.deadline - time.monotonic())

    def grants(self, scope: str) -> bool:
        """Tell whether the caller's credentials carry a scope."""
        return granted(self.scopes, scope)

    def require(self, scope: str, *, param: str | None = None, purpose: str = "") -> None:
        """Raise PermissionDeniedError unless the caller's credentials carry a scope; `purpose` says what it is for."""
        if not granted(self.scopes, scope):
            why = f" {purpose}" if purpose else ""
            raise PermissionDeniedError(f"The credentials lack the scope '{scope}'{why}.", param=param)

    def reaches(self, owner_id: str, access: Literal["read", "write"]) -> bool:
        """Tell whether the caller's credentials open what belongs to a conversation or a response."""
        scope = owner_scope(owner_id, access)
        return scope is None or granted(self.scopes, scope)

    def require_owner(self, owner_id: str, access: Literal["read", "write"], *, param: str | None = None) -> None:
        """Raise PermissionDeniedError unless the credentials open what belongs to a conversation or a response.

        Another id, such as a name that a client has chosen, needs nothing.
        """
        scope = owner_scope(owner_id, access)
        if scope is not None:
            whose = "conversation" if owner_id.startswith("conv_") else "response"
            self.require(scope, param=param, purpose=f"to {access} what belongs to a {whose}")

    @property
    def keeps_values(self) -> bool:
        """Tell whether there are variables."""
        return self.bind_variables is not None

    @property
    def variables(self) -> VariableView:
        """The variables that the call can reach; a FunctionUnavailableError where no app keeps any."""
        if self.bind_variables is None:
            raise FunctionUnavailableError("There are no variables here: they need a running app. Go on without them.")
        return self.bind_variables(self)

    @property
    def agents(self) -> SubAgents:
        """The sub-agents of the agent that calls; a FunctionUnavailableError where no app runs any."""
        if self.bind_agents is None:
            raise FunctionUnavailableError("There are no agents here: they need a running app. Go on without them.")
        return self.bind_agents(self)

    @property
    def calls(self) -> FunctionCalls:
        """The calls that this one can make itself; a FunctionUnavailableError outside of a response."""
        if self.function_calls is None:
            raise FunctionUnavailableError("No functions can be called from here: that needs a call of a response.")
        return self.function_calls

    async def call_function(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        key: str | None = None,
        references: Collection[str] = (),
    ) -> CallResult:
        """Call another function that the agent has; see `FunctionCalls`."""
        return await self.calls.call(name, arguments or {}, key=key, references=references)

    async def run_agent(self, prompt: str, **options: Unpack[AgentOptions]) -> AgentResult:
        """Let a sub-agent work, with a window of its own, and wait for it."""
        return await self.agents.run(prompt, **options)

    async def run_agents(self, tasks: Sequence[AgentTask]) -> list[AgentResult]:
        """Let sub-agents work, and wait for all of them; results are in the order of the tasks."""
        return await self.agents.run_all(tasks)

    async def call_model(self, prompt: str, **options: Unpack[AgentOptions]) -> AgentResult:
        """Ask a model once, without functions."""
        return await self.agents.ask(prompt, **options)

    async def event(self, kind: str, *, part: str | None = None, **data: Any) -> None:
        """Send an event of the item of this call, if it is that of a hosted tool and somebody sees it.

        It is `response.<item type>.<kind>`, or `response.<item type>_<part>.<kind>`, with `data` as its fields.
        """
        await self.send_event(kind, data, part)

    async def room(self) -> int | None:
        """Return how many characters of a result fit into the window of the model; None if nobody knows.

        What is longer is cut, or replaced by a reference. It is for functions that can choose what to leave out.
        """
        return None if self.measure_room is None else await self.measure_room()

    def suspend(self, body: Mapping[str, Any], *, expires_in: float | None = None) -> NoReturn:
        """Wait for somebody: the call ends here, the run is parked, and the answer is the call's result.

        `body` is what whoever answers is shown: a `question`, and if there are `choices`, a list of texts, only one of
        them is an answer. After `expires_in` seconds the model goes on with the `default`, if there is one. Only a
        function with the effect `suspend` may wait.
        """
        plain = json.decode(json.encode(body))  # it is stored; what cannot be is the function's mistake
        raise SuspendedError(Suspension("question", plain, None if expires_in is None else float(expires_in)))

    def reaching(
        self,
        http: HttpClient | None,
        variables: Callable[["Context"], VariableView] | None = None,
        agents: Callable[["Context"], SubAgents] | None = None,
    ) -> "Context":
        """Return a context with a client for the world outside, variables and sub-agents; it keeps those it has."""
        return replace(
            self,
            http=self.http if http is None or self.http is not _NO_HTTP else http,
            bind_variables=self.bind_variables or variables,
            bind_agents=self.bind_agents or agents,
        )

    def with_(self, **changes: Any) -> "Context":
        """Return a copy with some fields changed."""
        return replace(self, **changes)
