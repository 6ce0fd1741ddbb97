"""Files in a folder that somebody fills whom nobody trusts, reached without ever following a link.

Each folder on the way is opened from the one before; whatever is swapped meanwhile is not what was opened.
"""

import contextlib
import errno
import os
import secrets
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from io import BufferedReader
from pathlib import Path

from msgspec import Struct

from antwort.errors import FunctionError
from antwort.sandbox.usage import DiskUsage, disk_usage

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # who opens a pipe would wait for a writer
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_DEEPEST = 64
_LONGEST = 4096
_SHOWN = 200


Held = Callable[[Path], AbstractContextManager[Path]]


class FileProblemError(FunctionError):
    """A file cannot be used, and why."""


class MissingFileError(FileProblemError):
    """There is no such file, or the whole folder is gone."""


class NoRoomError(FileProblemError):
    """The file system of the folder is full."""


class FoundFile(Struct, frozen=True):
    """A file that is there."""

    path: str
    """Relative to the folder; bytes of a name that are no UTF-8 are surrogates, as Python has them."""
    size: int
    changed: int
    """When it was changed, in nanoseconds since 1970."""
    number: int = 0
    """Which file of the disk it is: one that replaces another has a new one."""

    @property
    def shown_path(self) -> str:
        r"""The path as a text that can be sent: what is no UTF-8 in it is written as in `\xff`."""
        return self.path.encode(errors="surrogateescape").decode(errors="backslashreplace")


class ConfinedFiles:
    """The files of one folder. Paths are relative to it, or begin with one of `homes`.

    `what` names the folder in what goes wrong, as in `workspace`. If the folder has a file system of its own, it is
    mounted as long as `held` lasts, which tells where the files are.
    """

    def __init__(
        self, folder: Path, homes: tuple[str, ...] = (), what: str = "folder", *, held: Held | None = None
    ) -> None:
        self.folder = folder
        self.what = what
        self._homes = homes
        self._held = held or contextlib.nullcontext

    def open(self, path: str) -> BufferedReader:
        """Open a file to be read."""
        return self._open(path, self._parts(path))

    def open_found(self, file: FoundFile) -> BufferedReader:
        """Open a file that was listed, whatever its name is made of."""
        return self._open(file.shown_path, file.path.split("/"))

    def create(self, path: str) -> "NewFile":
        """Begin to write a file, in the place of one that may be there; folders on the way are made when it is kept."""
        parts = self._parts(path)
        with self._walk([], path) as top:
            try:
                parent, missing = _deepest(top, parts[:-1])
            except OSError as error:
                raise _problem(path, error) from error
        try:
            if not missing:
                _refuse_folder(parts[-1], parent)
            return NewFile(parent, missing, parts[-1], self)
        except BaseException as error:
            os.close(parent)
            if isinstance(error, OSError):
                raise _problem(path, error) from error
            raise

    def delete(self, path: str) -> None:
        """Delete a file, or a link."""
        self._delete(path, self._parts(path))

    def delete_found(self, file: FoundFile) -> None:
        """Delete a file that was listed, whatever its name is made of."""
        self._delete(file.shown_path, file.path.split("/"))

    def all(self, *, most: int | None = None, hidden: bool = True) -> list[FoundFile]:
        """Return files by their paths: all, or so many; without `hidden` none below a name that begins with a dot.

        Links, pipes and the like are none, nor is what lies in more than 64 folders.
        """
        found: list[FoundFile] = []
        with self._walk([], ".") as top:
            for file in _listed(top, "", 0, hidden=hidden):
                found.append(file)
                if len(found) == most:
                    break
        return sorted(found, key=lambda file: file.path)

    def usage(self, most_files: int) -> DiskUsage:
        """Count what is there, up to a little more than so many files."""
        with self.place() as folder:
            return disk_usage(folder, most_files)

    @contextlib.contextmanager
    def place(self) -> Iterator[Path]:
        """Give the folder in which the files are; MissingFileError if it is gone."""
        with contextlib.ExitStack() as stack:
            try:
                folder = stack.enter_context(self._held(self.folder))
            except FileNotFoundError as error:
                raise _gone(self.what) from error
            yield folder

    def about(self, path: str) -> FoundFile:
        """Return what a file is."""
        with self.open(path) as file:
            return _found("/".join(self._parts(path)), os.fstat(file.fileno()))

    def _open(self, path: str, parts: list[str]) -> BufferedReader:
        *folders, name = parts
        with self._walk(folders, path) as parent:
            try:
                file = os.open(name, _FILE, dir_fd=parent)
            except OSError as error:
                raise _problem(path, error) from error
        if not stat.S_ISREG(os.fstat(file).st_mode):
            os.close(file)
            raise FileProblemError(f"'{path[:_SHOWN]}' is no file.")
        return os.fdopen(file, "rb")

    def _delete(self, path: str, parts: list[str]) -> None:
        *folders, name = parts
        with self._walk(folders, path) as parent:
            try:
                os.unlink(name, dir_fd=parent)
            except OSError as error:
                raise _problem(path, error) from error

    @property
    def owner(self) -> int:
        """Whom files belong to."""
        return self.folder.stat().st_uid

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
                f"'{path[:_SHOWN]}' is outside of the {self.what}; use a path relative to it, without '..'."
            )
        return parts

    @contextlib.contextmanager
    def _walk(self, folders: list[str], path: str) -> Iterator[int]:
        """Give the open folder that a file is in."""
        with self.place() as top:
            try:
                current = os.open(top, _FOLDER)
            except FileNotFoundError as error:
                raise _gone(self.what) from error
            except OSError as error:
                raise _problem(path, error) from error
        # What is open stays mounted.
        try:
            for name in folders:
                try:
                    inner = os.open(name, _FOLDER, dir_fd=current)
                except OSError as error:
                    raise _problem(path, error) from error
                os.close(current)
                current = inner
            yield current
        finally:
            os.close(current)


