"""What runs in the sandbox: takes code line by line of JSON, executes it in one namespace, and says when it is done.

It is given to the interpreter as a text, whatever its version is, so it imports nothing but the standard library. All
that code writes, and whatever it starts, goes to one pipe, in order; the mark that ends a call goes there too.
"""

import ast
import contextlib
import json
import linecache
import os
import signal
import sys
import traceback
import types
import warnings

_PLOTS = "matplotlib.pyplot"


def serve() -> None:
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
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    number, own = 0, os.getpid()
    while True:
        with contextlib.suppress(KeyboardInterrupt):  # one that comes too late
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            line = commands.readline()
            if not line:
                return
            asked = json.loads(line)
            number += 1
            open_outputs(marks)
            execute(asked["code"], f"<call {number}>", module.__dict__)
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            if os.getpid() == own:
                save_plots(number)
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(Exception):  # code may have put anything there
                    stream.flush()
            if os.getpid() != own:  # a child that code has forked is at its end: calls are not for it
                os._exit(0)
            os.write(marks, b"\0%s\0" % asked["mark"].encode())


def open_outputs(pipe: int) -> None:
    """Let all that is written go to the pipe, whatever the call before has replaced or closed."""
    os.dup2(pipe, 1)
    os.dup2(pipe, 2)
    sys.stdout, sys.stderr = (
        os.fdopen(number, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)
        for number in (1, 2)
    )


def execute(code: str, name: str, namespace: "dict[str, object]") -> None:
    """Execute code, and show the value of its last line as a prompt would; write how it failed, if it did."""
    linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)
    try:
        tree = ast.parse(code, name)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        before = compile(tree, name, "exec")
        after = None if last is None else compile(ast.Interactive([last]), name, "single")
        signal.signal(signal.SIGINT, signal.default_int_handler)
        exec(before, namespace)  # noqa: S102 - what it is for
        if after is not None:
            exec(after, namespace)  # noqa: S102
    except BaseException as error:  # noqa: BLE001 - it must not end the session
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        with contextlib.suppress(Exception):
            shown = error.__traceback__
            while shown is not None and shown.tb_frame.f_code.co_filename != name:  # those are our own
                shown = shown.tb_next
            traceback.print_exception(type(error), error, shown)


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
    serve()
