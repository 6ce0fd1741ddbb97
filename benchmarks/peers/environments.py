"""Installing peers from PyPI, each in an environment of its own, and saying in a few words why one cannot be had."""

import platform
import re
import subprocess
import sys
from pathlib import Path

from benchmarks.measure import BenchmarkError

HOME = Path(__file__).parents[2] / ".venv-peers"


class UnavailableError(BenchmarkError):
    """A peer cannot be had on this machine; the message says why, in a few words."""


def install(name: str, requirement: str, *, home: Path = HOME) -> Path:
    """Install a requirement unless it is there, and return the folder of its programs.

    Only wheels of the peer itself are taken: building one from source needs a compiler that this command does not ask
    for, and gives another program than the one its authors release.
    """
    folder = home / name
    stamp = folder / "installed"
    if stamp.is_file() and stamp.read_text() == requirement:
        return folder / "bin"
    print(f"installing {requirement} into {folder}", file=sys.stderr)
    if not (folder / "bin" / "pip").exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True, timeout=300)
    command = [str(folder / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check", "--only-binary", name]
    done = subprocess.run([*command, requirement], capture_output=True, text=True, timeout=3600, check=False)
    if done.returncode:
        raise UnavailableError(failure(name, requirement, done.stderr))
    stamp.write_text(requirement)
    return folder / "bin"


def failure(name: str, requirement: str, log: str) -> str:
    """Return why an installation failed, in a few words."""
    missing = re.search(r"No matching distribution found for (\S+)", log)
    if missing and missing[1] == requirement:
        version = requirement.rpartition("==")[2]
        return f"{name} {version} has no wheel on PyPI for {platform.system()} on {platform.machine()}"
    if missing:
        return f"{requirement} needs {missing[1]}, which is not on PyPI"
    errors = [line for line in log.splitlines() if line.startswith("ERROR")] or log.splitlines() or ["pip failed"]
    return f"{requirement}: {errors[-1][:200]}"
