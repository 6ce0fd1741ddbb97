"""A process in the sandbox, seen from outside: its pipes, what it uses, and its end."""

import asyncio
import contextlib
import json
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path

from typing_extensions import override

from antwort.concurrency.child_processes import ChildProcess, ProcessHandle
from antwort.concurrency.pipes import reader_of
from antwort.concurrency.undisturbed import undisturbed
from antwort.sandbox.bubblewrap import GO, READY
from antwort.sandbox.control_groups import ControlGroup
from antwort.sandbox.limits import NICENESS, STRETCH, Ending, SandboxLimits
from antwort.sandbox.memory import files_in_memory, memory_usage, uncounted_usage
from antwort.sandbox.process_limits import chosen_limits, hold_private, limit
from antwort.sandbox.standstill import send_signal, stop_all, waited_for
from antwort.sandbox.trees import delete_tree
from antwort.sandbox.usage import BoundedRoom, FolderRoom, descendants, is_stopped, processor_time

logger = logging.getLogger(__name__)

_SOON, _LATE = 0.05, 0.5
"""Seconds between two looks at what a process uses: soon at first, then later and later."""
_SHARE, _MEMORY_SHARE = 10, 1
"""How many times as long as a look takes the pause after it is at least; memory fills faster than a disk."""
_FASTEST = 4 << 30
"""Bytes of memory that processes may take in a second on one processor."""
_SOME = 2
"""How many processors they are taken to have if they have all of them."""
_SLACK = 20
"""What part of its memory limit processes may go beyond it before somebody looks again."""
_EARLY = 5
"""What part of its memory limit is left at most when processes are ended that would exceed it before the next look."""
_ROUNDS = 200
"""How often processes are looked at that are to stop: on another processor one may go on for a moment."""
_TURN, _TURNS = 0.01, 100
"""Seconds between two attempts to lower the share of a session that has just begun, and how many there are."""
_PATIENCE = 5.0
"""Seconds that the kernel has to end what was killed."""


