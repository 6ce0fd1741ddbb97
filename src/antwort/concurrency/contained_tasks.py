"""Tasks for code that nobody has to trust: they end in time or are left behind, and never take anything else along.

A handler may cancel itself, swallow its cancellation, raise SystemExit, or do so in tasks that it starts. In a task of
its own all of that stays its own affair.
"""

import asyncio
from asyncio.tasks import _unregister_task
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable
from contextvars import ContextVar
from typing import Any, Generic, TypeVar

from typing_extensions import override

T = TypeVar("T")
_OWNER: ContextVar[str | None] = ContextVar("antwort_task_owner", default=None)
"""The name of the contained task in which code runs, also in the tasks that it starts."""


class ExitRefusedError(RuntimeError):
    """A task started by a function or provider wanted to end the process."""


class ContainedTask(Generic[T]):
    """Runs a coroutine in a task with a name and, however it ends, keeps what it returned or raised.

    `ended` is when it did, on the clock of the loop.
    """

    __slots__ = ("_loop", "_waiter", "_work", "ended", "error", "started", "task", "value")

    def __init__(self, work: Callable[[], Awaitable[T]], name: str) -> None:
        self._work = work
        self._waiter: asyncio.Future[None] | None = None
        self._loop = asyncio.get_running_loop()
        self.started = self.ended = self._loop.time()
        self.value: T | None = None
        self.error: BaseException | None = None
        self.task = self._loop.create_task(self._run(name), name=name)
        self.task.add_done_callback(self._wake)

    async def _run(self, name: str) -> None:
        _OWNER.set(name)
        try:
            self.value = await self._work()
        except BaseException as error:  # noqa: BLE001 - kept for whoever waits, SystemExit and cancellation included
            self.error = error
        self.ended = self._loop.time()
        self._wake()  # a turn of the loop sooner than the task does

    def _wake(self, _task: object = None) -> None:
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    @property
    def done(self) -> bool:
        """Tell whether it has ended."""
        return self.task.done()

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.ended - self.started

    async def wait(self, seconds: float | None) -> bool:
        """Wait until it has ended, or the seconds have passed; tell whether it has ended. For one at a time."""
        if self.task.done():
            return True
        self._waiter = waiter = self._loop.create_future()
        timer = None if seconds is None else self._loop.call_later(seconds, self._wake)
        try:
            await waiter
        finally:
            if timer is not None:
                timer.cancel()
            self._waiter = None
        return self.task.done()

    async def stop(self, grace: float) -> bool:
        """Cancel it and wait a little; tell whether it has ended."""
        self.task.cancel()
        return await self.wait(grace)

    def result(self) -> T:
        """Return what it returned, or raise what it raised."""
        if self.task.cancelled():  # before it could begin
            raise asyncio.CancelledError
        error = self.error
        if error is None:
            return self.value  # type: ignore[return-value] # it has ended without an error
        try:
            raise error
        finally:
            del error  # or it would be kept alive by its own traceback


async def end_tasks(tasks: Iterable[asyncio.Task[Any]], grace: float) -> list[str]:
    """Cancel tasks and wait a little for them; those that go on are given up, and their names returned.

    A loop that is closed waits for all of its tasks. Those given up it does not know any more: they end with it.
    """
    tasks = {task for task in tasks if not task.done()}
    if not tasks:
        return []
    for task in tasks:
        task.cancel()
    _, stubborn = await asyncio.wait(tasks, timeout=grace)
    for task in stubborn:
        _unregister_task(task)
        task._log_destroy_pending = False  # type: ignore[attr-defined]
    return sorted(task.get_name() for task in stubborn)


class SpawnedTasks:
    """A task factory: what is started from within a contained task cannot end the process either.

    asyncio lets a SystemExit in any task stop the whole loop. Install it on a loop as often as you like, and remove it
    as often; a factory that was there before goes on making the tasks.
    """

    def __init__(self, inner: Any) -> None:
        self._inner = inner
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
                loop.set_task_factory(factory._inner)

    def __call__(
        self, loop: asyncio.AbstractEventLoop, coro: Coroutine[Any, Any, Any], **options: Any
    ) -> asyncio.Task[Any]:
        """Make a task."""
        context = options.get("context")
        owner = _OWNER.get() if context is None else context.get(_OWNER)
        if owner is not None and isinstance(coro, Coroutine):
            coro = _Spawned(coro, owner)
        if self._inner is not None:
            task: asyncio.Task[Any] = self._inner(loop, coro, **options)
            return task
        if isinstance(coro, _Spawned) and options.get("name") is None:  # for whoever looks for a culprit
            options["name"] = f"{owner}: {getattr(coro, '__qualname__', 'a task')}"
        return asyncio.Task(coro, loop=loop, **options)


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
