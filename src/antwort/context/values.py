"""The variables of all tenants, for whoever acts for a tenant and not for a call."""

from collections.abc import AsyncIterable, AsyncIterator, Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from antwort.context.context import Context, Fence
from antwort.context.variables import ValueKind, Variable, Variables, VariableScope


class Place(Struct, frozen=True):
    """Where a variable is kept, and where it was made."""

    tenant: str
    scope: VariableScope = "tenant"
    scope_id: str = ""
    run_id: str | None = None
    conversation_id: str | None = None
    fence: Fence | None = None
    """Of the response that makes it: nothing is written once it does not hold any more."""


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
