"""The variables that one call can reach: its scopes, whose references it may follow, and values in Python."""

import contextlib
import re
import time
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from typing_extensions import override

from antwort.context import Context
from antwort.context.values import Place, Values
from antwort.context.variables import ValueKind, Variable, VariableScope, VariableView
from antwort.errors import APIError, FunctionError, did_you_mean
from antwort.storage.base import FencedError
from antwort.storage.sql.values import Addition, SqlValues
from antwort.storage.streamed_values import StreamedValues, ValueLimits, is_key

_READ, _WRITE = "variables:read", "variables:write"
_ID = re.compile(r"var_[0-9a-f]{48}")
_PIECE = 64 * 1024
"""Characters of a text that are encoded at once."""
_SUGGESTED = 200
"""Keys that are looked at for one that may have been meant."""
_GONE = "What an earlier request has set lasts only in the scope conversation or tenant."


class ReachableVariables(VariableView):
    """The variables of one call."""

    def __init__(
        self,
        ctx: Context,
        values: StreamedValues,
        tables: SqlValues,
        drop_run: Callable[[str, str], Awaitable[int]],
    ) -> None:
        self._ctx = ctx
        self._values = values
        self._tables = tables
        self._drop_run = drop_run

    @override
    async def set(
        self, key: str, value: Any, *, scope: VariableScope = "agent", expires_in: float | None = None
    ) -> Variable:
        chunks, kind = await self._encoded(value)
        return await self.write(key, chunks, kind=kind, scope=scope, expires_in=expires_in)

    async def _encoded(self, value: Any) -> tuple[AsyncIterator[bytes], ValueKind]:
        if isinstance(value, str):
            return _text_in_pieces(value), "text"
        if isinstance(value, bytes):
            return _once(value), "bytes"
        return _once(await self._json(value)), "json"

    async def _json(self, value: Any) -> bytes:
        try:
            is_large = isinstance(value, dict | list)
            return await self._values.work.run_if(is_large, msgspec.json.encode, value)
        except (TypeError, ValueError, RecursionError) as error:
            raise FunctionError(f"The value cannot be written as JSON: {error}.") from None

    @override
    async def write(
        self,
        key: str,
        chunks: AsyncIterable[bytes],
        *,
        kind: ValueKind = "text",
        scope: VariableScope = "agent",
        expires_in: float | None = None,
    ) -> Variable:
        self._note_use()
        with _for_the_model():
            return await self._values.write(self._place(scope), key, chunks, kind=kind, expires_in=expires_in)

    @override
    async def append(
        self, key: str, value: Any, *, scope: VariableScope = "agent", expires_in: float | None = None
    ) -> Variable:
        self._note_use()
        if isinstance(value, str):
            addition = Addition("text", value.encode(errors="replace"), await self._json(value))
        else:
            is_bytes = isinstance(value, bytes)
            addition = Addition("bytes" if is_bytes else "json", value if is_bytes else None, await self._json(value))
        with _for_the_model():
            return await self._values.append(self._place(scope), key, addition, expires_in)

    @override
    async def promote(
        self, variable: Variable, key: str, *, scope: VariableScope, expires_in: float | None = None
    ) -> Variable:
        self._note_use()
        with _for_the_model():
            return await self._values.link(self._place(scope), key, variable, expires_in)

    def _note_use(self) -> None:
        """Let the values of a run that nobody stores go when it is over."""
        ctx = self._ctx
        if ctx.budget is not None and ctx.run_id is not None and "values" not in ctx.budget.closing:
            tenant, run_id = ctx.tenant, ctx.run_id

            async def close(pause: str) -> None:
                if pause == "over" and not await self._tables.is_stored(tenant, run_id):
                    await self._drop_run(tenant, run_id)

            ctx.budget.closing["values"] = close

    @override
    async def find(self, name: str) -> Variable:
        found = None
        if _ID.fullmatch(name):
            found = await self._tables.get(self._ctx.tenant, name, self._values.now())
            if found is not None and not self._reaches(found):
                found = None
        elif is_key(name):
            found = await self._tables.find(self._ctx.tenant, self._readable(), name, self._values.now())
        if found is None:
            raise await self._unknown(name)
        return found

    def _reaches(self, variable: Variable) -> bool:
        """Tell whether a reference to a version may be followed here.

        What one agent of a run made all of them may read, and so may whoever goes on with the conversation: the
        reference stands in what was said.
        """
        if variable.scope == "tenant":
            return self._opens(_READ)
        ctx = self._ctx
        in_conversation = ctx.conversation_id is not None and ctx.conversation_id in {
            variable.conversation_id,
            variable.scope_id if variable.scope == "conversation" else None,
        }
        return in_conversation or (
            variable.scope != "conversation" and ctx.run_id is not None and variable.run_id == ctx.run_id
        )

    async def _unknown(self, name: str) -> FunctionError:
        shown = name if len(name) <= 80 else f"{name[:80]}…"
        if _ID.fullmatch(name):
            return FunctionError(f"There is no value {shown} in reach. List the variables to see what there is.")
        known = [variable.key for variable in await self.list(limit=_SUGGESTED)]
        if hint := did_you_mean(name[:80], known):
            return FunctionError(f"There is no variable '{shown}'{hint}")
        none = "." if known else ": there are no variables yet."
        return FunctionError(f"There is no variable '{shown}'{none} {_GONE}")

    @override
    async def list(
        self, *, scope: VariableScope | None = None, prefix: str = "", after: str | None = None, limit: int = 100
    ) -> Sequence[Variable]:
        scopes = [(name, scope_id) for name, scope_id in self._readable() if scope in {None, name}]
        if not scopes or (prefix and not is_key(prefix)):
            return []
        return await self._tables.list(
            self._ctx.tenant, scopes=scopes, prefix=prefix, after=after, limit=limit, now=self._values.now()
        )

    @override
    async def load(self, variable: Variable, *, most: int | None = None) -> Any:
        if most is not None and variable.size > most:
            raise FunctionError(
                f"'{variable.key}' has {variable.size:,} bytes; at most {most:,} can be had at once. Read it in parts."
            )
        with _for_the_model():
            data = b"".join([chunk async for chunk in self._values.read(variable)])
        if variable.kind == "bytes":
            return data
        try:
            is_json = variable.kind == "json"
            decode = msgspec.json.decode if is_json else bytes.decode
            return await self._values.work.run_if(variable.size > _PIECE, decode, data)
        except (ValueError, RecursionError) as error:
            raise FunctionError(f"'{variable.key}' is not valid {variable.kind}: {error}.") from None

    @override
    def read(self, variable: Variable, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        return _read_for_the_model(self._values.read(variable, start, end))

    @override
    async def delete(self, key: str, *, scope: VariableScope = "agent") -> bool:
        place = self._place(scope)
        with _for_the_model():
            return await self._tables.delete_key(place.tenant, place.scope_id, place, key) > 0

    def _opens(self, scope: str) -> bool:
        """Tell whether the tenant's own variables can be reached.

        A call of a response acts for the credentials that asked for it. One that a program makes itself has none.
        """
        return self._ctx.response_id is None or self._ctx.grants(scope)

    def _readable(self) -> Sequence[tuple[VariableScope, str]]:
        """Return the scopes that the call can read."""
        scopes = self._scopes()
        return scopes if self._opens(_READ) else scopes[:-1]

    def _scopes(self) -> Sequence[tuple[VariableScope, str]]:
        """Return the scopes of the call, from the inside out."""
        ctx = self._ctx
        inner: tuple[tuple[VariableScope, str | None], ...] = (
            ("agent", ctx.agent_id),
            ("run", ctx.run_id),
            ("conversation", ctx.conversation_id),
        )
        return [*((scope, scope_id) for scope, scope_id in inner if scope_id is not None), ("tenant", "")]

    def _place(self, scope: VariableScope) -> Place:
        scope_id = dict(self._scopes()).get(scope)
        if scope_id is None:
            raise FunctionError(f"This call belongs to no {scope}; set `scope` to 'tenant'.")
        if scope == "tenant" and not self._opens(_WRITE):
            raise FunctionError(
                f"Variables of the tenant cannot be changed here: the credentials lack the scope '{_WRITE}'. "
                "Choose another scope, such as 'conversation'."
            )
        ctx = self._ctx
        return Place(ctx.tenant, scope, scope_id, ctx.run_id, ctx.conversation_id, ctx.fence)


@contextlib.contextmanager
def _for_the_model() -> Iterator[None]:
    """Turn what a client would be told into what a model is told."""
    try:
        yield
    except APIError as error:
        raise FunctionError(error.message) from error
    except FencedError as error:  # nobody reads it: what comes of this call cannot be stored either
        raise FunctionError("The run goes on elsewhere; nothing is written from here any more.") from error


async def _read_for_the_model(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    with _for_the_model():
        async for chunk in chunks:
            yield chunk


async def _text_in_pieces(text: str) -> AsyncIterator[bytes]:
    for start in range(0, len(text), _PIECE):
        yield text[start : start + _PIECE].encode(errors="replace")


async def _once(data: bytes) -> AsyncIterator[bytes]:
    yield data


# --- variables of all tenants, and what a call can reach of them -----------------------------------------------------


_GROUP = 100
"""Versions that one transaction deletes."""


class StoredValues(Values):
    """Keeps variables in the database. A value that a tenant has already is not stored again."""

    def __init__(
        self,
        tables: SqlValues,
        limits: ValueLimits | None = None,
        *,
        check_room: Callable[[str], Awaitable[None]] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._tables = tables
        self._streamed = StreamedValues(tables, limits, check_room=check_room, clock=clock)
        self._now = self._streamed.now

    def close(self) -> None:
        """Let the thread for large work end."""
        self._streamed.close()

    @override
    def of(self, ctx: Context) -> VariableView:
        return ReachableVariables(ctx, self._streamed, self._tables, self.drop_run)

    @override
    async def get(self, tenant: str, variable_id: str) -> Variable | None:
        return await self._tables.get(tenant, variable_id, self._now())

    @override
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
        return await self._tables.list(
            tenant,
            where=where,
            all_versions=all_versions,
            after=after,
            limit=limit,
            newest_first=newest_first,
            now=self._now(),
        )

    @override
    async def is_there(self, tenant: str, scope: VariableScope, scope_id: str) -> bool:
        if scope == "tenant":
            return True
        if scope == "conversation" and await self._tables.is_conversation(tenant, scope_id):
            return True
        return await self._tables.is_stored(tenant, scope_id)  # a chain of responses is called like its first

    @override
    async def write(
        self,
        place: Place,
        key: str,
        chunks: AsyncIterable[bytes],
        *,
        kind: ValueKind = "bytes",
        expires_in: float | None = None,
    ) -> Variable:
        return await self._streamed.write(place, key, chunks, kind=kind, expires_in=expires_in)

    @override
    def read(self, variable: Variable, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        return self._streamed.read(variable, start, end)

    @override
    async def delete(self, tenant: str, variable_id: str, *, all_versions: bool = False) -> bool:
        return await self._tables.delete(tenant, variable_id, all_versions=all_versions, now=self._now())

    @override
    async def drop_run(self, tenant: str, run_id: str) -> int:
        dropped = 0
        while gone := await self._tables.drop_run(tenant, run_id, _GROUP):
            dropped += gone
        return dropped