class NewFile:
    """A file that is being written, beside the one that it will replace, or where the first folder is `missing`.

    The open folder that it is in belongs to it.
    """

    def __init__(self, parent: int, missing: list[str], name: str, among: ConfinedFiles) -> None:
        self._name = name
        self._missing = missing
        self._among = among
        self._own_name = f".antwort-{secrets.token_hex(8)}"
        file = os.open(self._own_name, _NEW, 0o644, dir_fd=parent)
        self._parent = parent
        if os.geteuid() == 0:
            os.fchown(file, among.owner, among.owner)
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
            if not self._among.folder.is_dir():  # what it was on may still be there for those who have it open
                raise _gone(self._among.what)
            try:
                self._file.close()
                self._put()
            except FileNotFoundError as error:
                if not self._among.folder.is_dir():
                    raise _gone(self._among.what) from error
                raise MissingFileError(f"'{self._name}' was deleted while it was written.") from error
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

    def _put(self) -> None:
        """Make the folders that are missing, and put the file there; if that fails, they are gone again."""
        with contextlib.ExitStack() as opened:
            folders, made = [self._parent], []
            try:
                for name in self._missing:
                    if _make_folder(name, folders[-1], self._among.owner):
                        made.append((name, folders[-1]))
                    folders.append(os.open(name, _FOLDER, dir_fd=folders[-1]))
                    opened.callback(os.close, folders[-1])
                os.replace(self._own_name, self._name, src_dir_fd=self._parent, dst_dir_fd=folders[-1])
            except OSError:
                for name, parent in reversed(made):
                    with contextlib.suppress(OSError):  # somebody has put something there
                        os.rmdir(name, dir_fd=parent)
                raise

    def _end(self) -> None:
        self._is_over = True
        os.close(self._parent)


def _deepest(top: int, folders: list[str]) -> tuple[int, list[str]]:
    """Return the last folder of a path that is there, opened, and the names of those that are missing."""
    current = os.dup(top)
    try:
        for number, name in enumerate(folders):
            try:
                inner = os.open(name, _FOLDER, dir_fd=current)
            except FileNotFoundError:
                return current, folders[number:]
            os.close(current)
            current = inner
    except BaseException:
        os.close(current)
        raise
    return current, []


def _refuse_folder(name: str, parent: int) -> None:
    with contextlib.suppress(FileNotFoundError):
        if stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))


def _make_folder(name: str, parent: int, owner: int) -> bool:
    """Make a folder; False if it is there."""
    try:
        os.mkdir(name, 0o755, dir_fd=parent)
    except FileExistsError:
        return False
    if os.geteuid() == 0:
        os.chown(name, owner, owner, dir_fd=parent, follow_symlinks=False)
    return True


def _listed(folder: int, above: str, depth: int, *, hidden: bool) -> Iterator[FoundFile]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith(".") and not hidden:
                continue
            with contextlib.suppress(OSError):  # it is gone, or closed
                about = entry.stat(follow_symlinks=False)
                if stat.S_ISREG(about.st_mode):
                    yield _found(above + entry.name, about)
                elif stat.S_ISDIR(about.st_mode) and depth < _DEEPEST:
                    inner = os.open(entry.name, _FOLDER, dir_fd=folder)
                    try:
                        yield from _listed(inner, f"{above}{entry.name}/", depth + 1, hidden=hidden)
                    finally:
                        os.close(inner)


def _found(path: str, about: os.stat_result) -> FoundFile:
    return FoundFile(path, about.st_size, about.st_mtime_ns, about.st_ino)


def _is_text(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def _gone(what: str) -> MissingFileError:
    return MissingFileError(f"The {what} is not there any more: it was deleted.")


def _problem(path: str, error: OSError) -> FileProblemError:
    shown = f"'{path[:_SHOWN]}'"
    if isinstance(error, FileNotFoundError):
        return MissingFileError(f"There is no file {shown}.")
    if isinstance(error, IsADirectoryError):
        return FileProblemError(f"{shown} is a folder.")
    if isinstance(error, NotADirectoryError):
        return FileProblemError(f"A part of {shown} is a link, or no folder: links are not followed.")
    if error.errno == errno.ELOOP:
        return FileProblemError(f"{shown} is a link: links are not followed.")
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return NoRoomError(f"There is no room for {shown}: delete something.")
    return FileProblemError(f"{shown} cannot be used: {error.strerror}.")
