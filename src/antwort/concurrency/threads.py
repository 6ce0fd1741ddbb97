"""Worker threads for functions and routes written as plain `def`."""

import asyncio
import contextvars
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from antwort.concurrency.slots import Queue, Slots

_IDLE = 60.0
"""Seconds after which a thread that has nothing to do ends."""


class ThreadJob:
    """A call on a thread. Await `result`; `done` tells whether the thread has left it."""

    __slots__ = ("call", "done", "given_up", "on_end", "result", "tenant")

    def __init__(self, call: Callable[[], Any], tenant: str) -> None:
        self.call = call
        self.tenant = tenant
        self.result: asyncio.Future[tuple[Any, BaseException | None]] = asyncio.get_running_loop().create_future()
        self.done = False
        self.given_up = False
        """Whether its slot was given to somebody else."""
        self.on_end: Callable[[], None] | None = None

    def end(self) -> None:
        """Take note that the thread is done, and tell whoever had to leave before."""
        self.done = True
        if self.on_end is not None:
            self.on_end()


class WorkerThreads:
    """A bounded pool of daemon threads.

    The standard pool joins its threads when the interpreter exits, so one stuck call would keep a stopped server alive;
    these do not. A call keeps its thread until it really ends. Its slot it keeps until then, or until it is given up:
    then the pool has one thread more for a while. Whoever gives calls up sees to it that there are not too many.
    Threads that have nothing to do for `idle` seconds end.
    """

    def __init__(self, limit: int, queue: Queue | None = None, *, idle: float = _IDLE) -> None:
        self._slots = Slots(limit, queue)
        self._patience = idle
        self._idle: list[_Worker] = []
        """Those that were needed last are at the end, and are taken first."""
        self._shrinking: asyncio.TimerHandle | None = None
        self._closed = False

    async def submit(self, call: Callable[[], Any], tenant: str = "") -> ThreadJob:
        """Wait for a free thread and hand it a call; tenants take turns."""
        await self._slots.acquire(tenant)
        self._closed = False
        job = ThreadJob(call, tenant)
        try:
            worker = self._idle.pop() if self._idle else _Worker(self)
        except BaseException:  # the system has no more threads
            self._slots.release(tenant)
            raise
        worker.submit(job)
        return job

    async def run(self, call: Callable[[], Any], tenant: str = "") -> Any:
        """Return what a call returns on a thread. Whoever is cancelled leaves at once; the thread cannot be stopped."""
        value, error = await (await self.submit(call, tenant)).result
        if error is not None:
            raise error
        return value

    def give_up(self, job: ThreadJob) -> None:
        """Give the slot of a job that does not end to somebody else."""
        if not job.done and not job.given_up:
            job.given_up = True
            self._slots.release(job.tenant)

    def take_back(self, worker: "_Worker", job: ThreadJob, value: Any, error: BaseException | None) -> None:
        """Take a worker back; called on the loop that submitted the job."""
        if self._closed or job.given_up:  # there is another one in its place
            worker.stop()
        else:
            loop = job.result.get_loop()
            worker.idle_since = loop.time()
            self._idle.append(worker)
            if self._shrinking is None:
                self._shrinking = loop.call_later(self._patience, self._shrink, loop)
        self._leave(job)
        if not job.result.done():
            job.result.set_result((value, error))

    def _shrink(self, loop: asyncio.AbstractEventLoop) -> None:
        """Let threads end that nobody has needed for long."""
        last = loop.time() - self._patience
        count = next((index for index, worker in enumerate(self._idle) if worker.idle_since > last), len(self._idle))
        for worker in self._idle[:count]:
            worker.stop()
        del self._idle[:count]
        self._shrinking = None
        if self._idle:
            self._shrinking = loop.call_at(self._idle[0].idle_since + self._patience, self._shrink, loop)

    def lose(self, job: ThreadJob) -> None:
        """Free the slot of a job whose loop is gone; its worker ends."""
        self._leave(job)

    def _leave(self, job: ThreadJob) -> None:
        if not job.given_up:
            self._slots.release(job.tenant)
        job.end()

    def close(self) -> None:
        """Let the idle threads end; busy ones end with their call."""
        self._closed = True
        if self._shrinking is not None:
            self._shrinking.cancel()
            self._shrinking = None
        while self._idle:
            self._idle.pop().stop()


class _Worker:
    """One thread that runs jobs one after the other."""

    def __init__(self, pool: WorkerThreads) -> None:
        self._pool = pool
        self.idle_since = 0.0
        self._jobs: SimpleQueue[tuple[ThreadJob, contextvars.Context] | None] = SimpleQueue()
        threading.Thread(target=self._run, name="antwort-worker", daemon=True).start()

    def submit(self, job: ThreadJob) -> None:
        self._jobs.put((job, contextvars.copy_context()))

    def stop(self) -> None:
        self._jobs.put(None)

    def _run(self) -> None:
        while (item := self._jobs.get()) is not None:
            job, context = item
            value: Any = None
            error: BaseException | None = None
            try:
                value = context.run(job.call)
            except BaseException as raised:  # noqa: BLE001 - handed to the caller, SystemExit included
                error = raised
            try:
                job.result.get_loop().call_soon_threadsafe(self._pool.take_back, self, job, value, error)
            except RuntimeError:  # the loop was closed meanwhile
                self._pool.lose(job)
                return
            del job, item, context, value, error  # keep nothing alive while idle
