"""A namespace of mounts of our own: nobody else sees what is mounted there, and it goes when this process does."""

import contextlib
import errno
import logging
import os
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

from typing_extensions import override

from antwort.concurrency.child_processes import tied
from antwort.sandbox.users import has_others

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Where the system's programs are: those that mount are not in the path of every user."""
_PATIENCE, _PAUSE = 30.0, 0.002
"""Seconds that a program has to begin, and between two looks at whether it has."""
_ENVIRONMENT = {"PATH": SYSTEM_PATH, "LC_ALL": "C"}
_STAY = "echo && read -r _"
_FLAGS = {"user": "--user", "mnt": "--mount"}

logger = logging.getLogger(__name__)


class MountSpace:
    """Holds a namespace open, without a process in it: however this one ends, the kernel unmounts all of it.

    Whoever is not root has a namespace of users with it, in which he may mount what needs no rights elsewhere.
    What is mounted on the host later is seen there, too.
    """

    def __init__(self, root: int, spaces: dict[str, int]) -> None:
        self._root = root
        self._spaces = spaces
        self._servers: list[MountServer] = []

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

    @classmethod
    def for_processes(cls, count: int) -> Self | None:
        """Make a namespace that several processes share which are forked from this one; None if it is for one, or none.

        Each of them has it open: what is mounted there goes with the last.
        """
        if count > 1:
            with contextlib.suppress(OSError):  # whoever needs it tries once more, and tells why there is none
                return cls.make()
        return None

    @property
    def has_own_users(self) -> bool:
        """Whether there is one user only, who is called root there."""
        return "user" in self._spaces

    @property
    def mounts(self) -> int:
        """The open file of the namespace of mounts."""
        return self._spaces["mnt"]

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

    def serve(self, command: Sequence[str], is_ready: Callable[[], bool], *, held: int) -> "MountServer":
        """Start a program there that serves a file system, which is ready when it is mounted; OSError if it is not.

        It has an open file, `held`, for as long as it runs: until it is unmounted, or this process ends.
        """
        server = MountServer([*self.entering, *tied(command, by="TERM")], held)
        self._servers = [one for one in self._servers if one.is_alive()] + [server]
        server.begin(is_ready)
        return server

    def close(self) -> None:
        """Unmount all, but what somebody still uses; what is served is there for nobody any more."""
        for server in self._servers:
            server.end()
        for file in (self._root, *self._spaces.values()):
            os.close(file)


class MountServer(threading.Thread):
    """A program that serves a file system. The kernel ends it with the thread that has started it, which is its own."""

    def __init__(self, command: Sequence[str], held: int) -> None:
        super().__init__(name="antwort-file-system", daemon=True)
        self._command = command
        self._held = held
        self._started = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._complaint = f"'{command[0]}' cannot be started"

    def begin(self, is_ready: Callable[[], bool]) -> None:
        """Start it, and wait until it is ready; OSError with what it says if it never is."""
        self.start()
        self._started.wait()
        late = time.monotonic() + _PATIENCE
        while self.is_alive() and time.monotonic() < late:
            if is_ready():
                return
            time.sleep(_PAUSE)
        self.end()
        raise OSError(errno.EIO, self._complaint)

    def end(self, patience: float = 0.0) -> None:
        """Wait for its end, and bring it about if it takes longer than so many seconds."""
        self.join(patience)
        if self._process is not None and self.is_alive():
            self._process.terminate()
        self.join()

    @override
    def run(self) -> None:
        try:
            with subprocess.Popen(  # noqa: S603 - a command of our own
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                env=_ENVIRONMENT,
                cwd="/",
                pass_fds=[self._held],
            ) as process:
                self._process = process
                self._started.set()
                self._complaint = "it has ended at once"
                assert process.stderr is not None  # noqa: S101 - it was asked for
                for line in process.stderr:
                    self._complaint = line.decode(errors="replace").strip()
                    logger.info("a file system: %s", self._complaint)
        except OSError as error:
            self._complaint = str(error.strerror)
        finally:
            self._started.set()


def run(command: Sequence[str], *, fine: int = 0, cwd: Path = Path("/"), user: int | None = None) -> str:
    """Run a command of the system, as somebody else if there is a user, and return what it prints.

    OSError with what it says if its code is not `fine`.
    """
    done = subprocess.run(  # noqa: S603 - a command of our own
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env=_ENVIRONMENT,
        cwd=cwd,
        user=user,
        group=user,
        extra_groups=None if user is None else [],
        check=False,
    )
    if done.returncode > fine or done.returncode < 0:
        said = (done.stderr or done.stdout).decode(errors="replace").strip().splitlines()
        raise OSError(errno.EIO, said[0] if said else f"'{command[0]}' has failed")
    return done.stdout.decode(errors="replace")
