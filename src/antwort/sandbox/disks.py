"""File systems of their own size for folders that code works in: the kernel keeps their limits, nobody has to look.

They are mounted where the folders are, in a namespace of mounts of this process, when they are needed. What is mounted
goes with the process, however that ends.
"""

import contextlib
import errno
import fcntl
import logging
import os
import secrets
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from antwort.errors import ServiceUnavailableError
from antwort.sandbox.claims import Claims
from antwort.sandbox.disk_kinds import KINDS, Disk, DiskKind, MissingImageError, image_of, refuse_image, try_out
from antwort.sandbox.limits import MEBIBYTE, SandboxLimits
from antwort.sandbox.mounts import MountSpace
from antwort.sandbox.trees import delete_tree
from antwort.sandbox.users import own_user

logger = logging.getLogger(__name__)

_IDLE = 60.0
"""Seconds that a file system stays mounted when nobody uses it."""
_MOST_IDLE = 32
"""How many of them stay mounted: each sandbox begins with a copy of all mounts, so many would slow down all calls."""
_TRIAL_SIZE, _TRIAL_FILES = MEBIBYTE, 64
_FULL = 64 * 1024
"""Bytes that are left at most of what is called full."""


class _Use(Struct):
    """Who uses a file system."""

    users: int = 0
    since: float = 0.0
    """When the last one left."""
    goes: bool = False
    """Whether it is about to be unmounted."""


