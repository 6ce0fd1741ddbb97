"""New databases of apps in this process, which begin as a copy of one that has its tables.

To create these takes longer than most requests, and there are thousands of apps. Whoever opens a store without an app,
or starts a process, has them created.
"""

import contextlib
import functools
import os
import tempfile
from pathlib import Path

from tests.support.memory import MEMORY

from antwort.config import Config
from antwort.storage import opening
from antwort.storage.sql.store import Store
from antwort.storage.sqlite.connection import create_file
from antwort.storage.sqlite.maintenance import prepare
from antwort.storage.urls import database_url, is_postgres, sqlite_path

__all__ = ["start_with_tables"]

_open_store = opening.open_store


def start_with_tables() -> None:
    """From now on, give apps of this process such databases."""
    vars(opening)["open_store"] = _open_with_tables


def _open_with_tables(config: Config) -> Store:
    url = database_url(config)
    if not is_postgres(url) and _is_new_in_memory(path := sqlite_path(url)):
        _begin(path, config.storage.disk_reserve)
    return _open_store(config)


def _is_new_in_memory(path: Path) -> bool:
    if not MEMORY.exists() or path.exists() or path.with_name(f"{path.name}-wal").exists():
        return False
    folder = next(folder for folder in path.absolute().parents if folder.exists())
    return folder.stat().st_dev == MEMORY.stat().st_dev


def _begin(path: Path, reserve: int) -> None:
    """Make the file at once, since others may open it at the same time; one that cannot be made is left to the app."""
    beside = path.with_name(f"{path.name}-{os.urandom(8).hex()}")
    try:
        create_file(beside)
        beside.write_bytes(_with_tables())
        path.hardlink_to(beside)
    except OSError:
        return
    finally:
        with contextlib.suppress(OSError):  # something else is in the way of its folder
            beside.unlink(missing_ok=True)
    if reserve:  # nothing else fills this disk, so no room of it need be taken
        place = path.with_name(f"{path.name}-reserve")
        place.touch(0o600)
        os.truncate(place, reserve)


@functools.cache
def _with_tables() -> bytes:
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        path = Path(folder) / "new.db"
        prepare(path)
        return path.read_bytes()
