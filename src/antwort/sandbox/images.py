"""Images of file systems: ordinary files, as large as what is in them, which hold no more than they were made for."""

import errno
import os
import struct
from pathlib import Path

from antwort.sandbox.mounts import run

OWN_FILES = 10
"""Files that each counts for itself."""
_BLOCK = 4096
_INODE = 256
_LEAST = 50 * _BLOCK
_FEW = 8
"""Blocks that it, and each group of blocks, has for itself."""
_GROUP = 8 * _BLOCK * _BLOCK
"""Bytes that one map of blocks tells of."""
_SUPERBLOCK, _LENGTH = 1024, 64
_MAGIC, _CLEAN, _ERRORS = 0xEF53, 1, 2
_MENDED = 1
"""What `e2fsck` returns at most if nothing is wrong any more."""


def image_size(size: int, files: int) -> int:
    """Return how large an image is in which so many bytes of so many files find room."""
    size = max(size, _LEAST)
    own = _INODE * (files + OWN_FILES + 1) + _FEW * _BLOCK
    whole = (size + own) * 100 // 98  # the kernel keeps that much back
    whole += (whole // _GROUP + 1) * _FEW * _BLOCK
    return -(-whole // _BLOCK) * _BLOCK


def make_image(path: Path, size: int, files: int, owner: int) -> None:
    """Make an image of a file system whose root belongs to somebody; OSError if that cannot be done.

    It has no journal: what a crash of the machine leaves half written is mended when it is mounted again.
    """
    with path.open("xb") as file:
        os.fchmod(file.fileno(), 0o600)
        file.truncate(image_size(size, files))
    layout = ["-b", str(_BLOCK), "-I", str(_INODE), "-m", "0", "-N", str(files + OWN_FILES + 1)]
    # Nothing is written that is zero in a new file anyway.
    lazy = f"lazy_itable_init=1,nodiscard,assume_storage_prezeroed=1,root_owner={owner}:{owner}"
    run(["mkfs.ext4", "-q", "-F", *layout, "-O", "^has_journal,^resize_inode", "-E", lazy, str(path)])


def is_clean(path: Path) -> bool:
    """Tell whether an image was unmounted in order; OSError if it is none."""
    with path.open("rb") as file:
        file.seek(_SUPERBLOCK)
        block = file.read(_LENGTH)
    if len(block) < _LENGTH or struct.unpack_from("<H", block, 56)[0] != _MAGIC:
        raise OSError(errno.EUCLEAN, "there is no file system in its image")
    state: int = struct.unpack_from("<H", block, 58)[0]
    return state & (_CLEAN | _ERRORS) == _CLEAN


def mend(path: Path) -> None:
    """Mend an image that nobody has mounted, as far as nothing is lost by it; OSError if that is not enough."""
    run(["e2fsck", "-p", "-f", str(path)], fine=_MENDED)


def grow(path: Path, size: int, files: int) -> None:
    """Make an image larger that nobody has mounted and that was just mended, for limits that have been raised."""
    os.truncate(path, image_size(size, files))
    run(["resize2fs", str(path)])
