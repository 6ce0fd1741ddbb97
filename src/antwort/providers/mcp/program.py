"""How a server that is a program of this machine is started: as one of its user's, or in the sandbox."""

import asyncio
import contextlib
import os
import shutil
import signal
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct
from typing_extensions import override

from antwort.provider import (
    ChildProcess,
    ConfigError,
    FunctionUnavailableError,
    Sandbox,
    SandboxLimits,
    SandboxProcess,
    tied,
)
from antwort.providers.mcp.errors import McpHttpError

_INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "TZ", "USER")
"""What a program has of our environment: no secrets of ours. In the sandbox it has nothing of it."""


class Confinement(Struct, frozen=True):
    """The sandbox of a program, and what it has there."""

    sandbox: Sandbox
    readable: Sequence[Path]
    network: bool
    limits: SandboxLimits


class ServerProgram(Struct, frozen=True):
    """How a server is started."""

    label: str
    command: Sequence[str]
    environment: Mapping[str, str]
    folder: Path | None
    max_bytes: int
    confinement: Confinement | None = None


class UnstartedError(McpHttpError):
    """A program was not started; the `cause` is for its operator alone, as it tells what is on this machine."""

    def __init__(self, message: str, cause: str = "") -> None:
        super().__init__(message)
        self.cause = cause


class StartedProgram(ABC):
    """A program that runs, and its pipes."""

    def __init__(self, process: ChildProcess | SandboxProcess) -> None:
        self.stdin = process.stdin
        self.stdout = process.stdout
        self.stderr = process.stderr

    @staticmethod
    async def start(program: ServerProgram) -> "StartedProgram":
        """Start a program; UnstartedError if that cannot be done. One that has a sandbox is never started outside."""
        if program.confinement is not None:
            return await _ConfinedProgram.enter(program, program.confinement)
        return await _HostProgram.launch(program)

    @abstractmethod
    async def wait(self) -> str | None:
        """Wait for its end; return the limit that has ended it, if one has."""

    @abstractmethod
    def kill(self) -> None:
        """End it, and what it has started."""

    @abstractmethod
    async def close(self) -> None:
        """Give back what it had, when it has ended."""


class _HostProgram(StartedProgram):
    """One that has all rights of our user."""

    def __init__(self, process: ChildProcess) -> None:
        super().__init__(process)
        self._process = process

    @classmethod
    async def launch(cls, program: ServerProgram) -> "_HostProgram":
        own = {name: value for name in _INHERITED if (value := os.environ.get(name)) is not None}
        environment = {**own, **program.environment}
        if not await asyncio.to_thread(_is_there, program.command[0], environment, program.folder):
            cause = f"There is no '{program.command[0]}' that can be run; install it, or give its path."
            raise UnstartedError("The program of the server cannot be found.", cause)
        try:
            process = await ChildProcess.start(
                tied(program.command), environment=environment, cwd=program.folder, start_new_session=True
            )
        except (OSError, ValueError) as error:
            raise UnstartedError(f"The program of the server cannot be started: {error}") from None
        return cls(process)

    @override
    async def wait(self) -> None:
        await self._process.wait()

    @override
    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    @override
    async def close(self) -> None:
        self._process.close()


class _ConfinedProgram(StartedProgram):
    """One that nobody has to trust with this machine."""

    def __init__(self, process: SandboxProcess, closing: contextlib.AsyncExitStack) -> None:
        super().__init__(process)
        self._process = process
        self._closing = closing

    @classmethod
    async def enter(cls, program: ServerProgram, confinement: Confinement) -> "_ConfinedProgram":
        problem = "The program of the server cannot be started: it has no sandbox here."
        missing = await asyncio.to_thread(_missing, confinement.readable)
        if missing is not None:
            raise UnstartedError(problem, f"There is no '{missing}', which `sandbox.readable` names.")
        closing = contextlib.AsyncExitStack()
        opened = confinement.sandbox.open(
            program.command,
            limits=confinement.limits,
            readonly=confinement.readable,
            environment=program.environment,
            network=confinement.network,
        )
        try:
            return cls(await closing.enter_async_context(opened), closing)
        except ConfigError as error:  # the machine has none, or it would show what is private
            raise UnstartedError(problem, str(error)) from None
        except FunctionUnavailableError as error:
            raise UnstartedError(problem, str(error)) from None

    @override
    async def wait(self) -> str | None:
        ending = await self._process.wait()
        return None if ending in {"exit", "killed"} else ending

    @override
    def kill(self) -> None:
        self._process.kill()

    @override
    async def close(self) -> None:
        await self._closing.aclose()


def _is_there(command: str, environment: Mapping[str, str], folder: Path | None) -> bool:
    """Tell whether a program can be found: else what begins it would say so, and name itself."""
    where = command if "/" not in command or folder is None else str(folder / command)
    return shutil.which(where, path=environment.get("PATH")) is not None


def _missing(paths: Sequence[Path]) -> Path | None:
    return next((path for path in paths if not path.exists()), None)
