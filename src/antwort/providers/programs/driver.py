"""What runs a program in the sandbox: executes it, asks outside for the calls that it makes, and says how it ended.

It is given to Python as a text, whatever its version is, so it imports nothing but the standard library. Frames come
and go over two pipes of which the program is not told: four bytes of length, and JSON. All that the program writes, and
whatever it starts, goes to a third one. Nothing here is a boundary: the program can do what this file does, and whoever
reads the frames trusts none of them.
"""

from __future__ import annotations

import ast
import asyncio
import base64
import builtins
import contextlib
import datetime
import enum
import inspect
import io
import json
import linecache
import math
import os
import pickle
import random
import resource
import selectors
import struct
import sys
import time
import traceback
import types
import warnings
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any, NoReturn

_PROGRAM, _PRELUDE, _OWN = "program.py", "<prelude>", "<string>"
"""What tracebacks call the program, what it has besides, and this file."""
_HEADER = struct.Struct(">I")
_PIECE = 1 << 16
_RESERVE = 16 << 20
"""Bytes of memory that are left to tell that there are no more."""
_SLEEP = time.sleep


class Task(asyncio.Task):  # type: ignore[type-arg]
    """A task that knows its place among others: calls have the same names when a program runs a second time."""

    def __init__(self, *args: Any, path: str, **options: Any) -> None:
        self.path = path
        self.count = 0
        super().__init__(*args, **options)

    def next_path(self) -> str:
        """Return the place of what the task makes next: a call, or another task."""
        self.count += 1
        return f"{self.path}-{self.count}"


class Selector(selectors.DefaultSelector):
    """Tells when there is nothing to do but to wait."""

    bridge: Bridge

    def select(self, timeout: float | None = None) -> Any:  # type: ignore[explicit-override]
        """Wait for what can be read, and say so before, if it is not there yet."""
        found = super().select(0)
        if found or (timeout is not None and timeout <= 0):
            return found
        self.bridge.tell_idle(timeout)
        return super().select(timeout)