class SandboxProcess:
    """A process that runs in the sandbox, with pipes to it. It ends, with all that it has started, when it is closed.

    `stdout` and `stderr` hold back a writer whom nobody reads.
    """

    _own = 1
    """How many of its processes are the sandbox's own: the first one, which starts and ends the others."""

    def __init__(
        self,
        process: ChildProcess,
        limits: SandboxLimits,
        *,
        room: FolderRoom | BoundedRoom | None = None,
        group: ControlGroup | None = None,
        memory_is_counted: bool = False,
        bundle: Path | None = None,
        processors: Collection[int] = (),
    ) -> None:
        self._process = process
        self._limits = limits
        self._room = room
        self._group = group
        self._memory_is_counted = memory_is_counted
        self._bundle = bundle
        self._first: int | None = None
        self._first_handle: ProcessHandle | None = None
        self._active = asyncio.Event()
        self._paused = False
        self._memory_left = limits.memory
        self._processors = processors
        self._stirring = threading.Event()
        """Set unless it is paused; set when it is closed, too."""
        self._stirring.set()
        self._killing = threading.Lock()
        self._hurrying: threading.Thread | None = None
        self._is_gone = threading.Event()
        self._is_closed = False
        self._tasks: list[asyncio.Task[None]] = []
        self._status: asyncio.BaseTransport | None = None
        self._ending: Ending | None = None
        self.complaint = b""
        """What was written instead, if the sandbox failed."""
        self.exit_code: int | None = None
        """What the command said when it ended by itself; None before, or if it was never started."""
        self.memory_kills = 0
        """What `count_memory_kills` has returned, or would have when the process was looked at last."""

    @property
    def _niceness(self) -> int:
        """How far it stands back at first: further where its memory is looked at, so that who looks is not late."""
        return NICENESS if self._memory_is_counted else self._limits.niceness

    @property
    def stdin(self) -> asyncio.StreamWriter:
        """What the process reads."""
        return self._process.stdin

    @property
    def stdout(self) -> asyncio.StreamReader:
        """What the process writes."""
        return self._process.stdout

    @property
    def stderr(self) -> asyncio.StreamReader:
        """What the process complains of."""
        return self._process.stderr

    @property
    def ending(self) -> Ending | None:
        """Why the process ended; None while it runs."""
        if self._ending is None and self._process.returncode is not None:
            return "exit"
        return self._ending

    async def write(self, data: bytes) -> None:
        """Hand something to the process; nothing happens if it is gone."""
        self._active.set()
        with contextlib.suppress(ConnectionError, RuntimeError):
            self.stdin.write(data)
            await self.stdin.drain()

    def interrupt(self) -> None:
        """Send what Ctrl-C sends to all processes in the sandbox: Python raises KeyboardInterrupt."""
        if self._first is not None:
            send_signal(signal.SIGINT, self._others(self._first))

    async def pause(self) -> None:
        """Stop all processes in the sandbox where they are, until `resume`: nothing goes on behind one's back.

        They are ended if they do not stop, or if nobody waits until they have.
        """
        self._paused = True
        self._stirring.clear()
        try:
            has_stopped = await asyncio.to_thread(self._stop)
        except BaseException:
            self.kill()
            raise
        if not has_stopped:
            self.kill()
            if self._first_handle is not None:
                await self._first_handle.wait()

    async def resume(self) -> None:
        """Let all processes go on."""
        self._active.set()
        if self._paused:
            self._paused = False
            await asyncio.to_thread(self._go_on)
            self._stirring.set()

    def _stop(self) -> bool:
        """Stop the first process, too: whatever it is, it does nothing meanwhile."""
        if self._first is None:
            return True
        if self._group is not None and self._group.can_freeze:
            self._group.freeze()
            return waited_for(self._group.is_frozen)
        return stop_all(self._first)

    def _go_on(self) -> None:
        if self._group is not None and self._group.can_freeze:
            self._group.thaw()
        elif self._first is not None:
            send_signal(signal.SIGCONT, descendants(self._first))

    def kill(self, why: Ending = "killed") -> None:
        """End the process and all that it has started; `wait` says when they are gone."""
        if self._ending is None and self._process.returncode is None:
            self._ending = why
        if self._first_handle is not None:  # with it the kernel ends all others, and only then tells that it is gone
            self._first_handle.send_signal(signal.SIGKILL)
            if self._first is not None and self._process.returncode is None:
                self._hurry(self._first)  # where many compute, and others want the processors, it would take seconds
            if self._paused:  # whoever would tell how it ended may be stopped, too
                self._process.send_signal(signal.SIGKILL)

    def _hurry(self, first: int) -> None:
        """Let processes that are ended have as much of the processors as others: also to end takes some."""
        if (self._group is None or not self._group.hurry()) and self._hurrying is None and not self._is_closed:
            self._hurrying = threading.Thread(target=self._raise, args=(first,), name="sandbox-end", daemon=True)
            self._hurrying.start()

    def _raise(self, first: int) -> None:
        """Raise the priority of all processes until they are gone, as far as that is allowed.

        Whoever is not root raises the shares of sessions only, and the kernel lets him do so now and then.
        """
        niceness = os.getpriority(os.PRIO_PROCESS, 0)
        late = time.monotonic() + _PATIENCE
        while time.monotonic() < late:
            for one in descendants(first):
                with contextlib.suppress(OSError):  # it is gone, or only root may do so
                    os.setpriority(os.PRIO_PROCESS, one, niceness)
                _set_shares([one], niceness)
            if self._is_gone.wait(_SOON):
                return

    async def wait(self) -> Ending:
        """Wait until the process has ended, and say why it did."""
        await self._process.wait()
        if self._tasks:
            await asyncio.wait(self._tasks[:1])  # its exit code is about to be told
        if self._ending is None and self.exit_code != 0 and await self.count_memory_kills():
            self._ending = "memory"
        return self.ending or "exit"

    async def cut_back(self) -> bool:
        """Look a last time, when it has ended, at what it has written; delete what is too much, and tell if it was.

        Where the kernel bounds that, there is nothing to look at.
        """
        if not isinstance(self._room, FolderRoom):
            return False
        try:
            return await asyncio.to_thread(self._room.cut_back)
        except FileNotFoundError:  # its folder was deleted
            return False
        except OSError:
            logger.exception("what a process in the sandbox has left cannot be looked at")
            return True

    async def count_memory_kills(self) -> int:
        """Return how many processes the kernel has ended because there was no memory left, where it counts them."""
        if self._group is not None:
            self.memory_kills = await asyncio.to_thread(self._group.memory_kills)
        return self.memory_kills

    async def close(self) -> None:
        """End the process, and return when it and all that it has started are gone, however often one is cancelled."""
        self.kill()
        await undisturbed(self._close())

    async def _close(self) -> None:
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_PATIENCE):
                    if self._first_handle is None:
                        await self._end_unfinished()
                    await self._process.wait()
                    if self._first_handle is not None:  # all others are gone when the first is
                        await self._first_handle.wait()
        finally:
            await self._give_back()

    async def _give_back(self) -> None:
        with self._killing:
            self._is_closed = True
        self._stirring.set()
        self._is_gone.set()
        if self._hurrying is not None:
            await asyncio.to_thread(self._hurrying.join)
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        if self._first_handle is not None:
            self._first_handle.close()
            self._first_handle = self._first = None
        if self._group is not None:
            await asyncio.to_thread(self._group.remove)
        if self._bundle is not None:
            await asyncio.to_thread(delete_tree, self._bundle)
        if self._status is not None:
            self._status.close()
        self._process.close()

    async def _end_unfinished(self) -> None:
        await end_unfinished(self._process)

    async def begin(self, status: int) -> bool:
        """Learn who the first process is, let it begin within its limits, and watch it; False if the sandbox failed.

        The `status` is the end of the pipe over which that is told; it is taken over.
        """
        reader, self._status = reader_of(status)
        try:
            # The kernel takes its time for who joins a group first, so that is not the one for whom everybody waits.
            is_there, _ = await asyncio.gather(self._is_set_up(reader), self._join([self._process.pid]))
            if not is_there or self._first is None:
                return False
            await asyncio.to_thread(self._confine, list(descendants(self._first)))
        except asyncio.IncompleteReadError as error:
            self.complaint = error.partial
            return False
        except (ProcessLookupError, asyncio.LimitOverrunError):
            return False
        await self.write(GO)
        self._tasks = [asyncio.create_task(self._follow(reader)), *self._watches()]
        return True

    async def _is_set_up(self, status: asyncio.StreamReader) -> bool:
        """Learn who the first process is, and wait until it has started another, which does not begin yet."""
        if not (line := await status.readline()):
            return False
        self._first = int(json.loads(line)["child-pid"])
        self._first_handle = ProcessHandle(self._first)
        await self.stderr.readuntil(READY)
        return True

    def _confine(self, processes: Sequence[int]) -> None:
        """Give processes that wait for `GO` their limits, which they cannot change; it takes a moment."""
        if self._group is not None:
            self._group.add(processes)
        limit(processes, chosen_limits(self._limits, memory_is_counted=self._memory_is_counted))
        for one in processes if self._processors else ():
            os.sched_setaffinity(one, self._processors)
        self._stand_back(processes[self._own :], self._niceness)

    def _stand_back(self, processes: Sequence[int], niceness: int) -> None:
        """Give processes a priority so much lower than the server's; it writes files, so not on the loop."""
        niceness = _below_own(niceness)
        if self._group is not None:
            self._group.stand_back(niceness)
        for one in processes:
            with contextlib.suppress(OSError):  # it is gone, or the system does not allow it
                if os.getpriority(os.PRIO_PROCESS, one) < niceness:
                    os.setpriority(os.PRIO_PROCESS, one, niceness)
        _set_shares(processes, niceness)

    def _set_own_shares(self, first: int) -> bool:
        """Lower what sessions have of the processors at first; False if it has to be tried again."""
        if self._ending is not None:  # whoever ends has as much as others
            return True
        return _set_shares(self._others(first), _below_own(self._niceness))

    def _others(self, first: int) -> list[int]:
        """Return the processes that are not the sandbox's own."""
        return list(descendants(first))[self._own :]

    async def _join(self, processes: Iterable[int]) -> None:
        """Put processes into the control group, if there is one."""
        if self._group is not None and not self._group.is_entered:
            await asyncio.to_thread(self._group.add, processes)

    async def _follow(self, status: asyncio.StreamReader) -> None:
        while line := await status.readline():
            self.exit_code = json.loads(line).get("exit-code", self.exit_code)

    async def check(self) -> Ending | None:
        """Look now at what the process uses, and end it if that is too much; return why, if it is."""
        return await self._look(self._excess)

    async def _look(self, excess_now: Callable[[], Ending | None]) -> Ending | None:
        try:
            excess = await asyncio.to_thread(excess_now)
        except FileNotFoundError:  # its folder was deleted
            excess = "killed"
        except Exception:
            logger.exception("what a process in the sandbox uses cannot be told; it is ended")
            excess = "killed"
        if excess is not None:
            self.kill(excess)
        return excess

    def _watches(self) -> list[asyncio.Task[None]]:
        if not self._memory_is_counted:
            threading.Thread(target=self._watch_memory, name="sandbox-memory", daemon=True).start()
        return [asyncio.create_task(self._watch())]

    async def _watch(self) -> None:
        """End the process when it uses more than it may."""
        loop = asyncio.get_running_loop()
        pause = _SOON
        due = loop.time() + pause
        while self._process.returncode is None:
            was_paused = self._paused
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(None if was_paused else due):  # who is stopped uses no more
                    await self._active.wait()
                    self._active.clear()
                    pause, soon = _SOON, loop.time() + _SOON  # not at once: it has used nothing yet
                    due = soon if was_paused else min(due, soon)
                    continue
            started = loop.time()
            if await self.check() is not None:
                return
            pause = max(min(pause * 2, _LATE), _SHARE * (loop.time() - started))
            due = loop.time() + pause

    def _watch_memory(self) -> None:
        """End the process when it holds more memory than it may: the less is left, the sooner is the next look.

        In a thread of its own, since the event loop may have something else to do for longer than memory lasts.
        """
        most = self._limits.memory
        fastest = _FASTEST * (len(self._processors) or _SOME)
        late, ended, files, turns = 0.0, time.monotonic(), 0, _TURNS
        while self._process.returncode is None and not self._is_closed:
            self._stirring.wait()
            started, computed, before = time.monotonic(), time.thread_time(), self._memory_left
            try:
                excess = self._memory_excess()
                files = self._make_way(files)
            except Exception:
                logger.exception("what memory a process in the sandbox holds cannot be told; it is ended")
                excess = "killed"
            looked, left = time.monotonic(), self._memory_left
            took, computed = looked - started, time.thread_time() - computed
            # Whoever takes memory keeps those waiting who look at it: what is known then is as old as the look.
            pause = max(min((left + most // _SLACK) / fastest - took - late, _LATE), _MEMORY_SHARE * computed)
            # On a busy machine a look comes late, and so may the next one: what they will have taken by then counts.
            growth = (before - left) / (looked - ended) * (pause + took + late)
            could_grow = fastest * (1 + _MEMORY_SHARE) * took - most / 10
            if excess is None and left < min(max(growth, could_grow), most / _EARLY):
                excess = "memory"
            if excess is not None:
                with self._killing:
                    if not self._is_closed:
                        self.kill(excess)
                return
            if turns and (first := self._first) is not None:  # who has a whole share keeps waiting who looks
                turns = 0 if self._set_own_shares(first) else turns - 1
                pause = min(pause, _TURN) if turns else pause
            time.sleep(pause)
            late, ended = max(time.monotonic() - looked - pause, late / 2), looked

    def _make_way(self, before: int) -> int:
        """Let the kernel hold each process to what files in memory leave of the limit; return the bytes of these."""
        if (first := self._first) is None or (files := files_in_memory(first)) == before:
            return before
        most = self._limits.memory
        hold_private(descendants(first), max(0, most + most // 10 - files))
        return files

    def _memory_excess(self) -> Ending | None:
        if (first := self._first) is None:
            return None
        self._memory_left = self._limits.memory - self._memory_usage(first)
        return "memory" if self._memory_left < 0 else None

    def _memory_usage(self, first: int) -> int:
        return memory_usage(first, closed=True, most=self._limits.memory)

    def _excess(self) -> Ending | None:
        """Return what there is too much of; who has computed for a while stands back for others."""
        first = self._first
        if first is None or self._ending is not None:
            return None
        if self._group is not None:
            self.memory_kills = self._group.memory_kills()
        if self._memory_is_counted:
            if uncounted_usage(first) > self._limits.memory // _SLACK:
                return "memory"
        elif self._memory_excess() is not None:
            return "memory"
        computed = processor_time(first)
        if self._limits.cpu_seconds is not None and computed > self._limits.cpu_seconds:
            return "time"
        if computed > STRETCH:
            self._stand_back(
                self._others(first), self._limits.niceness
            )  # again each time: some may have started meanwhile
        elif self._group is None:  # of a session one cannot tell its share by the first process, which is closed
            self._stand_back(self._others(first), self._niceness)
        return "disk" if self._room is not None and self._room.is_exceeded(first) else None


def _below_own(niceness: int) -> int:
    """Return the priority that is so much lower than the server's, or the lowest that there is."""
    return min(os.getpriority(os.PRIO_PROCESS, 0) + niceness, 19)


def _set_shares(processes: Iterable[int], niceness: int) -> bool:
    """Set what sessions have of the processors by themselves, whatever their processes have, by these.

    It is False if it has to be tried again: who is about to become the command is closed, and all who are not root
    may do so ten times a second together.
    """
    own, are_set = os.getsid(0), True
    for one in processes:
        share = Path("/proc", str(one), "autogroup")
        try:
            if os.getsid(one) != own and not share.read_text().endswith(f" nice {niceness}\n"):
                share.write_text(str(niceness))
        except (BlockingIOError, PermissionError):
            are_set = False
        except OSError:  # it is gone, or there are no such shares
            pass
    return are_set


async def end_unfinished(process: ChildProcess) -> None:
    """End a sandbox that is being set up, of which only the outer process is known.

    The inner one would wait for ever for an outer one that is killed alone.
    """
    if process.returncode is not None:
        return
    process.send_signal(signal.SIGSTOP)  # from then on it starts no other
    for _ in range(_ROUNDS):
        if is_stopped(process.pid):
            break
    with contextlib.ExitStack() as handles:
        inside = []
        for one in list(descendants(process.pid))[1:]:
            try:
                inside.append(ProcessHandle(one))
            except ProcessLookupError:
                continue
            except OSError:  # there are no more handles; as its parent is stopped, its number is still its own
                with contextlib.suppress(ProcessLookupError):
                    os.kill(one, signal.SIGKILL)
            else:
                handles.callback(inside[-1].close)
        for handle in inside:
            handle.send_signal(signal.SIGKILL)
        process.send_signal(signal.SIGKILL)
        for handle in inside:
            await handle.wait()


def exit_code(code: int) -> int:
    """Return what is told of an end: 128 and the signal, if one has ended it."""
    return code if code >= 0 else 128 - code


class BareProcess(SandboxProcess):
    """A process on the bare host: those that it has started end with it unless they hide."""

    _own = 0

    @override
    def kill(self, why: Ending = "killed") -> None:
        if self._ending is None and self._process.returncode is None:
            self._ending = why
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    @override
    async def _end_unfinished(self) -> None:
        """There is nothing to set up."""

    @override
    async def wait(self) -> Ending:
        self.exit_code = exit_code(await self._process.wait())
        return self.ending or "exit"

    @override
    def _memory_usage(self, first: int) -> int:
        return memory_usage(first)

    def watch(self) -> None:
        """Begin to watch what the process uses."""
        self._first = self._process.pid
        self._tasks = self._watches()
