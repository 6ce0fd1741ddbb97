"""Folders that somebody fills whom nobody trusts: to delete one without being led elsewhere, or held up."""

import contextlib
import os
import secrets
import stat
from pathlib import Path

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def delete_tree(folder: Path) -> None:
    """Delete a folder with all that is in it; links are deleted, not followed. One that is gone is no error.

    Folders within folders are moved up before they are emptied: there may be any number of levels.
    """
    try:
        make_accessible(str(folder), folder)
        top = os.open(folder, _FOLDER)
    except FileNotFoundError:
        return
    try:
        waiting = _emptied(top, top)
        while waiting:
            name = waiting.pop()
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                _make_accessible(name, top)
                inner = os.open(name, _FOLDER, dir_fd=top)
                try:
                    waiting += _emptied(inner, top)
                finally:
                    os.close(inner)
                os.rmdir(name, dir_fd=top)
    finally:
        os.close(top)
    with contextlib.suppress(FileNotFoundError):
        folder.rmdir()


def _emptied(folder: int, top: int) -> list[str]:
    """Delete the files of an open folder, and move its folders to the top one; return their names there."""
    moved = []
    with os.scandir(folder) as entries:
        for entry in entries:
            with contextlib.suppress(FileNotFoundError):
                if not entry.is_dir(follow_symlinks=False):
                    os.unlink(entry.name, dir_fd=folder)
                elif folder == top:
                    moved.append(entry.name)
                else:
                    _make_accessible(entry.name, folder)  # to move a folder its owner has to be able to write to it
                    name = f".deleted-{secrets.token_hex(8)}"
                    os.rename(entry.name, name, src_dir_fd=folder, dst_dir_fd=top)
                    moved.append(name)
    return moved


def make_accessible(place: str, top: Path) -> None:
    """Open a folder that its owner has closed to himself, if it is that or lies in `top`: links may lead elsewhere."""
    _make_accessible(place, None, within=top)


def make_accessible_at(name: str, parent: int) -> None:
    """Open a folder or a file, in an open folder, that its owner has closed to himself; links stay as they are."""
    _make_accessible(name, parent, files=True)


def _make_accessible(name: str, parent: int | None, within: Path | None = None, *, files: bool = False) -> None:
    """Open a folder that its owner has closed to himself."""
    found = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        mode, own = os.fstat(found).st_mode, Path(f"/proc/self/fd/{found}")
        if within is not None and not own.readlink().is_relative_to(within.resolve()):
            return
        if stat.S_ISDIR(mode) and mode & stat.S_IRWXU != stat.S_IRWXU:
            own.chmod(stat.S_IRWXU)
        elif files and stat.S_ISREG(mode) and not mode & stat.S_IRUSR:
            own.chmod(stat.S_IRUSR | stat.S_IWUSR)
    finally:
        os.close(found)
