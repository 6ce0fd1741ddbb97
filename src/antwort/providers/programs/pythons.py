"""The Pythons of programs in the sandbox: each is started for one program, and gone with it."""

import contextlib
import math
from collections.abc import AsyncIterator
from pathlib import Path

from antwort.provider import FunctionError, LargeWork, Sandbox, SandboxLimits, SandboxProcess, SandboxPython, Slots
from antwort.providers.programs.interpreter import BUSY, PATIENCE
from antwort.providers.programs.settings import ProgramsSettings

_DRIVER = Path(__file__).with_name("driver.py")
ALIVE = 4
"""How many times as many programs as may compute at the same time may be there, and wait."""
_OWN_MEMORY = 64 * 1024**2
"""Bytes that Python takes besides a program: those of the program itself are limited within."""
_ENVIRONMENT = {"PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}  # the same way each time that a program runs


class ProgramTurn:
    """The right of a program to compute, which it gives back while it waits."""

    def __init__(self, slots: Slots, tenant: str) -> None:
        self._slots = slots
        self._tenant = tenant
        self.is_given_back = True

    async def take_again(self) -> None:
        """Wait for one's turn; a FunctionError if that takes too long."""
        await _acquire(self._slots, self._tenant)
        self.is_given_back = False

    def give_back(self) -> None:
        """Let others compute; nothing happens if they do already."""
        if not self.is_given_back:
            self.is_given_back = True
            self._slots.release(self._tenant)


class Pythons:
    """Starts Python in the sandbox, for as many programs as may run."""

    def __init__(
        self,
        sandbox: Sandbox,
        python: SandboxPython,
        settings: ProgramsSettings,
        *,
        slots: Slots,
        alive: Slots,
        work: LargeWork,
    ) -> None:
        """Take `slots` for programs that compute, and those for all that are `alive`."""
        self.settings = settings
        self.work = work
        self._sandbox = sandbox
        self._python = python
        self._slots = slots
        self._alive = alive
        self._limits = SandboxLimits(
            memory=settings.max_memory + _OWN_MEMORY,
            cpu_seconds=math.ceil(settings.seconds) + 1,  # with what it has started, also while it waits
            processes=32,
            scratch_bytes=settings.max_memory,
        )
        self._command = [python.path, "-s", "-c", _DRIVER.read_text()]

    @contextlib.asynccontextmanager
    async def started(self, tenant: str) -> AsyncIterator[tuple[SandboxProcess, ProgramTurn]]:
        """Give a Python that waits for its program; a FunctionError if there are too many for long."""
        turn = ProgramTurn(self._slots, tenant)
        await _acquire(self._alive, tenant)
        try:
            await turn.take_again()
            opened = self._sandbox.open(
                self._command, limits=self._limits, readonly=self._python.readonly, environment=_ENVIRONMENT
            )
            async with opened as process:
                yield process, turn
        finally:
            turn.give_back()
            self._alive.release(tenant)


async def _acquire(slots: Slots, tenant: str) -> None:
    try:
        await slots.acquire(tenant, PATIENCE)
    except TimeoutError as error:
        raise FunctionError(BUSY) from error
