"""One program: fed to the interpreter, its calls made, its state kept while it waits."""

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from antwort.provider import Context, FunctionError, SuspendedError, Suspension
from antwort.providers.programs.calls import ProgramCalls
from antwort.providers.programs.interpreter import ProgramInterpreter, monty
from antwort.providers.programs.language import FULL, advice, leaves_nothing, may_lack
from antwort.providers.programs.outcome import LOST, SLEEP_IN_ALL, Printed, ProgramOutcome
from antwort.providers.programs.prelude import PRELUDE, needs_prelude
from antwort.providers.programs.states import Pending, State, States
from antwort.providers.programs.values import joined, plain, shortened, written

if TYPE_CHECKING:
    from pydantic_monty import AsyncFunctionSnapshot, AsyncFutureSnapshot, AsyncMontySession, AsyncNameLookupSnapshot

    Pause: TypeAlias = Any
    """Where the interpreter has stopped, or what came of the program."""

_BETWEEN = 1.0
"""Seconds between two times that the state of a program is kept, and until one that waits gives its process back."""
_LONGEST_SLEEP = 10.0
"""Seconds that a program may sleep at a time."""
_SLEEPS = frozenset({"system.sleep", "system.async_sleep"})


class NotUnderstoodError(Exception):
    """The interpreter lacks what a program needs, and nothing has happened yet that another could not do again."""


