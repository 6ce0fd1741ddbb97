"""Where code runs that a model wrote: one command until it ends, or a process to talk to."""

import asyncio
import contextlib
import itertools
import math
import os
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace
from typing_extensions import override

from antwort.concurrency.child_processes import ChildProcess, tied
from antwort.concurrency.undisturbed import in_any_case
from antwort.errors import ConfigError, FunctionUnavailableError
from antwort.sandbox.bubblewrap import (
    DATA,
    ENVIRONMENT,
    WORKSPACE,
    Descent,
    Openings,
    Surroundings,
    command_line,
    missing_tools,
)
from antwort.sandbox.claims import Claims
from antwort.sandbox.control_groups import ControlGroup, ControlGroups
from antwort.sandbox.disks import Disks
from antwort.sandbox.limits import Finished, SandboxLimits
from antwort.sandbox.mounts import SYSTEM_PATH, MountSpace
from antwort.sandbox.process import BareProcess, SandboxProcess, end_unfinished
from antwort.sandbox.process_limits import rlimits
from antwort.sandbox.rules import SandboxRules
from antwort.sandbox.seccomp import filter_program
from antwort.sandbox.thread_roots import CommonRoots, ThreadRoot
from antwort.sandbox.trees import delete_tree
from antwort.sandbox.usage import BoundedRoom, FolderRoom
from antwort.sandbox.users import has_others, own_user, unused_user

_PIECE = 1 << 16
_LONGEST_CAUSE = 300
_IS_CLOSED = "! readlink /proc/1/exe"


