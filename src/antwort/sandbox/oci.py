"""The sandbox by another runtime: any that takes a bundle of the Open Container Initiative, as gVisor's `runsc` does.

The runtime has no privileges. It is started as whom commands run as, is root of a user namespace of its own at most,
and the first process of a namespace of processes: when it is killed, the kernel ends all that it has started, whatever
the runtime thinks of it. What it shows is what bubblewrap shows.
"""

import asyncio
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from typing_extensions import override

from antwort.concurrency.child_processes import ChildProcess, ProcessHandle, tied
from antwort.errors import ConfigError, FunctionUnavailableError
from antwort.sandbox.bubblewrap import (
    ENVIRONMENT,
    FIRST,
    GO,
    OF_THE_HOST,
    READY,
    WORKSPACE,
    Contents,
    Descent,
    Surroundings,
    places,
)
from antwort.sandbox.limits import NICENESS, Ending, SandboxLimits
from antwort.sandbox.memory import memory_usage
from antwort.sandbox.mounts import MountSpace
from antwort.sandbox.process import SandboxProcess, exit_code
from antwort.sandbox.process_limits import chosen_limits
from antwort.sandbox.rules import SandboxRules
from antwort.sandbox.sandbox import Arranged, Sandbox
from antwort.sandbox.usage import descendants

_OPTIONS: Mapping[str, Sequence[str]] = {
    "runsc": ("--rootless", "--ignore-cgroups"),
    "crun": ("--cgroup-manager=disabled",),
}
"""What runtimes have to be told: they are no root, and control groups are ours."""
_NATIVE = ("runc", "crun")
"""Runtimes whose processes are those of the kernel; others have their own, of which only they know."""
_THREADS = 4096
"""Threads that a runtime may have: gVisor has dozens for each one inside, whose number it keeps itself."""
_ALONE = ("unshare", "--user", "--map-root-user", "--mount", "--pid", "--mount-proc", "--fork", "--kill-child=KILL")
_WAIT = 'read -r _ && exec "$@"'
_NAMESPACES = ("pid", "mount", "ipc", "uts")
_VERSION = "1.0.2"
_PROC = "/proc/"


class OciSandbox(Sandbox):
    """Runs commands by a runtime that the operator has installed: the name or the path of its program."""

    def __init__(self, runtime: str, rules: SandboxRules | None = None, mounts: MountSpace | None = None) -> None:
        super().__init__(rules, mounts)
        self._runtime = runtime

    @override
    def _check_tools(self) -> None:
        for tool in (self._runtime, "nsenter", "unshare"):
            if shutil.which(tool) is None:
                raise ConfigError(f"the sandbox '{self._runtime}' needs '{tool}', which is not installed")

    @override
    async def _try_out(self) -> None:
        try:
            done = await self.run(["true"])
        except FunctionUnavailableError as error:
            raise ConfigError(f"'{self._runtime}' starts no sandbox here: {error}") from error
        if done.exit_code != 0:
            raise ConfigError(f"'{self._runtime}' runs no command here: 'true' ends with {done.exit_code}")

    @override
    def unheld(self) -> list[str]:
        unheld = [clause for clause in super().unheld() if not clause.startswith("system calls")]
        if Path(self._runtime).name in _NATIVE:
            unheld.append(f"system calls, for '{self._runtime}' is given no filter (take `bubblewrap` or `runsc`)")
        return unheld

    @override
    def _outside(self, limits: SandboxLimits) -> SandboxLimits:
        return msgspec.structs.replace(limits, processes=limits.processes + _THREADS)

    @override
    def _set_up(
        self, arranged: Arranged, command: Sequence[str], seen: Surroundings, limits: SandboxLimits, descent: Descent
    ) -> Callable[[int | None], None]:
        bundle = arranged.bundle = Path(tempfile.mkdtemp(prefix="antwort-bundle-"))
        rlimits = chosen_limits(limits, memory_is_counted=arranged.memory_is_counted)
        _fill(bundle, _Bundle(command, seen, limits, descent, rlimits, [f"{_PROC}{name}" for name in OF_THE_HOST]))
        running = [*self._told(bundle, network=seen.network), "run", "--bundle", str(bundle), bundle.name]
        arranged.arguments = ["/bin/sh", "-c", _WAIT, "sh", *descent.starting(tied([*_ALONE, "--", *running]))]
        return descent.enter

    def _told(self, bundle: Path, *, network: bool = False) -> Iterator[str]:
        """Yield how the runtime is called, up to what it is to do."""
        name = Path(self._runtime).name
        yield from (self._runtime, "--root", str(bundle / "state"), *_OPTIONS.get(name, ()))
        if name == "runsc":
            yield f"--network={'host' if network else 'none'}"

    @override
    def _process(self, started: ChildProcess, limits: SandboxLimits, arranged: Arranged) -> SandboxProcess:
        process = OciProcess(
            started,
            limits,
            room=arranged.room,
            group=arranged.group,
            memory_is_counted=arranged.memory_is_counted,
            bundle=arranged.bundle,
        )
        if arranged.bundle is not None and Path(self._runtime).name not in _NATIVE:
            process.interrupting = [*self._told(arranged.bundle), "kill", "--all", arranged.bundle.name, "INT"]
        return process


