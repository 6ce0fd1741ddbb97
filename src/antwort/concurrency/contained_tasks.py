"""Tasks for code that nobody has to trust: they end in time or are left behind, and never take anything else along.

A handler may cancel itself, swallow its cancellation, raise SystemExit, or do so in tasks that it starts. In a task of
its own all of that stays its own affair.
"""

import asyncio
import types
import weakref
from asyncio.tasks import _unregister_task
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable
from contextvars import Context, ContextVar, copy_context
from typing import Any, Generic, TypeVar

from typing_extensions import override

T = TypeVar("T")
_OWNER: ContextVar[str | None] = ContextVar("antwort_task_owner", default=None)
"""The name of the contained task in which code runs, also in the tasks that it starts."""
_LEFT_BEHIND: weakref.WeakSet[asyncio.Task[Any]] = weakref.WeakSet()
"""Tasks that asyncio does not know any more, of all loops, as it knows all others."""
_FIRST_SHARE = 0.75
"""The part of the time in which a task is to end after it was cancelled once."""


class ExitRefusedError(RuntimeError):
    """A task started by a function or provider wanted to end the process."""


class ContainedTask(Generic[T]):
    """Runs a coroutine function in a task with a name and, however it ends, keeps what it returned or raised.

    `started` is when it was made, unless it is told otherwise, and `ended` when it ended, on the clock of the loop.
    """

    __slots__ = ("_alarm", "_loop", "_waiter", "ended", "error", "started", "task", "value")

    def __init__(self, work: Callable[..., Awaitable[T]], name: str, *args: Any, started: float | None = None) -> None:
        self._waiter: asyncio.Future[None] | None = None
        self._alarm: dict[ContainedTask[Any], float] | asyncio.TimerHandle | None = None
        """Where it is watched, or the timer of its own, that tells when its time is over."""
        self._loop = loop = asyncio.get_running_loop()
        self.started = self.ended = loop.time() if started is None else started
        self.value: T | None = None
        self.error: BaseException | None = None
        factory: Any = loop.get_task_factory()
        if factory is None or (type(factory) is SpawnedTasks and factory.inner is None):
            begun = self._run(work, name, args)
            begun.send(None)
            self.task = asyncio.Task(begun, loop=loop, name=name)
        else:  # somebody else has a say in how tasks are made, and may want a coroutine that has not begun
            self.task = loop.create_task(self._run(work, name, args, begin=False), name=name)
            self.task.add_done_callback(self._note_end)

    async def _run(
        self, work: Callable[..., Awaitable[T]], name: str, args: tuple[Any, ...], *, begin: bool = True
    ) -> None:
        try:
            if begin:
                await _first_step()
            _OWNER.set(name)
            self.value = await work(*args)
        except BaseException as error:  # noqa: BLE001 - kept for whoever waits, SystemExit and cancellation included
            self.error = error
        self.ended = self._loop.time()
        self.wake()

    def _note_end(self, task: asyncio.Task[None]) -> None:
        """Take note of a task that was cancelled before it could begin."""
        if task.cancelled() and self.error is None:
            self.error = asyncio.CancelledError()
        self.wake()

    def wake(self) -> None:
        """Let whoever waits for it look whether it has ended."""
        if self._alarm is not None:
            self._switch_off()
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def _switch_off(self) -> None:
        alarm, self._alarm = self._alarm, None
        if isinstance(alarm, dict):
            alarm.pop(self, None)
        elif alarm is not None:
            alarm.cancel()

    @property
    def done(self) -> bool:
        """Tell whether it has ended."""
        return self.task.done()

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.ended - self.started

    def ending(self, limit: "TimeLimit | float | None") -> asyncio.Future[None]:
        """Return what is done when the task has ended, or its time is over; then `done` tells which. One at a time.

        The time is that of a limit that it shares with others, from its start on, or seconds from now on.
        """
        if self._alarm is not None:
            self._switch_off()
        self._waiter = waiter = self._loop.create_future()
        if self.task.done():
            waiter.set_result(None)
        elif isinstance(limit, TimeLimit):
            self._alarm = limit.watch(self, self._loop)
        elif limit is not None:
            self._alarm = self._loop.call_later(limit, self.wake)
        return waiter

    async def wait(self, limit: "TimeLimit | float | None") -> bool:
        """Wait until it has ended, or its time is over; tell whether it has ended."""
        await self.ending(limit)
        return self.task.done()

    async def stop(self, grace: float) -> bool:
        """Cancel it and wait a little; tell whether it has ended."""
        self.task.cancel()
        return await self.wait(grace)

    def result(self) -> T:
        """Return what it returned, or raise what it raised."""
        error = self.error
        if error is None:
            return self.value  # type: ignore[return-value] # it has ended without an error
        try:
            raise error
        finally:
            del error  # or it would be kept alive by its own traceback


