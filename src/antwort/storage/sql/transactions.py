"""From a method with statements to one that can be awaited: each is one transaction, on a thread that has a connection.

A method marked with `reads`, `writes` or `deletes` takes the connection as its first argument, `database`. Its callers
leave that out and await it.
"""

import functools
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, TypeVar

from antwort.concurrency.undisturbed import undisturbed
from antwort.storage.sql.database import Database, ReadRunner, WriteRunner

P = ParamSpec("P")
T = TypeVar("T")
S = TypeVar("S", bound="Transactions")


class Transactions:
    """Whoever has methods that are transactions.

    Values are encoded before such a method is called, not in it, so that a caller may change them meanwhile.
    """

    def __init__(self, writer: WriteRunner, reader: ReadRunner) -> None:
        self._writer = writer
        self._reader = reader


def reads(method: Callable[Concatenate[S, Database, P], T]) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """Make a method that only reads a transaction."""

    @functools.wraps(method)
    async def transaction(self: S, /, *args: P.args, **options: P.kwargs) -> T:
        return await self._reader.run(lambda database: method(self, database, *args, **options))

    return transaction


def writes(
    method: Callable[Concatenate[S, Database, str, str, P], T], *, repeatable: bool = True, frees: bool = False
) -> Callable[Concatenate[S, str, str, P], Coroutine[Any, Any, T]]:
    """Make a method that writes a transaction. Its first arguments are the tenant and the id of what it writes.

    What is written under one id is written in the order of the calls. The method may be called again when nobody knows
    whether its transaction was stored: then it changes nothing, or is a conflict. Whoever is cancelled meanwhile waits
    for its end, undisturbed, and is cancelled then, also if it failed.
    """

    @functools.wraps(method)
    async def transaction(self: S, tenant: str, name: str, /, *args: P.args, **options: P.kwargs) -> T:
        return await undisturbed(
            self._writer.run(
                lambda database: method(self, database, tenant, name, *args, **options),
                name,
                repeatable=repeatable,
                frees=frees,
            )
        )

    return transaction


def writes_once(
    method: Callable[Concatenate[S, Database, str, str, P], T],
) -> Callable[Concatenate[S, str, str, P], Coroutine[Any, Any, T]]:
    """Do as `writes`, but for a method that must not be called again when nobody knows whether it was stored."""
    return writes(method, repeatable=False)


def deletes(
    method: Callable[Concatenate[S, Database, str, str, P], T],
) -> Callable[Concatenate[S, str, str, P], Coroutine[Any, Any, T]]:
    """Do as `writes`, for a method that deletes: it works on a full disk, too."""
    return writes(method, frees=True)