class OciProcess(SandboxProcess):
    """A process that a runtime has started; the first one is the runtime itself."""

    interrupting: Sequence[str] = ()
    """How the runtime is told to interrupt processes that only it knows; empty if they are the kernel's."""

    @override
    def interrupt(self) -> None:
        if not self.interrupting:
            super().interrupt()
        elif self._first is not None:
            beside = ["nsenter", "--target", str(self._first), "--user", "--mount", "--pid", "--"]
            self._tasks.append(asyncio.create_task(_done([*beside, *self.interrupting])))

    @override
    async def begin(self, status: int) -> bool:
        try:
            await self._join([self._process.pid])
            await asyncio.to_thread(self._stand_back, [self._process.pid], NICENESS)
            await self.write(GO)  # the runtime begins
            await self.stderr.readuntil(READY)
            self._first = list(descendants(self._process.pid))[1]
            self._first_handle = ProcessHandle(self._first)
        except asyncio.IncompleteReadError as error:
            self.complaint = error.partial
            return False
        except (IndexError, ProcessLookupError, asyncio.LimitOverrunError):
            return False
        await self.write(GO)  # the command does
        self._tasks = [asyncio.create_task(self._tell_code()), *self._watches()]
        return True

    @override
    def kill(self, why: Ending = "killed") -> None:
        if self._ending is None and self._process.returncode is None:
            self._ending = why
        if self._first_handle is not None:  # before the other, of whose end it would complain
            self._process.send_signal(signal.SIGKILL)
        super().kill(why)

    @override
    def _memory_usage(self, first: int) -> int:
        if not self.interrupting:
            return memory_usage(first)
        return sum(map(_resident, descendants(first)))  # such runtimes map much that they do not use

    async def _tell_code(self) -> None:
        self.exit_code = exit_code(await self._process.wait())


def _resident(process: int) -> int:
    """Return the bytes that a process has in memory, but for files; what it shares with others counts for each."""
    try:
        lines = Path("/proc", str(process), "status").read_text().splitlines()
    except OSError:  # it is gone
        return 0
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith(("RssAnon:", "RssShmem:")))


async def _done(arguments: Sequence[str]) -> None:
    """Run a program to its end."""
    child = await ChildProcess.start(arguments, cwd=Path("/"), piped=["stdout", "stderr"])
    try:
        await child.wait()
    finally:
        child.send_signal(signal.SIGKILL)
        child.close()


class _Bundle(msgspec.Struct, frozen=True):
    """What a runtime is told."""

    command: Sequence[str]
    seen: Surroundings
    limits: SandboxLimits
    descent: Descent
    rlimits: Mapping[str, int]
    hidden: Sequence[str]
    """Files of the kernel about others, which are empty in the sandbox."""


def _fill(bundle: Path, told: _Bundle) -> None:
    """Write a bundle, and give it to whom the runtime is started as."""
    (bundle / "rootfs").mkdir()
    (bundle / "state").mkdir()
    contents = Contents()
    mounts = list(_mounts(bundle / "rootfs", places(told.seen, told.descent, told.limits, contents), contents))
    (bundle / "config.json").write_bytes(msgspec.json.encode(_config(told, mounts)))
    user = told.descent.user
    if user is not None:
        for folder, _, files in os.walk(bundle):
            for path in (folder, *(f"{folder}/{name}" for name in files)):
                os.chown(path, user, user, follow_symlinks=False)


