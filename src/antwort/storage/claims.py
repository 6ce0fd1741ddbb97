"""What one server at a time may use: a second one is refused, instead of taking things away from the first."""

import contextlib
import fcntl
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from antwort.errors import ConfigError


@contextlib.contextmanager
def claimed(things: Iterable[Path]) -> Iterator[None]:
    """Have files or folders for this process alone; one that another process has is a ConfigError.

    The claim is a lock on a file beside each, which ends with the process however that ends. Where no such file can be
    made nothing is claimed: whoever opens the thing itself says what is wrong with the place.
    """
    with contextlib.ExitStack() as claims:
        for thing in things:
            with contextlib.suppress(OSError):
                handle = _lock(thing)
                claims.callback(_release, thing, handle)
        yield


def _beside(thing: Path) -> Path:
    return thing.with_name(f"{thing.name}-lock")


def _lock(thing: Path) -> int:
    file = _beside(thing)
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    while True:
        handle = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(handle), file.stat()):
                return handle
        except BlockingIOError:
            os.close(handle)
            raise ConfigError(
                "another server uses it; stop that one, or give this one a folder of its own with --data-dir",
                where=str(thing),
            ) from None
        except FileNotFoundError:
            pass
        os.close(handle)  # whoever had it has removed it in the meantime


def _release(thing: Path, handle: int) -> None:
    _beside(thing).unlink(missing_ok=True)  # while it is locked: nobody else can have it
    os.close(handle)
