"""The interpreter: a pool of processes that understand Python and can do nothing but compute and ask us."""

import asyncio
import contextlib
import importlib
import os
import shlex
import shutil
import sysconfig
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from antwort.provider import FunctionError, Slots, tied
from antwort.providers.programs.prelude import PRELUDE
from antwort.providers.programs.settings import ProgramsSettings

if TYPE_CHECKING:
    from pydantic_monty import AsyncMonty, AsyncMontySession, ResourceLimits

_MONTY = "pydantic_monty"
_BINARY = "monty"
_SCRIPT = "program.py"
"""What the library knows programs by."""
_GRACE = 2.0
PATIENCE = 60.0
"""Seconds that a program waits for a process."""
BUSY = "Too many programs run at the moment. Try again later."
_IDLE = 300.0
"""Seconds after which processes that nobody needs end."""
_NICENESS = 10
"""How far programs stand back: those that compute without end do not keep the server from answering others."""
_CHECKOUTS = 1000
"""Sessions after which a process is replaced."""


def monty() -> Any:
    """Return the library of the interpreter. It is imported when a program runs first: it takes its time."""
    return importlib.import_module(_MONTY)


class ProgramInterpreter:
    """Gives sessions to programs. Its processes are started when they are needed, and end when nobody needs them."""

    def __init__(self, settings: ProgramsSettings, *, idle: float = _IDLE) -> None:
        self.settings = settings
        self._idle = idle
        self._users = 0
        """Programs that have a session, or want one."""
        self._resting: asyncio.TimerHandle | None = None
        self._ending: asyncio.Task[None] | None = None
        self.slots = Slots(settings.processes)
        """Programs of all tenants wait for a process here, in turns, and not in the pool, which knows no tenants."""
        self._pool: AsyncMonty | None = None
        self._fresh = b""
        """A session in which nothing has happened yet but the prelude."""
        self._starting = asyncio.Lock()
        self._launcher: _Launcher | None = None

    async def close(self) -> None:
        """End the processes."""
        if self._resting is not None:
            self._resting.cancel()
        if self._ending is not None and self._ending is not asyncio.current_task():
            await asyncio.wait([self._ending])
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.__aexit__(None, None, None)
        launcher, self._launcher = self._launcher, None
        if launcher is not None:
            launcher.close()

    @property
    def is_started(self) -> bool:
        """Tell whether there are processes."""
        return self._pool is not None

    @contextlib.contextmanager
    def _in_use(self) -> Iterator[None]:
        """Keep the processes as long, and for a while longer."""
        if self._resting is not None:
            self._resting.cancel()
            self._resting = None
        self._users += 1
        try:
            yield
        finally:
            self._users -= 1
            if not self._users and self._pool is not None:
                self._resting = asyncio.get_running_loop().call_later(self._idle, self._rest)

    def _rest(self) -> None:
        self._resting = None
        self._ending = asyncio.ensure_future(self._end_idle())

    async def _end_idle(self) -> None:
        async with self._starting:  # nobody gets one that is about to end
            if not self._users:
                await self.close()

    @contextlib.asynccontextmanager
    async def session(self, tenant: str) -> "AsyncIterator[AsyncMontySession]":
        """Lend an empty session; a FunctionError if all processes are busy for long."""
        with self._in_use():
            async with self._lent(tenant) as session:
                yield session

    @contextlib.asynccontextmanager
    async def _lent(self, tenant: str) -> "AsyncIterator[AsyncMontySession]":
        pool, slots = await self._started(), self.slots
        try:
            await slots.acquire(tenant, PATIENCE)
        except TimeoutError as error:
            raise FunctionError(BUSY) from error
        try:
            session = await self._checked_out(pool)
            try:
                yield session
            finally:
                await session.__aexit__(None, None, None)
        finally:
            slots.release(tenant)

    async def _checked_out(self, pool: "AsyncMonty") -> "AsyncMontySession":
        try:
            return await pool.checkout(limits=self._limits, script_name=_SCRIPT).__aenter__()
        except TimeoutError as error:
            raise FunctionError(BUSY) from error

    async def fresh(self) -> bytes:
        """Return the state of a session in which nothing has happened yet but the prelude."""
        with self._in_use():
            await self._started()
            return self._fresh

    async def _started(self) -> "AsyncMonty":
        async with self._starting:
            if self._pool is None:
                self._pool = await self._start()
            return self._pool

    async def _start(self) -> "AsyncMonty":
        """Start the processes, and take the state of a session in which nothing has happened yet."""
        library = await asyncio.to_thread(monty)
        self._launcher = self._launcher or _Launcher()
        pool: AsyncMonty = await library.AsyncMonty(
            binary_path=self._launcher.path,
            max_processes=self.settings.processes,
            checkout_timeout=PATIENCE,
            request_timeout=self.settings.seconds + _GRACE,
            max_checkouts_per_worker=_CHECKOUTS,
        ).__aenter__()
        try:
            async with pool.checkout(limits=self._limits, script_name=_SCRIPT) as session:
                await session.feed_run(PRELUDE)
                self._fresh = await session.dump()
        except BaseException:  # whoever has begun it has left, perhaps: the next one begins anew
            await pool.__aexit__(None, None, None)
            raise
        return pool

    @property
    def _limits(self) -> "ResourceLimits":
        settings = self.settings
        return {
            "max_feed_duration_secs": settings.seconds,
            "max_memory": settings.max_memory,
            "max_recursion_depth": settings.max_recursion,
            # A call is asked for, waited for and answered; this ends programs that go on asking when they may not.
            "max_suspensions": 4 * settings.max_calls + 1000,
        }


class _Launcher:
    """What the library starts in the place of its program: that program, tied to this process, however busy it is.

    The library takes the path of a program and no arguments, so it is a script, in memory. It is started by a thread of
    the library's runtime, and they live as long as the process does.
    """

    def __init__(self) -> None:
        self._script = -1
        self.path: str | None = None
        """Where the script is; None if the library has to find its program itself."""
        binary = _binary()
        if binary is not None and hasattr(os, "memfd_create"):
            self._script = os.memfd_create("antwort-program")
            os.write(self._script, f'#!/bin/sh\nexec {shlex.join(tied([binary], niceness=_NICENESS))} "$@"\n'.encode())
            self.path = f"/proc/{os.getpid()}/fd/{self._script}"

    def close(self) -> None:
        """Forget the script."""
        script, self._script = self._script, -1
        if script >= 0:
            os.close(script)


def _binary() -> str | None:
    """Return the program of the library, where the library would find it."""
    installed = Path(sysconfig.get_path("scripts"), _BINARY)
    return os.environ.get("MONTY_BIN") or (str(installed) if installed.is_file() else shutil.which(_BINARY))
