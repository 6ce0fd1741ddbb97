"""Servers of other packages that run on Werkzeug's development server, as processes of their own."""

import contextlib
import os
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

__all__ = ["serving"]


@contextlib.contextmanager
def serving(command: Sequence[str | Path], folder: Path, environment: Mapping[str, str]) -> Iterator[str]:
    """Run a server in a folder, where its log is too, and give its address."""
    with socket.socket() as listening, (folder / "log").open("wb") as log:
        # The process inherits a socket that listens already: the port is free, and nobody has to wait for the start.
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        inherited = {"WERKZEUG_RUN_MAIN": "true", "WERKZEUG_SERVER_FD": str(listening.fileno())}
        process = subprocess.Popen(
            command,
            cwd=folder,
            env={"PATH": os.defpath, "HOME": str(folder), "TMPDIR": str(folder), **environment, **inherited},
            pass_fds=[listening.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        address = f"http://127.0.0.1:{listening.getsockname()[1]}"
    try:
        yield address
    finally:
        process.kill()
        process.wait()