def call_contained(name: str, function: Callable[..., T], *args: Any) -> T:
    """Call a plain function without a task, in a context of its own: whatever it starts from there is contained."""
    return copy_context().run(_call_owned, name, function, args)


def _call_owned(name: str, function: Callable[..., T], args: tuple[Any, ...]) -> T:
    _OWNER.set(name)
    return function(*args)


def name_of_current(loop: asyncio.AbstractEventLoop, frame: types.FrameType | None) -> str | None:
    """Return the name of the task that a loop works on, or of what it calls without one; `frame` is where it is.

    It may be asked from another thread.
    """
    while frame is not None:
        if frame.f_code is _call_owned.__code__:
            return str(frame.f_locals["name"])
        frame = frame.f_back
    task = asyncio.current_task(loop)
    return None if task is None else task.get_name()


@types.coroutine
def _first_step() -> Generator[None]:
    """Wait for the loop to run the task: a coroutine that has begun can take note that it is cancelled before that.

    So nobody has to watch the task, which would cost a turn of the loop.
    """
    yield


class TimeLimit:
    """A time that many tasks have: one timer is enough for all of them, since the first that begins is over first."""

    __slots__ = ("_clocks", "seconds")

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._clocks: dict[asyncio.AbstractEventLoop, _Clock] = {}

    def watch(self, task: ContainedTask[Any], loop: asyncio.AbstractEventLoop) -> dict[ContainedTask[Any], float]:
        """Wake whoever waits for a task when its time is over; return where it is watched, until it is taken out."""
        clock = self._clocks.get(loop)
        if clock is None:
            clock = _Clock(loop)
            self._clocks = {known: its for known, its in self._clocks.items() if not known.is_closed()} | {loop: clock}
        end = clock.watched[task] = task.started + self.seconds
        if not clock.runs:
            clock.start(end)
        return clock.watched


class _Clock:
    """Wakes whoever waits for a task when its time is over."""

    __slots__ = ("_loop", "runs", "watched")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.runs = False
        self.watched: dict[ContainedTask[Any], float] = {}
        """When the time of each is over, in the order of that."""

    def start(self, end: float) -> None:
        self.runs = True
        self._loop.call_at(end, self._strike)

    def _strike(self) -> None:
        now = self._loop.time()
        while self.watched:
            task, end = next(iter(self.watched.items()))
            if end > now:
                self._loop.call_at(end, self._strike)
                return
            task.wake()  # which takes it out
        self.runs = False


async def end_tasks(tasks: Iterable[asyncio.Task[Any]], grace: float) -> list[str]:
    """Cancel tasks and wait a little for them; those that go on are given up, and their names returned.

    They are cancelled twice: the first time may have met something that made another failure of it. A loop that is
    closed waits for all of its tasks. Those given up it does not know any more: they end with it, or with the process,
    which `left_behind` is for.
    """
    stubborn = {task for task in tasks if not task.done()}
    for share in (_FIRST_SHARE, 1 - _FIRST_SHARE):
        if not stubborn:
            return []
        for task in stubborn:
            task.cancel()
        _, stubborn = await asyncio.wait(stubborn, timeout=grace * share)
    for task in stubborn:
        _unregister_task(task)
        _LEFT_BEHIND.add(task)
        task._log_destroy_pending = False  # type: ignore[attr-defined]
    return sorted(task.get_name() for task in stubborn)


