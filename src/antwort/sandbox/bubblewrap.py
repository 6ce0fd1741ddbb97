"""The command line that puts a process into the sandbox."""

import contextlib
import os
import shutil
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct
from typing_extensions import override

from antwort.sandbox.limits import SandboxLimits
from antwort.sandbox.places import system_files, system_links, system_places
from antwort.sandbox.process_limits import renounce
from antwort.sandbox.seccomp import filter_program
from antwort.sandbox.thread_mounts import copied, mount_apart, mount_memory, show, show_copy

WORKSPACE = "/workspace"
"""Where the folder is, in the sandbox."""
DATA = "/mnt/data"
"""Where it is, too: OpenAI's models expect it there."""
USER = 1000
"""Who the process is, in the sandbox."""
ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "HOME": WORKSPACE,
    "LANG": "C.UTF-8",
    "TMPDIR": "/tmp",  # noqa: S108 - the sandbox's own
    "USER": "sandbox",
}
_OWN_ETC = {
    "passwd": f"sandbox:x:{USER}:{USER}::{WORKSPACE}:/bin/sh\nnobody:x:65534:65534::/nonexistent:/bin/false\n",
    "group": f"sandbox:x:{USER}:\nnogroup:x:65534:\n",
    "hosts": "127.0.0.1 localhost\n::1 localhost\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
}
_SCRATCH, _SHARED, _NAMES = "/tmp", "/dev/shm", "/etc/resolv.conf"  # noqa: S108 - the sandbox's own
OF_THE_HOST = ("cmdline", "diskstats", "fs", "keys", "locks", "partitions", "swaps")
"""Files and folders of `/proc` about the machine and others on it, which are empty in the sandbox."""
_NO_MEMORY_BY_A_DEVICE = ("--dev-bind", "/dev/full", "/dev/zero")
"""What can be read is the same; who maps `/dev/zero` has shared memory of which nobody sees how much it is."""
_STAGES = ("/mnt", "/media", "/srv", "/opt", "/home", "/run")
"""Folders that every system has and everybody can enter: where root shows things to whom they are for.

What is in them is not seen by who sets up the sandbox, so those are taken in which nothing is that is to be shown.
"""
TOOLS = {"bwrap": "bubblewrap", "prlimit": "util-linux", "nsenter": "util-linux", "unshare": "util-linux"}
"""The programs that the sandbox needs, and the packages that have them."""

# PID 1 in the sandbox: a shell that cannot be read, so that nobody else can look into it; `_first_process` tells why.
# It does nothing but start another process, wait for it, and say how it ended, with which the kernel ends all others.
# That other process takes no more of its input than the line that it waits for, until it has its limits and a lower
# priority, which the first one never gets: it is at once on a processor when it is ended. If whoever should write the
# line is gone, nothing happens.
FIRST = """
exec 3>&2 2>/dev/null
trap '' INT
(trap - INT; printf '\\006' >&2; read -r _ || exit; exec "$@") 2>&3 3>&-
exit "$?"
"""
_INIT, _UNREADABLE = "/init", "0111"
_SHELL = Path("/bin/sh")
READY = b"\x06"
"""What the sandbox writes, on standard error, when all of it is set up: from then on it ends with its parent."""
GO = b"\n"
"""What it is to read before the command begins."""


