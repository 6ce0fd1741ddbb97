"""Files that only a server and its sandboxes see: those on file systems that are mounted in its own namespace."""

import os
from collections.abc import Iterator
from pathlib import Path


def found(folder: Path, pattern: str, process: int | None = None) -> Iterator[Path]:
    """Yield what a process, by default this one, has in a folder, as a pattern says: on the disk, or mounted there."""
    seen = set()
    for place in (folder, *_mounted(folder, process or os.getpid())):
        for path in place.glob(pattern):
            about = path.stat()
            if (about.st_dev, about.st_ino) not in seen:
                seen.add((about.st_dev, about.st_ino))
                yield path


def _mounted(folder: Path, process: int) -> Iterator[Path]:
    """Yield the folder as it is seen from the roots that a process has open."""
    for opened in Path("/proc", str(process), "fd").iterdir():
        try:
            is_root = opened.readlink() == Path("/")
        except FileNotFoundError:  # it was closed meanwhile
            continue
        if is_root:
            yield Path(f"{opened}{folder}")
