"""What a run offers to its functions beyond their arguments, as their authors see it. An app that runs provides it."""

from collections.abc import AsyncIterable, AsyncIterator, Collection, Mapping, Sequence
from typing import Any, Literal, Protocol

from msgspec import DecodeError, Struct, field, json

from antwort.context.agents import Agents
from antwort.context.context import Context, Fence

VariableScope = Literal["agent", "run", "conversation", "tenant"]
"""Where a variable is seen by its key, from the inside out."""
ValueKind = Literal["text", "json", "bytes"]


class Variable(Struct, frozen=True):
    """One version of a variable, without its value. It never changes; to set the key again makes another one."""

    id: str
    tenant: str
    scope: VariableScope
    scope_id: str
    """The agent, run or conversation; empty for the tenant's own."""
    key: str
    version: int
    kind: ValueKind
    size: int
    """Bytes of the value."""
    blob_id: str
    """Where the value is; equal values of a tenant are kept once."""
    run_id: str | None
    """The run it was made in."""
    conversation_id: str | None
    """The conversation it was made in."""
    created_at: int
    expires_at: int | None

    @property
    def reference(self) -> dict[str, str]:
        """What stands for the value in arguments of functions. It means this version for ever."""
        return {"$ref": self.id}


class Reference(Struct, frozen=True):
    """A reference as a model has written it in arguments, `{"$ref": name}`: its type tells it from all that is data."""

    name: str = field(name="$ref")
    """The id of a version, or a key."""


class Place(Struct, frozen=True):
    """Where a variable is kept, and where it was made."""

    tenant: str
    scope: VariableScope = "tenant"
    scope_id: str = ""
    run_id: str | None = None
    conversation_id: str | None = None
    fence: Fence | None = None
    """Of the response that makes it: nothing is written once it does not hold any more."""


class Variables(Protocol):
    """The variables that one call can reach. What cannot be done is a FunctionError that tells the model the cure.

    Keys are looked up outward: in the agent's own scope, in the run, the conversation, then the tenant.
    """

    async def set(
        self, key: str, value: Any, *, scope: VariableScope = "agent", expires_in: float | None = None
    ) -> Variable:
        """Store a text, bytes, or anything that can be written as JSON; what the key had before keeps its version."""

    async def write(
        self,
        key: str,
        chunks: AsyncIterable[bytes],
        *,
        kind: ValueKind = "text",
        scope: VariableScope = "agent",
        expires_in: float | None = None,
    ) -> Variable:
        """Store a value that comes in pieces, without ever holding all of it."""

    async def append(
        self, key: str, value: Any, *, scope: VariableScope = "agent", expires_in: float | None = None
    ) -> Variable:
        """Append a text to a text, or anything to a JSON array as one more element, in a new version of the key.

        A key that is not there in the scope begins as a text or, if the value is none, as an array; only then it
        expires after so many seconds. However many append at the same time, nothing is lost.
        """

    async def promote(
        self, variable: Variable, key: str, *, scope: VariableScope, expires_in: float | None = None
    ) -> Variable:
        """Give a value that is there already a key in a scope, without copying it."""

    async def find(self, name: str) -> Variable:
        """Return what a key means here and now, or the version that an id names."""

    async def list(
        self, *, scope: VariableScope | None = None, prefix: str = "", after: str | None = None, limit: int = 100
    ) -> Sequence[Variable]:
        """Return the newest version of each variable in reach, those made first first; `after` is the id of one.

        With a prefix, of those only whose keys begin with it.
        """

    async def load(self, variable: Variable, *, most: int | None = None) -> Any:
        """Return a whole value: a text, bytes, or what the JSON says; an error if it has more than `most` bytes."""

    def read(self, variable: Variable, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        """Yield the bytes of a value from `start` up to, not including, `end`, in pieces of at most 1 MiB."""

    async def delete(self, key: str, *, scope: VariableScope = "agent") -> bool:
        """Delete all versions of a key in one scope; False if there were none."""


class Values(Protocol):
    """The variables of all tenants, for routes and whoever else acts for a tenant and not for a call.

    What cannot be done is an APIError.
    """

    def of(self, ctx: Context) -> Variables:
        """Return what a call can reach."""

    async def get(self, tenant: str, variable_id: str) -> Variable | None:
        """Return a version."""

    async def list(
        self,
        tenant: str,
        *,
        where: Mapping[str, str] = {},
        all_versions: bool = False,
        after: str | None = None,
        limit: int = 100,
        newest_first: bool = False,
    ) -> Sequence[Variable]:
        """Return versions by age. `where` gives what `scope`, `scope_id`, `key` and `run_id` have to be."""

    async def is_there(self, tenant: str, scope: VariableScope, scope_id: str) -> bool:
        """Tell whether a tenant has the conversation, run or agent that a scope names; the tenant itself is there."""

    async def write(
        self,
        place: Place,
        key: str,
        chunks: AsyncIterable[bytes],
        *,
        kind: ValueKind = "bytes",
        expires_in: float | None = None,
    ) -> Variable:
        """Store a value that comes in pieces."""

    def read(self, variable: Variable, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        """Yield the bytes of a value, in pieces."""

    async def delete(self, tenant: str, variable_id: str, *, all_versions: bool = False) -> bool:
        """Delete a version, or all that its key has in its scope; False if there is no such version."""

    async def drop_run(self, tenant: str, run_id: str) -> int:
        """Delete what was made in a run for itself; return how many versions that were."""


class CallableFunction(Struct, frozen=True):
    """A function that a call can call itself."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    """A JSON Schema of an object."""


class CallResult(Struct, frozen=True):
    """What came of a call that a call has made itself. An error is a result, too."""

    output: str
    """What a model would read."""
    is_error: bool = False
    status: str = "success"
    is_json: bool = False
    """Whether the output is JSON, and no text."""

    @property
    def value(self) -> Any:
        """What the function has returned, as far as JSON can say it."""
        if not self.is_json:
            return self.output
        try:
            return json.decode(self.output)
        except DecodeError:  # its middle was left out
            return self.output


class FunctionCalls(Protocol):
    """Calls that one call makes itself, of the functions that its agent has, on the one path of execution.

    They have the caller's rights, and count for the limits of the response and the run. Each is kept with its key
    before its result is given: a function that attaches and makes the same calls again, after a crash or when it goes
    on after waiting, gets the results that there were, and nothing that was done is done twice.
    """

    @property
    def functions(self) -> Mapping[str, CallableFunction]:
        """What can be called, by name."""

    async def call(
        self, name: str, arguments: Mapping[str, Any], *, key: str | None = None, references: Collection[str] = ()
    ) -> CallResult:
        """Call a function, and wait for what comes of it; calls have turns, if there are many at once.

        `key` names the call within the caller's; without one, calls are numbered in the order in which they are made.
        `references` are the ids of variables that are handed on: `{"$ref": id}` stands for them in the arguments. All
        else that reads like a reference is data.
        A function that ends the agent ends it when the call that calls it is over, unless that fails.
        If the call waits for somebody, SuspendedError is raised: let it pass, when other calls are done.
        """


class RunServices(Struct, frozen=True):
    """What functions reach through their context; None is what nobody provides."""

    values: Values | None = None
    agents: Agents | None = None
