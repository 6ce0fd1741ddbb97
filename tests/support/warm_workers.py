"""A process that has imported the tests, of which the workers of a run are forked: each would import the same.

That takes seconds. What is imported is shared in memory, too. A worker collects, and starts what it needs, for itself.
"""

import atexit
import gc
import os
import socket
import sys
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from _pytest.pathlib import import_path
from execnet.gateway_io import popen_bootstrapline
from tests.support.warm_start import become, fork_from, serve_forks

__all__ = ["start_workers_warm"]


def start_workers_warm(config: pytest.Config) -> None:
    """From now on, fork the workers of this run; where that cannot be, they start as everybody's do."""
    if threading.active_count() > 1:
        return
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if (number := os.fork()) == 0:
        ours.close()
        _be_parent(theirs, config)
    theirs.close()
    atexit.register(_end, ours, number)
    if ours.recv(1):
        fork_from(ours, [sys.executable, "-u", "-c", popen_bootstrapline])


def _end(requests: socket.socket, number: int) -> None:
    requests.close()
    os.waitpid(number, 0)


def _be_parent(requests: socket.socket, config: pytest.Config) -> None:
    """Import, fork, and be a worker where that returns; never go back to the run that this was forked from."""
    try:
        _import_tests(config)
        requests.send(b"1")
        _be_worker(serve_forks(requests))
    finally:
        sys.stderr.flush()
        os._exit(0)


def _import_tests(config: pytest.Config) -> None:
    """Import what is going to be collected, as the collection would: warnings are errors."""
    gc.disable()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for path in sorted(_tests_of(config)):
            try:
                import_path(path, mode="importlib", root=config.rootpath, consider_namespace_packages=False)
            except Exception:  # noqa: BLE001 -- whoever collects it finds out as well, and says so
                sys.modules.pop(".".join(path.relative_to(config.rootpath).with_suffix("").parts), None)
    gc.freeze()
    gc.enable()


def _tests_of(config: pytest.Config) -> Iterator[Path]:
    for word in config.args:
        path = config.invocation_params.dir / word.partition("::")[0]
        yield from [path] if path.is_file() else path.rglob("test_*.py")


def _be_worker(begin: dict[str, Any]) -> None:
    """Do what `python -c` does."""
    become(begin)
    main = sys.modules["__main__"] = ModuleType("__main__")
    try:
        exec(popen_bootstrapline, vars(main))
    finally:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