class Program:
    """Runs one program, or goes on with it; it is used once."""

    def __init__(
        self,
        ctx: Context,
        interpreter: ProgramInterpreter,
        states: States,
        calls: ProgramCalls,
    ) -> None:
        self._ctx = ctx
        self._interpreter = interpreter
        self._states = states
        self._calls = calls
        self._settings = settings = interpreter.settings
        self._closing = contextlib.AsyncExitStack()
        self._session: AsyncMontySession | None = None
        self._noted: dict[int, Pending] = {}
        """Calls that the program has named and not got a result of."""
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._ended: dict[int, Any] = {}
        """What has come of those that the program has not been given yet: their values, or why there are none."""
        self._waiting: set[int] = set()
        """Those among them that wait for somebody."""
        self._woken: asyncio.Future[None] | None = None
        """Done when one has ended, if somebody waits for that."""
        self._printed = Printed(settings.max_printed)
        self._kept_at = asyncio.get_running_loop().time()
        self._slept = 0.0
        self._leaves_nothing = False
        """Whether there is nothing of it for the next one: done again, it would be the same."""
        self._is_bare = False
        """Whether its session is without the prelude."""

    async def run(
        self, code: str, before: State | None, snapshot: State | None = None, *, leaves: bool = False
    ) -> ProgramOutcome:
        """Run the program to its end, or go on with it from where it stood.

        If it waits for somebody, its state is kept, and SuspendedError raised. One that `leaves` raises
        NotUnderstoodError if it has made no call yet and needs what the interpreter, perhaps, does not have.
        """
        try:
            return await self._run(code, before, snapshot, leaves=leaves)
        finally:
            for task in self._tasks.values():
                task.cancel()
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)
            self._ended.clear()  # errors have frames, and these the program
            await self._release()

    async def _run(self, code: str, before: State | None, snapshot: State | None, *, leaves: bool) -> ProgramOutcome:
        library = await self._library()
        try:
            pause = await (self._begin(code, before) if snapshot is None else self._load(snapshot))
            called, complete, named = (
                library.AsyncFunctionSnapshot,
                library.MontyComplete,
                library.AsyncNameLookupSnapshot,
            )
            while not isinstance(pause, complete):
                if isinstance(pause, called):
                    pause = await self._note(pause)
                elif isinstance(pause, named):
                    pause = await self._look_up(pause)
                else:
                    pause = await self._wait(pause)
            result = "" if pause.output is None else written(pause.output)
            output = self._printed.with_value(result) or "(The program has printed nothing.)"
            return await self._end(output, failed=False)
        except library.MontyCrashedError:
            ended = f"The interpreter has ended: the program took too much. {LOST}"
            return ProgramOutcome(joined(self._printed.text, ended), True)
        except library.MontyError as error:
            return await self._failed(library, error, leaves=leaves)

    async def _failed(self, library: Any, error: Any, *, leaves: bool) -> ProgramOutcome:
        """Return what the model reads of an error: its traceback, and what to do about what the interpreter lacks."""
        if isinstance(error, library.MontyRuntimeError) and isinstance(error.exception(), TimeoutError):
            late = f"TimeoutError: The program has computed for longer than {self._settings.seconds:g} seconds."
            return ProgramOutcome(joined(self._printed.text, f"{late}\n{LOST}"), True)
        if not hasattr(error, "display"):
            return await self._end(joined(self._printed.text, shortened(str(error))), failed=True)
        cause = error.display("type-msg")
        if leaves and not self._calls.made and may_lack(cause):
            raise NotUnderstoodError
        found = advice(cause)
        if found and leaves:
            found += f" Or begin the program with the line `{FULL}`; the calls that it has made are made again then."
        trace = joined(shortened(error.display()), found and f"({found})")
        return await self._end(joined(self._printed.text, trace), failed=True)

    async def _library(self) -> Any:
        await self._interpreter.fresh()
        return monty()

    async def _begin(self, code: str, before: State | None) -> "Pause":
        self._leaves_nothing = before is None and leaves_nothing(code)
        needs = needs_prelude(code)
        self._is_bare = not needs and (before is None or before.bare)
        session = await self._open()
        if before is not None:
            await session.load_session(before.session)
            if before.bare and needs:
                await session.feed_run(PRELUDE)
        elif needs:
            await session.load_session(await self._interpreter.fresh())
        return await session.feed_start(code, print_callback=self._print)

    async def _load(self, state: State) -> "Pause":
        """Go on from where a program was kept."""
        self._noted, self._calls.made, self._is_bare = dict(state.pending), state.calls, state.bare
        self._printed.add(state.printed)
        return await (await self._open()).load_snapshot(state.session, print_callback=self._print)

    async def _end(self, output: str, *, failed: bool) -> ProgramOutcome:
        """Keep what the program has defined, for the next one."""
        nothing = self._leaves_nothing and not self._calls.made and not self._slept
        if self._session is None or nothing or not self._states.are_kept:
            return ProgramOutcome(output, failed)
        try:
            dumped = await self._session.dump()
        except (RuntimeError, monty().MontyError):  # its process has ended: there was no memory left
            return ProgramOutcome(f"{output}\n(MemoryError: no memory is left to keep names. {LOST})", failed)
        if len(dumped) > self._settings.max_snapshot:
            return ProgramOutcome(f"{output}\n(The names hold too much. {LOST})", failed)
        state = State(dumped, self._ctx.call_id or "", output, failed, bare=self._is_bare)
        await self._states.keep_session(state)
        return ProgramOutcome(output, failed)

    # --- what it asks for --------------------------------------------------------------------------------------------

    async def _look_up(self, pause: "AsyncNameLookupSnapshot") -> "Pause":
        """Give a function that is named without being called; other names are not defined."""
        name = pause.variable_name
        if name not in self._calls.functions:
            return await pause.resume()

        def stand_in() -> None:
            """Stand for a function: the interpreter only wants its name."""

        stand_in.__name__ = name
        return await pause.resume(value=stand_in)

    async def _note(self, pause: "AsyncFunctionSnapshot") -> "Pause":
        """Take note of a call; it is made when the program waits for it."""
        name = str(pause.function_name)
        if pause.is_os_function:
            return await self._answer_system(pause, name)
        refusal = self._calls.refusal(name)
        if refusal is not None:
            return await pause.resume({"exc_type": refusal.exc_type, "message": refusal.message})
        handed_on: set[str] = set()
        try:
            arguments = msgspec.json.encode(plain([pause.args, pause.kwargs], handed_on)).decode()
        except (TypeError, ValueError, RecursionError) as error:
            return await pause.resume({"exc_type": "TypeError", "message": f"{name}: {error}"})
        self._noted[pause.call_id] = Pending(name, arguments, sorted(handed_on))
        return await pause.resume({"future": ...})

    async def _answer_system(self, pause: "AsyncFunctionSnapshot", name: str) -> "Pause":
        """Let a program sleep for a while; there is nothing else of a system."""
        if name not in _SLEEPS:
            return await pause.resume_not_handled()
        seconds = min(float(pause.args[0]), _LONGEST_SLEEP)
        self._slept += seconds
        if self._slept > SLEEP_IN_ALL:
            message = f"A program may sleep for {SLEEP_IN_ALL:g} seconds in all."
            return await pause.resume({"exc_type": "RuntimeError", "message": message})
        again: Any = pause
        if seconds < _BETWEEN or len(dumped := pause.dump()) > self._settings.max_snapshot:
            await asyncio.sleep(seconds)
        else:  # others have its process meanwhile
            await self._release()
            await asyncio.sleep(seconds)
            again = await (await self._open()).load_snapshot(dumped, print_callback=self._print)
        return await again.resume({"return_value": None})

    async def _wait(self, pause: "AsyncFutureSnapshot") -> "Pause":
        """Make the calls that the program waits for, and go on with the results that are there first."""
        wanted = self._noted.keys() & pause.pending_call_ids
        if begun := wanted - self._tasks.keys():
            loop = asyncio.get_running_loop()
            for number in sorted(begun):
                self._tasks[number] = loop.create_task(self._call(number, self._noted[number]))
        try:
            return await self._settled(pause, wanted)
        except asyncio.CancelledError:
            if self._session is not None:  # the server stops, perhaps: whoever goes on begins here
                await self._keep(pause)
            raise

    async def _settled(self, pause: "AsyncFutureSnapshot", wanted: set[int]) -> "Pause":
        kept: State | None = None
        while True:
            results = self._results(wanted)
            if results:
                again: Any = pause
                if kept is not None:
                    again = await (await self._open()).load_snapshot(kept.session, print_callback=self._print)
                return await again.resume(results)
            if wanted <= self._waiting:  # none is under way
                if kept is None and await self._keep(pause) is None:
                    raise FunctionError("The program holds too much to wait for somebody. Let it hold less.")
                raise SuspendedError(Suspension("calls"))
            if kept is None and self._is_late:
                self._kept_at = asyncio.get_running_loop().time()
                kept = await self._keep(pause)
                if kept is not None:
                    await self._release()
            await self._next_end()

    async def _next_end(self) -> None:
        """Wait until a call has ended, or it is time to look whether the state should be kept."""
        loop = asyncio.get_running_loop()
        self._woken = loop.create_future()
        timer = loop.call_later(_BETWEEN, self._wake)
        try:
            await self._woken
        finally:
            timer.cancel()
            self._woken = None

    def _wake(self) -> None:
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)

    def _results(self, wanted: set[int]) -> dict[int, Any]:
        """Return what has come of calls, and take note of those that wait for somebody."""
        results = {}
        for number in wanted & self._ended.keys():
            found = self._ended.pop(number)
            if isinstance(found, SuspendedError):
                self._waiting.add(number)
                continue
            if isinstance(found, asyncio.CancelledError):
                raise found
            del self._tasks[number], self._noted[number]
            if isinstance(found, BaseException):
                results[number] = {"exc_type": "RuntimeError", "message": str(found)}
            else:
                results[number] = {"return_value": found}
        return results

    async def _call(self, number: int, call: Pending) -> None:
        """Make a call, and keep what comes of it for the program."""
        positional, named = msgspec.json.decode(call.arguments)
        try:
            self._ended[number] = await self._calls.make(str(number), call.name, positional, named, call.references)
        except BaseException as error:  # noqa: BLE001 - the program is given it
            self._ended[number] = error
        self._wake()

    # --- what is kept ------------------------------------------------------------------------------------------------

    @property
    def _is_late(self) -> bool:
        """Tell whether the state should be kept when the program waits next."""
        return asyncio.get_running_loop().time() - self._kept_at >= _BETWEEN

    async def _keep(self, pause: "AsyncFutureSnapshot") -> State | None:
        """Keep where the program stands; None if that is too much."""
        dumped = pause.dump()
        if len(dumped) > self._settings.max_snapshot:
            return None
        state = State(
            dumped,
            self._ctx.call_id or "",
            pending=self._noted,
            printed=self._printed.text,
            calls=self._calls.made,
            bare=self._is_bare,
        )
        await self._states.keep_snapshot(state)
        return state

    async def _open(self) -> "AsyncMontySession":
        if self._session is None:
            self._session = await self._closing.enter_async_context(self._interpreter.session(self._ctx.tenant))
        return self._session

    async def _release(self) -> None:
        self._session = None
        await self._closing.aclose()

    def _print(self, _stream: str, text: str) -> None:
        self._printed.add(text)
