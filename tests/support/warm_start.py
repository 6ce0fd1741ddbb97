"""A process with antwort imported, of which `antwort` commands of tests are forked: imports are most of their start.

Hundreds of tests start a real server. What is forked here goes on as `python -m antwort` does: with its own arguments,
folder, environment, streams and signals, as a child of whoever started it. `started_cold` is for tests of the start.

So does the process of the embedded vector database, which every app with file search starts: of another such process,
since it imports little of antwort.
"""

import atexit
import contextlib
import ctypes
import functools
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, NoReturn, TextIO

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_SCRIPT = Path(sysconfig.get_path("scripts")) / "antwort"
_OURS = ([sys.executable, "-m", "antwort"], [sys.executable, str(_SCRIPT)], [str(_SCRIPT)])
_VECTORS = [sys.executable, "-P", "-m", "antwort.providers.file_search.vectors.embedded.worker"]
_LARGEST = 1 << 20
_USED_BY_SERVERS = (
    "antwort.backends.chat.backend",
    "antwort.backends.responses.backend",
    "antwort.config.document",
    "starlette.middleware.body_limit",
    "starlette.routing",
    "uvloop",
)
"""What most servers import when they use it first."""
_exec = vars(subprocess)["_fork_exec"]
_turn = threading.Lock()
_others: dict[tuple[str, ...], socket.socket] = {}
"""Programs that are not `antwort`, and of whom each is forked."""


def start_warm() -> None:
    """From now on, fork what runs `python -m antwort` in this process."""
    vars(subprocess)["_fork_exec"] = _fork


def fork_from(parent: socket.socket, command: Sequence[str]) -> None:
    """From now on, let a process that has called `serve_forks` fork what this command starts."""
    _others[tuple(command)] = parent


@contextlib.contextmanager
def started_cold() -> Iterator[None]:
    """Start programs as everybody does."""
    before, vars(subprocess)["_fork_exec"] = vars(subprocess)["_fork_exec"], _exec
    try:
        yield
    finally:
        vars(subprocess)["_fork_exec"] = before


def _fork(args: Sequence[str | bytes], *others: Any) -> int:
    """Do what `subprocess` has this for: start a program with these streams; return its number."""
    kept, cwd, env = others[2:5]
    streams = [own if fd == -1 else fd for own, fd in enumerate((others[5], others[8], others[10]))]
    session, identity, before = others[14], others[15:20], others[20]
    words = [os.fsdecode(word) for word in args]
    if words[1:2] == ["--addr-no-randomize"]:  # of `setarch`; what is forked is laid out alike anyway
        words = words[2:]
    if tied := words[1:4] == ["--pdeathsig", "KILL", "sh"] and words[-6:-1] == ["0", *_VECTORS]:  # as `tied` does it
        words = words[-5:]
    other = _others.get(tuple(words))
    ours = [_VECTORS] if tied else _OURS
    own = words if other else next((own for own in ours if words[: len(own)] == own), None)
    environment = dict(os.environ) if env is None else dict(os.fsdecode(pair).split("=", 1) for pair in env)
    is_usual = len(kept) == 1 and not before and identity == (-1, None, None, None, -1)
    if own is None or not is_usual or _of_python(environment) != _of_python(os.environ):
        return int(_exec(args, *others))
    folder = os.fsdecode(cwd or Path.cwd())
    begin = {
        "arguments": words[len(own) :],
        "folder": folder,
        "modules": [] if tied else [folder if "-m" in own else str(_SCRIPT.parent)],
        "environment": environment,
        "ignored": [number for number in _SIGNALS if signal.getsignal(number) is signal.SIG_IGN],
        "session": session,
        "ends_with": os.getpid() if tied else 0,
    }
    with _turn, _adopting():
        parent = other or _parent("vectors" if tied else "antwort")[0]
        socket.send_fds(parent, [json.dumps(begin).encode()], streams)
        return int(parent.recv(_LARGEST))


def _of_python(environment: Mapping[str, str]) -> dict[str, str]:
    """Return what the interpreter itself reads, which has long started."""
    return {
        name: value
        for name, value in environment.items()
        if (name.startswith("PYTHON") and name != "PYTHONUNBUFFERED")
        or (name.startswith(("LC_", "LANG")) and not value.endswith("UTF-8"))
    }


@contextlib.contextmanager
def _adopting() -> Iterator[None]:
    """Become the parent of processes whose own has ended, as the first process of the system is otherwise."""
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        libc.prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