class Bridge:
    """Sends what the program asks for, and gives it what comes back."""

    def __init__(self, commands: int, frames: int) -> None:
        self._commands = commands
        self._frames = frames
        self._buffer = bytearray()
        self.most = 0
        """Bytes that a call may have."""
        self._waiting: dict[str, asyncio.Future[Any]] = {}
        self._seen = 0
        self._loops: list[asyncio.AbstractEventLoop] = []
        self._callers: list[Task] = []

    def send(self, **frame: Any) -> None:
        """Send a frame; UnicodeEncodeError or ValueError if it is no text that JSON can have."""
        data = json.dumps(frame, ensure_ascii=False, allow_nan=False).encode()
        if frame["type"] == "call" and len(data) > self.most:
            raise ValueError(f"the arguments have {len(data):,} bytes; set a variable in parts, and pass that")
        data = _HEADER.pack(len(data)) + data
        while data:
            data = data[os.write(self._frames, data) :]

    def receive(self) -> dict[str, Any]:
        """Wait for a frame."""
        while True:
            for frame in self._received():
                return frame
            self._read()

    def tell_idle(self, seconds: float | None) -> None:
        """Say that nothing goes on for so long, or until the results come that are not there yet."""
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):  # the program may have put anything there
                stream.flush()
        self.send(type="idle", seen=self._seen, seconds=seconds)

    async def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Make a call, and wait for its result."""
        task = asyncio.current_task()
        key = task.next_path() if isinstance(task, Task) else ""
        handed_on: set[str] = set()
        try:
            args, kwargs = plain(list(args), handed_on), plain(kwargs, handed_on)
            self.send(type="call", key=key, name=name, args=args, kwargs=kwargs, references=sorted(handed_on))
        except (ValueError, RecursionError) as error:
            raise TypeError(f"{name}: {error}") from None
        future = self._waiting[key] = asyncio.get_running_loop().create_future()
        try:
            return await future
        finally:
            self._waiting.pop(key, None)

    def run(self, main: Coroutine[Any, Any, Any], **_options: Any) -> Any:
        """Run a coroutine to its end, also within another that runs: programs are written with `asyncio.run`."""
        selector = Selector()
        selector.bridge = self
        loop = asyncio.SelectorEventLoop(selector)
        loop.set_task_factory(self._task)
        outer, caller = self._loops[-1] if self._loops else None, None
        if outer is not None:
            caller = asyncio.current_task(outer)
            outer.remove_reader(self._commands)
            asyncio._set_running_loop(None)
            if isinstance(caller, Task):
                self._callers.append(caller)
        self._loops.append(loop)
        loop.add_reader(self._commands, self._deliver)
        try:
            return loop.run_until_complete(main)
        finally:
            self._loops.pop()
            with contextlib.suppress(Exception):
                cancel_all(loop)
            loop.remove_reader(self._commands)
            if outer is not None:
                if isinstance(caller, Task):
                    self._callers.pop()
                asyncio._set_running_loop(outer)
                outer.add_reader(self._commands, self._deliver)
            loop.close()

    def _task(self, loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> Task:
        parent = asyncio.current_task(loop) or (self._callers[-1] if self._callers else None)
        path = parent.next_path() if isinstance(parent, Task) else "0"
        return Task(coroutine, loop=loop, path=path, **options)

    def _deliver(self) -> None:
        """Give results to those who wait for them."""
        self._read()
        for frame in self._received():
            self._seen += 1
            future = self._waiting.pop(frame["key"], None)
            if future is None or future.done():  # nobody waits for it any more
                continue
            if "error" in frame:
                future.set_exception(RuntimeError(frame["error"]))
            else:
                future.set_result(frame["value"])

    def _read(self) -> None:
        piece = os.read(self._commands, _PIECE)
        if not piece:
            os._exit(1)
        self._buffer += piece

    def _received(self) -> Iterator[dict[str, Any]]:
        while len(self._buffer) >= _HEADER.size:
            end = _HEADER.size + _HEADER.unpack_from(self._buffer)[0]
            if len(self._buffer) < end:
                return
            frame = json.loads(self._buffer[_HEADER.size : end])
            del self._buffer[:end]
            yield frame


def cancel_all(loop: asyncio.AbstractEventLoop) -> None:
    """End the tasks that nobody has waited for."""
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if tasks:
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
    loop.run_until_complete(loop.shutdown_asyncgens())


# --- values ----------------------------------------------------------------------------------------------------------


def plain(value: Any, references: set[str] | None = None) -> Any:
    """Return a value as JSON can say it: keys are texts, and what is no number is nothing.

    The ids of variables are added to `references`: what else looks like one is data.
    """
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, enum.Enum):
        return plain(value.value, references)
    if isinstance(value, (str, int, float)) or value is None:
        return value
    if isinstance(value, dict):
        return {str(plain(key)): plain(part, references) for key, part in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(part, references) for part in value]
    return plain(stand_in(value, references), references)


def stand_in(value: Any, references: set[str] | None = None) -> Any:
    """Return what stands for an object: variables are references, others their attributes."""
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(value).decode()
    if isinstance(value, (deque, range, type({}.keys()), type({}.values()), type({}.items()))):
        return list(value)
    if isinstance(value, type) or type(value).__module__ != "__main__" or not hasattr(value, "__dict__"):
        return str(value)
    if type(value).__name__ != "Variable":
        return dict(vars(value))
    if references is not None:
        references.add(str(value.id))
    return {"$ref": value.id}


def written(value: Any) -> str:
    """Return the value of the last expression as a model reads it."""
    if isinstance(value, str):
        return value
    if inspect.iscoroutine(value):
        value.close()
        return f"<coroutine {value.__name__}> (nobody has awaited this call, so it was not made)"
    try:
        return json.dumps(plain(value), ensure_ascii=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError):
        return repr(value)


# --- names -----------------------------------------------------------------------------------------------------------


class Names:
    """What programs have defined, for the next one: functions and classes by their source, all else by its value."""

    def __init__(self, namespace: dict[str, Any]) -> None:
        self._namespace = namespace
        self._own = dict(namespace)
        self._sources: dict[str, str] = {}
        self.lost: set[str] = set()
        """Names that could not be kept, and were not defined again."""

    def restore(self, data: bytes) -> None:
        """Define again what earlier programs have defined."""
        self._sources, self.lost, values = pickle.loads(data)  # noqa: S301 - a program has written it, for one like it
        later = [source for source in dict.fromkeys(self._sources.values()) if not self._is_defined(source)]
        self._namespace.update(pickle.loads(values))  # noqa: S301
        for source in later:
            self._is_defined(source)

    def _is_defined(self, source: str) -> bool:
        """Execute a definition; False if it needs something that is not there yet."""
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                exec(compile(source, _PROGRAM, "exec", dont_inherit=True), self._namespace)  # noqa: S102
        except Exception:  # noqa: BLE001 - whatever it is, the name is missed when it is used
            return False
        return True

    def note(self, tree: ast.AST) -> None:
        """Take note of what a program defines."""
        for node in getattr(tree, "body", []):
            for name in _defined(node):
                self._sources.pop(name, None)
                self._sources[name] = ast.unparse(node)
            for part in ("body", "orelse", "finalbody") if isinstance(node, (ast.If, ast.Try, ast.With)) else ():
                self.note(ast.Module(getattr(node, part, []), []))

    def kept(self) -> bytes:
        """Return what is to be kept."""
        values = {}
        present = {
            name: value
            for name, value in self._namespace.items()
            if not (name.startswith("__") and name.endswith("__")) and self._own.get(name, self) is not value
        }
        self._sources = {name: source for name, source in self._sources.items() if name in present}
        self.lost -= present.keys()
        for name, value in present.items():
            if name in self._sources and (callable(value) or isinstance(value, types.ModuleType)):
                continue
            try:
                self._pickled(value)
            except Exception:  # noqa: BLE001 - objects may raise anything
                self.lost.add(name)
            else:
                values[name] = value
        return pickle.dumps((self._sources, self.lost, self._pickled(values)))

    def _pickled(self, value: Any) -> bytes:
        file = io.BytesIO()
        _Pickler(file, self._sources).dump(value)
        return file.getvalue()


class _Pickler(pickle.Pickler):
    """Refuses what the next program would not find: functions and classes that no source defines."""

    def __init__(self, file: io.BytesIO, sources: dict[str, str]) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self._sources = sources

    def reducer_override(self, value: Any) -> Any:  # type: ignore[explicit-override]
        """Let others be as they are."""
        own = isinstance(value, (type, types.FunctionType)) and value.__module__ == "__main__"
        if own and value.__qualname__ not in self._sources and value.__qualname__ != "Variable":
            raise pickle.PicklingError(value.__qualname__)
        return NotImplemented


def _defined(node: ast.AST) -> list[str]:
    """Return the names that a statement defines in a way that can be repeated."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return [node.name]
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return [(alias.asname or alias.name).partition(".")[0] for alias in node.names]
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.Lambda):
        return [target.id for target in node.targets if isinstance(target, ast.Name)]
    return []


