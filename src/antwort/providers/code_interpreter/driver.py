r"""What runs in the sandbox: takes code line by line of JSON, executes it in one namespace, and says when it is done.

It is given to the interpreter as a text, whatever its version is from 3.8 on, so it imports nothing but the standard
library. Its arguments are the texts of `notebook_lines` and `event_loop`, which are read when code needs them.

A call is a line on standard input with the fields

- `code`: what is to be executed;
- `mark`: a random text. `\0mark\0` is written before what the call writes, and after it;
- `stopped`: whether the call before was interrupted. The processes that it has left running are then ended before this
  one begins, and its threads, which nobody can end, are not heard any more.

All that code writes, and whatever it starts, goes to one pipe, standard output, in order. What stands there before the
first mark of a call is from what earlier ones have left running. SIGINT interrupts a call.
"""

import ast
import contextlib
import json
import linecache
import os
import signal
import sys
import threading
import time
import traceback
import types
import warnings
from typing import Any, Iterator  # noqa: UP035 - it may be an old Python

_PLOTS = "matplotlib.pyplot"
_HELPER = "<helper>"
_AWAITS = 0x80
"""The flag of code that awaits something, as `inspect` has it."""
_PATIENCE = 1.0
"""Seconds that the kernel has to end what was killed."""
_MOMENT = 0.25
"""Seconds after which a thread that did not move is taken to wait for something else than an output."""
_SOON = 0.002


def serve(notebook_lines: str, event_loop: str) -> None:
    """Execute code until there is none any more."""
    commands = os.fdopen(os.dup(0), "rb")
    marks = os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 - it stays
    sys.path.insert(0, os.getcwd())  # noqa: PTH109
    sys.argv = [""]
    warnings.filterwarnings("ignore", message=".*is non-interactive.*")
    outputs, left, interpreter = Outputs(marks), LeftRunning(), Interpreter(notebook_lines, event_loop)
    number, own = 0, os.getpid()
    while True:
        with contextlib.suppress(KeyboardInterrupt):  # one that comes too late
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            line = commands.readline()
            if not line:
                return
            asked = json.loads(line)
            number += 1
            mark = b"\0%s\0" % asked["mark"].encode()
            told = left.end() if asked["stopped"] else ""
            outputs.open(left.unheard)
            if told:
                left.settle()
                outputs.flush()
            left.begin()
            os.write(marks, mark + told.encode())
            interpreter.execute(asked["code"], f"<call {number}>")
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            if os.getpid() == own:
                save_plots(number)
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(Exception):  # code may have put anything there
                    stream.flush()
            if os.getpid() != own:  # a child that code has forked is at its end: calls are not for it
                os._exit(0)
            os.write(marks, mark)


class Outputs:
    """Where all that is written goes."""

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe
        self._streams: dict[int, Any] = {}

    def open(self, unheard: "set[threading.Thread]") -> None:
        """Let all go to the pipe, whatever the call before has replaced or closed, but for what some threads write."""
        os.dup2(self._pipe, 1)
        os.dup2(self._pipe, 2)
        sys.stdout, sys.stderr = self._stream(1, unheard), self._stream(2, unheard)

    def flush(self) -> None:
        """Write what waits to be written."""
        for stream in self._streams.values():
            stream.flush()

    def _stream(self, descriptor: int, unheard: "set[threading.Thread]") -> Any:
        """Return the stream of a descriptor, which is the same as before, as loggers keep it, if it is still good."""
        with contextlib.suppress(Exception):  # code may have done anything to it
            stream = self._streams[descriptor]
            _silence(stream, unheard)
            stream.reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True)
            return stream
        self._streams[descriptor] = os.fdopen(
            descriptor, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False
        )
        _silence(self._streams[descriptor], unheard)
        return self._streams[descriptor]


def _silence(stream: Any, unheard: "set[threading.Thread]") -> None:
    """Let a stream take nothing from some threads; if there are none, everything is as fast as ever."""
    if not unheard:
        stream.__dict__.pop("write", None)
        return
    write = type(stream).write

    def write_unless_unheard(text: str) -> Any:
        return len(text) if threading.current_thread() in unheard else write(stream, text)

    stream.__dict__["write"] = write_unless_unheard


