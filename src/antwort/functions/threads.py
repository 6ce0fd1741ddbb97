"""Worker threads for handlers written as plain `def`."""

import asyncio
import contextvars
import threading
from collections.abc import Callable
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

from antwort.functions.slots import Slots

__all__ = ["WorkerThreads"]


@dataclass(slots=True)
class _Job:
    call: Callable[[], Any]
    future: "asyncio.Future[tuple[Any, BaseException | None]]"
    on_end: Callable[[], None]


class WorkerThreads:
    """A bounded pool of daemon threads.

    The standard pool joins its threads when the interpreter exits, so one stuck call would keep a stopped server
    alive; these do not. A call that is abandoned (its caller timed out) keeps its thread and its place until it
    really ends.
    """

    def __init__(self, limit: int) -> None:
        self._slots = Slots(limit)
        self._idle: list[_Worker] = []
        self._closed = False

    async def run(self, call: Callable[[], Any], on_end: Callable[[], None]) -> Any:
        """Run a call on a thread; `on_end` is called, on the loop, when the thread is done with it."""
        try:
            await self._slots.acquire()
        except BaseException:
            on_end()
            raise
        self._closed = False
        worker = self._idle.pop() if self._idle else _Worker(self)
        job = _Job(call, asyncio.get_running_loop().create_future(), on_end)
        worker.submit(job)
        value, error = await job.future
        if error is not None:
            raise error
        return value

    def finished(self, worker: "_Worker", job: _Job, value: Any, error: BaseException | None) -> None:
        """Take a worker back; called on the loop that submitted the job."""
        if self._closed:
            worker.stop()
        else:
            self._idle.append(worker)
        self._slots.release()
        job.on_end()
        if not job.future.done():
            job.future.set_result((value, error))

    def lost(self, job: _Job) -> None:
        """Free the places of a job whose loop is gone; its worker ends."""
        self._slots.release()
        job.on_end()

    def close(self) -> None:
        """Let the idle threads end; busy ones end with their call."""
        self._closed = True
        while self._idle:
            self._idle.pop().stop()


class _Worker:
    """One thread that runs jobs one after the other."""

    def __init__(self, pool: WorkerThreads) -> None:
        self._pool = pool
        self._jobs: SimpleQueue[tuple[_Job, contextvars.Context] | None] = SimpleQueue()
        threading.Thread(target=self._run, name="antwort-function", daemon=True).start()

    def submit(self, job: _Job) -> None:
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
                job.future.get_loop().call_soon_threadsafe(self._pool.finished, self, job, value, error)
            except RuntimeError:  # the loop was closed meanwhile
                self._pool.lost(job)
                return
            del job, item, context, value, error  # keep nothing alive while idle
