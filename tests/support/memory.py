"""Folders in memory: each of thousands of apps and databases would wait for a disk dozens of times."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

__all__ = ["disk_path", "made_in_memory", "memory_folder"]

MEMORY = Path("/dev/shm")
ROOM = 4 * 1024**3
"""Bytes that must be free: an empty collection of vectors takes eight million, and several processes run tests."""


def memory_folder() -> Path | None:
    """Return a folder in memory to make others in; None, the usual one, where there is none that is as good."""
    if not (MEMORY.is_dir() and os.access(MEMORY, os.W_OK)) or os.statvfs(MEMORY).f_flag & os.ST_NOEXEC:
        return None
    return MEMORY if shutil.disk_usage(MEMORY).free > ROOM else None


@pytest.fixture
def disk_path() -> Iterator[Path]:
    """A folder on the disk, for what is about disks: as `tmp_path` for a module that imports it under that name."""
    with tempfile.TemporaryDirectory(prefix="antwort-test-") as folder:
        inner = Path(folder) / "test"  # the folder around it is the test's own, too
        inner.mkdir()
        yield inner


@pytest.fixture
def made_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let temporary folders that the code under test makes for itself be in memory."""
    if (memory := memory_folder()) is not None:
        monkeypatch.setattr(tempfile, "tempdir", str(memory))
