"""Variables as functions see them: versions of values by key, and what one call can do with those that it reaches."""

from collections.abc import AsyncIterable, AsyncIterator, Sequence
from typing import Any, Literal, Protocol

from msgspec import Struct, field

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