class LeftRunning:
    """What a call has started that is there after its end."""

    def __init__(self) -> None:
        self.unheard: set[threading.Thread] = set()
        """Threads of calls that were stopped."""
        self._known: set[threading.Thread] = set()
        self._begun = 0

    def begin(self) -> None:
        """Note that a call begins."""
        self.unheard = {thread for thread in self.unheard if thread.is_alive()}
        self._known = set(threading.enumerate())
        self._begun = int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK"))

    def end(self) -> str:
        """End the processes of the call before, let its threads not be heard, and return what there is to tell."""
        ended: set[int] = set()
        until = time.monotonic() + _PATIENCE
        while time.monotonic() < until:
            found = list(_processes(self._begun))
            if not found:
                break
            for process in found:
                with contextlib.suppress(OSError):
                    os.kill(process, signal.SIGKILL)
            ended.update(found)
            time.sleep(_SOON)
        threads = set(threading.enumerate()) - self._known
        self.unheard = self.unheard | threads
        told = [f"processes, which were ended: {len(ended)}"] if ended else []
        told += [f"threads, of which nothing is shown any more: {len(threads)}"] if threads else []
        return f"[The call that was stopped has left {'; '.join(told)}.]\n" if told else ""

    def settle(self) -> None:
        """Wait until threads that are not heard any more have ended what they were about to write.

        Nobody can tell whether they were; one that does not move for a while was not.
        """
        places, until = self._places(), time.monotonic() + _MOMENT
        while places and time.monotonic() < until:
            time.sleep(_SOON)
            places &= self._places()

    def _places(self) -> "set[tuple[int, int, int]]":
        """Return where each of these threads stands."""
        frames = sys._current_frames()
        found = ((thread.ident or 0, frames.get(thread.ident or 0)) for thread in self.unheard)
        return {(thread, id(frame), frame.f_lasti) for thread, frame in found if frame is not None}


def _processes(begun: int) -> "Iterator[int]":
    """Yield the processes that have begun since, in the kernel's ticks, and run."""
    for name in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208
        if int(name) not in {1, os.getpid()}:
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123
                fields = file.read().rpartition(b")")[2].split()
                if fields[0] not in {b"Z", b"X"} and int(fields[19]) >= begun:
                    yield int(name)


class Interpreter:
    """One namespace, in which code is executed."""

    def __init__(self, notebook_lines: str, event_loop: str) -> None:
        self._texts = {"notebook_lines": notebook_lines, "event_loop": event_loop}
        self._notebook: Any = None
        self._loop: Any = None
        module = types.ModuleType("__main__")
        sys.modules["__main__"] = module
        self._names = module.__dict__

    def execute(self, code: str, name: str) -> None:
        """Execute code, and show the value of its last line as a prompt would; write how it failed, if it did."""
        linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)
        try:
            parts = self._compiled(code, name)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            if any(part.co_flags & _AWAITS for part in parts):
                self._loop = self._loop or self._helper("event_loop").EventLoop()
                self._loop.run(_steps(parts, self._names))
                return
            if self._loop is not None:
                self._loop.restore()
            for part in parts:
                exec(part, self._names)  # noqa: S102 - what it is for
        except BaseException as error:  # noqa: BLE001 - it must not end the session
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            with contextlib.suppress(Exception):
                traceback.print_exception(type(error), error, _frames_of_code(error.__traceback__, name))

    def _compiled(self, code: str, name: str) -> "list[types.CodeType]":
        """Return the code, and the last line of it by itself if it has a value to show."""
        tree = None
        with contextlib.suppress(SyntaxError):
            tree = ast.parse(code, name)
        if tree is None:
            self._notebook = self._notebook or self._helper("notebook_lines")
            tree = self._notebook.parse(code, name)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        parts = [compile(tree, name, "exec", flags, dont_inherit=True)]
        if last is not None:
            parts.append(compile(ast.Interactive([last]), name, "single", flags, dont_inherit=True))
        return parts

    def _helper(self, name: str) -> Any:
        module = types.ModuleType(name)
        exec(compile(self._texts[name], _HELPER, "exec"), module.__dict__)  # noqa: S102 - it is ours
        return module


async def _steps(parts: "list[types.CodeType]", names: "dict[str, Any]") -> None:
    for part in parts:
        made = eval(part, names)  # noqa: S307 - what it is for
        if part.co_flags & _AWAITS:
            await made


def _frames_of_code(found: "types.TracebackType | None", name: str) -> "types.TracebackType | None":
    """Return what a traceback has of the code, and of what it calls, without what is ours."""
    while found is not None and found.tb_frame.f_code.co_filename != name:
        found = found.tb_next
    one = found
    while one is not None:
        if one.tb_next is not None and one.tb_next.tb_frame.f_code.co_filename == _HELPER:
            one.tb_next = None
        one = one.tb_next
    return found


def save_plots(number: int) -> None:
    """Save the figures that are open as pictures, and close them."""
    plots = sys.modules.get(_PLOTS)
    if plots is None:
        return
    try:
        for figure in plots.get_fignums():
            plots.figure(figure).savefig(f"figure-{number}-{figure}.png", bbox_inches="tight")
        plots.close("all")
    except BaseException:  # noqa: BLE001 - it must not end the session
        traceback.print_exc()


if __name__ == "__main__":
    serve(*sys.argv[1:])
