"""Folders in memory, for what waits for a disk again and again and is not about disks."""

import os
import shutil
from pathlib import Path

__all__ = ["memory_folder"]

MEMORY = Path("/dev/shm")
ROOM = 4 * 1024**3
"""Bytes that must be free: an empty collection of vectors takes eight million, and several processes run tests."""


def memory_folder() -> Path | None:
    """Return a folder in memory to make others in; None, the usual one, where there is none with enough room."""
    if MEMORY.is_dir() and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > ROOM:
        return MEMORY
    return None
