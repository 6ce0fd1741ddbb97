"""Limits that hold for a process and all that it starts together: the control groups of Linux, version 1 or 2."""

import contextlib
import os
import secrets
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from antwort.sandbox.limits import SandboxLimits

_CONTROLLERS = ("memory", "pids", "cpu")
_FREEZER = "freezer"
"""What is no controller, but a part of every group of version 2. That of version 1 keeps processes from being ended."""
_PERIOD = 100_000
"""Microseconds in which processor time is counted."""
_SHARES, _STEP = 1024, 1.25
"""A group's part of the processors by default in version 1, and by how much a niceness of one more lessens it."""
_MOST_WEIGHT, _MOST_SHARES = 10_000, 1 << 18
"""The largest part of the processors that a group can be given, in versions 2 and 1."""
_THREADS, _ITSELF = "tasks", "0"
"""The file of version 1 to which a thread writes that it is to be in a group, and what it writes for itself."""
_PATIENCE = 2.0
"""Seconds that the kernel has to forget processes that were killed."""


class ControlGroup:
    """One group: a folder for each hierarchy.

    It knows for some of them where the server itself is.
    """

    def __init__(self, folders: Mapping[str, Path], homes: Mapping[str, Path] | None = None) -> None:
        self._folders = folders
        self._homes = homes or {}
        self._late = dict.fromkeys(folders.values())

    def add(self, processes: Iterable[int]) -> None:
        """Put processes into the group, each with what it starts from then on; OSError if that cannot be done.

        They are asked for one by one, so that what one of them starts meanwhile can be among the next. The kernel may
        need a few hundredths of a second, so not on the event loop. Those that were begun in it are in it already.
        """
        for process in processes:
            for folder in self._late:
                (folder / "cgroup.procs").write_text(str(process))

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Let this thread begin processes in the group, in hierarchies of version 1; OSError if that cannot be done.

        In version 2 threads are where their process is. For one that moves itself alone the kernel need not wait.
        """
        early = {self._folders[controller]: home for controller, home in self._homes.items()}
        try:
            for folder in early:
                (folder / _THREADS).write_text(_ITSELF)
            yield
        finally:
            for home in early.values():
                (home / _THREADS).write_text(_ITSELF)
        self._late = {folder: None for folder in self._late if folder not in early}

    @property
    def is_entered(self) -> bool:
        """Whether there is nothing to `add` what was begun in it to."""
        return not self._late

    @property
    def can_freeze(self) -> bool:
        """Tell whether its processes can be stopped together."""
        return _FREEZER in self._folders

    def freeze(self) -> None:
        """Have all processes stop where they are; they can be killed all the same. `is_frozen` tells when they have."""
        (self._folders[_FREEZER] / "cgroup.freeze").write_text("1")

    def thaw(self) -> None:
        """Let all processes go on."""
        (self._folders[_FREEZER] / "cgroup.freeze").write_text("0")

    def is_frozen(self) -> bool:
        """Tell whether all processes have stopped."""
        return "frozen 1" in (self._folders[_FREEZER] / "cgroup.events").read_text().splitlines()

    def stand_back(self, niceness: int) -> None:
        """Let the group have as little of the processors as one process of such a niceness, if others want them."""
        folder = self._folders.get("cpu")
        if folder is None:
            return
        with contextlib.suppress(OSError):
            if (folder / "cpu.weight.nice").exists():
                (folder / "cpu.weight.nice").write_text(str(niceness))
            else:
                (folder / "cpu.shares").write_text(str(max(2, round(_SHARES / _STEP**niceness))))

    def hurry(self) -> bool:
        """Let the group have the processors before others: to end takes time, also for who was killed.

        It is not long that it takes: nobody in it has anything else to do. False if it has none to be given.
        """
        folder = self._folders.get("cpu")
        if folder is None:
            return False
        with contextlib.suppress(OSError):
            if (folder / "cpu.max").exists():
                (folder / "cpu.max").write_text("max")
                (folder / "cpu.weight").write_text(str(_MOST_WEIGHT))
            else:
                (folder / "cpu.cfs_quota_us").write_text("-1")
                (folder / "cpu.shares").write_text(str(_MOST_SHARES))
        return True

    def memory_kills(self) -> int:
        """Return how many processes the kernel had to end because there was no memory left."""
        for name in ("memory.events", "memory.oom_control"):
            with contextlib.suppress(OSError, KeyError, ValueError):
                lines = (self._folders["memory"] / name).read_text().splitlines()
                return sum(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))
        return 0

    def kill(self) -> None:
        """End all processes of the group."""
        for folder in self._folders.values():
            with contextlib.suppress(OSError):
                (folder / "cgroup.kill").write_text("1")
            with contextlib.suppress(OSError):
                # This process is among them while a thread of it starts one.
                for number in set((folder / "cgroup.procs").read_text().split()) - {str(os.getpid())}:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(int(number), signal.SIGKILL)

    def remove(self) -> None:
        """End what is left, and give the group back; it takes a moment, so not on the event loop."""
        until = time.monotonic() + _PATIENCE
        for folder in dict.fromkeys(self._folders.values()):
            while folder.exists():
                with contextlib.suppress(OSError):
                    folder.rmdir()
                    break
                if time.monotonic() > until:
                    return  # whoever starts next removes it
                self.kill()
                time.sleep(0.002)


class ControlGroups:
    """Where this process may make groups: a folder for each controller, which is one and the same in version 2."""

    def __init__(self, parents: Mapping[str, Path], homes: Mapping[str, Path] | None = None) -> None:
        self._parents = parents
        self._homes = homes or {}

    @property
    def controllers(self) -> frozenset[str]:
        """What can be done: limit `memory`, `pids`, `cpu`, or some of them, and stop all at once by the `freezer`."""
        return frozenset(self._parents)

    @classmethod
    def find(cls, mounts: Path = Path("/proc/self/mounts"), own: Path = Path("/proc/self/cgroup")) -> "ControlGroups":
        """Find out by trying; what cannot be limited here is left out."""
        try:
            places = dict(_places(mounts.read_text(), own.read_text()))
        except OSError:
            return cls({})
        found = cls({})
        for controller, candidates in places.items():
            for parent in candidates:
                trial = cls({controller: parent})
                trial._forget_dead()
                if trial._works():
                    # Who was handed a folder may move processes into groups there, and perhaps no thread back.
                    homes = {controller: candidates[0]} if os.access(candidates[0] / _THREADS, os.W_OK) else {}
                    found = cls({**found._parents, controller: parent}, {**found._homes, **homes})
                    break
        return found

    def _works(self) -> bool:
        """Tell whether a group can be made, and filled."""
        try:
            group = self.make(SandboxLimits(), to_be_frozen=True)
        except OSError:
            return False
        with subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE) as trial:
            try:
                group.add([trial.pid])
            except OSError:
                return False
            finally:
                trial.kill()
                trial.wait()
                group.remove()
        return True

    def make(self, limits: SandboxLimits, *, to_be_frozen: bool = False) -> ControlGroup:
        """Make a group with limits; OSError if that cannot be done.

        One that is never frozen is in no hierarchy that is there for that alone, since each takes its time.
        """
        name = f"antwort-{os.getpid()}-{secrets.token_hex(6)}"
        parents = dict(self._parents)
        if not to_be_frozen:
            parents.pop(_FREEZER, None)
        homes = {controller: home for controller, home in self._homes.items() if controller in parents}
        group = ControlGroup({controller: parent / name for controller, parent in parents.items()}, homes)
        try:
            for controller, parent in parents.items():
                folder = parent / name
                folder.mkdir(exist_ok=True)
                _limit(controller, folder, limits)
        except OSError:
            group.remove()
            raise
        return group

    def _forget_dead(self) -> None:
        """Remove the groups of servers that are gone."""
        for parent in self._parents.values():
            for folder in parent.glob("antwort-*-*"):
                if not Path("/proc", folder.name.split("-")[1]).exists():
                    ControlGroup({"": folder}).remove()


def _limit(controller: str, folder: Path, limits: SandboxLimits) -> None:
    """Write the limits of one controller; those of version 2 have other names than those of version 1."""
    if controller == "pids":
        (folder / "pids.max").write_text(str(limits.processes + 4))  # the sandbox itself has some
    elif controller == "cpu":
        share = str(int(limits.cpus * _PERIOD))
        if (folder / "cpu.max").exists():
            (folder / "cpu.max").write_text(f"{share} {_PERIOD}")
        else:
            (folder / "cpu.cfs_period_us").write_text(str(_PERIOD))
            (folder / "cpu.cfs_quota_us").write_text(share)
    elif controller == _FREEZER:
        (folder / "cgroup.freeze").write_text("0")  # kernels before 5.2 have none
    elif (folder / "memory.max").exists():
        (folder / "memory.max").write_text(str(limits.memory))
        for name, value in (("memory.swap.max", "0"), ("memory.oom.group", "1")):
            with contextlib.suppress(OSError):  # a kernel without swap has no such file
                (folder / name).write_text(value)
    else:
        (folder / "memory.limit_in_bytes").write_text(str(limits.memory))
        with contextlib.suppress(OSError):
            (folder / "memory.memsw.limit_in_bytes").write_text(str(limits.memory))


def _places(mounts: str, own: str) -> Iterator[tuple[str, list[Path]]]:
    """Yield the controllers, each with the folders in which groups may be made, the best first."""
    paths = {names: path for _, names, path in (line.split(":", 2) for line in own.splitlines())}
    for line in mounts.splitlines():
        _, place, kind, options, *_ = line.split(" ")
        root = Path(place)
        if kind == "cgroup2":  # a process is in one group only, which has to have all the limits
            mine = root / paths.get("", "/").lstrip("/")
            handed = {
                folder: _handed_down(folder) for folder in (mine, mine.parent, root) if folder.is_relative_to(root)
            }
            best = max(handed, key=lambda folder: len(handed[folder]))
            for controller in handed[best]:
                yield controller, [best]
            yield _FREEZER, [best] if handed[best] else [mine, root]
        elif kind == "cgroup":
            for names, path in paths.items():
                for controller in set(names.split(",")) & set(_CONTROLLERS) & set(options.split(",")):
                    mine = root / path.lstrip("/")
                    yield controller, [mine, root] if mine.is_dir() else [root]


def _handed_down(folder: Path) -> set[str]:
    """Return the controllers that groups in a folder of version 2 have; the kernel is asked to hand down all it can."""
    if not os.access(folder, os.W_OK):
        return set()
    with contextlib.suppress(OSError):
        file = folder / "cgroup.subtree_control"
        for controller in set((folder / "cgroup.controllers").read_text().split()) & set(_CONTROLLERS):
            with contextlib.suppress(OSError):  # a folder with processes of its own hands nothing down
                file.write_text(f"+{controller}")
        return set(file.read_text().split()) & set(_CONTROLLERS)
    return set()
