"""Files that only a server and its sandboxes see: those on file systems that are mounted in its own namespace."""

import os
from collections.abc import Iterator
from pathlib import Path


def found(folder: Path, pattern: str, process: int | None = None) -> Iterator[Path]:
    """Yield what a process, by default this one, has in a folder, as a pattern says: on the disk, or mounted there."""
    yield from folder.glob(pattern)
    own = Path("/proc", str(process or os.getpid()), "fd")
    for opened in own.iterdir():
        try:
            is_root = opened.readlink() == Path("/")
        except FileNotFoundError:  # it was closed meanwhile
            continue
        if is_root:
            yield from Path(f"{opened}{folder}").glob(pattern)