class Sandbox:
    """Runs commands that nobody trusts: without network, secrets, or anything to write but one folder.

    They are in namespaces and control groups of their own, as a user of their own where the server is root, with a
    filter of system calls; all that they start ends with them. Providers have one as `services.sandbox`.
    """

    def __init__(self, rules: SandboxRules | None = None, mounts: MountSpace | None = None) -> None:
        self.rules = rules or SandboxRules()
        self.mounts = mounts
        """Where file systems of folders are mounted, if the server has several processes."""
        self._groups: ControlGroups | None = None
        self._roots = CommonRoots()
        self._claims = Claims(
            reserve=self.rules.disk_reserve, processes=self.rules.processes, several=self.rules.several_tenants
        )
        self.disks: dict[Path, Disks] = {}
        """The file systems of folders, by where the folders of tenants are; the sandboxes of a server share this."""
        self._preparing = asyncio.Lock()
        self._turns = itertools.count()

    async def prepare(self) -> None:
        """Find out what this machine can do, once; ConfigError that says what to install if it cannot do this at all.

        Providers that need a sandbox call this in their `lifespan`.
        """
        async with self._preparing:
            if self._groups is not None:
                return
            await asyncio.to_thread(self.rules.check_places)
            await asyncio.to_thread(self._check_tools)
            self._groups = await asyncio.to_thread(ControlGroups.find)
            try:
                await self._try_out()
                self.rules.tolerate(self.unheld())
            except ConfigError:
                self._groups = None
                raise

    def _check_tools(self) -> None:
        """Find what has to be installed; ConfigError if it is not."""
        if missing := missing_tools():
            raise ConfigError(
                f"code needs a sandbox, which this machine lacks; install it: apt-get install {' '.join(missing)}"
            )

    async def _try_out(self) -> None:
        """Run something in the sandbox; ConfigError if that cannot be done here, or is not what it is to be."""
        try:
            closed = await self.run(["sh", "-c", _IS_CLOSED])
        except FunctionUnavailableError as error:
            raise ConfigError(
                f"code needs a sandbox, which cannot be started here: {error} "
                "Allow unprivileged users their own namespaces and, in a container, to mount /proc."
            ) from error
        if closed.exit_code != 0:
            raise ConfigError(
                "code needs a sandbox, whose first process code here could take over: set the kernel's "
                "fs.suid_dumpable to 0, as by: sysctl fs.suid_dumpable=0"
            )

    @property
    def is_prepared(self) -> bool:
        """Whether somebody has needed it, and this machine has one."""
        return self._groups is not None

    def unheld(self) -> list[str]:
        """Return the limits that the kernel does not hold on this machine, once it is prepared."""
        unheld = []
        if self._groups is not None and "memory" not in self._groups.controllers:
            unheld.append(
                "memory of all processes of a command together, for there are no control groups that the server may "
                "make (run it as root, or as a service of systemd with Delegate=yes and DelegateSubgroup=server)"
            )
        if filter_program(network=False) is None:
            unheld.append("system calls, for there is no filter for this kind of processor")
        return unheld

    def describe_disks(self) -> str | None:
        """Say what holds the size of the folders that code works in; None if it works in none."""
        kinds = {disks.kind for disks in self.disks.values()}
        if None in kinds:
            return "none (what code writes is counted while it runs)"
        return ", ".join(sorted(kind for kind in kinds if kind is not None)) or None

    def paths_of(self, folder: Path) -> tuple[str, ...]:  # noqa: ARG002 - elsewhere it matters
        """Return where a folder is, for processes in the sandbox: all the paths that it has."""
        return WORKSPACE, DATA

    def adopt(self, folder: Path) -> None:
        """Give a new folder to whom processes in it will run as, so that the server can put files there before."""
        if has_others():
            own_user(folder)

    def new_disks(self, place: Path, limits: SandboxLimits) -> Disks:
        """Return the file systems of folders in a place; there are none before they are opened."""
        return Disks(place, limits, self._claims, processes=self.rules.processes, space=self.mounts)

    def open_disks(self, disks: Disks) -> None:
        """Let folders have file systems of their own; if there is no way, ConfigError unless that is tolerated."""
        disks.open()
        if disks.kind is None:
            try:
                self.rules.tolerate([f"what it writes to the disk ({', '.join(disks.reasons)})"])
            except ConfigError:
                disks.close()
                raise
        self.disks[disks.place] = disks

    def close_disks(self, disks: Disks) -> None:
        """Unmount the file systems of folders."""
        self.disks.pop(disks.place, None)
        disks.close()

    async def run(
        self,
        command: Sequence[str],
        folder: Path | None = None,
        *,
        stdin: bytes = b"",
        limits: SandboxLimits | None = None,
        readonly: Sequence[Path] = (),
        environment: Mapping[str, str] | None = None,
        network: bool = False,
    ) -> Finished:
        """Run a command to its end, or to a limit, and return what it wrote up to then.

        The `folder` is what it works in and all it can write. FunctionUnavailableError if the sandbox does not start.
        """
        limits = limits or SandboxLimits()
        started = time.monotonic()
        seen = Surroundings(_absolute(folder), readonly, environment or {}, network)
        async with self._opened(command, seen, limits, pausable=False) as process:
            output = _Output(limits.output_bytes)
            alarm = asyncio.get_running_loop().call_later(limits.seconds, process.kill, "time")
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(_feed(process, stdin))
                    group.create_task(output.collect(process.stdout, output.stdout, process))
                    group.create_task(output.collect(process.stderr, output.stderr, process))
                    ending = await process.wait()
            finally:
                alarm.cancel()
            stdout, stderr = bytes(output.stdout), bytes(output.stderr)
            if process.exit_code is None and ending == "exit":
                raise _failure(stderr.decode(errors="replace"))
            if await process.cut_back():
                ending = "disk"
            code = process.exit_code if ending in {"exit", "memory"} else None
            return Finished(ending, code, stdout, stderr, time.monotonic() - started)

    @contextlib.asynccontextmanager
    async def open(
        self,
        command: Sequence[str],
        folder: Path | None = None,
        *,
        limits: SandboxLimits | None = None,
        readonly: Sequence[Path] = (),
        environment: Mapping[str, str] | None = None,
        network: bool = False,
    ) -> AsyncIterator[SandboxProcess]:
        """Start a process to talk to over pipes; it and all that it has started are gone when the block ends.

        Its limits hold but those of `run`, of the clock and of the output.
        """
        seen = Surroundings(_absolute(folder), readonly, environment or {}, network)
        async with self._opened(command, seen, limits or SandboxLimits(), pausable=True) as process:
            yield process

    @contextlib.asynccontextmanager
    async def _opened(
        self, command: Sequence[str], seen: Surroundings, limits: SandboxLimits, *, pausable: bool
    ) -> AsyncIterator[SandboxProcess]:
        disks = self._disks_of(seen.folder)
        with contextlib.nullcontext() if disks is None or seen.folder is None else disks.kept(seen.folder):
            process = await self._start(command, seen, limits, pausable=pausable)
            try:
                yield process
            finally:
                await process.close()

    def _disks_of(self, folder: Path | None) -> Disks | None:
        """Return the file systems to which that of a folder belongs, if it has one."""
        return None if folder is None else self.disks.get(folder.parent.parent)

    async def _start(
        self, command: Sequence[str], seen: Surroundings, limits: SandboxLimits, *, pausable: bool
    ) -> SandboxProcess:
        if self._groups is None:
            await self.prepare()
        arranging = asyncio.ensure_future(asyncio.to_thread(self._arranged, command, seen, limits, pausable=pausable))
        try:
            arranged = await asyncio.shield(arranging)
        except asyncio.CancelledError:
            await in_any_case(_undo(arranging), "what a sandbox was to have stays behind")
            raise
        except OSError as error:
            raise _failure(str(error.strerror)) from error
        try:
            started = await ChildProcess.start(
                arranged.arguments,
                environment={"PATH": SYSTEM_PATH},
                cwd=Path("/"),
                inherited=arranged.openings.files,
                within=arranged.entered(),
                end=end_unfinished,
            )
        except BaseException as error:
            await in_any_case(asyncio.to_thread(arranged.undo), "what a sandbox was to have stays behind")
            if isinstance(error, OSError | ValueError):  # what is too long for a command line, or none
                raise _failure(str(getattr(error, "strerror", error))) from error
            raise
        process = self._process(started, limits, arranged)
        arranged.openings.close()
        try:
            has_begun = await process.begin(arranged.status)
            complaint = b"" if has_begun else process.complaint or await process.stderr.read(_PIECE)
        except BaseException as error:
            await process.close()
            if isinstance(error, OSError):
                raise _failure(str(error.strerror)) from error
            raise
        if not has_begun:
            await process.close()
            said = complaint.decode(errors="replace")
            raise _failure(said if seen.folder is None else said.replace(str(seen.folder), WORKSPACE))
        return process

    def _process(self, started: ChildProcess, limits: SandboxLimits, arranged: "Arranged") -> SandboxProcess:
        return SandboxProcess(
            started,
            limits,
            room=arranged.room,
            group=arranged.group,
            memory_is_counted=arranged.memory_is_counted,
            processors=arranged.processors,
        )

    def _next_processors(self, count: float) -> Collection[int]:
        """Return some of the processors, others each time; none if they are all that there are.

        Who has few takes memory less quickly than it can be counted, and no more of the processors than it may.
        """
        there = sorted(os.sched_getaffinity(0))
        wanted = math.ceil(count)
        return [there[next(self._turns) % len(there)] for _ in range(wanted)] if wanted < len(there) else ()

    def _arranged(
        self, command: Sequence[str], seen: Surroundings, limits: SandboxLimits, *, pausable: bool = False
    ) -> "Arranged":
        """Make what a process needs to start."""
        self.rules.check_places(seen.readonly)
        seen = replace(seen, readonly=[*self.rules.visible, *seen.readonly])
        user = None
        if has_others():
            user = unused_user() if seen.folder is None else own_user(seen.folder)
        groups = self._groups or ControlGroups({})
        group = groups.make(self._outside(limits), to_be_frozen=pausable) if groups.controllers else None
        arranged = Arranged([], Openings(), -1, group, None, "memory" in groups.controllers)
        if not groups.controllers >= {"memory", "cpu"}:  # some systems hand down the one and not the other
            arranged.processors = self._next_processors(limits.cpus)
        try:
            descent, disks = Descent.of(seen, user), self._disks_of(seen.folder)
            enter = self._set_up(arranged, command, seen, limits, descent)
            if user is not None:
                arranged.entry = partial(enter, None if disks is None else disks.space)
            elif disks is not None:
                arranged.arguments[:0] = disks.entering
            arranged.room = _room(seen.folder, limits, disks)
        except BaseException:
            arranged.undo()
            raise
        return arranged

    def _outside(self, limits: SandboxLimits) -> SandboxLimits:
        """Return what a command may use together with what starts it."""
        return limits

    def _set_up(
        self, arranged: "Arranged", command: Sequence[str], seen: Surroundings, limits: SandboxLimits, descent: Descent
    ) -> Callable[[int | None], None]:
        """Say how a command is started, and return what the thread does before if it is root's."""
        arranged.status, tell = _status_pipe()
        arranged.openings.files.append(tell)
        root = common = None
        if descent.user is not None:
            common = self._roots.get(seen, descent.stage, memory_is_counted=arranged.memory_is_counted)
        if common is not None:
            root = ThreadRoot(common, seen, limits)
        arranged.arguments = command_line(
            command,
            seen,
            limits,
            status=tell,
            openings=arranged.openings,
            descent=descent,
            memory_is_counted=arranged.memory_is_counted,
            pinned=bool(arranged.processors),
            root=None if root is None else root.stage,
        )
        return descent.enter if root is None else root.make


