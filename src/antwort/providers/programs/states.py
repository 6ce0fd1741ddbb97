"""What is kept of programs: the names that they have defined, and how far one has come that waits.

Both are values of the tenant, in a scope that no agent looks into, and signed: whoever could write there could put
words into the interpreter's mouth. Each is bound to the tenant, the run and the agent.
"""

from collections.abc import AsyncIterator

import msgspec

from antwort.provider import APIError, Context, FunctionError, Place, Services, Signer, Values, Variable

_SESSION = "session"
MONTY, SANDBOX = "monty", "sandbox"
"""The interpreters that states are of."""


class Pending(msgspec.Struct, frozen=True):
    """A call that a program waits for."""

    name: str
    arguments: str
    """As JSON: a list of those by position, and an object of those by name."""
    references: list[str] = []
    """The ids of variables that are handed on in them."""


class State(msgspec.Struct, frozen=True, omit_defaults=True):
    """A session between two programs or, with `pending`, in the middle of one."""

    session: bytes
    """As the interpreter has dumped it; empty if a program begins again, in the sandbox."""
    call_id: str = ""
    """The program that it is the state of, or after."""
    output: str | None = None
    """What came of that program, if it is over."""
    failed: bool = False
    pending: dict[int, Pending] = {}
    printed: str = ""
    calls: int = 0
    interpreter: str = MONTY
    bare: bool = False
    """Whether the session is without the prelude: no program of it has named any of that yet."""


class States:
    """The states of the programs of one agent, for one program: each is looked for once."""

    def __init__(self, services: Services, ctx: Context) -> None:
        self._values: Values | None = services.values
        self._signer: Signer | None = services.signer
        self._tenant = ctx.tenant
        agent = ctx.agent_id or ""
        self._purpose = f"program {ctx.run_id} {agent}"
        self._place = Place(ctx.tenant, "agent", f"{agent}.program", ctx.run_id, ctx.conversation_id, ctx.fence)
        self.are_kept = bool(agent) and self._values is not None and self._signer is not None
        """Whether anything is kept: outside of a run there is no next program."""
        self._kept: dict[str, list[Variable]] = {}
        """What is known to be kept, by key, the newest first."""

    async def session(self) -> State | None:
        """Return the session after the last program; None if there was none."""
        return await self._load(_SESSION)

    async def snapshot(self, call_id: str) -> State | None:
        """Return how far a program has come; None if that is not known."""
        return await self._load(call_id)

    async def keep_session(self, state: State) -> None:
        """Keep a session after a program; how far that one had come is not needed any more."""
        await self._keep(_SESSION, state)
        for old in self._kept.pop(state.call_id, ()):
            await self._delete(old)

    async def keep_snapshot(self, state: State) -> None:
        """Keep how far a program has come."""
        await self._keep(state.call_id, state)

    async def _keep(self, key: str, state: State) -> None:
        if not self.are_kept or self._values is None or self._signer is None:
            return
        signed = self._signer.sign(self._purpose, self._tenant, msgspec.msgpack.encode(state))
        try:
            made = await self._values.write(self._place, key, _pieces(signed))
        except APIError as error:
            raise FunctionError(f"The names of the program cannot be kept: {error.message}") from error
        before, self._kept[key] = self._kept.get(key, []), [made]
        for old in before:
            await self._delete(old)

    async def _load(self, key: str) -> State | None:
        if not self.are_kept or self._values is None or self._signer is None:
            return None
        where = {"scope": self._place.scope, "scope_id": self._place.scope_id, "key": key}
        found = await self._values.list(self._tenant, where=where, all_versions=True, newest_first=True)
        self._kept[key] = [*found]
        if not found:
            return None
        signed = b"".join([piece async for piece in self._values.read(found[0])])
        try:
            data = self._signer.verify(self._purpose, self._tenant, signed)
        except ValueError:
            raise FunctionError("What was kept of earlier programs was altered; it is not used.") from None
        return msgspec.msgpack.decode(data, type=State)

    async def _delete(self, variable: Variable) -> None:
        if self._values is not None:
            await self._values.delete(self._tenant, variable.id)


async def _pieces(data: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(data), 2**18):
        yield data[start : start + 2**18]
