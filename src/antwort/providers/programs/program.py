"""One program: fed to the interpreter, its calls made, its state kept while it waits."""

import asyncio
import contextlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from antwort.provider import (
    Context,
    FunctionError,
    FunctionUnavailableError,
    SuspendedError,
    Suspension,
    did_you_mean,
    python_name,
)
from antwort.providers.programs.interpreter import Interpreter, monty
from antwort.providers.programs.settings import ProgramsSettings
from antwort.providers.programs.states import Pending, State, States
from antwort.providers.programs.values import joined, plain, shortened, written
from antwort.providers.programs.variables import VariableCalls

if TYPE_CHECKING:
    from pydantic_monty import AsyncFunctionSnapshot, AsyncFutureSnapshot, AsyncMontySession, AsyncNameLookupSnapshot

    Pause: TypeAlias = Any
    """Where the interpreter has stopped, or what came of the program."""

_BETWEEN = 1.0
"""Seconds between two times that the state of a program is kept, and until one that waits gives its process back."""
_LONGEST_SLEEP = 10.0
_SLEEP_IN_ALL = 300.0
"""Seconds that a program may sleep at a time, and in all."""
_SLEEPS = frozenset({"system.sleep", "system.async_sleep"})


class Outcome(msgspec.Struct, frozen=True):
    """What came of a program."""

    output: str
    failed: bool = False


