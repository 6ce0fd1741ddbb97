"""Files of a container, reached without ever following a link: code may have put one anywhere."""

import contextlib
import hashlib
import os
import secrets
import stat
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import BinaryIO

from msgspec import Struct

from antwort.provider import BadRequestError, NotFoundError, delete_tree

HOME = "/workspace"
"""Where code sees the files."""
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_DEEPEST = 32
_LONGEST_NAME = 255


class File(Struct, frozen=True):
    """A file that is there."""

    id: str
    path: str
    """Relative to the folder."""
    size: int
    changed: int
    """When it was changed, in nanoseconds since 1970."""
    number: int = 0
    """Which file of the disk it is: one that replaces another has a new one."""

    @property
    def full_path(self) -> str:
        """Where code sees it."""
        return f"{HOME}/{self.path}"


class Files:
    """The files of one container. Links, pipes and the like are none, nor is what begins with a dot."""

    def __init__(self, container_id: str, folder: Path, most: int) -> None:
        self._container_id = container_id
        self._folder = folder
        self._most = most

    def all(self) -> list[File]:
        """Return the files by their paths, as many as there may be."""
        top = os.open(self._folder, _FOLDER)
        try:
            found = []
            for file in self._within(top, "", 0):
                found.append(file)
                if len(found) >= self._most:
                    break
            return sorted(found, key=lambda file: file.path)
        finally:
            os.close(top)

    def find(self, file_id: str) -> File:
        """Return a file; NotFoundError if it is not there."""
        for file in self.all():
            if file.id == file_id:
                return file
        raise NotFoundError(f"There is no file with the id '{file_id[:80]}' in this container.", param="file_id")

    def open(self, file: File) -> BinaryIO:
        """Open a file to be read; NotFoundError if it is none any more."""
        with self._parent(file) as parent:
            # Whoever opens a pipe without O_NONBLOCK waits until somebody writes to it.
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            opened = os.open(file.path.rpartition("/")[2], flags, dir_fd=parent)
        if not stat.S_ISREG(os.fstat(opened).st_mode):
            os.close(opened)
            raise _gone(file)
        return os.fdopen(opened, "rb")

    def delete(self, file: File) -> None:
        """Delete a file."""
        with self._parent(file) as parent:
            os.unlink(file.path.rpartition("/")[2], dir_fd=parent)

    def delete_all_but(self, known: Collection[str]) -> None:
        """Delete what is there, hidden or not, but files with these paths."""
        kept = {path.partition("/")[0] for path in known}
        for path in self._folder.iterdir():
            if path.name in kept:
                continue
            if path.is_dir() and not path.is_symlink():
                delete_tree(path)
            else:
                path.unlink(missing_ok=True)
        for file in self.all():
            if file.path not in known:
                self.delete(file)

    def create(self, name: str) -> "NewFile":
        """Begin to write a file, in the place of one that may be there; BadRequestError if it cannot have the name."""
        if not _is_name(name):
            raise BadRequestError("The file needs a name without '/', such as 'data.csv'.", param="file")
        top = os.open(self._folder, _FOLDER)
        try:
            with contextlib.suppress(FileNotFoundError):
                if stat.S_ISDIR(os.stat(name, dir_fd=top, follow_symlinks=False).st_mode):
                    raise BadRequestError(f"'{name}' is a folder in this container.", param="file")  # noqa: TRY301
            return NewFile(top, name, self._folder.stat().st_uid)
        except BaseException:
            os.close(top)
            raise

    def id_of(self, path: str) -> str:
        """Return the id of a file; it keeps it as long as it has its path."""
        digest = hashlib.sha256(f"{self._container_id}\0{path}".encode()).hexdigest()
        return f"cfile_{digest[:48]}"

    def _within(self, folder: int, above: str, depth: int) -> Iterator[File]:
        with os.scandir(folder) as entries:
            for entry in entries:
                if not _is_name(entry.name):
                    continue
                with contextlib.suppress(OSError):  # it is gone, or closed
                    about = entry.stat(follow_symlinks=False)
                    path = above + entry.name
                    if stat.S_ISREG(about.st_mode):
                        yield File(self.id_of(path), path, about.st_size, about.st_mtime_ns, about.st_ino)
                    elif stat.S_ISDIR(about.st_mode) and depth < _DEEPEST:
                        inner = os.open(entry.name, _FOLDER, dir_fd=folder)
                        try:
                            yield from self._within(inner, f"{path}/", depth + 1)
                        finally:
                            os.close(inner)

    @contextlib.contextmanager
    def _parent(self, file: File) -> Iterator[int]:
        """Give the open folder that a file is in; whatever is swapped meanwhile is not what was opened."""
        current = os.open(self._folder, _FOLDER)
        try:
            for name in file.path.split("/")[:-1]:
                inner = os.open(name, _FOLDER, dir_fd=current)
                os.close(current)
                current = inner
            yield current
        except OSError as error:
            raise _gone(file) from error
        finally:
            os.close(current)


class NewFile:
    """A file that is being written, beside the one that it will replace."""

    def __init__(self, folder: int, name: str, owner: int) -> None:
        self._folder = folder
        self._name = name
        self._own_name = f".upload-{secrets.token_hex(8)}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        opened = os.open(self._own_name, flags, 0o644, dir_fd=folder)
        if os.geteuid() == 0:
            os.fchown(opened, owner, owner)
        self._file = os.fdopen(opened, "wb")

    def write(self, data: bytes) -> None:
        """Add some content."""
        self._file.write(data)

    def keep(self) -> None:
        """Put the file in its place."""
        self._file.close()
        os.replace(self._own_name, self._name, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        os.close(self._folder)

    def drop(self) -> None:
        """Forget the file."""
        self._file.close()
        with contextlib.suppress(OSError):
            os.unlink(self._own_name, dir_fd=self._folder)
        os.close(self._folder)


def _is_name(name: str) -> bool:
    """Tell whether a file can have a name and be asked for by it."""
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        return False
    return 0 < size <= _LONGEST_NAME and not name.startswith(".") and "/" not in name and "\0" not in name


def _gone(file: File) -> NotFoundError:
    return NotFoundError(f"The file '{file.path}' is not there any more.", param="file_id")