class Openings:
    """Files that the process inherits while it starts; whoever starts it closes them afterwards."""

    def __init__(self) -> None:
        self.files: list[int] = []

    def reading(self, path: Path) -> str:
        """Return the number of a file that is opened to be read."""
        self.files.append(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
        return str(self.files[-1])

    def holding(self, data: bytes) -> str:
        """Return the number of an open file with some content."""
        file = os.memfd_create("antwort-sandbox")
        self.files.append(file)
        os.write(file, data)
        os.lseek(file, 0, os.SEEK_SET)
        return str(file)

    def close(self) -> None:
        """Close the files."""
        while self.files:
            os.close(self.files.pop())


class Contents(Openings):
    """What files hold of which nobody inherits an open one."""

    def __init__(self) -> None:
        super().__init__()
        self.data: list[bytes] = []

    @override
    def reading(self, path: Path) -> str:
        return self.holding(path.read_bytes())

    @override
    def holding(self, data: bytes) -> str:
        self.data.append(data)
        return str(len(self.data) - 1)


class Surroundings(Struct, frozen=True):
    """What a process sees besides the system."""

    folder: Path | None = None
    """What it can write; None for nothing but `/tmp`."""
    readonly: Sequence[Path] = ()
    """Further folders, at the same place as outside; everybody has to be able to read them."""
    environment: Mapping[str, str] = {}
    network: bool = False
    """Whether it has the network of the host: all of it, with what only this machine can reach."""


def missing_tools() -> list[str]:
    """Return the packages that have to be installed."""
    return sorted({package for tool, package in TOOLS.items() if shutil.which(tool) is None})


def command_line(
    command: Sequence[str],
    seen: Surroundings,
    limits: SandboxLimits,
    *,
    status: int,
    openings: Openings,
    descent: "Descent",
    memory_is_counted: bool = False,
    pinned: bool = False,
    root: str | None = None,
) -> list[str]:
    """Return how a command is started in the sandbox, by who has entered the `descent`.

    Who is `pinned` to some processors cannot choose others. To the open file `status` goes who the first process is,
    and how the command ended. It begins when it has read `GO`, which is for whom `READY` was written. What is to be
    shown may be in place already, in a `root`.
    """
    shown = shown_places(seen, descent, limits, openings, memory_is_counted=memory_is_counted)
    inside = [
        "bwrap",
        *_namespaces(network=seen.network),
        *(shown if root is None else ("--dev-bind", root, "/")),
        *_kernel_places(),
        *("--as-pid-1", "--chdir", WORKSPACE),
        *_environment({**ENVIRONMENT, **seen.environment}),
        *_filter(openings, network=seen.network, counted=memory_is_counted, pinned=pinned),
        *("--json-status-fd", str(status), "--", _INIT, "-c", FIRST, "sh", *command),
    ]
    return descent.starting(inside)


class Descent(Struct, frozen=True):
    """How root becomes the user that sets up the sandbox; whoever is not root stays who he is."""

    folder: Path | None
    user: int | None
    stage: str = ""
    rooms: str = ""
    hidden: Sequence[Path] = ()
    """What that user could not reach by himself."""

    @classmethod
    def of(cls, seen: Surroundings, user: int | None) -> "Descent":
        """Return how that is for what a process is to see."""
        if user is None:
            return cls(seen.folder, None)
        shown = [*seen.readonly, *(Path(os.path.realpath(path)) for path in seen.readonly)]
        free = (place for place in _STAGES if not any(path.is_relative_to(place) for path in shown))
        stage, rooms = [place for place in free if Path(place).is_dir()][:2]
        return cls(seen.folder, user, stage, rooms, [path for path in seen.readonly if not _is_reachable(path)])

    def source(self, path: Path) -> str:
        """Return where something is for whoever sets up the sandbox."""
        if self.user is not None and path == self.folder:
            return self.stage
        return f"{self.rooms}/{len(self.hidden) - self.hidden.index(path)}" if path in self.hidden else str(path)

    def starting(self, inside: Sequence[str]) -> list[str]:
        """Return how something is started as that user, by a thread that has entered.

        It enters nothing else: no other program of the system takes so little time to become somebody else.
        """
        if self.user is None:
            return list(inside)
        return ["nsenter", f"--setuid={self.user}", f"--setgid={self.user}", "--", *inside]

    def enter(self, space: int | None) -> None:
        """Let this thread, and what it starts, see what that user could not reach by himself, and nobody else.

        If a namespace of mounts is given, which is open, the folder is the one that is seen there. OSError if that
        cannot be done.
        """
        renounce()
        with contextlib.nullcontext() if self.folder is None else copied(self.folder, space) as copy:
            mount_apart()
            if copy is not None:
                show_copy(copy, self.stage)
        if self.hidden:
            mount_memory(self.rooms)
        for path in self.hidden:
            room = Path(self.source(path))
            if path.is_dir():
                room.mkdir()
            else:
                room.touch()
            show(path, room)


def shown_places(
    seen: Surroundings, descent: Descent, limits: SandboxLimits, openings: Openings, *, memory_is_counted: bool
) -> Iterator[str]:
    """Yield how bubblewrap is told what there is, but for what the kernel tells."""
    yield from common_places(seen, descent, openings, memory_is_counted=memory_is_counted)
    yield from own_places(seen, descent, limits)
    yield from ("--remount-ro", "/dev", "--remount-ro", "/")


def common_places(
    seen: Surroundings, descent: Descent, openings: Openings, *, memory_is_counted: bool
) -> Iterator[str]:
    """Yield of that what is the same for all commands that see the same of the machine."""
    yield from _first_process(openings)
    yield from _system(openings, seen, descent)
    yield from () if memory_is_counted else _NO_MEMORY_BY_A_DEVICE


def places(seen: Surroundings, descent: Descent, limits: SandboxLimits, openings: Openings) -> Iterator[str]:
    """Yield what is shown, and where."""
    yield from _system(openings, seen, descent)
    yield from own_places(seen, descent, limits)
    yield from _kernel_places()


def own_places(seen: Surroundings, descent: Descent, limits: SandboxLimits) -> Iterator[str]:
    """Yield what is a command's own: what it can write, limited in size, and what is in that or may change."""
    for place in (_SHARED, _SCRATCH):
        yield from ("--perms", "1777", "--size", str(limits.scratch_bytes), "--tmpfs", place)
    if seen.folder is not None:
        yield from ("--bind", descent.source(seen.folder), WORKSPACE)
    if seen.network and Path(_NAMES).exists():
        yield from ("--ro-bind", _NAMES, _NAMES)
    yield from _further(descent, (path for path in seen.readonly if path.is_relative_to(_SCRATCH)))


def _is_reachable(path: Path) -> bool:
    """Tell whether everybody can enter the folders on the way to a place."""
    return all(folder.stat().st_mode & stat.S_IXOTH for folder in path.parents)


def _namespaces(*, network: bool) -> Iterator[str]:
    yield from ("--unshare-user", "--unshare-all", *(["--share-net"] if network else []))
    yield from ("--disable-userns", "--uid", str(USER), "--gid", str(USER), "--hostname", "sandbox")
    yield from ("--new-session", "--die-with-parent", "--cap-drop", "ALL")


def _system(openings: Openings, seen: Surroundings, descent: Descent) -> Iterator[str]:
    """Show the system, so that it can be read but not changed, and as little of its settings as programs need."""
    for place in system_places():
        if place in system_files():  # a copy of a small file takes a tenth of the time of a mount
            yield from ("--perms", "0444", "--file", openings.reading(place), str(place))
        else:
            yield from ("--ro-bind", str(place), str(place))
    for link, target in system_links():
        yield from ("--symlink", str(target), str(link))
    contents = {**_OWN_ETC, **({Path(_NAMES).name: ""} if seen.network else {})}
    for name, content in contents.items():
        yield from ("--perms", "0444", "--file", openings.holding(content.encode()), f"/etc/{name}")
    # The folder is at its other place, too, unless the operator has something there.
    if not any(path.is_relative_to(DATA) or Path(DATA).is_relative_to(path) for path in seen.readonly):
        yield from ("--symlink", WORKSPACE, DATA)
    yield from ("--dir", "/proc", "--dir", _SCRATCH, "--dir", WORKSPACE, "--dev", "/dev")
    yield from _further(descent, (path for path in seen.readonly if not path.is_relative_to(_SCRATCH)))


def _further(descent: Descent, readonly: Iterable[Path]) -> Iterator[str]:
    for path in readonly:
        yield from ("--ro-bind", descent.source(path), str(path))


def _kernel_places() -> Iterator[str]:
    """Show what the kernel tells of the sandbox, and nothing of the machine."""
    yield from ("--proc", "/proc")
    for name in OF_THE_HOST:
        place = f"/proc/{name}"
        if Path(place).is_dir():
            yield from ("--size", "4096", "--tmpfs", place, "--remount-ro", place)
        elif Path(place).exists():
            yield from ("--ro-bind", "/dev/null", place)


def _first_process(openings: Openings) -> Iterator[str]:
    """Give it a program that can be executed but not read, not even by whose it is, and that nobody can change.

    The kernel makes whoever executes such a program one that others of the same user can neither look into, nor trace,
    nor take open files from. So what runs in the sandbox does not become its first process, and has its limits, too.
    """
    yield from ("--perms", _UNREADABLE, "--ro-bind-data", openings.reading(_SHELL), _INIT)


def _environment(variables: Mapping[str, str]) -> Iterator[str]:
    yield "--clearenv"
    for name, value in variables.items():
        yield from ("--setenv", name, value)


def _filter(openings: Openings, *, network: bool, counted: bool, pinned: bool) -> Iterator[str]:
    program = filter_program(network=network, counted=counted, pinned=pinned)
    if program is not None:
        yield from ("--seccomp", openings.holding(program))
