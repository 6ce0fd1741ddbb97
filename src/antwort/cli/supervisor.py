"""The process that has the workers: it starts them, replaces those that died or hang, and passes signals on.

Workers are forked, so that what is imported is imported once and shared. Each has a listening socket of its own on the
same port, over which the kernel spreads the connections evenly. All sockets stay open here as long as the server is to
run: what arrives for a worker that has died waits for its successor, where it would be reset otherwise.

A worker gives signs of life, from its event loop. One that gives none is stopped, or its loop is blocked: nobody but
the system can end it, and its successor goes on with what it was doing. One that starts has longer for the first, and
between them.

Workers do not outlive this process. The kernel ends one that has no loop yet; later it only wakes one that was stopped,
and each stops in good order, because its lifeline says so.
"""

import asyncio
import contextlib
import ctypes
import gc
import logging
import os
import secrets
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct

from antwort.concurrency.backoff import Backoff
from antwort.concurrency.peers import Mailbox, Peers

logger = logging.getLogger(__name__)

_RESTARTS = Backoff(0.5, 10.0)
"""Seconds before a worker is started again that did not live long."""
_LONG = 30.0
"""Seconds after which a worker has lived long: its end has nothing to do with its start."""
_MOST_FAILURES = 5
"""How often in a row a worker may fail to start while no other serves."""
_SIGNS = 4
"""Signs of life that a worker gives in the time after which it is replaced."""
_LATE = 1.0
"""Seconds that this process may be late itself; if it is later it was suspended, and perhaps the workers with it."""
_EXPECTED_EXITS = frozenset({0, -signal.SIGTERM, -signal.SIGINT, 128 + signal.SIGINT})
"""How a worker ends that was told to before it could hear it."""
_PR_SET_PDEATHSIG = 1


def heard_signals() -> list[signal.Signals]:
    """Return the signals that a server hears; no hangup that is ignored: after `nohup` it outlives its terminal."""
    hangup = [] if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else [signal.SIGHUP]
    return [signal.SIGINT, signal.SIGTERM, *hangup]


def _heard() -> list[signal.Signals]:
    return [*heard_signals(), signal.SIGCHLD]


class Worker(Struct, frozen=True):
    """What a worker has from the process that started it."""

    peers: Peers
    listener: socket.socket
    lifeline: int
    """A handle that can be read from when that process has ended."""
    _ready: int
    _pulse: int
    _every: float | None
    """Seconds between two signs of life, if there are to be any."""

    def live(self, loop: asyncio.AbstractEventLoop) -> None:
        """Give signs of life from now on, as long as the loop turns. Whoever calls it heeds the lifeline."""
        _when_the_parent_ends(signal.SIGCONT)  # one that somebody has stopped would not heed it
        if self._every is not None:
            loop.call_soon(self._live, loop, self._every)

    def tell_ready(self, banner: str) -> None:
        """Tell that requests are taken, and what there is to say about the server."""
        with contextlib.suppress(OSError), os.fdopen(self._ready, "w", encoding="utf-8") as pipe:
            pipe.write(banner)

    def _live(self, loop: asyncio.AbstractEventLoop, every: float) -> None:
        with contextlib.suppress(OSError):  # nobody reads them any more, or for a while
            os.write(self._pulse, b"\0")
        loop.call_later(every, self._live, loop, every)


class _Post(Struct):
    """The post of one worker, which one process after the other has."""

    number: int
    listener: socket.socket
    pid: int | None = None
    pipe: int | None = None
    """From where its banner is read, as long as it is not ready."""
    pulse: int | None = None
    """From where its signs of life are read."""
    seen: float = 0.0
    """When it gave the last one, or was started."""
    banner: bytes = b""
    ready: bool = False
    since: float = 0.0
    due: float | None = None
    """When to start it again."""
    is_stale: bool = False
    """Whether the configuration has changed since it was started, and it could not hear of it yet."""
    killed: bool = False
    """Whether it was killed, and is about to end."""
    failures: int = 0
    """How many of its processes in a row did not live long."""


