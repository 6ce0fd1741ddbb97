"""The server of a data folder: it writes down where it listens, so that commands in the same place find it."""

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from antwort.config import Config, LoadedConfig

_FILE = "server.url"
_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - addresses that nobody can call
_TRIES, _PAUSE = 5, 0.02
"""How often the file is locked that somebody may just look at, and the seconds between."""


def callable_url(host: str, port: int) -> str:
    """Return the URL of a server that listens on an address, for whoever is on the same machine."""
    host = _EVERYWHERE.get(host, host)
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def own_url(loaded: LoadedConfig) -> str:
    """Return where the server runs that uses the data folder, or else where that of the configuration listens."""
    server = loaded.config.server
    return running_server(loaded.config) or callable_url(server.host, server.port)


def running_server(config: Config) -> str | None:
    """Return the URL of the server that runs on the data folder of a configuration; None if none does."""
    try:
        with (config.data_dir / _FILE).open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:  # it is locked as long as the server runs, however that ends
                return file.read().strip() or None
    except OSError:
        return None
    return None


@contextlib.contextmanager
def announced(folder: Path, url: str) -> Iterator[None]:
    """Let commands find a server by its data folder.

    They do not where nothing can be written, nor beside another server that uses the folder, too.
    """
    file = folder / _FILE
    handle = _locked(file)
    if handle is None:
        yield
        return
    try:
        with contextlib.suppress(OSError):  # a full disk is no reason not to serve
            os.ftruncate(handle, 0)
            os.write(handle, f"{url}\n".encode())
        yield
    finally:
        file.unlink(missing_ok=True)  # while it is locked: nobody else can have it
        os.close(handle)


def _locked(file: Path) -> int | None:
    """Return a handle of the file that is locked for this process; None if there is none to be had."""
    for _ in range(_TRIES):
        try:
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:
            return None
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(handle), file.stat()):
                return handle
        except OSError:
            pass
        os.close(handle)
        time.sleep(_PAUSE)
    return None
