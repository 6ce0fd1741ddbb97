"""A namespace of mounts of our own: nobody else sees what is mounted there, and it goes when this process does."""

import contextlib
import errno
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from antwort.sandbox.users import has_others

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Where the system's programs are: those that mount are not in the path of every user."""
_STAY = "echo && read -r _"
_FLAGS = {"user": "--user", "mnt": "--mount"}


class MountSpace:
    """Holds a namespace open, without a process in it: however this one ends, the kernel unmounts all of it.

    Whoever is not root has a namespace of users with it, in which he may mount what needs no rights elsewhere.
    What is mounted on the host later is seen there, too.
    """

    def __init__(self, root: int, spaces: dict[str, int]) -> None:
        self._root = root
        self._spaces = spaces

    @classmethod
    def make(cls) -> Self:
        """Make a namespace; OSError if this machine allows none."""
        kinds = ["mnt"] if has_others() else ["user", "mnt"]
        flags = ["--mount", "--propagation", "slave", *(["--user", "--map-root-user"] if "user" in kinds else [])]
        with (
            contextlib.ExitStack() as opened,
            subprocess.Popen(  # noqa: S603 - a command of our own
                ["unshare", *flags, "--", "/bin/sh", "-c", _STAY],  # noqa: S607 - wherever the system has it
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={"PATH": SYSTEM_PATH},
            ) as process,
        ):
            assert process.stdout is not None  # noqa: S101 - it was asked for
            if not process.stdout.read(1):
                raise OSError(errno.EPERM, "there can be no namespace of mounts")
            there = Path("/proc", str(process.pid))
            spaces = {}
            for kind in kinds:
                spaces[kind] = os.open(there / "ns" / kind, os.O_RDONLY | os.O_CLOEXEC)
                opened.callback(os.close, spaces[kind])
            root = os.open(there / "root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            opened.pop_all()
            return cls(root, spaces)

    @property
    def has_own_users(self) -> bool:
        """Whether there is one user only, who is called root there."""
        return "user" in self._spaces

    @property
    def entering(self) -> list[str]:
        """How a command line begins of what is to be executed there; what it starts inherits nothing of this."""
        here = f"/proc/{os.getpid()}/fd"
        spaces = [f"{_FLAGS[kind]}={here}/{file}" for kind, file in self._spaces.items()]
        return ["nsenter", *spaces, *(["--preserve-credentials"] if self.has_own_users else []), "--"]

    def seen(self, path: Path) -> Path:
        """Return where this process finds what is at a path there; no part of the path may be a link."""
        return Path(f"/proc/self/fd/{self._root}{path}")

    def run(self, command: Sequence[str]) -> None:
        """Run a command there; OSError with what it says if it fails."""
        run([*self.entering, *command])

    def close(self) -> None:
        """Unmount all, but what somebody still uses."""
        for file in (self._root, *self._spaces.values()):
            os.close(file)


def run(command: Sequence[str], *, fine: int = 0) -> str:
    """Run a command of the system and return what it prints; OSError with what it says if its code is not `fine`."""
    done = subprocess.run(  # noqa: S603 - a command of our own
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env={"PATH": SYSTEM_PATH, "LC_ALL": "C"},
        cwd="/",
        check=False,
    )
    if done.returncode > fine or done.returncode < 0:
        said = (done.stderr or done.stdout).decode(errors="replace").strip().splitlines()
        raise OSError(errno.EIO, said[0] if said else f"'{command[0]}' has failed")
    return done.stdout.decode(errors="replace")