# --- the program -----------------------------------------------------------------------------------------------------


def limit_memory(most: int) -> None:
    """Let the program have so much memory beyond what there is already; then it is a MemoryError."""
    with open("/proc/self/statm") as file:  # noqa: PTH123
        taken = int(file.read().split()[5]) * resource.getpagesize()
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    highest = taken + most + _RESERVE if hard == resource.RLIM_INFINITY else min(taken + most + _RESERVE, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (min(taken + most, highest), highest))


def free_reserve() -> None:
    """Have some memory to tell that there was not enough."""
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))


def restore(names: Names, data: bytes) -> None:
    """Define what earlier programs have defined, and say so if that cannot be done."""
    try:
        names.restore(data)
    except Exception as error:  # noqa: BLE001 - objects may raise anything
        print(f"(What earlier programs have defined is not there: {type(error).__name__}: {error})")  # noqa: T201


async def execute(code: str, namespace: dict[str, Any], names: Names) -> str:
    """Execute a program; return the value of its last expression, as it is read."""
    tree = ast.parse(code, _PROGRAM)
    names.note(tree)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    parts: list[tuple[ast.AST, str]] = [(tree, "exec")]
    if isinstance(last, ast.Expr):
        parts.append((ast.Expression(last.value), "eval"))
    flags, value = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, None
    compiled = [compile(part, _PROGRAM, mode, flags, dont_inherit=True) for part, mode in parts]  # type: ignore[call-overload]
    for part in compiled:
        value = eval(part, namespace)  # noqa: S307 - what it is for
        if part.co_flags & inspect.CO_COROUTINE:
            value = await value
    return "" if last is None or value is None else written(value)


