"""Files of a workspace, reached without ever following a link: commands may have put one anywhere.

Each folder on the way is opened from the one before; whatever is swapped meanwhile is not what was opened.
"""

import contextlib
import errno
import os
import secrets
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from antwort.provider import BaseModel, Field, FunctionError

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_DEEPEST = 64
_LONGEST = 4096


class FileProblemError(FunctionError):
    """A file cannot be used, and why."""


class MissingFileError(FileProblemError):
    """There is no such file."""


class FileObject(BaseModel):
    """A file of a workspace."""

    object: str = "workspace.file"
    path: str = Field(description="Relative to the workspace.")
    bytes: int
    modified_at: int = Field(description="Seconds since 1970.")


class Files:
    """The files of one workspace. Paths are relative to it, or begin with one of `homes`."""

    def __init__(self, folder: Path, homes: tuple[str, ...] = ()) -> None:
        self._folder = folder
        self._homes = homes

    def open(self, path: str) -> BinaryIO:
        """Open a file to be read."""
        *folders, name = self._parts(path)
        with self._walk(folders, path) as parent:
            try:
                # Whoever opens a pipe without this waits until somebody writes to it.
                file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=parent)
            except OSError as error:
                raise _problem(path, error) from error
        if not stat.S_ISREG(os.fstat(file).st_mode):
            os.close(file)
            raise FileProblemError(f"'{path}' is no file.")
        return os.fdopen(file, "rb")

    def create(self, path: str) -> "NewFile":
        """Begin to write a file, in the place of one that may be there; folders on the way are made."""
        *folders, name = self._parts(path)
        with self._walk(folders, path, make=True) as parent:
            try:
                with contextlib.suppress(FileNotFoundError):
                    if stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
                        raise FileProblemError(f"'{path[:200]}' is a folder.")
                return NewFile(parent, name, self._owner())
            except OSError as error:
                raise _problem(path, error) from error

    def delete(self, path: str) -> None:
        """Delete a file, or a link."""
        *folders, name = self._parts(path)
        with self._walk(folders, path) as parent:
            try:
                os.unlink(name, dir_fd=parent)
            except OSError as error:
                raise _problem(path, error) from error

    def all(self) -> list[FileObject]:
        """Return all files by their paths; links, pipes and the like are none, nor is what lies too deep."""
        with self._walk([], ".") as top:
            return sorted(_listed(top, "", 0), key=lambda file: file.path)

    def about(self, path: str) -> FileObject:
        """Return what a file is."""
        with self.open(path) as file:
            found = os.fstat(file.fileno())
        relative = "/".join(self._parts(path))
        return FileObject(path=relative, bytes=found.st_size, modified_at=int(found.st_mtime))

    def _owner(self) -> int:
        return self._folder.stat().st_uid

    def _parts(self, path: str) -> list[str]:
        """Return the names on the way to a file."""
        if not path or "\0" in path or len(path.encode(errors="replace")) > _LONGEST or not _is_text(path):
            raise FileProblemError("That is no path; use one such as 'notes/today.txt'.")
        for home in self._homes:
            if path == home or path.startswith(f"{home}/"):
                path = path[len(home) :].lstrip("/")
        parts = [part for part in path.split("/") if part not in {"", "."}]
        if path.startswith("/") or ".." in parts or not parts:
            raise FileProblemError(
                f"'{path[:200]}' is outside of the workspace; use a path relative to it, without '..'."
            )
        return parts

    @contextlib.contextmanager
    def _walk(self, folders: list[str], path: str, *, make: bool = False) -> Iterator[int]:
        """Give the open folder that a file is in."""
        try:
            current = os.open(self._folder, _FOLDER)
        except OSError as error:
            raise _problem(path, error) from error
        try:
            for name in folders:
                try:
                    if make:
                        _make_folder(name, current, self._owner())
                    inner = os.open(name, _FOLDER, dir_fd=current)
                except OSError as error:
                    raise _problem(path, error) from error
                os.close(current)
                current = inner
            yield current
        finally:
            os.close(current)


class NewFile:
    """A file that is being written, beside the one that it will replace."""

    def __init__(self, parent: int, name: str, owner: int) -> None:
        self._name = name
        self._own_name = f".antwort-{secrets.token_hex(8)}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        file = os.open(self._own_name, flags, 0o644, dir_fd=parent)
        self._parent = os.dup(parent)
        if os.geteuid() == 0:
            os.fchown(file, owner, owner)
        self._file = os.fdopen(file, "wb")
        self._ending = threading.Lock()
        """Whoever is cancelled drops a file that a thread is about to put in its place."""
        self._is_over = False

    def write(self, data: bytes) -> None:
        """Add some content; FileProblemError if there is no room for it."""
        try:
            self._file.write(data)
        except OSError as error:
            raise _problem(self._name, error) from error

    def keep(self) -> None:
        """Put the file in its place, unless it was dropped; FileProblemError if that cannot be done."""
        with self._ending:
            if self._is_over:
                return
            try:
                self._file.close()
                os.replace(self._own_name, self._name, src_dir_fd=self._parent, dst_dir_fd=self._parent)
            except OSError as error:
                raise _problem(self._name, error) from error
            self._end()

    def drop(self) -> None:
        """Forget the file, unless it is in its place."""
        with self._ending:
            if self._is_over:
                return
            with contextlib.suppress(OSError):  # what is not written yet need not be
                self._file.close()
            with contextlib.suppress(OSError):
                os.unlink(self._own_name, dir_fd=self._parent)
            self._end()

    def _end(self) -> None:
        self._is_over = True
        os.close(self._parent)


def _make_folder(name: str, parent: int, owner: int) -> None:
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, 0o755, dir_fd=parent)
        if os.geteuid() == 0:
            os.chown(name, owner, owner, dir_fd=parent, follow_symlinks=False)


def _listed(folder: int, above: str, depth: int) -> Iterator[FileObject]:
    with os.scandir(folder) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                if not _is_text(entry.name):
                    continue  # nobody could ask for it
                about = entry.stat(follow_symlinks=False)
                if stat.S_ISREG(about.st_mode):
                    yield FileObject(path=above + entry.name, bytes=about.st_size, modified_at=int(about.st_mtime))
                elif stat.S_ISDIR(about.st_mode) and depth < _DEEPEST:
                    inner = os.open(entry.name, _FOLDER, dir_fd=folder)
                    try:
                        yield from _listed(inner, f"{above}{entry.name}/", depth + 1)
                    finally:
                        os.close(inner)


def _is_text(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def _problem(path: str, error: OSError) -> FileProblemError:
    shown = f"'{path[:200]}'"
    if isinstance(error, FileNotFoundError):
        return MissingFileError(f"There is no file {shown}.")
    if isinstance(error, IsADirectoryError):
        return FileProblemError(f"{shown} is a folder.")
    if isinstance(error, NotADirectoryError):
        return FileProblemError(f"A part of {shown} is a link, or no folder: links are not followed.")
    if error.errno == errno.ELOOP:
        return FileProblemError(f"{shown} is a link: links are not followed.")
    return FileProblemError(f"{shown} cannot be used: {error.strerror}.")
