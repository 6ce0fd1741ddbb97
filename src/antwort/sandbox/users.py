"""Users that nobody else is: a server that runs as root gives each folder one of its own."""

import errno
import fcntl
import os
import pwd
import secrets
import time
from pathlib import Path

_FREE = range(1_879_048_192, 2_147_483_647)
"""Numbers that neither people, services nor containers are given by any convention."""
_FEW = 65_536
_PAUSE = 0.001
_TRIES = 1000
"""How many numbers are looked up before it is clear that all have names."""


def has_others() -> bool:
    """Tell whether this process is root, and there are users that nobody is.

    A namespace may have one user only, as that of `unshare --map-root-user`: its root is an ordinary user outside.
    """
    return os.geteuid() == 0 and len(_choice()) > 0


def own_user(folder: Path) -> int:
    """Return the user to whom a folder belongs; one that is root's is given to a user that nobody else is."""
    owner = folder.stat().st_uid
    if owner != 0:
        return owner
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        while (owner := os.fstat(opened).st_uid) == 0:
            try:
                fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:  # somebody else is about to do the same, or is in it by then
                time.sleep(_PAUSE)
                continue
            if os.fstat(opened).st_uid == 0:
                user = unused_user()
                os.fchown(opened, user, user)
    finally:
        os.close(opened)
    return owner


def unused_user() -> int:
    """Return a user that has no name; OSError if there is none."""
    choice = _choice()
    for _ in range(_TRIES if choice else 0):
        user = choice.start + secrets.randbelow(len(choice))
        try:
            pwd.getpwuid(user)
        except KeyError:
            return user
    raise OSError(errno.EUSERS, "there is no user without a name to run it as")


def _choice() -> range:
    """Return the numbers that can be those of users and of groups."""
    users, groups = (_range(Path(f"/proc/self/{kind}_map").read_text()) for kind in ("uid", "gid"))
    return range(max(users.start, groups.start), min(users.stop, groups.stop))


def _range(mapped: str) -> range:
    """Return the numbers to choose from: in a container there may be few, or none but root's."""
    first = most = 0
    for line in mapped.splitlines():
        start, _, count = (int(part) for part in line.split())
        if start <= _FREE.start and start + count >= _FREE.stop:
            return _FREE
        if start + count > most:
            first, most = start, start + count
    return range(max(2, first, most - _FEW // 2), max(2, most - 16))