class Disks:
    """The file systems of folders that are in folders of tenants, which are in a place.

    A folder has one as long as it is held, and for a while after. To hold one may take its time, so not on the loop.
    Several processes mount them in one `space`, where each finds what others have mounted.
    """

    def __init__(
        self,
        place: Path,
        limits: SandboxLimits,
        claims: Claims,
        *,
        processes: int = 1,
        space: MountSpace | None = None,
    ) -> None:
        self._given = self._place = place.absolute()
        self._limits = limits
        self._claims = claims
        self._processes = processes
        self._shared = space
        self._space: MountSpace | None = None
        self._kind: DiskKind | None = None
        self._uses: dict[Path, _Use] = {}
        self._counting = threading.Lock()
        self.reasons: list[str] = []
        """Why those kinds that were tried do not work here."""

    @property
    def place(self) -> Path:
        """Where the folders of tenants are."""
        return self._given

    @property
    def kind(self) -> str | None:
        """How folders get their file systems; None if they have none, because no way works here."""
        return None if self._kind is None else self._kind.name

    @property
    def settles(self) -> bool:
        """Whether it may take its time to let go of a folder that was written to."""
        return self._kind is not None and self._kind.settles

    @property
    def entering(self) -> Sequence[str]:
        """How the command line begins of what is to work in a folder."""
        return () if self._kind is None else self._kind.entering

    @property
    def space(self) -> int | None:
        """The namespace of mounts with the file systems, which is open, for who can enter it; None if there is none."""
        return None if self._kind is None else self._kind.space

    def open(self) -> None:
        """Find out which kind works here, by trying one after the other."""
        self._given.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._place = self._given.resolve()
        try:
            self._space = self._shared or MountSpace.make()
        except OSError as error:
            self.reasons.append(str(error.strerror))
            return
        for kind in (make(self._space) for make in KINDS):
            if self._processes > 1 and self._shared is None and not kind.is_shared:
                self.reasons.append(f"{kind.name}: the processes of this server share no namespace of mounts")
                continue
            tenant = self._place / f".trial-{secrets.token_hex(8)}"
            folder = tenant / "folder"
            folder.mkdir(mode=0o700, parents=True)
            try:
                try_out(kind, Disk(folder, _TRIAL_SIZE, _TRIAL_FILES))
            except OSError as error:
                self.reasons.append(f"{kind.name}: {error.strerror}")
            else:
                self._kind = kind
                self._take_over(kind)
                return
            finally:
                delete_tree(tenant)

    def _take_over(self, kind: DiskKind) -> None:
        """See to what a process has left mounted that others have outlived."""
        for folder in self._place.glob("*/*") if self._shared is not None else ():
            with contextlib.suppress(OSError):  # it has just been deleted
                if folder.is_dir() and kind.is_attached(folder):
                    self._uses[self._given / folder.relative_to(self._place)] = _Use(since=time.monotonic())

    def close(self) -> None:
        """Unmount everything; what still runs there goes on with what it has."""
        if self.settles:
            self.release_idle(0.0)
        space, self._space, self._kind = self._space, None, None
        self._uses.clear()
        if space is not None and self._shared is None:
            space.close()

    def seen(self, folder: Path) -> Path:
        """Return where this process finds the files of a folder that is held."""
        return folder if self._kind is None else self._kind.seen(self._real(folder))

    @contextlib.contextmanager
    def held(self, folder: Path) -> Iterator[Path]:
        """Have the file system of a folder mounted, and be told where its files are.

        FileNotFoundError if the folder is gone, ServiceUnavailableError if its file system is broken.
        """
        if self._kind is None:
            with self._explained(folder):
                refuse_image(folder)
            yield folder
            return
        with self.kept(folder) as use, self._in_this_process(folder):
            if use.goes or not self._kind.is_attached(self._real(folder)):
                self._attach(folder, self._kind)
            with self._explained(folder):
                self._kind.verify(self._disk(folder))
            yield self.seen(folder)

    @contextlib.contextmanager
    def kept(self, folder: Path) -> Iterator[_Use]:
        """Keep the file system of a folder from being unmounted, if it is mounted."""
        with self._counting:
            use = self._uses.setdefault(folder.absolute(), _Use())
            use.users += 1
        try:
            yield use
        finally:
            with self._counting:
                use.users -= 1
                use.since = time.monotonic()

    @contextlib.contextmanager
    def _in_this_process(self, folder: Path) -> Iterator[None]:
        """Keep other processes from unmounting the file system of a folder, which belongs to somebody by now."""
        if self._space is not None and not self._space.has_own_users:
            own_user(self._real(folder))  # whoever has just made it may be about to give it away
        with contextlib.nullcontext() if self._shared is None else locked(self._real(folder), fcntl.LOCK_SH):
            yield

    @contextlib.contextmanager
    def written(self, folder: Path) -> Iterator[Path]:
        """Hold a folder that is written to: the disk has room for all that it may still take.

        ServiceUnavailableError if it has not.
        """
        kind = self._kind
        with self.held(folder) as seen:
            if kind is None:
                yield seen
                return
            disk = self._disk(folder)
            with contextlib.ExitStack() as claims:
                if kind.settles:
                    claims.enter_context(self._claims.memory_claimed(disk.folder, lambda: kind.unused_memory(disk)))
                with self._explained(folder):
                    claims.enter_context(
                        self._claims.claimed(disk.folder, lambda: kind.left(disk), lambda: kind.pending(disk))
                    )
                try:
                    yield seen
                finally:
                    if kind.settles:
                        self._settle(disk, kind)

    def is_full(self, folder: Path) -> bool:
        """Tell whether nothing can be written any more to a folder that is held."""
        if self._kind is None:
            return False
        state = os.statvfs(self.seen(folder))
        return state.f_ffree == 0 or state.f_bavail * state.f_frsize < _FULL

    def files(self, folder: Path) -> int:
        """Return how many files and folders there are in a folder that is held; 0 if it has no file system."""
        if self._kind is None:
            return 0
        state = os.statvfs(self.seen(folder))
        return state.f_files - state.f_ffree - self._kind.own_files

    def release_idle(self, idle: float = _IDLE) -> None:
        """Unmount what nobody has used for a while."""
        late = time.monotonic() - idle
        for folder, use in list(self._uses.items()):
            if not use.users and use.since <= late:
                self._try_to_release(folder, use)

    def _release_oldest(self) -> None:
        """Unmount those that were idle longest, if there are too many."""
        idle = [(use.since, folder, use) for folder, use in list(self._uses.items()) if not use.users]
        for _, folder, use in sorted(idle, key=lambda one: one[0])[: max(0, len(idle) - _MOST_IDLE)]:
            self._try_to_release(folder, use)

    def _try_to_release(self, folder: Path, use: _Use) -> None:
        try:
            with locked(folder.parent):
                self._release(folder, use)
        except FileNotFoundError:  # the folder was deleted, and what was mounted there is gone
            self._forget(folder, use)
        except OSError as error:
            logger.info("a file system is still in use: %s", error.strerror)

    def _release(self, folder: Path, use: _Use) -> None:
        with self._counting:
            if use.users or self._kind is None:
                return
            use.goes = True
        try:
            with locked(self._real(folder), fcntl.LOCK_EX | fcntl.LOCK_NB):
                if self._kind.is_attached(self._real(folder)):
                    self._kind.settle(self._disk(folder))
                    self._kind.detach(self._real(folder))
        except BlockingIOError:  # another process uses it, and will see to it
            pass
        finally:
            use.goes = False
        self._forget(folder, use)

    def _forget(self, folder: Path, use: _Use) -> None:
        with self._counting:
            if not use.users:
                self._uses.pop(folder, None)

    def _attach(self, folder: Path, kind: DiskKind) -> None:
        real = self._real(folder)
        with self._explained(folder), locked(real.parent):
            if not kind.is_attached(real):
                kind.attach(self._disk(folder))
        self._release_oldest()

    @contextlib.contextmanager
    def _explained(self, folder: Path) -> Iterator[None]:
        """Tell why the files of a folder cannot be reached: FileNotFoundError if it is gone."""
        real = self._real(folder)
        try:
            yield
        except FileNotFoundError:
            raise
        except MissingImageError as error:
            logger.error("%s is missing: the files of a folder are gone", image_of(real))  # noqa: TRY400
            raise ServiceUnavailableError(
                "Its files are gone: the image that held them is missing. Put it back, or delete this and begin anew.",
                code="files_missing",
            ) from error
        except OSError as error:
            if not real.exists():
                raise FileNotFoundError(errno.ENOENT, "it was deleted") from error
            logger.error("%s cannot be mounted: %s", image_of(real), error.strerror)  # noqa: TRY400 - no bug of ours
            raise ServiceUnavailableError(
                "Its files cannot be reached: their file system cannot be mounted. The server's log says why."
            ) from error

    def _settle(self, disk: Disk, kind: DiskKind) -> None:
        try:
            with locked(disk.folder.parent):
                kind.settle(disk)
        except FileNotFoundError:  # it was deleted
            return
        except OSError as error:
            logger.error("what was written in %s is lost: %s", disk.folder, error.strerror)  # noqa: TRY400
            raise ServiceUnavailableError("What was written could not be kept. The server's log says why.") from error

    def _disk(self, folder: Path) -> Disk:
        return Disk(self._real(folder), self._limits.disk_bytes, self._limits.disk_files)

    def _real(self, folder: Path) -> Path:
        """Return the path of a folder without links."""
        return self._place / folder.absolute().relative_to(self._given)


@contextlib.contextmanager
def locked(folder: Path, how: int = fcntl.LOCK_EX) -> Iterator[None]:
    """Be the only one, in all processes, who has a folder: that of a tenant to mount or take away what is in it."""
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(opened, how)
        yield
    finally:
        os.close(opened)
