"""The ways in which a folder can have a file system of its own size."""

import contextlib
import errno
import fcntl
import hashlib
import itertools
import os
import secrets
import stat
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar
from uuid import UUID

from msgspec import Struct
from typing_extensions import override

from antwort.sandbox.claims import RESERVE, free_memory
from antwort.sandbox.copying import make_alike
from antwort.sandbox.images import (
    KEPT_BACK,
    OWN_FILES,
    check_content,
    check_image,
    grow,
    image_size,
    is_clean,
    make_image,
    mend,
    shrink,
    spoil,
)
from antwort.sandbox.limits import MEBIBYTE
from antwort.sandbox.mounts import MountServer, MountSpace, run
from antwort.sandbox.project_quotas import confine, project_of, quota_of
from antwort.sandbox.trees import delete_tree
from antwort.sandbox.usage import DiskUsage, disk_usage
from antwort.sandbox.users import has_others, own_user

IMAGE = ".disk"
"""How the name of an image ends: that of its folder, beside which it is, comes before."""
_BLOCK = 512
_TRIES, _PAUSE = 20, 0.05
"""How often something is tried that another process is about to give back, and seconds in between."""
_UNMOUNTING = 10.0
"""Seconds that the kernel may take to unmount an image: it writes to a disk first, which others may keep busy."""
_UNSERVED = frozenset({errno.ENOTCONN, errno.ECONNABORTED})
"""What is told of a file system whose program has ended."""
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})
_OWN_SIZE = 64 * 1024
"""Bytes of a folder itself, for the names of what is in it."""
_IN_AN_IMAGE = stat.S_ISVTX | stat.S_IRWXU
"""The mode of folders whose files are in images."""
_WASTE = MEBIBYTE
"""Bytes that an image may take on the disk beyond what is in it, when nobody uses it."""
_LENIENCE = 4
"""How many times its limits a folder may hold to which a file system is given: there was none when it was filled."""


class MissingImageError(OSError):
    """The image is gone that holds the files of a folder."""


class Disk(Struct, frozen=True):
    """A folder, and what it may hold."""

    folder: Path
    """Without links in it."""
    size: int
    files: int

    @property
    def image(self) -> Path:
        """The file that holds all of it, for kinds that have one; it is beside the folder, where no code gets."""
        return image_of(self.folder)

    @property
    def number(self) -> UUID:
        """The number that its image has, and that of no other folder."""
        name = f"{self.folder.parent.name}/{self.folder.name}"
        return UUID(bytes=hashlib.sha256(name.encode()).digest()[:16])

    def before(self) -> DiskUsage:
        """Return what is in the folder itself: what was written when it had no file system of its own."""
        return disk_usage(self.folder, _LENIENCE * self.files)


class DiskKind(ABC):
    """A way to give folders file systems of their own, in a namespace of mounts."""

    name: ClassVar[str]
    own_files: ClassVar[int]
    """Files that a file system counts for itself."""
    settles: ClassVar[bool] = False
    """Whether it is in memory: what was written has to be brought to the disk after each use."""
    is_shared: ClassVar[bool] = True
    """Whether several processes can use a folder at the same time without one namespace of mounts for all."""

    def __init__(self, space: MountSpace) -> None:
        self._space = space

    @property
    def entering(self) -> Sequence[str]:
        """How the command line begins of what is to see the file systems."""
        return self._space.entering

    @property
    def space(self) -> int | None:
        """The namespace of mounts with the file systems, which is open; None if all see them."""
        return self._space.mounts

    def seen(self, folder: Path) -> Path:
        """Return where this process finds the files of a folder."""
        return self._space.seen(folder)

    def is_attached(self, folder: Path) -> bool:
        """Tell whether a folder has its file system; the kernel knows, whoever has moved or deleted it meanwhile."""
        return self.seen(folder).stat().st_dev != folder.parent.stat().st_dev

    @abstractmethod
    def attach(self, disk: Disk) -> None:
        """Mount the file system of a folder; OSError if that cannot be done.

        Nobody else does so with a folder of the same tenant meanwhile, in any process, or takes one away.
        """

    def detach(self, folder: Path) -> None:
        """Unmount the file system of a folder; OSError if somebody uses it."""
        self._unmount(folder)

    def verify(self, disk: Disk) -> None:  # noqa: B027 - most have nothing beside what is mounted
        """Raise OSError if what holds the files of a folder was replaced since it was mounted."""

    def settle(self, disk: Disk) -> None:  # noqa: B027 - most have nothing to do
        """Bring to the disk what was written."""

    @abstractmethod
    def left(self, disk: Disk) -> int:
        """Return how many bytes of the disk a folder may still take; OSError if what it takes would be lost."""

    def pending(self, disk: Disk) -> int:  # noqa: ARG002 - most have nothing to wait for
        """Return how many bytes of the disk it takes when all that was written is there."""
        return 0

    def unused_memory(self, disk: Disk) -> int:  # noqa: ARG002 - most are on the disk
        """Return how many bytes of memory a folder may still take."""
        return 0

    def _unmount(self, folder: Path) -> None:
        self._space.run(["umount", "-n", "-i", str(folder)])

    def _owner(self, folder: Path) -> int | None:
        """Return whom files in a folder are given to; who is alone has them anyway."""
        return None if self._space.has_own_users else folder.stat().st_uid


