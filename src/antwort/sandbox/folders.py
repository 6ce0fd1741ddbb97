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
from contextlib import AbstractContextManager
from pathlib import Path

from antwort.concurrency.undisturbed import undisturbed
from antwort.errors import ConflictError
from antwort.sandbox.disk_kinds import IMAGE, image_of
from antwort.sandbox.disks import Disks, locked
from antwort.sandbox.files import MissingFileError
from antwort.sandbox.limits import SandboxLimits
from antwort.sandbox.sandbox import Sandbox
from antwort.sandbox.trees import delete_tree

logger = logging.getLogger(__name__)

_TRASH = ".trash-"
_LONGEST_MAKING = 3600.0
"""Seconds after which nobody makes an image any more that is not finished."""
_LONGEST_PAUSE = 30.0
"""Seconds between two sweeps: what has expired is gone within a minute, and there may be much of it."""


class FolderInUse:
    """A folder that somebody works in. It is open as long, so that no other one can be taken for it."""

    def __init__(self, folder: Path, disks: Disks) -> None:
        self.folder = folder
        self._disks = disks
        self._held = contextlib.ExitStack()
        self._open = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)

    @property
    def is_deleted(self) -> bool:
        """Tell whether it is gone by now, though another one may have its name."""
        try:
            return not os.path.samestat(os.fstat(self._open), self.folder.stat(follow_symlinks=False))
        except FileNotFoundError:
            return True

    @property
    def is_full(self) -> bool:
        """Tell whether nothing more can be written to it, as far as that is known."""
        return self._disks.is_full(self.folder)

    def hold(self, *, written: bool) -> None:
        """Have its file system mounted; if it is written to, only if there is room for all that it may take."""
        self._held.enter_context(self._disks.written(self.folder) if written else self._disks.held(self.folder))

    def close(self) -> None:
        """Let go of it."""
        try:
            self._held.close()
        finally:
            os.close(self._open)


