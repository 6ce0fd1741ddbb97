"""What calls that are under way may still write, so that none begins for which the disk has no room."""

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from msgspec import Struct

from antwort.errors import ServiceUnavailableError
from antwort.sandbox.limits import MEBIBYTE

RESERVE = 64 * MEBIBYTE
"""Bytes of a disk that no code gets, at least."""
_LEFT = 4
"""One in so many bytes that are free is left for others by a tenant that is not alone."""


class _Claim(Struct):
    left: Callable[[], int]
    pending: Callable[[], int]
    most: int = 0
    """Bytes that it was for at first."""
    users: int = 0

    def size(self) -> int:
        """Return the bytes that the disk has to have for it."""
        try:
            return self.left() if self.users else self.pending()
        except OSError:  # the folder was deleted, or its file system is broken; who still works in it is about to end
            return self.most if self.users else 0


class Claims:
    """What folders may still take of the disks that they are on, and of memory, as long as somebody writes to them.

    A call begins only if there is room for all that it may write, beside all that others may: none of them fills the
    disk, and what is reserved for everything else is never touched. What was written counts until it is on the disk:
    the kernel takes its time. Each of several `processes` has its share. Where there are `several` tenants, each with a
    folder that has its folders, none claims all that is free by working, or pretending to, in many of them at once.
    """

    def __init__(self, *, reserve: int = 0, processes: int = 1, several: bool = False) -> None:
        self._reserve = max(reserve, RESERVE)
        self._processes = processes
        self._several = several
        self._claimed: dict[int | None, dict[Path, _Claim]] = {}
        """By the number of a disk; those of memory have none."""
        self._changing = threading.Lock()

    @contextlib.contextmanager
    def claimed(self, folder: Path, left: Callable[[], int], pending: Callable[[], int]) -> Iterator[None]:
        """Claim what a folder may still take, as `left` tells; ServiceUnavailableError if the disk has not so much.

        Afterwards `pending` tells how much of what was written the disk has yet to take.
        """
        disk = os.statvfs(folder.parent)
        free = disk.f_bavail * disk.f_frsize - self._reserve
        with self._claim(folder.parent.stat().st_dev, free, folder, _Claim(left, pending)):
            yield

    @contextlib.contextmanager
    def memory_claimed(self, folder: Path, left: Callable[[], int]) -> Iterator[None]:
        """Claim what a folder may still take of memory; ServiceUnavailableError if there is not so much."""
        with self._claim(None, free_memory() - RESERVE, folder, _Claim(left, _nothing)):
            yield

    @contextlib.contextmanager
    def _claim(self, of: int | None, free: int, folder: Path, claim: _Claim) -> Iterator[None]:
        """Claim what a folder may still take of something, a disk or memory, of which so much is free."""
        with self._changing:
            here = self._claimed.setdefault(of, {})
            known = here.get(folder)
            if known is None or not known.users:
                claim.most = claim.left()
                here.pop(folder, None)
                if not self._is_room(folder, claim.most, here, free // self._processes):
                    raise _refusal("memory" if of is None else "disk")
                known = here[folder] = claim
            known.users += 1
        try:
            yield
        finally:
            with self._changing:
                known.users -= 1

    def _is_room(self, folder: Path, wanted: int, claimed: dict[Path, _Claim], free: int) -> bool:
        of_all = of_tenant = wanted
        for other, claim in list(claimed.items()):
            size = claim.size()
            of_all += size
            if other.parent == folder.parent:
                of_tenant += size
            if not size and not claim.users:
                del claimed[other]
        is_greedy = self._several and of_tenant > wanted and of_tenant > free - free // _LEFT
        return of_all <= free and not is_greedy


def free_memory() -> int:
    """Return how many bytes of memory can be had."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0


def _nothing() -> int:
    """Return how much of what was written has yet to take memory."""
    return 0


def _refusal(what: str) -> ServiceUnavailableError:
    return ServiceUnavailableError(
        f"The {what} of the server is nearly full: there is no room for what this may write. "
        "Try again later, or delete what is not needed.",
        code=f"{what}_full",
    )
