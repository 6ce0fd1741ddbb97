"""Files that come from outside into a folder, piece by piece, within its limits."""

import asyncio
from collections.abc import AsyncIterator

from antwort.errors import PayloadTooLargeError
from antwort.sandbox.files import ConfinedFiles, NoRoomError
from antwort.sandbox.limits import SandboxLimits

_COUNTED = 8 << 20
"""Bytes of a file after which what is in its folder is counted again."""


async def store_file(files: ConfinedFiles, path: str, chunks: AsyncIterator[bytes], limits: SandboxLimits) -> int:
    """Write a file as its content comes, and return its size; what is there already counts, and what others write.

    PayloadTooLargeError if it does not fit, FileProblemError if it cannot be there; then nothing of it is left.
    """
    room = min(limits.file_bytes, await _room(files, limits, more=1))
    try:
        return await _stored(files, path, chunks, limits, room)
    except NoRoomError as error:  # others were quicker to fill the folder
        raise _no_room(files, 0, limits) from error


async def _stored(
    files: ConfinedFiles, path: str, chunks: AsyncIterator[bytes], limits: SandboxLimits, room: int
) -> int:
    file = await asyncio.to_thread(files.create, path)
    size = counted = 0
    try:
        async for chunk in chunks:
            size += len(chunk)
            if size > room:
                raise _no_room(files, room, limits)  # noqa: TRY301 - what was written has to go, whatever happened
            await asyncio.to_thread(file.write, chunk)
            if size - counted >= _COUNTED:
                counted = size
                await _room(files, limits)
        await _room(files, limits)  # others may have written at the same time
        await asyncio.to_thread(file.keep)
    except BaseException:
        file.drop()
        raise
    return size


async def _room(files: ConfinedFiles, limits: SandboxLimits, more: int = 0) -> int:
    """Return how many bytes fit into a folder; PayloadTooLargeError if it is too full for `more` files."""
    most = limits.disk_files
    used = await asyncio.to_thread(files.usage, most)
    if used.files + more > most:
        raise PayloadTooLargeError(f"The {files.what} has {most:,} files, which is the limit; delete some.")
    if used.size > limits.disk_bytes:
        raise _no_room(files, 0, limits)
    return limits.disk_bytes - used.size


def _no_room(files: ConfinedFiles, room: int, limits: SandboxLimits) -> PayloadTooLargeError:
    return PayloadTooLargeError(
        f"There is room for {room:,} more bytes in the {files.what}; a file may have {limits.file_bytes:,}, "
        f"all of them {limits.disk_bytes:,}."
    )
