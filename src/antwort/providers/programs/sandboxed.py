"""A program in the sandbox: Python itself, with a bridge to the functions of the agent, and nothing else outside.

Whatever comes over the bridge may come from the program itself: frames are bounded, checked, and believed only where a
lie costs nobody but the program. The clock stands still while the program waits; that it does is its own word, so one
that waits for long is stopped, by the kernel, until there is something to go on with.

A process cannot be kept. A program that waits for somebody, or whose server has ended, begins again: each of its calls
has a name that is the same the next time, and is given the result that there was.
"""

import asyncio
import base64
import binascii
import codecs
import hashlib
import re
from collections.abc import Callable
from typing import Any

from antwort.provider import Context, SandboxProcess, SuspendedError, Suspension
from antwort.providers.programs.calls import ProgramCalls
from antwort.providers.programs.frames import (
    LARGE,
    LARGEST,
    BrokenError,
    End,
    Frame,
    Idle,
    ProgramCall,
    ProgramFrames,
    Ready,
    arguments_of,
    encoded,
)
from antwort.providers.programs.outcome import LOST, SLEEP_IN_ALL, Printed, ProgramOutcome
from antwort.providers.programs.prelude import PRELUDE
from antwort.providers.programs.pythons import ProgramTurn, Pythons
from antwort.providers.programs.states import SANDBOX, State, States
from antwort.providers.programs.values import joined, shortened

_PIECE = 1 << 16
_PAUSED_AFTER = 1.0
"""Seconds after which a program that waits is stopped, and others have its turn."""
_START = 60.0
"""Seconds that Python has to start."""
_OWN_KEY = re.compile(r"[0-9]+(-[0-9]+)+")
_LONGEST_KEY = 40