class BareHost(Sandbox):
    """No sandbox at all: commands run on the host as the server's user. The operator has to ask for it by name."""

    @override
    async def prepare(self) -> None:
        """Do nothing: there is always a host."""

    @override
    def paths_of(self, folder: Path) -> tuple[str, ...]:
        return (str(folder.absolute()),)

    @override
    def adopt(self, folder: Path) -> None:
        """Leave it as it is: processes run as the server's user."""

    @override
    def open_disks(self, disks: Disks) -> None:
        """Leave folders as they are: what runs on the host can write anywhere."""

    @override
    async def _start(
        self, command: Sequence[str], seen: Surroundings, limits: SandboxLimits, *, pausable: bool
    ) -> SandboxProcess:
        environment = {**ENVIRONMENT, "HOME": str(seen.folder or "/"), **seen.environment}
        arguments = tied([*rlimits(limits, memory_is_counted=False), *command], niceness=limits.niceness)
        room = None if seen.folder is None else await asyncio.to_thread(FolderRoom.of, seen.folder, limits)
        spawned = await ChildProcess.start(
            arguments, environment=environment, cwd=seen.folder or Path("/"), start_new_session=True
        )
        process = BareProcess(spawned, limits, room=room)
        process.watch()
        return process


class Arranged(Struct):
    """All that there is before a process starts."""

    arguments: list[str]
    openings: Openings
    status: int
    """The end of the pipe over which is told what happens; -1 if there is none."""
    group: ControlGroup | None
    room: FolderRoom | BoundedRoom | None
    memory_is_counted: bool
    entry: Callable[[], None] | None = None
    """What the thread does that starts the process, before it does."""
    processors: Collection[int] = ()
    """Those that it is to run on; empty if it may use all, or a group holds it to its share."""
    bundle: Path | None = None
    """A folder with what a runtime is told, which is deleted at the end."""

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Have the thread that starts the process where that is to be."""
        if self.entry is not None:
            self.entry()
        with contextlib.nullcontext() if self.group is None else self.group.entered():
            yield

    def undo(self) -> None:
        """Give it back, if no process takes it over."""
        self.openings.close()
        if self.status >= 0:
            os.close(self.status)
        if self.group is not None:
            self.group.remove()
        if self.bundle is not None:
            delete_tree(self.bundle)


async def _undo(arranging: "asyncio.Future[Arranged]") -> None:
    """Give back what is being made for a process that nobody wants any more."""
    with contextlib.suppress(OSError):
        await asyncio.to_thread((await arranging).undo)


class _Output:
    """What came over both pipes, up to one limit."""

    def __init__(self, most: int) -> None:
        self._room = most
        self.stdout = bytearray()
        self.stderr = bytearray()

    async def collect(self, pipe: asyncio.StreamReader, data: bytearray, process: SandboxProcess) -> None:
        """Read a pipe to its end; whoever writes more than the limit is ended."""
        while piece := await pipe.read(_PIECE):
            kept = piece[: self._room]
            data += kept
            self._room -= len(kept)
            if len(kept) < len(piece):
                process.kill("output")


def _status_pipe() -> tuple[int, int]:
    """Return the ends of a pipe whose writer could read from it, too.

    Whoever writes to a pipe that nobody can read from is ended. If the server is killed while a sandbox is set up, that
    is half of it, for which the other half would wait for ever.
    """
    reading, writing = os.pipe()
    try:
        return reading, os.open(f"/proc/self/fd/{writing}", os.O_RDWR | os.O_CLOEXEC)
    except BaseException:
        os.close(reading)
        raise
    finally:
        os.close(writing)


def _room(folder: Path | None, limits: SandboxLimits, disks: Disks | None) -> FolderRoom | BoundedRoom | None:
    """Return how much there may be in a folder."""
    if folder is None:
        return None
    if disks is None or disks.kind is None:
        return FolderRoom.of(folder, limits)
    return BoundedRoom(folder, limits.disk_files, disks.files)


def _absolute(folder: Path | None) -> Path | None:
    """Return the path of a folder for processes that start elsewhere."""
    return None if folder is None else folder.absolute()


async def _feed(process: SandboxProcess, data: bytes) -> None:
    if data:
        await process.write(data)
    process.stdin.close()


def _failure(complaint: str) -> FunctionUnavailableError:
    """Return the error that a model reads: it says why, and nothing about the places of this machine."""
    lines = complaint.strip().splitlines() or ["it said nothing"]
    return FunctionUnavailableError(f"The sandbox cannot be started: {lines[0][:_LONGEST_CAUSE]}.")
