"""Project quotas: the kernel limits what all files take that carry the same number, whoever they belong to (ext4, XFS).

Numbers are changed by root only, and never from within a namespace of users.
"""

import ctypes
import errno
import fcntl
import os
import stat
import struct
from pathlib import Path

from msgspec import Struct

_OURS = range(0x7000_0000, 0x8000_0000)
"""Numbers that nobody else gives."""
_TRIES = 1000
_GET_ATTRIBUTES, _SET_ATTRIBUTES = 0x801C581F, 0x401C5820
_ATTRIBUTES = struct.Struct("=5I8x")
"""Flags, two numbers that do not matter here, the project, and another of those."""
_IS_INHERITED = 0x200
_QUOTACTL_FD = 443
_GET_QUOTA, _SET_QUOTA = 0x800007_02, 0x800008_02
_QUOTA = struct.Struct("=8QI4x")
"""Limit and lower limit of kibibytes, bytes taken; the same of files; two times; and which of them are set."""
_LIMITS = 5
_KIBIBYTE = 1024
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # who opens a pipe would wait for a writer
_DEEPEST = 64


class Quota(Struct, frozen=True):
    """What the files of a project may take, and what they do."""

    size_limit: int
    size: int
    files_limit: int
    files: int


def project_of(folder: Path) -> int | None:
    """Return the project that a folder was given by this server; None if it has none, or another one."""
    opened = os.open(folder, _FOLDER)
    try:
        flags, _, _, project, _ = _attributes(opened)
    finally:
        os.close(opened)
    return project if flags & _IS_INHERITED and project in _OURS else None


def quota_of(folder: Path, project: int) -> Quota:
    """Return the quota of a project, on the file system of a folder; OSError if it has no quotas."""
    opened = os.open(folder, _FOLDER)
    try:
        return _quota(opened, project)
    finally:
        os.close(opened)


def confine(folder: Path, size: int, files: int) -> int:
    """Let a folder, with all that is in it and ever will be, take no more than so much; return its project.

    OSError if that cannot be done here. Links, pipes and the like that are there already do not count.
    """
    own = project_of(folder)
    top = os.open(folder, _FOLDER)
    try:
        project = _unused(top) if own is None else own
        _set_quota(top, project, size, files)
        _assign(top, project)
    finally:
        os.close(top)
    return project


def _unused(folder: int) -> int:
    """Return a project without files; the same for a folder in whose place on the disk another one was."""
    first = os.fstat(folder).st_ino
    for number in range(first, first + _TRIES):
        project = _OURS.start + number % len(_OURS)
        if not _quota(folder, project).files:
            return project
    raise OSError(errno.EUSERS, "there is no project without files")


def _assign(folder: int, project: int, depth: int = 0) -> None:
    """Give an open folder to a project, with all that is in it; what is made there meanwhile belongs to it already."""
    if depth > _DEEPEST:
        raise OSError(errno.ENAMETOOLONG, "there are folders too deep within others")
    _set_project(folder, project, is_inherited=True)
    with os.scandir(folder) as entries:
        for entry in entries:
            mode = entry.stat(follow_symlinks=False).st_mode
            if not (stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
                continue
            opened = os.open(entry.name, _FOLDER if stat.S_ISDIR(mode) else _FILE, dir_fd=folder)
            try:
                if stat.S_ISDIR(mode):
                    _assign(opened, project, depth + 1)
                else:
                    _set_project(opened, project, is_inherited=False)
            finally:
                os.close(opened)


def _attributes(opened: int) -> tuple[int, ...]:
    return _ATTRIBUTES.unpack(fcntl.ioctl(opened, _GET_ATTRIBUTES, bytes(_ATTRIBUTES.size)))


def _set_project(opened: int, project: int, *, is_inherited: bool) -> None:
    flags, one, two, _, three = _attributes(opened)
    flags = flags | _IS_INHERITED if is_inherited else flags & ~_IS_INHERITED
    fcntl.ioctl(opened, _SET_ATTRIBUTES, _ATTRIBUTES.pack(flags, one, two, project, three))


def _quota(opened: int, project: int) -> Quota:
    about = ctypes.create_string_buffer(_QUOTA.size)
    try:
        _quotactl(opened, _GET_QUOTA, project, about)
    except FileNotFoundError:  # nobody has had it yet
        return Quota(0, 0, 0, 0)
    limit, _, size, files_limit, _, files, *_ = _QUOTA.unpack(about.raw)
    return Quota(limit * _KIBIBYTE, size, files_limit, files)


def _set_quota(opened: int, project: int, size: int, files: int) -> None:
    limit = -(-size // _KIBIBYTE)
    about = _QUOTA.pack(limit, limit, 0, files, files, 0, 0, 0, _LIMITS)
    _quotactl(opened, _SET_QUOTA, project, ctypes.create_string_buffer(about, _QUOTA.size))


def _quotactl(opened: int, command: int, project: int, about: "ctypes.Array[ctypes.c_char]") -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    number, what = ctypes.c_long(_QUOTACTL_FD), ctypes.c_uint(command)
    if libc.syscall(number, ctypes.c_uint(opened), what, ctypes.c_uint(project), about) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