class SandboxedProgram:
    """Runs one program from its beginning; it is used once."""

    def __init__(self, ctx: Context, pythons: Pythons, states: States, calls: ProgramCalls) -> None:
        self._ctx = ctx
        self._pythons = pythons
        self._states = states
        self._calls = calls
        self._settings = settings = pythons.settings
        self._printed = Printed(settings.max_printed)
        self._ended: asyncio.Future[End | ProgramOutcome | None] = asyncio.get_running_loop().create_future()
        self._clock = Clock(settings.seconds, self._out_of_time)
        self._tasks: set[asyncio.Task[None]] = set()
        self._under_way: dict[str, int] = {}
        """Calls that have no result yet, and how large they are."""
        self._waiting: set[str] = set()
        """Those among them that wait for somebody."""
        self._held = 0
        """Bytes of those calls."""
        self._room = asyncio.Event()
        self._has_begun = False
        self._asked = self._sent = 0
        self._writing = asyncio.Lock()
        self._idle: Idle | None = None
        self._timers: list[asyncio.TimerHandle] = []
        self._slept = 0.0
        self._marking: asyncio.Task[None] | None = None
        self._process: SandboxProcess
        self._turn: ProgramTurn

    async def run(self, code: str, before: bytes = b"") -> ProgramOutcome:
        """Run the program to its end, with the names of the one before. SuspendedError if it waits for somebody."""
        async with self._pythons.started(self._ctx.tenant) as (self._process, self._turn):
            following = [asyncio.create_task(self._read_printed()), asyncio.create_task(self._read_frames())]
            try:
                await self._send_program(code, before)
                ended = await self._ended
                self._process.kill()
                await asyncio.wait(following)  # to the end of what it has printed
            finally:
                self._clock.stop()
                self._cancel_timers()
                for task in (*following, *self._tasks):
                    task.cancel()
                await asyncio.gather(*following, *self._tasks, return_exceptions=True)
            if ended is None:
                return await self._lost_outcome()
        if isinstance(ended, ProgramOutcome):
            return ProgramOutcome(joined(self._printed.text, ended.output), ended.failed)
        return await self._outcome(ended)

    async def _send_program(self, code: str, before: bytes) -> None:
        settings = self._settings
        seed = hashlib.sha256(f"{self._ctx.run_id} {self._ctx.call_id}".encode()).hexdigest()
        program = {
            "code": code,
            "names": base64.b64encode(before).decode(),
            "functions": self._calls.names,
            "prelude": PRELUDE,
            "seed": seed,
            "memory": settings.max_memory,
            "keeps": self._states.are_kept,
            "max_names": _base64_size(settings.max_snapshot),
            "max_text": settings.max_printed + 1,  # that it is more is to be seen
            "max_frame": LARGEST,
        }
        self._timers.append(asyncio.get_running_loop().call_later(_START, self._end, None))
        await self._process.write(encoded(program))

    async def _outcome(self, ended: End) -> ProgramOutcome:
        printed = self._printed
        text = joined(printed.text, shortened(ended.text)) if ended.failed else printed.with_value(ended.text)
        output = text or "(The program has printed nothing.)"
        if not self._states.are_kept:
            return ProgramOutcome(output, ended.failed)
        try:
            names = base64.b64decode(ended.names, validate=True)
        except binascii.Error:
            names = b""
        if not names or len(names) > self._settings.max_snapshot:
            return ProgramOutcome(f"{output}\n(The names cannot be kept. {LOST})", ended.failed)
        kept = State(names, self._ctx.call_id or "", output, ended.failed, interpreter=SANDBOX)
        await self._states.keep_session(kept)
        return ProgramOutcome(output, ended.failed)

    async def _lost_outcome(self) -> ProgramOutcome:
        """Return what is known of a program whose process has ended."""
        ending = await self._process.wait()
        why = "The interpreter has ended."
        if ending == "memory":
            why = f"MemoryError: The program took more than the {self._settings.max_memory:,} bytes that it may."
        elif ending == "time":
            why = self._late
        elif ending not in {"exit", "killed"}:
            why = f"The interpreter was ended: {ending}."
        return ProgramOutcome(joined(self._printed.text, f"{why}\n{LOST}"), True)

    # --- what comes --------------------------------------------------------------------------------------------------

    async def _read_printed(self) -> None:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        while piece := await self._process.stderr.read(_PIECE):
            self._printed.add(decoder.decode(piece))

    async def _read_frames(self) -> None:
        most = LARGEST + _base64_size(self._settings.max_snapshot)
        frames = ProgramFrames(self._process.stdout, self._pythons.work, most=most)
        try:
            while (found := await frames.next()) is not None:
                self._take(*found)
                while self._held > LARGEST and not self._ended.done():
                    self._room.clear()
                    await self._room.wait()
            self._end(None)
        except BrokenError as error:
            self._end_broken(error)

    def _take(self, frame: Frame, size: int) -> None:
        if isinstance(frame, Ready):
            if self._has_begun:
                raise BrokenError("two beginnings")
            self._has_begun = True
            self._go_on()
        elif isinstance(frame, Idle):
            self._rest(frame)
        elif isinstance(frame, End):
            self._end(frame)
        else:
            self._go_on()
            self._asked += 1
            if self._asked > 4 * self._settings.max_calls + 1000:
                raise BrokenError("call after call although it may not")
            if size > LARGEST:
                raise BrokenError(f"a call of {size:,} bytes")
            key = _key(frame.key)
            if key in self._under_way:
                raise BrokenError("a call that is under way")
            self._under_way[key] = size
            self._held += size
            self._spawn(self._call(key, frame))

    def _spawn(self, coroutine: Any) -> None:
        task = asyncio.ensure_future(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._check_task)

    def _check_task(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None and not self._ended.done():
            self._ended.set_exception(error)

    def _end_broken(self, why: BrokenError) -> None:
        self._end(ProgramOutcome(f"The program was ended: it has sent {why} to the server.\n{LOST}", True))

    def _end(self, how: End | ProgramOutcome | None) -> None:
        if not self._ended.done():
            self._ended.set_result(how)

    # --- calls -------------------------------------------------------------------------------------------------------

    async def _call(self, key: str, call: ProgramCall) -> None:
        """Make a call, and give the program what comes of it."""
        refusal = self._calls.refusal(call.name)
        if refusal is not None:
            await self._answer(key, {"key": call.key, "error": refusal.message})
            return
        await self._mark()
        try:
            args, kwargs = await self._pythons.work.run_if(self._under_way[key] > LARGE, arguments_of, call)
            value = await self._calls.make(key, call.name, args, kwargs, call.references)
            found = {"key": call.key, "value": value}
        except BrokenError as error:
            self._end_broken(error)
            return
        except SuspendedError:
            self._waiting.add(key)
            self._check_waiting()
            return
        except Exception as error:  # noqa: BLE001 - whatever it is, the program is told
            found = {"key": call.key, "error": str(error)}
        await self._answer(key, found)

    async def _answer(self, key: str, frame: dict[str, Any]) -> None:
        async with self._writing:
            if self._turn.is_given_back:
                await self._turn.take_again()
                await self._process.resume()
            self._sent += 1
            self._go_on()
            self._held -= self._under_way.pop(key)
            self._room.set()
            await self._process.write(encoded(frame))

    async def _mark(self) -> None:
        """Note, before the first call, that the program runs here: nowhere else would its calls have the same names."""
        if self._marking is None:
            mark = State(b"", self._ctx.call_id or "", interpreter=SANDBOX)
            self._marking = asyncio.ensure_future(self._states.keep_snapshot(mark))
        await asyncio.shield(self._marking)

    # --- the clock ---------------------------------------------------------------------------------------------------

    def _rest(self, idle: Idle) -> None:
        """Let the clock stand still, if the program waits for something that comes."""
        if idle.seen != self._sent or (idle.seconds is None and not self._under_way):
            return  # a result is on its way to it, or nobody knows what it waits for
        self._idle = idle
        self._clock.stop()
        self._cancel_timers()
        loop = asyncio.get_running_loop()
        if idle.seconds is not None:
            seconds = min(idle.seconds, SLEEP_IN_ALL)
            if not self._under_way:
                self._slept += seconds
            if self._slept > SLEEP_IN_ALL:
                text = f"RuntimeError: A program may sleep for {SLEEP_IN_ALL:g} seconds in all.\n{LOST}"
                self._end(ProgramOutcome(text, True))
                return
            self._timers.append(loop.call_later(seconds, lambda: self._spawn(self._wake())))
        if idle.seconds is None or idle.seconds > _PAUSED_AFTER:
            self._timers.append(loop.call_later(_PAUSED_AFTER, lambda: self._spawn(self._pause())))
        self._check_waiting()

    def _go_on(self) -> None:
        self._idle = None
        self._cancel_timers()
        self._clock.start()

    async def _wake(self) -> None:
        """Let a program that has slept go on."""
        async with self._writing:
            if self._turn.is_given_back:
                await self._turn.take_again()
                await self._process.resume()
            self._go_on()

    async def _pause(self) -> None:
        """Stop a program that waits, and let others have its turn."""
        async with self._writing:
            if self._idle is not None and self._process.ending is None and not self._turn.is_given_back:
                await self._process.pause()
                self._turn.give_back()

    def _check_waiting(self) -> None:
        """End here if the program waits for nothing but somebody's answers."""
        resting = self._idle is not None and self._idle.seconds is None
        if resting and self._waiting and self._waiting >= self._under_way.keys() and not self._ended.done():
            self._ended.set_exception(SuspendedError(Suspension("calls")))

    @property
    def _late(self) -> str:
        return f"TimeoutError: The program has computed for longer than {self._settings.seconds:g} seconds."

    def _out_of_time(self) -> None:
        self._end(ProgramOutcome(f"{self._late}\n{LOST}", True))

    def _cancel_timers(self) -> None:
        while self._timers:
            self._timers.pop().cancel()


def _key(key: str) -> str:
    """Return what names a call in the journal: short, and never as those of the other interpreter."""
    if len(key) <= _LONGEST_KEY and _OWN_KEY.fullmatch(key):
        return key
    return "h" + hashlib.sha256(key.encode()).hexdigest()[: _LONGEST_KEY - 1]


def _base64_size(size: int) -> int:
    return 4 * (size // 3 + 1)


class Clock:
    """Calls somebody when a program has run for so many seconds in all."""

    def __init__(self, seconds: float, late: Callable[[], None]) -> None:
        self._left = seconds
        self._late = late
        self._loop = asyncio.get_running_loop()
        self._since = 0.0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_running(self) -> bool:
        """Tell whether the program computes."""
        return self._timer is not None

    def start(self) -> None:
        """Go on; nothing happens if it does already."""
        if self._timer is None:
            self._since = self._loop.time()
            self._timer = self._loop.call_later(max(self._left, 0), self._late)

    def stop(self) -> None:
        """Stand still, until it is started again."""
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
            self._left -= self._loop.time() - self._since