@functools.cache
def _parent(program: str) -> tuple[socket.socket, subprocess.Popen[bytes]]:
    """Start the process that has what a program imports; it ends with this one."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ANTWORT_")}
    with started_cold(), theirs:
        process = subprocess.Popen(
            [sys.executable, "-P", __file__, str(theirs.fileno()), program],
            cwd="/",
            env=environment,
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
        )
    atexit.register(_end, ours, process)
    return ours, process


def _end(requests: socket.socket, process: subprocess.Popen[bytes]) -> None:
    requests.close()
    process.kill()
    process.wait()


# --- in that process -------------------------------------------------------------------------------------------------


def serve_forks(requests: socket.socket) -> dict[str, Any]:
    """Fork for each request; return it in the process that is to do it."""
    while True:
        message, streams, _, _ = socket.recv_fds(requests, _LARGEST, 3)
        if not message:
            os._exit(0)
        ours, theirs = os.pipe()
        if between := os.fork():
            os.close(theirs)
            os.waitpid(between, 0)  # so that the new process has its new parent
            requests.send(os.read(ours, 32))
            for fd in (ours, *streams):
                os.close(fd)
            continue
        if number := os.fork():
            os.write(theirs, str(number).encode())
            os._exit(0)
        for fd in (ours, theirs, requests.detach()):
            os.close(fd)
        for own, fd in enumerate(streams):
            os.dup2(fd, own)
            os.close(fd)
        begin: dict[str, Any] = json.loads(message)
        return begin


def become(begin: dict[str, Any]) -> None:
    """Have all that a process starts with."""
    if begin["session"]:
        os.setsid()
    if begin["ends_with"]:
        _end_with(begin["ends_with"])
    os.chdir(begin["folder"])
    os.environ.clear()
    os.environ.update(begin["environment"])
    sys.argv[1:] = begin["arguments"]
    sys.path[:0] = begin["modules"]
    for number in _SIGNALS:
        usual = signal.default_int_handler if number is signal.SIGINT else signal.SIG_DFL
        signal.signal(number, signal.SIG_IGN if number in begin["ignored"] else usual)
    for fd, name in enumerate(("stdin", "stdout", "stderr")):
        stream = _stream(fd)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _end_with(parent: int) -> None:
    """Be killed when the new parent ends, which one may still have to wait for."""
    if (between := os.getppid()) != parent:
        with contextlib.suppress(ProcessLookupError):
            ended = os.pidfd_open(between)
            select.select([ended], [], [])
            os.close(ended)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def _stream(fd: int) -> TextIO:
    """Return a standard stream as the interpreter opens it."""
    if fd == 0:
        return open(fd, closefd=False)
    at_once = fd == 2 or os.isatty(fd)
    errors = "backslashreplace" if fd == 2 else "strict"
    stream = open(fd, "w", errors=errors, closefd=False, buffering=1 if at_once else -1)  # noqa: SIM115
    stream.reconfigure(write_through=bool(os.environ.get("PYTHONUNBUFFERED")))
    return stream


def keep_everything() -> None:
    """Never free what there is now, nor look through it for garbage.

    A fork would copy all of it, page by page, to count down references to it at its end.
    """
    keep = ctypes.pythonapi.Py_IncRef
    keep.argtypes, keep.restype = [ctypes.py_object], None
    for thing in gc.get_objects():
        keep(thing)
    gc.freeze()


def _main() -> NoReturn:
    gc.disable()
    program = {"antwort": _antwort, "vectors": _vectors}[sys.argv[2]]()
    assert threading.active_count() == 1, threading.enumerate()
    keep_everything()
    gc.enable()
    become(serve_forks(socket.socket(fileno=int(sys.argv[1]))))
    sys.exit(program())


def _antwort() -> Callable[[], int | None]:
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    cli = importlib.import_module("antwort.cli.main")
    for command in cli.COMMANDS.values():
        importlib.import_module(command.target.partition(":")[0])
    for point in entry_points(group="antwort.providers"):
        if point.dist is not None and point.dist.name == "antwort":
            point.load()
    main = importlib.import_module("antwort.__main__")
    for name in _USED_BY_SERVERS:
        importlib.import_module(name)
    sys.argv[0] = str(main.__file__)
    run: Callable[[], int | None] = main.main
    return run


def _vectors() -> Callable[[], None]:
    importlib.import_module(_VECTORS[-1])
    del sys.modules[_VECTORS[-1]]  # it is run anew, with all that it imports

    def run() -> None:
        runpy.run_module(_VECTORS[-1], run_name="__main__", alter_sys=True)

    return run


if __name__ == "__main__":
    _main()