def _config(told: _Bundle, mounts: list[dict[str, Any]]) -> dict[str, Any]:
    environment = {**ENVIRONMENT, **told.seen.environment}
    kinds = _NAMESPACES if told.seen.network else (*_NAMESPACES, "network")
    return {
        "ociVersion": _VERSION,
        "hostname": "sandbox",
        "root": {"path": "rootfs", "readonly": True},
        "process": {
            "args": ["/bin/sh", "-c", FIRST, "sh", *told.command],
            "env": [f"{name}={value}" for name, value in environment.items()],
            "cwd": WORKSPACE,
            "user": {"uid": 0, "gid": 0},  # of its own namespace: outside it is whom commands run as
            "capabilities": {kind: [] for kind in ("bounding", "effective", "inheritable", "permitted", "ambient")},
            "noNewPrivileges": True,
            "rlimits": [
                {"type": f"RLIMIT_{name.upper()}", "hard": most, "soft": most} for name, most in told.rlimits.items()
            ],
        },
        "mounts": mounts,
        "linux": {"namespaces": [{"type": kind} for kind in kinds], "maskedPaths": told.hidden},
    }


def _mounts(root: Path, shown: Iterator[str], contents: Contents) -> Iterator[dict[str, Any]]:
    """Yield the mounts for what bubblewrap would be told to show; what needs no mount is put into the root."""
    options: list[str] = []
    for word in shown:
        if word in {"--ro-bind", "--bind"}:
            source, place = Path(next(shown)), next(shown)
            if place.startswith(_PROC):
                continue  # what is hidden below that is told elsewhere, as are folders
            yield _bound(root, source, place, writable=word == "--bind")
        elif word in {"--file", "--ro-bind-data"}:
            content, place = contents.data[int(next(shown))], next(shown)
            _make_place(root, place, is_folder=False).write_bytes(content)
            options = []
        elif word == "--symlink":
            target, place = next(shown), next(shown)
            _make_place(root, str(Path(place).parent), is_folder=True)
            (root / place.lstrip("/")).symlink_to(target)
        elif word in {"--dir", "--tmpfs", "--proc", "--dev"}:
            place = next(shown)
            _make_place(root, place, is_folder=True)
            if word != "--dir" and not place.startswith(_PROC):
                yield _made(place, word, options)
            options = []
        elif word in {"--perms", "--size"}:
            options.append(f"{'mode' if word == '--perms' else 'size'}={next(shown)}")
        elif word in {"--remount-ro", "--chdir"}:  # the root is read-only, and where it begins is told elsewhere
            next(shown)
        else:
            raise ConfigError(f"the sandbox shows what other runtimes cannot be told: {word}")


def _bound(root: Path, source: Path, place: str, *, writable: bool) -> dict[str, Any]:
    """Return the mount of a file or folder of the machine."""
    # What root shows to another is there only when that is done; it is a folder.
    is_folder = writable or source.is_dir() or not source.exists()
    _make_place(root, place, is_folder=is_folder)
    if writable:
        return _mount(place, "bind", str(source), ["rbind", "rw", "nosuid", "nodev"])
    return _mount(place, "bind", str(source.resolve()), ["rbind", "ro", "nosuid", "nodev"])


def _made(place: str, word: str, options: Sequence[str]) -> dict[str, Any]:
    """Return the mount of a file system that is made for the sandbox."""
    kind = "proc" if word == "--proc" else "tmpfs"
    return _mount(place, kind, kind, ["nosuid", "nodev", *options] if word == "--tmpfs" else [])


def _mount(place: str, kind: str, source: str, options: list[str]) -> dict[str, Any]:
    return {"destination": place, "type": kind, "source": source, "options": options}


def _make_place(root: Path, place: str, *, is_folder: bool) -> Path:
    """Make what a mount is put on."""
    path = root / place.lstrip("/")
    (path if is_folder else path.parent).mkdir(parents=True, exist_ok=True)
    if not is_folder:
        path.touch()
    return path