def explained(error: BaseException) -> str:
    """Return the traceback of an error, without what is not the program's."""
    shown = traceback.TracebackException(type(error), error, error.__traceback__)
    for part in _chain(shown):
        frames = [frame for frame in part.stack if frame.filename not in (_OWN, _PRELUDE)]
        first = next((n for n, frame in enumerate(frames) if frame.filename == _PROGRAM), 0)
        part.stack = traceback.StackSummary.from_list(frames[first:])
    return "".join(shown.format()).rstrip()


def _chain(shown: traceback.TracebackException | None) -> Iterator[traceback.TracebackException]:
    while shown is not None:
        yield shown
        if shown.__cause__ is not None:
            yield from _chain(shown.__cause__)
        shown = shown.__context__


def function(bridge: Bridge, name: str) -> Callable[..., Awaitable[Any]]:
    """Return a function of the agent, as the program has it."""

    async def stub(*args: Any, **kwargs: Any) -> Any:
        return await bridge.call(name, args, kwargs)

    stub.__name__ = stub.__qualname__ = name
    return stub


def prepare(asked: dict[str, Any], bridge: Bridge) -> dict[str, Any]:
    """Return the namespace of a program: one like that of a script, with functions."""
    module = sys.modules["__main__"] = types.ModuleType("__main__")
    namespace = module.__dict__
    namespace["__builtins__"] = builtins
    namespace.update({name: function(bridge, name) for name in asked["functions"]})
    exec(compile(asked["prelude"], _PRELUDE, "exec", dont_inherit=True), namespace)  # noqa: S102

    def sleep(seconds: Any) -> None:
        bridge.tell_idle(seconds)
        _SLEEP(seconds)

    time.sleep = sleep
    asyncio.run = bridge.run
    random.seed(asked["seed"])
    warnings.simplefilter("ignore", DeprecationWarning)
    sys.argv, sys.path = [_PROGRAM], [path for path in sys.path if path]
    linecache.cache[_PROGRAM] = (len(asked["code"]), None, asked["code"].splitlines(keepends=True), _PROGRAM)
    return namespace


def finish(bridge: Bridge, asked: dict[str, Any], text: str, names: Names, *, failed: bool) -> NoReturn:
    """Say how the program ended, and what is to be kept; then end, whatever is still under way."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    kept = ""
    if asked["keeps"]:
        with contextlib.suppress(Exception):  # objects may raise anything
            kept = base64.b64encode(names.kept()).decode()
        if len(kept) > asked["max_names"]:
            kept = ""
    text = text[: asked["max_text"]].encode(errors="replace").decode()
    bridge.send(type="end", failed=failed, text=text, names=kept)
    os._exit(0)


def open_channels() -> Bridge:
    """Take the pipes, and leave the program those that are its own."""
    bridge = Bridge(os.dup(0), os.dup(1))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 - it stays
    sys.stdout, sys.stderr = (
        os.fdopen(number, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)
        for number in (1, 2)
    )
    return bridge


def serve() -> NoReturn:
    """Run the one program that there is."""
    bridge = open_channels()
    asked = bridge.receive()
    bridge.most = asked["max_frame"]
    namespace = prepare(asked, bridge)
    names = Names(namespace)
    limit_memory(asked["memory"])
    bridge.send(type="ready")
    failed = True
    try:
        if asked["names"]:
            restore(names, base64.b64decode(asked["names"]))
        text = bridge.run(execute(asked["code"], namespace, names))
        failed = False
    except SystemExit as error:
        failed = error.code not in (None, 0)
        text = f"SystemExit: {error.code}" if failed else ""
    except BaseException as error:  # noqa: BLE001 - it is told
        free_reserve()
        try:
            text = explained(error)
        except MemoryError:
            text = f"{type(error).__name__}: {error}"
        if getattr(error, "name", None) in names.lost and isinstance(error, NameError):
            text += f"\n('{error.name}' of an earlier program could not be kept. Define it again.)"
    finish(bridge, asked, text, names, failed=failed)


if __name__ == "__main__":
    serve()
