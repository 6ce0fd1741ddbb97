"""A Python that can be used in the sandbox, and what it needs to see there."""

import asyncio
import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from antwort.errors import ConfigError, FunctionUnavailableError
from antwort.sandbox.limits import SandboxLimits
from antwort.sandbox.places import python_places
from antwort.sandbox.sandbox import Sandbox

_START = 30.0
"""Seconds that a Python has to say something."""


class SandboxPython(Struct, frozen=True):
    """Which Python it is, and what else it needs to see."""

    path: str
    readonly: Sequence[Path] = ()

    @classmethod
    async def find(cls, sandbox: Sandbox, python: str, *, seconds: float = _START) -> "SandboxPython":
        """Return a Python by its name in the sandbox, or its path outside; ConfigError if it cannot be used there.

        It has some seconds, outside of the sandbox and in it, to say something.
        """
        readonly = await _places(python, seconds) if "/" in python else []
        probe = [python, "-I", "-c", "import sys; sys.exit(sys.version_info < (3, 8))"]
        try:
            done = await sandbox.run(probe, readonly=readonly, limits=SandboxLimits(seconds=seconds))
        except FunctionUnavailableError as error:
            raise _failure(str(error)) from error
        if done.exit_code != 0:
            lines = done.stderr.decode(errors="replace").strip().splitlines()
            why = lines[-1] if lines else "it is older than Python 3.8"
            if done.ending == "time":
                why = f"it said nothing for {seconds:g} seconds"
            raise _failure(f"'{python}' cannot be used in the sandbox: {why[:300].rstrip('.')}.")
        return cls(python, readonly)


async def _places(python: str, seconds: float) -> list[Path]:
    """Return what of a Python lies outside of the system, and of its environment too."""
    code = "import json, sys; print(json.dumps([sys.prefix, sys.base_prefix, sys.executable]))"
    try:
        process = await asyncio.to_thread(
            subprocess.run,
            [python, "-I", "-c", code],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            check=False,
            timeout=seconds,
        )
    except subprocess.TimeoutExpired:
        raise _failure(f"'{python}' said nothing for {seconds:g} seconds and was ended.") from None
    except OSError as error:
        raise _failure(f"'{python}' cannot be started: {error.strerror}.") from error
    try:
        prefix, base, executable = (Path(path) for path in json.loads(process.stdout))
    except (TypeError, ValueError):  # whatever it is, it says something else
        raise _failure(f"'{python}' is no Python.") from None
    executables = [executable, executable.resolve()]
    return python_places({prefix, base, executables[-1].parent.parent}, executables)


def _failure(why: str) -> ConfigError:
    return ConfigError(f"{why} Install Python there, or set `python` to the path of another one.")
