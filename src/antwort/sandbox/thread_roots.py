"""The root of a sandbox, made by the thread that starts it: what bubblewrap would be told to show, in less time.

bubblewrap reads the list of all mounts for each that it adds. A thread that is root carries out the same words, so that
bubblewrap has one thing to show, as it is: whoever is in the sandbox cannot take back what a mount of root's forbids.
"""
# ruff: noqa: PTH102, PTH116, PTH211 - every command waits for it, and paths as objects take as long as all the rest

import contextlib
import errno
import itertools
import os
import stat
import threading
import weakref
from collections.abc import Hashable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from antwort.sandbox.bubblewrap import Contents, Descent, Surroundings, common_places, own_places
from antwort.sandbox.limits import SandboxLimits
from antwort.sandbox.places import system_places
from antwort.sandbox.process_limits import renounce
from antwort.sandbox.thread_mounts import (
    NO_DEVICES,
    NO_PROGRAMS,
    NO_SET_UID,
    READ_ONLY,
    copied,
    copied_with_all,
    is_at_root,
    keep_apart,
    mount_apart,
    mount_for_others,
    mount_memory,
    mount_terminals,
    own_space,
    restrict,
    restrict_below,
    restrict_place,
    rooted,
    show_copy,
)

_READ = NO_SET_UID | NO_DEVICES | READ_ONLY
_BOUND: Mapping[str, int] = {
    "--ro-bind": _READ,
    "--bind": NO_SET_UID | NO_DEVICES,
    "--dev-bind": NO_SET_UID,
}
"""What is kept from whoever uses what is shown of the machine."""
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_TERMINALS = "/dev/pts"
_READ_ONLY = ("--remount-ro", "/dev", "--remount-ro", "/")
_MOST = 16
"""How many are kept."""
_NEVER = (errno.ENOSYS, errno.EPERM)
"""How a system says that it lets nobody do this: Linux before 5.12, a container, or a capability that is not there."""
_LINKS = {
    "fd": "/proc/self/fd",
    "stdin": "/proc/self/fd/0",
    "stdout": "/proc/self/fd/1",
    "stderr": "/proc/self/fd/2",
    "core": "/proc/kcore",
    "ptmx": "pts/ptmx",
}


class CommonRoot:
    """What commands see that see the same of the machine, put together in memory at a place, the stage.

    It is in a namespace of mounts that only this holds open: nobody is in it, and it goes with this, or this process.
    """

    def __init__(self, stage: str, words: Sequence[str], contents: Sequence[bytes]) -> None:
        self.stage = stage
        self._words = words
        self._contents = contents
        self.read = [place for word, place in zip(words, words[2:], strict=False) if word == "--ro-bind"]
        """Where something of the machine is shown that nobody may change."""
        with ThreadPoolExecutor(1, "antwort-root") as thread:  # of its own, for it never sees anything else again
            self.space = thread.submit(self._make).result()
        weakref.finalize(self, os.close, self.space)

    def _make(self) -> int:
        with contextlib.ExitStack() as held:
            mount_for_others()
            copies = [copied_with_all(source) for source in _sources(self._words)]
            for copy in copies:
                held.callback(os.close, copy)
            mount_memory(self.stage, NO_SET_UID | NO_DEVICES)
            if not is_at_root(self.stage):
                raise OSError(errno.EPERM, "the server is in a chroot, out of which its threads would come")
            keep_apart(self.stage)
            with rooted(self.stage):
                _carry_out(self._words, iter(copies), self._contents)
            return own_space()


class ThreadRoot:
    """What is shown to one command, where only the thread sees it that starts it."""

    def __init__(self, common: CommonRoot, seen: Surroundings, limits: SandboxLimits) -> None:
        self.stage = common.stage
        self._common = common
        self._folder = seen.folder
        self._words = list(own_places(seen, Descent(seen.folder, None), limits))

    def make(self, space: int | None) -> None:
        """Give this thread mounts of its own, with the root among them; OSError if that cannot be done.

        If a namespace of mounts is given, which is open, the folder is the one that is seen there.
        """
        renounce()
        with contextlib.ExitStack() as held:
            copies = []
            for source in _sources(self._words):
                if source == str(self._folder):
                    copies.append(held.enter_context(copied(source, space)))
                else:
                    copies.append(copied_with_all(source))
                    held.callback(os.close, copies[-1])
            mount_apart(like=self._common.space)
            with rooted(self.stage):
                for place in self._common.read:  # what was mounted below on the machine since could be written to
                    restrict_below(place, _READ)
                _carry_out(self._words, iter(copies), ())
                mount_terminals(_TERMINALS)