class TenantFolders:
    """Folders by tenant and id, each with a file beside it, its mark, whose time is that of the last use.

    The mark is out of reach for code, which could make a folder look as if it had just been used. `what` is how a
    folder is called, `suffix` how the name of a mark ends. Folders that nobody has used for `keep` seconds go; so do
    those that a subclass calls dispensable, those used last at the end, when a tenant would have more than `most`.
    Between `open` and `close` each folder has a file system of its own that holds no more than the `limits` say, where
    the machine allows that: then its files are elsewhere, and `held` tells where.
    """

    what: str
    suffix: str

    def __init__(
        self, place: Path, sandbox: Sandbox, *, keep: float, most: int, limits: SandboxLimits | None = None
    ) -> None:
        self._place = place
        self._sandbox = sandbox
        self._disks = sandbox.new_disks(place, limits or SandboxLimits())
        self._keep = keep
        self._most = most
        self._users: Counter[Path] = Counter()
        self._counting = threading.Lock()
        self._changing = threading.RLock()
        """Held by whoever adds a folder, takes one away, or changes what is known of one."""
        self._discarded: list[Path] = []

    async def open(self) -> None:
        """Find out how folders get file systems of their own; ConfigError if that is needed, and there is no way."""
        await asyncio.to_thread(self._sandbox.open_disks, self._disks)

    async def close(self) -> None:
        """Unmount all of them."""
        await asyncio.to_thread(self._sandbox.close_disks, self._disks)

    def held(self, folder: Path) -> AbstractContextManager[Path]:
        """Have the file system of a folder mounted, and be told where its files are."""
        return self._disks.held(folder)

    @contextlib.asynccontextmanager
    async def in_use(self, get: Callable[[], Path], *, written: bool | None = True) -> AsyncIterator[FolderInUse]:
        """Work in a folder that a function gets or makes, on a thread; it is not taken away to make room for others.

        If it is `written` to, there has to be room on the disk for all that it may take: ServiceUnavailableError if
        there is not. MissingFileError if it is gone already. None for `written` is for who waits for his turn to use
        it once more: it stays, and takes nothing.
        """
        holding = asyncio.ensure_future(asyncio.to_thread(self._hold, get, written=written))
        try:
            used = await asyncio.shield(holding)
        except asyncio.CancelledError:
            holding.add_done_callback(self._let_go_later)
            raise
        try:
            yield used
        finally:
            # Not on the loop: what is in memory is brought to the disk, and others who claim some of the disk may wait
            # for a file system that does not answer.
            await undisturbed(asyncio.to_thread(self._let_go, used))

    def touch(self, folder: Path) -> None:
        """Note that a folder was in use until now, unless it is gone."""
        with contextlib.suppress(FileNotFoundError):
            os.utime(self._mark(folder))

    def discard(self, folder: Path) -> None:
        """Put a folder where nobody finds it any more; to delete what is in it may take long."""
        trash = folder.with_name(f"{_TRASH}{secrets.token_hex(8)}")
        with self._changing:
            with contextlib.suppress(FileNotFoundError), locked(folder.parent):
                folder.rename(trash)
                self._discarded.append(trash)
                image_of(folder).rename(image_of(trash))
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
            self._clean(tenant)
            for mark in self._marks(tenant):
                with contextlib.suppress(FileNotFoundError):  # somebody else has deleted it
                    if self._is_expired(mark):
                        self._delete(mark.with_suffix(""))
                        count += 1
        self._disks.release_idle()
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

    def _clean(self, tenant: Path) -> None:
        """Delete what a process has left behind that ended before it was done."""
        for trash in tenant.glob(f"{_TRASH}*"):
            self._empty(trash.with_suffix(""))
        late = time.time() - _LONGEST_MAKING
        for image in tenant.glob(f"*{IMAGE}"):
            with contextlib.suppress(FileNotFoundError):  # somebody else has deleted it
                if not image.with_suffix("").is_dir() and image.stat().st_mtime < late:
                    image.unlink()

    def _empty(self, trash: Path) -> None:
        try:
            delete_tree(trash)  # what is mounted on it goes with it, in all processes
            image_of(trash).unlink(missing_ok=True)
        except OSError as error:
            logger.info("a deleted %s is still in use: %s", self.what, error.strerror)

    def _hold(self, get: Callable[[], Path], *, written: bool | None) -> FolderInUse:
        used = self._entered(get)
        self.empty_discarded()
        try:
            if written is not None:
                used.hold(written=written)
        except FileNotFoundError as error:
            self._let_go(used)
            raise _missing(self.what) from error
        except BaseException:
            self._let_go(used)
            raise
        return used

    def _entered(self, get: Callable[[], Path]) -> FolderInUse:
        with self._changing:  # nobody takes it away in between
            folder = get()
            try:
                used = FolderInUse(folder, self._disks)
            except OSError as error:
                raise _missing(self.what) from error
            with self._counting:
                self._users[folder] += 1
        return used

    def _let_go(self, used: FolderInUse) -> None:
        try:
            used.close()
        finally:
            with self._counting:
                self._users[used.folder] -= 1
                if not self._users[used.folder]:
                    del self._users[used.folder]

    def _let_go_later(self, holding: "asyncio.Future[FolderInUse]") -> None:
        """Let go of what somebody does not wait for any more."""
        if not holding.cancelled() and holding.exception() is None:
            holding.get_loop().run_in_executor(None, self._let_go, holding.result())

    def _of(self, tenant: str) -> Path:
        """Return where the folders of a tenant are."""
        return self._place / hashlib.sha256(tenant.encode()).hexdigest()[:32]

    def _mark(self, folder: Path) -> Path:
        return folder.with_name(folder.name + self.suffix)

    def _marks(self, tenant: Path) -> Iterator[Path]:
        return tenant.glob(f"*{self.suffix}")


def _missing(what: str) -> MissingFileError:
    return MissingFileError(f"The {what} is not there any more: it was deleted.")


def _time_of(mark: Path) -> float:
    try:
        return mark.stat().st_mtime
    except FileNotFoundError:  # somebody else has just deleted it
        return 0.0
