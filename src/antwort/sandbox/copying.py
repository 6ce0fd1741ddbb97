"""Folders that somebody fills whom nobody trusts: to make one like another, on another file system."""

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path

from antwort.sandbox.trees import delete_tree, make_accessible_at

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # who opens a pipe would wait for a writer
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_DEEPEST = 64
_PIECE = 1 << 20


def make_alike(source: Path, target: Path, *, size: int, files: int, owner: int | None = None) -> None:
    """Make a folder hold what another holds, holes and links included; what it has besides is deleted.

    Pipes, sockets and the like are left out, and so is what lies in more than 64 folders. Files that have not changed
    are not written again. Somebody may change the source meanwhile: OSError if there are more bytes or files than so
    many. The target is out of everybody's reach. What is made belongs to the `owner`, if there is one.
    """
    with _opened(source) as read, _opened(target) as written:
        _Copy(written, size, files, owner).fill(read, written)


@contextlib.contextmanager
def _opened(folder: Path | str, parent: int | None = None) -> Iterator[int]:
    opened = os.open(folder, _FOLDER, dir_fd=parent)
    try:
        yield opened
    finally:
        os.close(opened)


class _Copy:
    """What is left of the room for a copy, and what was copied already."""

    def __init__(self, top: int, size: int, files: int, owner: int | None) -> None:
        self._top = top
        self._size = size
        self._files = files
        self._owner = owner
        self._linked: dict[int, str] = {}
        """Where files are that have several names, from the top, by their numbers in the source."""

    def fill(self, source: int, target: int, above: str = "", depth: int = 0) -> None:
        """Make an open folder like another."""
        names = set()
        with os.scandir(source) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):  # it has gone meanwhile
                    about = entry.stat(follow_symlinks=False)
                    if self._takes(about, depth):
                        names.add(entry.name)
                        self._copy(source, target, above, entry.name, about)
        for name in set(os.listdir(target)) - names:
            _delete(name, target)

    def _takes(self, about: os.stat_result, depth: int) -> bool:
        """Tell whether something is copied, and count it."""
        is_folder = stat.S_ISDIR(about.st_mode)
        if not (is_folder or stat.S_ISREG(about.st_mode) or stat.S_ISLNK(about.st_mode)):
            return False
        if is_folder and depth >= _DEEPEST:
            return False
        self._files -= 1
        if self._files < 0:
            raise OSError(errno.EDQUOT, "there are too many files")
        return True

    def _copy(self, source: int, target: int, above: str, name: str, about: os.stat_result) -> None:
        there = _about(name, target)
        if there is not None and stat.S_IFMT(there.st_mode) != stat.S_IFMT(about.st_mode):
            _delete(name, target)
            there = None
        if stat.S_ISDIR(about.st_mode):
            if there is None:
                os.mkdir(name, stat.S_IRWXU, dir_fd=target)
            make_accessible_at(name, source)
            with _opened(name, source) as inner, _opened(name, target) as made:
                self.fill(inner, made, f"{above}{name}/", above.count("/") + 1)
                self._finish(made, stat.S_IMODE(about.st_mode) | stat.S_IRWXU)
        elif stat.S_ISLNK(about.st_mode):
            self._copy_link(source, target, name, is_there=there is not None)
        elif (first := self._linked.get(about.st_ino)) is not None:
            if there is not None:
                os.unlink(name, dir_fd=target)
            os.link(first, name, src_dir_fd=self._top, dst_dir_fd=target, follow_symlinks=False)
        else:
            if about.st_nlink > 1:
                self._linked[about.st_ino] = above + name
            if there is None or not _is_same(about, there):
                self._copy_file(source, target, name, about)

    def _copy_link(self, source: int, target: int, name: str, *, is_there: bool) -> None:
        leads = os.readlink(name, dir_fd=source)
        if is_there:
            if os.readlink(name, dir_fd=target) == leads:
                return
            os.unlink(name, dir_fd=target)
        os.symlink(leads, name, dir_fd=target)
        if self._owner is not None:
            os.chown(name, self._owner, self._owner, dir_fd=target, follow_symlinks=False)

    def _copy_file(self, source: int, target: int, name: str, about: os.stat_result) -> None:
        new = f".antwort-{secrets.token_hex(8)}"
        file = os.open(new, _NEW, stat.S_IRUSR | stat.S_IWUSR, dir_fd=target)
        try:
            self._write(source, name, file)
            self._finish(file, stat.S_IMODE(about.st_mode))
            os.utime(file, ns=(about.st_atime_ns, about.st_mtime_ns))
            os.replace(new, name, src_dir_fd=target, dst_dir_fd=target)
        except BaseException:
            os.unlink(new, dir_fd=target)
            raise
        finally:
            os.close(file)

    def _write(self, source: int, name: str, file: int) -> None:
        """Write what a file holds, but for its holes."""
        make_accessible_at(name, source)
        read = os.open(name, _FILE, dir_fd=source)
        try:
            size = os.fstat(read).st_size
            for start, end in _parts(read, size):
                at = start
                while at < end and (piece := os.pread(read, min(_PIECE, end - at), at)):
                    self._size -= len(piece)
                    if self._size < 0:
                        raise OSError(errno.EDQUOT, "there is too much in the files")
                    at += os.pwrite(file, piece, at)
            os.ftruncate(file, size)
        finally:
            os.close(read)

    def _finish(self, file: int, mode: int) -> None:
        if self._owner is not None:
            os.fchown(file, self._owner, self._owner)
        os.fchmod(file, mode)


def _parts(file: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield where the content of a file begins and ends, between its holes."""
    end = 0
    while end < size:
        try:
            start = os.lseek(file, end, os.SEEK_DATA)
            end = min(os.lseek(file, start, os.SEEK_HOLE), size)
        except OSError as error:
            if error.errno == errno.ENXIO:  # there is only a hole left, or somebody has cut it
                return
            raise
        yield start, end


def _is_same(about: os.stat_result, there: os.stat_result) -> bool:
    """Tell whether a file was copied before, and has not changed."""
    names = ("st_size", "st_mtime_ns", "st_mode", "st_nlink")
    return all(getattr(about, name) == getattr(there, name) for name in names)


def _about(name: str, parent: int) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _delete(name: str, parent: int) -> None:
    about = _about(name, parent)
    if about is not None and stat.S_ISDIR(about.st_mode):
        delete_tree(Path(f"/proc/self/fd/{parent}", name))
    else:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=parent)
