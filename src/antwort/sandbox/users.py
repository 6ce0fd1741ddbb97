"""Users that nobody else is: a server that runs as root gives each folder one of its own."""

import fcntl
import os
import pwd
import secrets
from pathlib import Path

_FREE = range(1_879_048_192, 2_147_483_647)
"""Numbers that neither people, services nor containers are given by any convention."""
_FEW = 65_536


def own_user(folder: Path) -> int:
    """Return the user to whom a folder belongs; one that is root's is given to a user that nobody else is."""
    owner = folder.stat().st_uid
    if owner != 0:
        return owner
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX)  # somebody else may be about to do the same; nobody is in it yet
        owner = os.fstat(opened).st_uid
        if owner == 0:
            owner = unused_user()
            os.fchown(opened, owner, owner)
    finally:
        os.close(opened)
    return owner


def unused_user() -> int:
    """Return a user that has no name."""
    choice = _range(Path("/proc/self/uid_map").read_text())
    while True:
        user = choice.start + secrets.randbelow(len(choice))
        try:
            pwd.getpwuid(user)
        except KeyError:
            return user


def _range(mapped: str) -> range:
    """Return the numbers to choose from: in a container there may be few."""
    most = 0
    for line in mapped.splitlines():
        start, _, count = (int(part) for part in line.split())
        if start <= _FREE.start and start + count >= _FREE.stop:
            return _FREE
        most = max(most, start + count)
    return range(max(2, most - _FEW // 2), max(3, most - 16))