class Program:
    """Runs one program, or goes on with it; it is used once."""

    def __init__(
        self,
        ctx: Context,
        interpreter: Interpreter,
        states: States,
        variables: VariableCalls,
        settings: ProgramsSettings,
    ) -> None:
        self._ctx = ctx
        self._interpreter = interpreter
        self._states = states
        self._variables = variables.by_name
        self._settings = settings
        self._functions = {python_name(name): name for name in _callable(ctx)}
        self._closing = contextlib.AsyncExitStack()
        self._session: AsyncMontySession | None = None
        self._noted: dict[int, Pending] = {}
        """Calls that the program has named and not got a result of."""
        self._tasks: dict[int, asyncio.Task[Any]] = {}
        self._waiting: set[int] = set()
        """Those among them that wait for somebody."""
        self._printed: list[str] = []
        self._room = settings.max_printed
        self._kept_at = asyncio.get_running_loop().time()
        self._slept = 0.0
        self.calls = 0

    async def run(self, code: str) -> Outcome:
        """Run the program to its end. If it waits for somebody, its state is kept, and SuspendedError raised."""
        call_id, session = self._ctx.call_id or "", await self._states.session()
        if self._ctx.attached and session is not None and session.call_id == call_id and session.output is not None:
            return Outcome(session.output, session.failed)  # it was over, and nobody has read it
        snapshot = await self._states.snapshot(call_id) if self._ctx.attached else None
        try:
            return await self._run(code, session, snapshot)
        finally:
            for task in self._tasks.values():
                task.cancel()
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)
            await self._release()

    async def _run(self, code: str, session: State | None, snapshot: State | None) -> Outcome:
        library = await self._library()
        try:
            pause = await (self._begin(code, session) if snapshot is None else self._load(snapshot))
            while not isinstance(pause, library.MontyComplete):
                if isinstance(pause, library.AsyncNameLookupSnapshot):
                    pause = await self._look_up(pause)
                elif isinstance(pause, library.AsyncFunctionSnapshot):
                    pause = await self._note(pause)
                else:
                    pause = await self._wait(pause)
            result = "" if pause.output is None else written(pause.output)
            return await self._end(joined(self._text, result) or "(The program has printed nothing.)", failed=False)
        except library.MontyCrashedError:
            return Outcome(joined(self._text, "The interpreter has ended: the program took too much. " + _LOST), True)
        except library.MontyError as error:
            if isinstance(error, library.MontyRuntimeError) and isinstance(error.exception(), TimeoutError):
                late = f"TimeoutError: The program has computed for longer than {self._settings.seconds:g} seconds."
                return Outcome(joined(self._text, f"{late}\n{_LOST}"), True)
            trace = shortened(error.display() if hasattr(error, "display") else str(error))
            return await self._end(joined(self._text, trace), failed=True)

    async def _library(self) -> Any:
        await self._interpreter.fresh()
        return monty()

    async def _begin(self, code: str, before: State | None) -> "Pause":
        session = await self._open()
        await session.load_session(await self._interpreter.fresh() if before is None else before.session)
        return await session.feed_start(code, print_callback=self._print)

    async def _load(self, state: State) -> "Pause":
        """Go on from where a program was kept."""
        self._noted, self.calls = dict(state.pending), state.calls
        self._print("stdout", state.printed)
        return await (await self._open()).load_snapshot(state.session, print_callback=self._print)

    async def _end(self, output: str, *, failed: bool) -> Outcome:
        """Keep what the program has defined, for the next one."""
        if self._session is None or not self._states.are_kept:
            return Outcome(output, failed)
        try:
            dumped = await self._session.dump()
        except RuntimeError:  # its process has ended: there was no memory left
            return Outcome(f"{output}\n{_LOST}", failed)
        if len(dumped) > self._settings.max_snapshot:
            return Outcome(f"{output}\n(The names hold too much. {_LOST})", failed)
        await self._states.keep_session(State(dumped, self._ctx.call_id or "", output, failed))
        return Outcome(output, failed)

    # --- what it asks for --------------------------------------------------------------------------------------------

    async def _look_up(self, pause: "AsyncNameLookupSnapshot") -> "Pause":
        """Give a function that is named without being called; other names are not defined."""
        name = pause.variable_name
        if name not in self._functions:
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
        if name not in self._functions and name not in self._variables:
            hint = did_you_mean(name, self._functions)
            return await pause.resume({"exc_type": "NameError", "message": f"name '{name}' is not defined{hint}"})
        self.calls += 1
        if self.calls > self._settings.max_calls:
            message = f"A program may make {self._settings.max_calls:,} calls."
            return await pause.resume({"exc_type": "RuntimeError", "message": message})
        try:
            arguments = msgspec.json.encode([plain(list(pause.args)), plain(pause.kwargs)]).decode()
        except (TypeError, ValueError, RecursionError) as error:
            return await pause.resume({"exc_type": "TypeError", "message": f"{name}: {error}"})
        self._noted[pause.call_id] = Pending(name, arguments)
        return await pause.resume({"future": ...})

    async def _answer_system(self, pause: "AsyncFunctionSnapshot", name: str) -> "Pause":
        """Let a program sleep for a while; there is nothing else of a system."""
        if name not in _SLEEPS:
            return await pause.resume_not_handled()
        seconds = min(float(pause.args[0]), _LONGEST_SLEEP)
        self._slept += seconds
        if self._slept > _SLEEP_IN_ALL:
            message = f"A program may sleep for {_SLEEP_IN_ALL:g} seconds in all."
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
        wanted = [number for number in pause.pending_call_ids if number in self._noted]
        for number in wanted:
            if number not in self._tasks:
                self._tasks[number] = asyncio.ensure_future(self._call(number, self._noted[number]))
        try:
            return await self._settled(pause, wanted)
        except asyncio.CancelledError:
            if self._session is not None:  # the server stops, perhaps: whoever goes on begins here
                await self._keep(pause)
            raise

    async def _settled(self, pause: "AsyncFutureSnapshot", wanted: list[int]) -> "Pause":
        kept: State | None = None
        while True:
            results = self._results(wanted)
            if results:
                again: Any = pause
                if kept is not None:
                    again = await (await self._open()).load_snapshot(kept.session, print_callback=self._print)
                return await again.resume(results)
            under_way = [self._tasks[number] for number in wanted if number not in self._waiting]
            if not under_way:
                if kept is None and await self._keep(pause) is None:
                    raise FunctionError("The program holds too much to wait for somebody. Let it hold less.")
                raise SuspendedError(Suspension("calls"))
            if kept is None and self._is_late:
                self._kept_at = asyncio.get_running_loop().time()
                kept = await self._keep(pause)
                if kept is not None:
                    await self._release()
            await asyncio.wait(under_way, timeout=_BETWEEN, return_when=asyncio.FIRST_COMPLETED)

    def _results(self, wanted: list[int]) -> dict[int, Any]:
        """Return what has come of calls, and take note of those that wait for somebody."""
        results = {}
        for number in wanted:
            task = self._tasks[number]
            if not task.done() or number in self._waiting:
                continue
            error = task.exception()
            if isinstance(error, SuspendedError):
                self._waiting.add(number)
                continue
            del self._tasks[number], self._noted[number]
            if error is None:
                results[number] = {"return_value": task.result()}
            else:
                results[number] = {"exc_type": "RuntimeError", "message": str(error)}
        return results

    async def _call(self, number: int, call: Pending) -> Any:
        """Make a call; return its value, or raise what the program is to get."""
        positional, named = msgspec.json.decode(call.arguments)
        own = self._variables.get(call.name)
        if own is not None:
            try:
                return await own(*positional, **named)
            except (TypeError, ValueError) as error:
                raise FunctionError(f"{call.name.removeprefix('_variable_')}: {error}") from error
        name = self._functions.get(call.name, call.name)
        result = await self._ctx.call_function(name, self._bound(name, positional, named), key=str(number))
        if result.is_error:
            raise FunctionError(result.output)
        return result.value

    def _bound(self, name: str, positional: list[Any], named: Mapping[str, Any]) -> dict[str, Any]:
        """Return all arguments by name."""
        known = self._ctx.calls.functions.get(name)
        names = [] if known is None else [*known.parameters.get("properties", {})]
        if len(positional) > len(names):
            raise FunctionError(f"{name} takes {len(names)} arguments: {', '.join(names)}")
        return {**dict(zip(names, positional, strict=False)), **named}

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
        state = State(dumped, self._ctx.call_id or "", pending=self._noted, printed=self._text, calls=self.calls)
        await self._states.keep_snapshot(state)
        return state

    async def _open(self) -> "AsyncMontySession":
        if self._session is None:
            self._session = await self._closing.enter_async_context(self._interpreter.session(self._ctx.tenant))
        return self._session

    async def _release(self) -> None:
        self._session = None
        await self._closing.aclose()

    @property
    def _text(self) -> str:
        return "".join(self._printed)

    def _print(self, _stream: str, text: str) -> None:
        if self._room <= 0:
            return
        self._printed.append(text[: self._room])
        self._room -= len(text)
        if self._room <= 0:
            self._printed.append("\n(What it has printed further is left out.)\n")


_LOST = "What this program has defined is lost; what was defined before is there."


def _callable(ctx: Context) -> list[str]:
    try:
        return [*ctx.calls.functions]
    except FunctionUnavailableError:  # outside of a response there are none
        return []
