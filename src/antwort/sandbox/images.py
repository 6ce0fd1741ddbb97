"""Images of file systems: ordinary files, as large as what is in them, which hold no more than they were made for."""

import errno
import os
import stat
import struct
from pathlib import Path
from uuid import UUID

from antwort.sandbox.mounts import run

KEPT_BACK = 2
"""Percent of an image that the kernel lets nobody write to."""
OWN_FILES = 10
"""Files that each counts for itself."""
_BLOCK = 4096
_INODE = 256
_LEAST = 50 * _BLOCK
_FEW = 8
"""Blocks that it, and each group of blocks, has for itself."""
_GROUP = 8 * _BLOCK * _BLOCK
"""Bytes that one map of blocks tells of."""
_SUPERBLOCK, _LENGTH = 1024, 128
_BLOCKS, _NUMBER = 4, slice(104, 120)
_MAGIC, _CLEAN, _ERRORS = 0xEF53, 1, 2
_MENDED = 1
"""What `e2fsck` returns at most if nothing is wrong any more."""


def image_size(size: int, files: int, *, kept_back: int = KEPT_BACK) -> int:
    """Return how large an image is in which so many bytes of so many files find room, if some percent are kept back."""
    size = max(size, _LEAST)
    own = _INODE * (files + OWN_FILES + 1) + _FEW * _BLOCK
    whole = (size + own) * 100 // (100 - kept_back)
    whole += (whole // _GROUP + 1) * _FEW * _BLOCK
    return -(-whole // _BLOCK) * _BLOCK


def make_image(path: Path, whole: int, files: int, owner: int, number: UUID) -> None:
    """Make an image, as large as `image_size` says, whose root belongs to somebody; OSError if that cannot be done.

    It has no journal: what a crash of the machine leaves half written is mended when it is mounted again.
    """
    with path.open("xb") as file:
        os.fchmod(file.fileno(), 0o600)
        file.truncate(whole)
    layout = ["-b", str(_BLOCK), "-I", str(_INODE), "-m", "0", "-N", str(files + OWN_FILES + 1)]
    # Nothing is written that is zero in a new file anyway.
    lazy = f"lazy_itable_init=1,nodiscard,assume_storage_prezeroed=1,root_owner={owner}:{owner}"
    run(
        ["mkfs.ext4", "-q", "-F", "-U", str(number), *layout, "-O", "^has_journal,^resize_inode", "-E", lazy, str(path)]
    )


def check_image(opened: int, number: UUID) -> None:
    """Raise OSError if an open file is not the image of that number that this server has made."""
    about = os.fstat(opened)
    if not stat.S_ISREG(about.st_mode) or about.st_uid != os.geteuid() or about.st_nlink > 1:
        raise OSError(errno.EPERM, "its image was made by somebody else")
    check_content(opened, number)


def check_content(opened: int, number: UUID) -> None:
    """Raise OSError if what is in an open file is not the image of that number, whoever has it."""
    about = os.fstat(opened)
    if not stat.S_IMODE(about.st_mode):
        raise OSError(errno.EPERM, "its image was overwritten while it was mounted")
    block = _superblock(opened)
    if block[_NUMBER] != number.bytes:
        raise OSError(errno.EPERM, "its image is that of something else")
    blocks: int = struct.unpack_from("<I", block, _BLOCKS)[0]
    if about.st_size < blocks * _BLOCK:
        raise OSError(errno.EUCLEAN, "its image was cut off")


def spoil(opened: int) -> None:
    """Note that an open image was overwritten while it was mounted: `check_image` refuses it from then on.

    The kernel writes to it what it remembers of the file system that was there, so that it looks whole afterwards.
    """
    os.fchmod(opened, 0)


def is_clean(opened: int) -> bool:
    """Tell whether an open image was unmounted in order; OSError if it is none."""
    block = _superblock(opened)
    state: int = struct.unpack_from("<H", block, 58)[0]
    return state & (_CLEAN | _ERRORS) == _CLEAN


def _superblock(opened: int) -> bytes:
    block = os.pread(opened, _LENGTH, _SUPERBLOCK)
    if len(block) < _LENGTH or struct.unpack_from("<H", block, 56)[0] != _MAGIC:
        raise OSError(errno.EUCLEAN, "there is no file system in its image")
    return block


def mend(path: Path) -> None:
    """Mend an image that nobody has mounted, as far as nothing is lost by it; OSError if that is not enough."""
    run(["e2fsck", "-p", "-f", str(path)], fine=_MENDED)


def shrink(path: Path) -> None:
    """Give back what an image takes on the disk for what was deleted in it; nobody has it mounted, and it is clean."""
    run(["e2fsck", "-p", "-f", "-E", "discard", str(path)], fine=_MENDED)


def grow(path: Path, whole: int) -> None:
    """Make an image larger that nobody has mounted and that was just mended, for limits that have been raised."""
    os.truncate(path, whole)
    run(["resize2fs", str(path)])