def left_behind(loop: asyncio.AbstractEventLoop) -> list[str]:
    """Return the names of the tasks of a loop that were given up and have not ended.

    Whoever closes the loop, or lets go of it, may never come back: their coroutines are told to end then, and those
    that do not want to go on for ever.
    """
    return sorted(task.get_name() for task in _LEFT_BEHIND if task.get_loop() is loop and not task.done())


class SpawnedTasks:
    """A task factory: what is started from within a contained task cannot end the process either.

    asyncio lets a SystemExit in any task stop the whole loop. Install it on a loop as often as you like, and remove it
    as often; a factory that was there before goes on making the tasks.
    """

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self._users = 1

    @classmethod
    def contain(cls, loop: asyncio.AbstractEventLoop) -> None:
        """Install it on a loop."""
        factory: Any = loop.get_task_factory()
        if isinstance(factory, cls):
            factory._users += 1
        else:
            ours: Any = cls(factory)
            loop.set_task_factory(ours)

    @classmethod
    def release(cls, loop: asyncio.AbstractEventLoop) -> None:
        """Remove it from a loop, once everybody who installed it has."""
        factory: Any = loop.get_task_factory()
        if isinstance(factory, cls):
            factory._users -= 1
            if factory._users <= 0:
                loop.set_task_factory(factory.inner)

    def __call__(
        self,
        loop: asyncio.AbstractEventLoop,
        coro: Coroutine[Any, Any, Any],
        *,
        context: Context | None = None,
        **options: Any,
    ) -> asyncio.Task[Any]:
        """Make a task. It is asked for every one of the loop, and nearly none of them is a function's."""
        owner = _OWNER.get() if context is None else context.get(_OWNER)
        if owner is None and self.inner is None and not options:
            return asyncio.Task(coro, loop=loop, context=context)
        if context is not None:
            options["context"] = context
        if owner is not None and isinstance(coro, Coroutine):
            coro = _Spawned(coro, owner)
            if self.inner is None and options.get("name") is None:  # for whoever looks for a culprit
                options["name"] = f"{owner}: {getattr(coro, '__qualname__', 'a task')}"
        if self.inner is None:
            return asyncio.Task(coro, loop=loop, **options)
        task: asyncio.Task[Any] = self.inner(loop, coro, **options)
        return task


class _Spawned(Coroutine[Any, Any, Any]):
    """A coroutine that raises an ordinary error where the one inside asks for the end of the process.

    It is no coroutine function of its own, since one that is cancelled before it begins would leave the one inside
    unawaited.
    """

    __slots__ = ("_inner", "_owner")

    def __init__(self, inner: Coroutine[Any, Any, Any], owner: str) -> None:
        self._inner = inner
        self._owner = owner

    @override
    def send(self, value: Any) -> Any:
        try:
            return self._inner.send(value)
        except (SystemExit, KeyboardInterrupt) as error:
            raise self._refusal(error) from error

    @override
    def throw(self, *error: Any) -> Any:
        try:
            return self._inner.throw(*error)
        except (SystemExit, KeyboardInterrupt) as raised:
            raise self._refusal(raised) from raised

    @override
    def close(self) -> None:
        try:
            self._inner.close()
        except (SystemExit, KeyboardInterrupt) as error:
            raise self._refusal(error) from error

    @override
    def __await__(self) -> Generator[Any, Any, Any]:
        return self._inner.__await__()

    @override
    def __repr__(self) -> str:
        return repr(self._inner)

    def __getattr__(self, name: str) -> Any:
        """Show the frame, the code and the name of the one inside, for whoever looks at the task."""
        return getattr(self._inner, name)

    def _refusal(self, error: BaseException) -> ExitRefusedError:
        return ExitRefusedError(f"{type(error).__name__} in a task started by {self._owner}: the process goes on")