class Supervisor:
    """Has a worker for each listening socket, until a signal comes. `announce` gets the banner once all are ready.

    A worker that gives no sign of life for `patience` seconds is replaced, `starting` more of them while it starts; one
    that was told to stop and did not within `stopping` seconds is killed. Without a number, nobody waits for it.

    A hangup stops it like other signals; with `reload` that is called, and tells whether workers are to hear it.
    """

    def __init__(
        self,
        listeners: Sequence[socket.socket],
        announce: Callable[[str], None],
        *,
        patience: float | None = None,
        starting: float | None = None,
        stopping: float | None = None,
        reload: Callable[[], bool] | None = None,
    ) -> None:
        self._announce = announce
        self._reload = reload
        self._patience = patience
        self._starting = None if patience is None or starting is None else patience + starting
        self._stopping = stopping
        self._kill_at: float | None = None
        """When workers are killed that were told to stop."""
        self._looked = time.monotonic()
        """When it last saw to what had happened."""
        self._posts = [_Post(number, listener) for number, listener in enumerate(listeners)]
        self._mailboxes = [Mailbox() for _ in listeners]
        self._server = secrets.token_hex(6)
        self._signals: list[int] = []
        """Those that said that it should stop."""
        self._announced = False
        self._code = 0

    def run(self) -> Worker | int:
        """Return what a worker needs, in each worker; in this process the exit code, when all have ended.

        The first is alone until it is ready: it may have to make the database, and whatever is wrong with the
        configuration is told once, by it.
        """
        gc.collect()
        gc.freeze()  # what is there already stays shared: the collector would write to it
        lifeline, alive = os.pipe()
        self._posts[0].due = 0.0
        with _signals_heard() as (inlet, outlet):
            while not self._is_over():
                for post in self._posts:
                    if self._is_due(post) and (worker := self._start(post, lifeline)) is not None:
                        for handle in (inlet, outlet, alive):
                            os.close(handle)
                        return worker
                if not self._is_over():  # it is if the system gives no process
                    self._wait(inlet)
        return self._code

    def _is_over(self) -> bool:
        return bool(self._signals) and all(post.pid is None for post in self._posts)

    def _is_due(self, post: _Post) -> bool:
        return post.due is not None and post.due <= time.monotonic() and not self._signals

    # --- processes ---------------------------------------------------------------------------------------------------

    def _start(self, post: _Post, lifeline: int) -> Worker | None:
        """Start a process; return what it needs in the new one."""
        parent = os.getpid()
        reader, writer = os.pipe()
        pulse, beating = os.pipe()
        os.set_blocking(beating, False)
        sys.stdout.flush()
        sys.stderr.flush()
        signal.pthread_sigmask(signal.SIG_BLOCK, _heard())
        try:
            pid = os.fork()
        except OSError as error:  # there are as many processes as there may be, or too little memory
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _heard())
            for handle in (reader, writer, pulse, beating):
                os.close(handle)
            self._start_again(post, f"could not be started: {error.strerror}")
            return None
        if pid == 0:
            _when_the_parent_ends(signal.SIGKILL)
            if os.getppid() != parent:
                os._exit(1)  # it ended before the kernel was told
            os.setpgid(0, 0)  # Ctrl-C is for the process that has the workers, which passes it on
            _hear_nothing()
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _heard())
            os.close(reader)
            os.close(pulse)
            for other in self._posts:
                if other is not post:
                    other.listener.close()
                for inherited in (other.pipe, other.pulse):
                    if inherited is not None:
                        os.close(inherited)
            every = None if self._patience is None else self._patience / _SIGNS
            peers = Peers(post.number, self._mailboxes, self._server)
            return Worker(peers, post.listener, lifeline, writer, beating, every)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _heard())
        os.close(writer)
        os.close(beating)
        post.pid, post.pipe, post.banner, post.ready = pid, reader, b"", False
        post.pulse, post.is_stale = pulse, False
        post.since = post.seen = time.monotonic()
        post.due = None
        return None

    def _wait(self, inlet: int) -> None:
        """Wait until something happens, and see to it."""
        pipes = {post.pipe: post for post in self._posts if post.pipe is not None}
        pulses = {post.pulse: post for post in self._posts if post.pulse is not None}
        seconds = self._seconds(time.monotonic())
        readable, _, _ = select.select([inlet, *pipes, *pulses], [], [], seconds)
        now = time.monotonic()
        # Since the last look, not since it waits: it may as well have been suspended in between.
        if seconds is not None and (late := now - self._looked - seconds) > _LATE:
            self._wait_longer(late)
        self._looked = now
        for handle in readable:
            if handle == inlet:
                self._hear(os.read(inlet, 4096))
            elif handle in pulses:
                if pulses[handle].pulse == handle:
                    self._feel(pulses[handle], handle)
            elif pipes[handle].pipe == handle:  # else its worker has just been found to be over
                self._read(pipes[handle], handle)
        self._kill_late(now)

    def _seconds(self, now: float) -> float | None:
        """Return the seconds until there is something to do; None if there is nothing."""
        if self._signals:
            dues = [] if self._kill_at is None else [self._kill_at]
        else:
            dues = [post.due for post in self._posts if post.due is not None]
        if self._patience is not None and any(post.pid is not None for post in self._posts):
            dues.append(now + self._patience / _SIGNS)  # one who looks rarely does not notice that it was suspended
        return max(0.0, min(dues) - now) if dues else None

    def _wait_longer(self, late: float) -> None:
        """Take no time into account in which this process was suspended: others may have been as well."""
        now = time.monotonic()
        for post in self._posts:
            post.seen = now
        if self._kill_at is not None:
            self._kill_at += late

    def _feel(self, post: _Post, handle: int) -> None:
        """Take note of a sign of life; the end of them is that of the worker, which is told otherwise, too."""
        if os.read(handle, 4096):
            post.seen = time.monotonic()
        else:
            os.close(handle)
            post.pulse = None

    def _kill_late(self, now: float) -> None:
        """Kill workers that hang, or do not stop in time; what becomes of them is told when they have ended."""
        for post in self._posts:
            if post.pid is None or post.killed:
                continue
            if self._signals:
                if self._kill_at is not None and now >= self._kill_at:
                    self._kill(post, f"has not stopped within {self._stopping:g} s")
                continue
            patience, when = (self._patience, "") if post.ready else (self._starting, " while it starts")
            if patience is not None and now >= post.seen + patience:
                self._kill(post, f"gives no sign of life for {patience:g} s{when}")

    def _kill(self, post: _Post, why: str) -> None:
        logger.error("worker %d, process %d, %s; it is killed", post.number, post.pid, why)
        post.killed = True
        os.kill(post.pid or 0, signal.SIGKILL)

    def _hear(self, signals: bytes) -> None:
        for number in signals:
            if number == signal.SIGHUP and self._reload is not None:
                self._hear_hangup(self._reload)
            elif number != signal.SIGCHLD:
                self._tell(number)
        self._reap()

    def _hear_hangup(self, reload: Callable[[], bool]) -> None:
        """Have the configuration read again; a worker that starts would be ended by a signal, and hears it later."""
        if self._signals or not reload():
            return
        for post in self._posts:
            if post.ready and post.pid is not None:
                os.kill(post.pid, signal.SIGHUP)
            post.is_stale = not post.ready

    def _tell(self, number: int) -> None:
        """Tell all workers to stop; a further signal is passed on as an interrupt."""
        if self._stopping is not None and not self._signals:
            self._kill_at = time.monotonic() + self._stopping
        self._pass_on(signal.SIGINT if self._signals else signal.SIGTERM if number == signal.SIGHUP else number)
        self._signals.append(number)

    def _pass_on(self, number: int) -> None:
        """Send all workers a signal; a server that is to stop takes no connections any more."""
        for post in self._posts:
            post.listener.close()
            if post.pid is not None:
                os.kill(post.pid, number)
                os.kill(post.pid, signal.SIGCONT)  # one that somebody has stopped would hear nothing else

    def _read(self, post: _Post, handle: int) -> None:
        """Read what a worker says that becomes ready; the end of it is that it is ready, or over."""
        data = os.read(handle, 65536)
        post.banner += data
        if data:
            return
        os.close(handle)
        post.pipe = None
        post.ready, post.seen = bool(post.banner), time.monotonic()
        if post.ready and post.is_stale and post.pid is not None:
            post.is_stale = False
            os.kill(post.pid, signal.SIGHUP)
        if post.ready and not self._announced:
            for other in self._posts:
                if other.pid is None and other.due is None:
                    other.due = 0.0
            if all(other.ready for other in self._posts):
                self._announced = True
                self._announce(self._posts[0].banner.decode())

    def _reap(self) -> None:
        """See who has ended."""
        for post in self._posts:
            if post.pid is not None:
                pid, status = os.waitpid(post.pid, os.WNOHANG)
                if pid:
                    self._bury(post, os.waitstatus_to_exitcode(status))

    def _bury(self, post: _Post, code: int) -> None:
        pid, post.pid, post.killed = post.pid, None, False
        if post.pipe is not None:
            self._drain(post)
        if post.pulse is not None:
            os.close(post.pulse)
            post.pulse = None
        was_ready, post.ready = post.ready, False
        if self._signals:
            if was_ready or code not in _EXPECTED_EXITS:
                self._code = max(self._code, code if code >= 0 else 1)
            return
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"has ended with code {code}"
        if not self._announced and not was_ready:
            self._give_up(code, f"worker {post.number} {how} before it was ready")
            return
        if was_ready and time.monotonic() - post.since >= _LONG:
            post.failures = 0
        self._start_again(post, how, pid=pid, code=code)

    def _start_again(self, post: _Post, how: str, *, pid: int | None = None, code: int = 0) -> None:
        """Start a worker again, after a pause if that did not help before; give up if no other is left."""
        post.failures += 1
        if post.failures >= _MOST_FAILURES and not any(other.pid is not None for other in self._posts):
            self._give_up(code, f"worker {post.number} {how}, as often before, and no other is left")
            return
        pause = 0.0 if post.failures == 1 else _RESTARTS.pause(post.failures - 2)
        post.due = time.monotonic() + pause
        process = "" if pid is None else f", process {pid},"
        again = f"in {pause:g} s" if pause else "at once"
        logger.warning("worker %d%s %s; it is started again %s", post.number, process, how, again)

    def _drain(self, post: _Post) -> None:
        """Read the rest of what a worker said that has ended."""
        while post.pipe is not None:
            self._read(post, post.pipe)

    def _give_up(self, code: int, why: str) -> None:
        """End all: the worker has said why on standard error, unless it was killed."""
        self._code = code if code > 0 else 1
        self._tell(signal.SIGTERM)
        if code <= 0 or self._announced:
            logger.error("the server ends: %s", why)


def _when_the_parent_ends(number: signal.Signals) -> None:
    """Have the kernel send this process a signal when the thread has ended that forked it: the parent's only one."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)


def _hear_nothing() -> None:
    """Let signals do what they do by default."""
    signal.set_wakeup_fd(-1)
    for number in _heard():
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


@contextlib.contextmanager
def _signals_heard() -> Iterator[tuple[int, int]]:
    """Have signals written to a pipe, each as one byte."""
    inlet, outlet = os.pipe()
    os.set_blocking(outlet, False)
    signal.set_wakeup_fd(outlet)
    for number in _heard():
        signal.signal(number, lambda *_: None)
    try:
        yield inlet, outlet
    finally:
        _hear_nothing()