class Images(DiskKind):
    """Files that hold file systems, beside the folders. Whoever serves one has it locked."""

    own_files = OWN_FILES
    kept_back: ClassVar[int] = KEPT_BACK
    """Percent of an image that nobody can write to."""

    def __init__(self, space: MountSpace) -> None:
        super().__init__(space)
        self._inodes: dict[Path, int] = {}
        """The numbers of images that were mounted here, by their folders."""

    @override
    def attach(self, disk: Disk) -> None:
        self._check()
        if not os.path.lexists(disk.image):
            _refuse_missing(disk.folder)
            self._make(disk)
            return
        with _locked(disk.image) as image:
            check_image(image, disk.number)
            whole = image_size(disk.size, disk.files, kept_back=self.kept_back)
            too_small = disk.image.stat().st_size < whole
            is_free = self._becomes_free(disk.image) if too_small else not self._is_mounted(disk.image)
            if is_free and (too_small or not is_clean(image)):
                mend(disk.image)
                if too_small:
                    grow(disk.image, whole)
            self._mount(disk.image, disk.folder, image)
            self._inodes[disk.folder] = os.fstat(image).st_ino
        disk.folder.chmod(_IN_AN_IMAGE)
        with contextlib.suppress(OSError):
            (self.seen(disk.folder) / "lost+found").rmdir()  # what mends an image makes it
        _empty(disk.folder)  # whoever moved it to the image may have been interrupted

    @override
    def verify(self, disk: Disk) -> None:
        """Look at the image: what is written to another one, or in place of another's files, would be lost or leak."""
        try:
            with open(disk.image, "rb", opener=_unlinked) as image:
                try:
                    check_content(image.fileno(), disk.number)
                except OSError:
                    if os.fstat(image.fileno()).st_ino == self._inodes.get(disk.folder):
                        spoil(image.fileno())
                    raise
                check_image(image.fileno(), disk.number)
        except FileNotFoundError:
            _refuse_missing(disk.folder)
            raise

    @override
    def detach(self, folder: Path) -> None:
        with contextlib.suppress(OSError):  # it is told when it is to be mounted again
            self.verify(Disk(folder, 0, 0))
        super().detach(folder)
        self._inodes.pop(folder, None)

    @override
    def left(self, disk: Disk) -> int:
        about = disk.image.stat()
        return max(0, about.st_size - _BLOCK * about.st_blocks)

    @override
    def pending(self, disk: Disk) -> int:
        """Return what is taken in the file system, and of the image not yet: the kernel writes it within a minute."""
        return max(0, self._growth(disk)) if self.is_attached(disk.folder) else 0

    def _growth(self, disk: Disk) -> int:
        """Return by how much an image that is mounted should be larger on the disk, for what is in it."""
        state, about = os.statvfs(self.seen(disk.folder)), disk.image.stat()
        return about.st_size - state.f_bfree * state.f_frsize - _BLOCK * about.st_blocks

    def _make(self, disk: Disk) -> None:
        """Make an image that holds what is in the folder already, or none."""
        new = image_of(disk.folder.with_name(f".new-{secrets.token_hex(8)}"))
        before, owner = disk.before(), self._owner(disk.folder)
        try:
            size, files = max(disk.size, before.size * 21 // 20), max(disk.files, before.files)
            whole = image_size(size, files, kept_back=self.kept_back)
            make_image(new, whole, files, owner or 0, disk.number)
            with _locked(new) as image:
                self._mount(new, disk.folder, image)
            try:
                seen = self.seen(disk.folder)
                (seen / "lost+found").rmdir()
                seen.chmod(0o700)
                if before.files:
                    make_alike(disk.folder, seen, size=new.stat().st_size, files=before.files, owner=owner)
                new.rename(disk.image)
                self._inodes[disk.folder] = disk.image.stat().st_ino
                disk.folder.chmod(_IN_AN_IMAGE)
            except BaseException:
                self._unmount(disk.folder)
                raise
        except BaseException:
            new.unlink(missing_ok=True)
            raise
        if before.files:
            _empty(disk.folder)

    def _check(self) -> None:
        """Raise OSError if images cannot be mounted in this way here."""

    def _becomes_free(self, image: Path) -> bool:
        """Tell whether an image is mounted nowhere, or not for much longer: the kernel takes its time to unmount it."""
        late = time.monotonic() + _UNMOUNTING
        while self._is_mounted(image):
            if time.monotonic() > late:
                return False
            time.sleep(_PAUSE)
        return True

    @abstractmethod
    def _mount(self, image: Path, folder: Path, opened: int) -> None:
        """Mount an image, which is open and locked."""

    @abstractmethod
    def _is_mounted(self, image: Path) -> bool:
        """Tell whether an image is mounted somewhere, so that nobody may change it."""


class LoopImages(Images):
    """Images that the kernel mounts, for root. Whichever processes mount one, it is the same file system for all."""

    name = "loop"

    @override
    def _check(self) -> None:
        if self._space.has_own_users:
            raise OSError(errno.EPERM, "only root can mount images")

    @override
    def _mount(self, image: Path, folder: Path, opened: int) -> None:
        """Mount an image; if it has a loop device, of whatever process, that is the one."""
        options = "loop,nosuid,nodev,noatime,discard,errors=remount-ro,noinit_itable"
        command = ["mount", "-n", "-i", "-t", "ext4", "-o", options, str(image), str(folder)]
        for _ in range(_TRIES if self._is_mounted(image) else 0):
            with contextlib.suppress(OSError):
                self._space.run(command)
                return
            time.sleep(_PAUSE)  # the kernel may be about to take the device away from a process that has ended
        self._space.run(command)

    @override
    def _is_mounted(self, image: Path) -> bool:
        return bool(run(["losetup", "--noheadings", "--output", "NAME", "--associated", str(image)]).strip())


class FuseImages(Images):
    """Images that a program serves, `fuse2fs`, for whoever can open `/dev/fuse`: one process for each that is mounted.

    It has the image locked as long as it runs, and ends in good order when this process does, however that ends.
    """

    name = "fuse"
    is_shared = False
    kept_back = 10

    def __init__(self, space: MountSpace) -> None:
        super().__init__(space)
        self._servers: dict[Path, MountServer] = {}

    @override
    def is_attached(self, folder: Path) -> bool:
        try:
            return super().is_attached(folder)
        except OSError as error:
            if error.errno in _UNSERVED:
                return False
            raise

    @override
    def detach(self, folder: Path) -> None:
        is_large = self._growth(Disk(folder, 0, 0)) < -_WASTE
        super().detach(folder)
        if is_large:
            with _locked(image_of(folder)):
                mend(image_of(folder))
                shrink(image_of(folder))

    @override
    def _unmount(self, folder: Path) -> None:
        super()._unmount(folder)
        if (server := self._servers.pop(folder, None)) is not None:
            server.end(patience=_TRIES * _PAUSE)

    @override
    def _mount(self, image: Path, folder: Path, opened: int) -> None:
        try:
            self.seen(folder).stat()
        except OSError as error:
            if error.errno not in _UNSERVED:
                raise
            self._space.run(["umount", "-n", "-i", "-l", str(folder)])  # what served it has ended
        options = "default_permissions,nosuid,nodev,noatime"
        if not self._space.has_own_users:  # who is alone needs nobody else, and is outside of the namespace
            options += ",allow_other"
        try:
            server = self._serve(folder, opened, options)
        except OSError as error:
            if "nonempty" not in str(error.strerror):
                raise
            server = self._serve(folder, opened, f"{options},nonempty")  # some want to be told, others do not know it
        self._servers = {place: one for place, one in self._servers.items() if one.is_alive()}
        self._servers[folder] = server

    def _serve(self, folder: Path, opened: int, options: str) -> MountServer:
        command = ["fuse2fs", "-f", "-o", options, f"/proc/self/fd/{opened}", str(folder)]
        return self._space.serve(command, lambda: self.is_attached(folder), held=opened)

    @override
    def _is_mounted(self, image: Path) -> bool:
        return False  # it is locked by now


class ProjectQuotas(DiskKind):
    """Quotas for what is in folders, which stay as they are: for root, on disks that are mounted with such quotas."""

    name = "quota"
    own_files = 1

    def __init__(self, space: MountSpace) -> None:
        super().__init__(space)
        self._projects: dict[Path, int] = {}
        """Those that have today's limits."""

    @property
    @override
    def entering(self) -> Sequence[str]:
        return ()

    @property
    @override
    def space(self) -> int | None:
        return None

    @override
    def seen(self, folder: Path) -> Path:
        return folder

    @override
    def is_attached(self, folder: Path) -> bool:
        return folder in self._projects and self._projects[folder] == project_of(folder)

    @override
    def attach(self, disk: Disk) -> None:
        refuse_image(disk.folder)
        if self._space.has_own_users:
            raise OSError(errno.EPERM, "only root can set quotas")
        size, files = disk.size + _OWN_SIZE, disk.files + self.own_files
        if (project := project_of(disk.folder)) is None:
            before = disk.before()
            size = max(size, before.size * 21 // 20 + _OWN_SIZE)
            files = max(files, before.files + self.own_files)
        else:  # what was written since is no reason for a larger limit
            quota = quota_of(disk.folder, project)
            size, files = max(size, quota.size_limit), max(files, quota.files_limit)
        self._projects[disk.folder] = confine(disk.folder, size, files)

    @override
    def detach(self, folder: Path) -> None:
        """Forget it; its quota stays."""
        self._projects.pop(folder, None)

    @override
    def left(self, disk: Disk) -> int:
        quota = quota_of(disk.folder, self._projects[disk.folder])
        return max(0, quota.size_limit - quota.size)


class MemoryDisks(DiskKind):
    """File systems in memory, for everybody: what is in the folder is brought there first, and back after each use."""

    name = "memory"
    own_files = 1
    settles = True
    is_shared = False

    @override
    def attach(self, disk: Disk) -> None:
        refuse_image(disk.folder)
        before = disk.before()
        if free_memory() - RESERVE < before.size:  # what else is written is claimed when it may be
            raise OSError(errno.ENOMEM, "there is too little memory for its files")
        files = max(disk.files, before.files)
        try:
            self._fill(disk.folder, disk.size, files)
        except OSError as error:
            if error.errno not in _NO_ROOM or before.size <= disk.size:
                raise
            self._fill(disk.folder, before.size, files)  # only what there really is too much of: else limits would grow

    def _fill(self, folder: Path, size: int, files: int) -> None:
        """Mount a file system of a size that holds what is in the folder; OSError if it does not."""
        owner = self._owner(folder)
        options = f"size={size},nr_inodes={files + self.own_files},mode=0700,nosuid,nodev,noatime"
        if owner is not None:
            options += f",uid={owner},gid={owner}"
        self._space.run(["mount", "-n", "-i", "-t", "tmpfs", "-o", options, "antwort", str(folder)])
        try:
            make_alike(folder, self.seen(folder), size=size, files=files, owner=owner)
        except BaseException:
            self.detach(folder)
            raise

    @override
    def settle(self, disk: Disk) -> None:
        state = os.statvfs(self.seen(disk.folder))
        size, owner = state.f_blocks * state.f_frsize, self._owner(disk.folder)
        make_alike(self.seen(disk.folder), disk.folder, size=size, files=state.f_files, owner=owner)

    @override
    def left(self, disk: Disk) -> int:
        return max(0, disk.size - disk.before().size)

    @override
    def unused_memory(self, disk: Disk) -> int:
        state = os.statvfs(self.seen(disk.folder))
        return state.f_bfree * state.f_frsize


KINDS: Sequence[type[DiskKind]] = (LoopImages, FuseImages, ProjectQuotas, MemoryDisks)
"""In the order in which they are tried."""


def image_of(folder: Path) -> Path:
    """Return where the image of a folder is, if it has one."""
    return folder.with_name(folder.name + IMAGE)


def _unlinked(path: str, flags: int) -> int:
    """Open a file that is no link; who opens a pipe would wait for a writer."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


@contextlib.contextmanager
def _locked(image: Path) -> Iterator[int]:
    """Have an image open that nobody serves; what has served it may be about to end."""
    with open(image, "rb", opener=_unlinked) as file:
        for tries in itertools.count(1):
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if tries == _TRIES:
                    raise OSError(errno.EBUSY, "another process still serves it") from None
                time.sleep(_PAUSE)
        yield file.fileno()


def try_out(kind: DiskKind, disk: Disk) -> None:
    """Give a folder its file system, write too much to it, and take it away; OSError if any of that does not work."""
    owner = own_user(disk.folder) if has_others() else None
    kind.attach(disk)
    try:
        seen = kind.seen(disk.folder)
        # Limits may not hold for root.
        run(["fallocate", "--length", str(disk.size), "file"], cwd=seen, user=owner)
        kind.settle(disk)
        try:
            run(["fallocate", "--length", str(2 * disk.size), "file"], cwd=seen, user=owner)
        except OSError:
            return
        raise OSError(errno.EINVAL, "what is written has no limit")
    finally:
        kind.detach(disk.folder)


def refuse_image(folder: Path) -> None:
    """Do not let a folder seem empty whose files are elsewhere: OSError."""
    if os.path.lexists(image_of(folder)):
        raise OSError(errno.EPERM, "it is in an image, which cannot be mounted here")
    _refuse_missing(folder)


def _refuse_missing(folder: Path) -> None:
    if stat.S_IMODE(folder.stat().st_mode) == _IN_AN_IMAGE:
        raise MissingImageError(errno.ENODATA, "its image is missing")


def _empty(folder: Path) -> None:
    """Delete what is in a folder itself."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                delete_tree(Path(entry.path))
            else:
                Path(entry.path).unlink(missing_ok=True)