class CommonRoots:
    """Those that were needed, as long as what they show is the same."""

    def __init__(self) -> None:
        self._made: dict[Hashable, tuple[Hashable, CommonRoot]] = {}
        """Each by what it is of, with the state of that; one of another state would keep in use what is unmounted."""
        self._changing = threading.Lock()
        self._can_be = True

    def get(self, seen: Surroundings, stage: str, *, memory_is_counted: bool) -> CommonRoot | None:
        """Return the one for what a process is to see; None if there can be none here, OSError if it cannot be made."""
        places = [*system_places(), *seen.readonly]
        key, state = (stage, memory_is_counted, seen.network, tuple(places)), tuple(map(_state, places))
        with self._changing:
            if not self._can_be:
                return None
            before, common = self._made.pop(key, (None, None))
            if common is None or before != state:
                contents = Contents()
                own = Descent(seen.folder, None)
                words = [*common_places(seen, own, contents, memory_is_counted=memory_is_counted), *_READ_ONLY]
                try:
                    common = CommonRoot(stage, words, contents.data)
                except OSError as error:
                    if error.errno not in _NEVER:
                        raise
                    self._can_be = False
                    return None
            self._made[key] = state, common
            if len(self._made) > _MOST:
                del self._made[next(iter(self._made))]
        return common


def _state(path: Path) -> Hashable:
    """Return what is another when something else is in a place, or a file has changed; folders do so by themselves."""
    about = os.stat(path)
    return about.st_dev, about.st_ino, None if stat.S_ISDIR(about.st_mode) else about.st_mtime_ns


def _sources(words: Sequence[str]) -> Iterator[str]:
    """Yield what of the machine is shown, in the order of the words."""
    for word, source in itertools.pairwise(words):
        if word in _BOUND:
            yield source
        elif word == "--dev":
            yield from (f"/dev/{name}" for name in _DEVICES)


def _carry_out(told: Sequence[str], copies: Iterator[int], contents: Sequence[bytes]) -> None:
    """Do what bubblewrap would be told to, with open copies of what is shown of the machine."""
    words, options = iter(told), {"--perms": "0755"}
    for word in words:
        first = next(words)
        if word in {"--perms", "--size"}:
            options[word] = first
            continue
        if word in _BOUND:
            _bind(next(copies), next(words), _BOUND[word])
        elif word in {"--file", "--ro-bind-data"}:
            _write(next(words), contents[int(first)], int(options["--perms"], 8))
        elif word == "--symlink":
            place = next(words)
            _make_parents(place)
            os.symlink(first, place)
        elif word == "--remount-ro":
            restrict_place(first, READ_ONLY)
        else:
            _make_folder(first)
        if word == "--tmpfs":
            size = f",size={options['--size']}" if "--size" in options else ""
            mount_memory(first, NO_SET_UID | NO_DEVICES, f"mode={options['--perms']}{size}")
        elif word == "--dev":
            _mount_devices(copies)
        options = {"--perms": "0755"}


def _bind(copy: int, place: str, attributes: int) -> None:
    """Have an open copy of mounts at a place."""
    if stat.S_ISDIR(os.fstat(copy).st_mode):
        _make_folder(place)
    else:
        _write(place)
    restrict(copy, attributes)
    show_copy(copy, place)


def _make_folder(place: str) -> None:
    """Make a folder and those on the way, unless they are there; most often it has to be made, and nothing else."""
    try:
        os.mkdir(place)
    except FileExistsError:
        return
    except FileNotFoundError:
        _make_parents(place)
        os.mkdir(place)


def _make_parents(place: str) -> None:
    _make_folder(place.rpartition("/")[0] or "/")


def _write(place: str, content: bytes = b"", mode: int = 0o444) -> None:
    """Make a file, unless it is there."""
    try:
        file = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC)
    except FileExistsError:
        return
    except FileNotFoundError:
        _make_parents(place)
        file = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC)
    try:
        os.write(file, content)
        os.fchmod(file, mode)
    finally:
        os.close(file)


def _mount_devices(copies: Iterator[int]) -> None:
    """Have what programs need of devices; terminals are each command's own."""
    mount_memory("/dev", NO_SET_UID | NO_PROGRAMS)
    for name in _DEVICES:
        _bind(next(copies), f"/dev/{name}", NO_SET_UID | NO_PROGRAMS)
    for name, target in _LINKS.items():
        os.symlink(target, f"/dev/{name}")
    for name in ("shm", "pts"):
        os.mkdir(f"/dev/{name}")
