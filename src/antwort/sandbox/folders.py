"""Folders of tenants that code works in: whose they are, who uses them, and when they go."""

import asyncio
import contextlib
import hashlib
import logging
import os
import secrets
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

from antwort.errors import ConflictError
from antwort.sandbox.files import MissingFileError
from antwort.sandbox.sandbox import Sandbox
from antwort.sandbox.trees import delete_tree

logger = logging.getLogger(__name__)

_TRASH = ".trash-"
_LONGEST_PAUSE = 30.0
"""Seconds between two sweeps: what has expired is gone within a minute, and there may be much of it."""


class FolderInUse:
    """A folder that somebody works in. It is open as long, so that no other one can be taken for it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._open = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)

    @property
    def is_deleted(self) -> bool:
        """Tell whether it is gone by now, though another one may have its name."""
        try:
            return not os.path.samestat(os.fstat(self._open), self.folder.stat(follow_symlinks=False))
        except FileNotFoundError:
            return True

    def close(self) -> None:
        """Let go of it."""
        os.close(self._open)


class TenantFolders:
    """Folders by tenant and id, each with a file beside it, its mark, whose time is that of the last use.

    The mark is out of reach for code, which could make a folder look as if it had just been used. `what` is how a
    folder is called, `suffix` how the name of a mark ends. Folders that nobody has used for `keep` seconds go; so do
    those that a subclass calls dispensable, those used last at the end, when a tenant would have more than `most`.
    """

    what: str
    suffix: str

    def __init__(self, place: Path, sandbox: Sandbox, *, keep: float, most: int) -> None:
        self._place = place
        self._sandbox = sandbox
        self._keep = keep
        self._most = most
        self._users: Counter[Path] = Counter()
        self._counting = threading.Lock()
        self._changing = threading.RLock()
        """Held by whoever adds a folder, takes one away, or changes what is known of one."""
        self._discarded: list[Path] = []

    @contextlib.asynccontextmanager
    async def in_use(self, get: Callable[[], Path]) -> AsyncIterator[FolderInUse]:
        """Work in a folder that a function gets or makes, on a thread; it is not taken away to make room for others.

        MissingFileError if it is gone already.
        """
        holding = asyncio.ensure_future(asyncio.to_thread(self._hold, get))
        try:
            used = await asyncio.shield(holding)
        except asyncio.CancelledError:
            holding.add_done_callback(self._let_go_later)
            raise
        try:
            yield used
        finally:
            self._let_go(used)

    def touch(self, folder: Path) -> None:
        """Note that a folder was in use until now, unless it is gone."""
        with contextlib.suppress(FileNotFoundError):
            os.utime(self._mark(folder))

    def discard(self, folder: Path) -> None:
        """Put a folder where nobody finds it any more; to delete what is in it may take long."""
        trash = folder.with_name(f"{_TRASH}{secrets.token_hex(8)}")
        with self._changing:
            with contextlib.suppress(FileNotFoundError):
                folder.rename(trash)
                self._discarded.append(trash)
            self._mark(folder).unlink(missing_ok=True)

    def empty_discarded(self) -> None:
        """Delete what is in folders that were discarded; what somebody still writes to goes with the next sweep."""
        with contextlib.suppress(IndexError):  # somebody else may take the last one
            while self._discarded:
                self._empty(self._discarded.pop())

    def sweep(self) -> int:
        """Delete folders that nobody has used for long; return how many that were."""
        count = 0
        for tenant in [path for path in self._place.iterdir() if path.is_dir()] if self._place.is_dir() else []:
            for trash in tenant.glob(f"{_TRASH}*"):  # of a process that ended meanwhile
                self._empty(trash)
            for mark in self._marks(tenant):
                with contextlib.suppress(FileNotFoundError):  # somebody else has deleted it
                    if self._is_expired(mark):
                        self._delete(mark.with_suffix(""))
                        count += 1
        return count

    async def sweep_regularly(self) -> None:
        """Sweep again and again."""
        while True:
            try:
                if count := await asyncio.to_thread(self.sweep):
                    logger.info("deleted %d %ss that were not used for long", count, self.what)
            except OSError:
                logger.exception("old %ss cannot be deleted", self.what)
            await asyncio.sleep(min(self._keep / 4, _LONGEST_PAUSE))

    def _is_expired(self, mark: Path) -> bool:
        """Tell whether nobody has used a folder for too long."""
        return mark.stat().st_mtime < time.time() - self._keep

    def _is_dispensable(self, mark: Path) -> bool:  # noqa: ARG002 - subclasses look at it
        """Tell whether a folder can go to make room for another."""
        return False

    def _make(self, folder: Path) -> None:
        """Make a folder, if there is none; ConflictError if there are too many, and none can go.

        Whoever calls this calls `empty_discarded` when nobody waits for him any more, as `in_use` does.
        """
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._make_room(folder.parent)
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)
            self._sandbox.adopt(folder)

    def _make_room(self, tenant: Path) -> None:
        marks = list(self._marks(tenant))
        excess = len(marks) + 1 - self._most
        if excess <= 0:
            return
        for mark in sorted(marks, key=_time_of):
            folder = mark.with_suffix("")
            if not self._users[folder] and self._is_dispensable(mark):
                logger.info("deleting the %s that was not used for longest: there are too many", self.what)
                self.discard(folder)
                excess -= 1
                if not excess:
                    return
        raise ConflictError(f"There are {self._most:,} {self.what}s, which is the limit; delete some.")

    def _delete(self, folder: Path) -> None:
        """Delete a folder, with all that is in it."""
        self.discard(folder)
        self.empty_discarded()

    def _empty(self, trash: Path) -> None:
        try:
            delete_tree(trash)
        except OSError as error:
            logger.info("a deleted %s is still in use: %s", self.what, error.strerror)

    def _hold(self, get: Callable[[], Path]) -> FolderInUse:
        with self._changing:  # nobody takes it away in between
            folder = get()
            try:
                used = FolderInUse(folder)
            except OSError as error:
                raise MissingFileError(f"The {self.what} is not there any more: it was deleted.") from error
            with self._counting:
                self._users[folder] += 1
        self.empty_discarded()
        return used

    def _let_go(self, used: FolderInUse) -> None:
        used.close()
        with self._counting:
            self._users[used.folder] -= 1
            if not self._users[used.folder]:
                del self._users[used.folder]

    def _let_go_later(self, holding: "asyncio.Future[FolderInUse]") -> None:
        """Let go of what somebody does not wait for any more."""
        if not holding.cancelled() and holding.exception() is None:
            self._let_go(holding.result())

    def _of(self, tenant: str) -> Path:
        """Return where the folders of a tenant are."""
        return self._place / hashlib.sha256(tenant.encode()).hexdigest()[:32]

    def _mark(self, folder: Path) -> Path:
        return folder.with_name(folder.name + self.suffix)

    def _marks(self, tenant: Path) -> Iterator[Path]:
        return tenant.glob(f"*{self.suffix}")


def _time_of(mark: Path) -> float:
    try:
        return mark.stat().st_mtime
    except FileNotFoundError:  # somebody else has just deleted it
        return 0.0
