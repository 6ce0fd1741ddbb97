"""Who is calling, on whose behalf, and until when: the argument that every function and route handler may ask for."""

import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import count
from threading import Lock
from typing import Any, Literal, NoReturn, Unpack

from msgspec import Struct, field, json
from msgspec.structs import replace

from antwort.context.agents import AgentOptions, AgentResult, AgentTask, RunBudget, SubAgents
from antwort.context.calls import CallResult, FunctionCalls, SuspendedError, Suspension
from antwort.context.http_client import HttpClient, NoHttpClient
from antwort.context.variables import VariableView
from antwort.errors import FunctionUnavailableError, PermissionDeniedError, did_you_mean, near_names

# --- scopes: what credentials may do ---------------------------------------------------------------------------------
# A scope is a word such as `metrics`, or two with a colon such as `responses:read`. Routes of providers have more.


EVERYTHING = "*"
EITHER = "|"
"""What parts the scopes of a route of which one is enough."""
RESPONSES_READ = "responses:read"
RESPONSES_WRITE = "responses:write"
RUNS_READ = "runs:read"
TRACES_READ = "traces:read"
TRACES_WRITE = "traces:write"
MESSAGES_WRITE = "messages:write"
BATCHES_READ = "batches:read"
BATCHES_WRITE = "batches:write"
PROMPTS_READ = "prompts:read"
PROMPTS_WRITE = "prompts:write"
CONVERSATIONS_READ = "conversations:read"
CONVERSATIONS_WRITE = "conversations:write"
FUNCTIONS_CALL = "functions:call"
METRICS = "metrics"
ADMIN = "admin"
ADMIN_WRITE = "admin:write"

OWN_SCOPES: Mapping[str, str] = {
    RESPONSES_READ: "fetch, list and continue stored responses",
    RESPONSES_WRITE: "create, cancel and delete responses; ask models in any other way, and list them",
    MESSAGES_WRITE: "ask models by messages alone, and list them",
    RUNS_READ: "list and look at runs: their agents and calls, and nothing of what was said",
    TRACES_READ: "look at runs with all that was said in them, and at traces of agents elsewhere",
    TRACES_WRITE: "send traces of agents that run elsewhere, and delete them",
    CONVERSATIONS_READ: "fetch conversations and their items, and continue them",
    CONVERSATIONS_WRITE: "create, change and delete conversations, and add to them",
    PROMPTS_READ: "look at prompts, and use them in responses",
    PROMPTS_WRITE: "create, change and delete prompts",
    BATCHES_READ: "look at batches",
    BATCHES_WRITE: "create and cancel batches, whose requests have the other scopes of the credential",
    FUNCTIONS_CALL: "let models call the functions of the server, and list them",
    METRICS: "read the metrics, where they are protected",
    ADMIN: "see how the server is set up, and the API keys of the tenant",
    ADMIN_WRITE: "enable and disable providers and functions; make and revoke API keys of the tenant",
}
"""The scopes of the API itself, and what each opens."""


def granted(scopes: Collection[str], scope: str) -> bool:
    """Tell whether credentials with these scopes carry one: by its name, by `*`, or by `<its first word>:*`.

    No scope implies another: whoever may write may not read, unless both are carried.
    """
    return EVERYTHING in scopes or scope in scopes or f"{scope.partition(':')[0]}:{EVERYTHING}" in scopes


def owner_scope(owner_id: str, access: Literal["read", "write"]) -> str | None:
    """Return the scope that reads or writes what belongs to a conversation or a response; None if an id is neither's.

    What providers keep for one of them is a part of it: its variables, the folder that it works in.
    """
    if owner_id.startswith("conv_"):
        return CONVERSATIONS_READ if access == "read" else CONVERSATIONS_WRITE
    if owner_id.startswith("resp_"):
        return RESPONSES_READ if access == "read" else RESPONSES_WRITE
    return None


def is_one_scope(text: str) -> bool:
    """Tell whether a text can be a scope: neither nothing nor several, which blanks or commas would part."""
    return text.split() == [text] and "," not in text


