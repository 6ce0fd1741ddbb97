"""What programs can do with variables: parts of them are read, never all at once, however large they are."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from antwort.provider import (
    Context,
    FunctionError,
    GrepScanner,
    LargeWork,
    LineScanner,
    Variable,
    scan,
    text_of,
)
from antwort.providers.programs.values import plain

_SHOWN = 1000
"""Variables that are listed."""
_CHARACTER = 4
"""Bytes of a character, at most."""


class VariableCalls:
    """The calls of the prelude."""

    def __init__(self, ctx: Context, work: LargeWork, *, most: int) -> None:
        self._ctx = ctx
        self._work = work
        self._most = most
        self.by_name: Mapping[str, Callable[..., Awaitable[Any]]] = {
            "_variable_find": self._find,
            "_variable_list": self._list,
            "_variable_set": self._set,
            "_variable_read": self._read,
            "_variable_lines": self._lines,
            "_variable_grep": self._grep,
            "_variable_load": self._load,
        }

    async def _find(self, name: str) -> dict[str, Any]:
        return _description(await self._ctx.variables.find(str(name)))

    async def _list(self) -> list[dict[str, Any]]:
        return [_description(variable) for variable in await self._ctx.variables.list(limit=_SHOWN)]

    async def _set(self, key: str, value: Any) -> dict[str, Any]:
        return _description(await self._ctx.variables.set(str(key), plain(value)))

    async def _read(self, name: str, offset: int, limit: int) -> str:
        """Return the text that begins within `limit` bytes from `offset` on: no character is lost between two parts."""
        variable = await self._ctx.variables.find(name)
        start, end = max(0, int(offset)), min(variable.size, max(0, int(offset)) + self._bounded(limit))
        beyond = min(variable.size, end + _CHARACTER - 1)
        data = b"".join([piece async for piece in self._ctx.variables.read(variable, start, beyond)])
        stop = end - start
        while stop < len(data) and 0x80 <= data[stop] < 0xC0:
            stop += 1
        return text_of(data[:stop], from_start=start == 0, to_end=True)

    async def _lines(self, name: str, first: int, count: int) -> list[str]:
        variable = await self._ctx.variables.find(name)
        first = max(1, int(first))
        scanner = LineScanner(first, first + max(1, int(count)) - 1, self._most)
        await scan(self._ctx.variables.read(variable), scanner, self._work)
        text = scanner.text()
        return text.split("\n") if text else []

    async def _grep(self, name: str, pattern: str, limit: int) -> list[str]:
        variable = await self._ctx.variables.find(name)
        scanner = GrepScanner(str(pattern), self._most)
        await scan(self._ctx.variables.read(variable), scanner, self._work)
        return scanner.shown[: max(0, int(limit))]

    async def _load(self, name: str) -> Any:
        variable = await self._ctx.variables.find(name)
        value = await self._ctx.variables.load(variable, most=self._most)
        return msgspec.to_builtins(value)

    def _bounded(self, limit: int) -> int:
        if int(limit) > self._most:
            raise FunctionError(f"At most {self._most:,} bytes can be read at once, not {int(limit):,}.")
        return max(0, int(limit))


def _description(variable: Variable) -> dict[str, Any]:
    return {"id": variable.id, "key": variable.key, "size": variable.size, "kind": variable.kind}