def mistake_in(scope: str, known: Iterable[str] = ()) -> str | None:
    """Return what is wrong with a text that is not one scope, or begins like a known or own one and is none of them.

    Any other word may be asked for by a function or by a provider that is not here, so it is no mistake.
    """
    if not is_one_scope(scope):
        return f"'{scope}' is not a scope; give one scope each, without blanks and commas"
    names = [*OWN_SCOPES, *known]
    family, colon, _ = scope.partition(":")
    if scope == EVERYTHING or scope in names:
        return None
    relatives = [name for name in names if name.partition(":")[0] == family]
    if not relatives or scope == f"{family}:{EVERYTHING}":
        return None
    hint = did_you_mean(scope, relatives) if colon else ""
    return f"there is no scope '{scope}'{hint or '; there is ' + ', '.join(relatives)}"


def nearest_scope(scope: str) -> str:
    """Return `; did you mean 'x'?` if the first word of a scope is nearly that of one of the API's, or nothing."""
    families = dict.fromkeys(name.partition(":")[0] for name in OWN_SCOPES)
    near = near_names(scope.partition(":")[0], families, likeness=0.8)
    return did_you_mean(scope, [name for name in OWN_SCOPES if name.partition(":")[0] in near])


# --- what an answer may cite: sources, and the numbers under which a model reads them --------------------------------


class Source(Struct, frozen=True):
    """Something a function found or made and an answer may cite: a page by its URL, or a file by its id."""

    title: str
    url: str | None = None
    file_id: str | None = None
    container_id: str | None = None
    """Where the file is, if code in a container has made it."""
    other_urls: tuple[str, ...] = ()
    """Further URLs that stand for the same."""


class _Numbers(Struct, eq=False):
    """Which source has which number. Functions in worker threads ask too, so one at a time."""

    sources: dict[int, Source] = {}
    _of: dict[Source, int] = {}
    _last: int = 0
    _lock: Lock = field(default_factory=Lock)

    def number(self, source: Source) -> int:
        """Return the number of a source; a new one gets the next."""
        with self._lock:
            known = self._of.get(source)
            return self._put(self._last + 1, source) if known is None else known

    def restore(self, numbered: Mapping[int, Source]) -> None:
        """Put sources under numbers they had before."""
        with self._lock:
            for number, source in numbered.items():
                self._put(number, source)

    def _put(self, number: int, source: Source) -> int:
        before = self.sources.get(number)
        if before is not None and self._of.get(before) == number:
            del self._of[before]  # its number means another one now
        self.sources[number], self._of[source] = source, number
        self._last = max(self._last, number)
        return number


class Sources(Struct, eq=False):
    """What an answer may cite, numbered from 1 in the order it was found; the same source keeps its number.

    A response that continues others starts with theirs, and goes on from their last number: the model still reads it.
    """

    _numbers: _Numbers = field(default_factory=_Numbers)
    _noted: dict[int, Source] = {}

    def add(self, source: Source) -> int:
        """Return the number under which a function shows a source to the model, as in `[3]`."""
        source = _storable(source)
        number = self._numbers.number(source)
        self._noted[number] = source
        return number

    def numbered(self) -> dict[int, Source]:
        """Return all sources by number."""
        return dict(self._numbers.sources)

    def __bool__(self) -> bool:
        """Tell whether there is anything to cite."""
        return bool(self._numbers.sources)

    def noting(self) -> "Sources":
        """Return the same sources for one call, whose `noted` are those that were added there."""
        return Sources(self._numbers)

    def noted(self) -> dict[int, Source]:
        """Return the sources that were added here, by number, whether they were known before or not."""
        return dict(self._noted)

    def restore(self, numbered: Mapping[int, Source]) -> None:
        """Put sources back under the numbers that they had; what had one of these before has none any more."""
        self._numbers.restore(numbered)


def _storable(source: Source) -> Source:
    """Return a source of texts that can be encoded: it is kept with the call that noted it."""
    url, file_id, container_id = (
        None if value is None else _text(value) for value in (source.url, source.file_id, source.container_id)
    )
    return Source(_text(source.title), url, file_id, container_id, tuple(map(_text, source.other_urls)))


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"The title, the URL and the ids of a source are texts, not {type(value).__name__}.")
    return value.encode(errors="replace").decode()  # a lone surrogate can neither be stored nor sent


# --- the context -----------------------------------------------------------------------------------------------------


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
    key_id: str | None = None
    """The public id of the API key of the request; None if it came with other credentials, or is none."""
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
        key_id = principal.key_id
        return cls(principal.tenant, principal.subject, principal.scopes, request_id=request_id, key_id=key_id)

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
