"""Bytes of files in a folder, for nobody else of the machine to read."""

import asyncio
import os
from collections.abc import AsyncIterable, AsyncIterator, Callable
from pathlib import Path
from typing import BinaryIO, ParamSpec, Self, TypeVar

from typing_extensions import override

from antwort.concurrency.undisturbed import undisturbed
from antwort.config import Settings
from antwort.errors import NotFoundError, ServiceUnavailableError
from antwort.files.base import Blobs

P = ParamSpec("P")
T = TypeVar("T")

_PIECE = 1 << 18
"""Bytes that are read at once."""


class DiskBlobs(Blobs):
    """Keeps each blob as a file, in one of 256 folders: one with all of them would be slow.

    One that is being written has another name, and gets its own when all of it is on the disk.
    """

    one_folder = "each keeps the files of clients in its data folder; set storage.s3 for all servers"

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @classmethod
    def of(cls, settings: Settings, folder: Path) -> Self:  # noqa: ARG003 - it has none
        """Make it."""
        return cls(folder)

    @override
    async def write(self, name: str, chunks: AsyncIterable[bytes]) -> None:
        new = _NewFile(self._path(name))
        try:
            await _on_disk(new.open, self._folder)
            async for chunk in chunks:
                await _on_disk(new.write, chunk)
            await _on_disk(new.put_in_place)
        finally:
            await _on_disk(new.end)

    @override
    async def read(self, name: str, offset: int, length: int) -> AsyncIterator[bytes]:
        file = _OpenFile(self._path(name))
        try:
            await _on_disk(file.open, offset)
            while length > 0 and (piece := await _on_disk(file.read, min(length, _PIECE))):
                length -= len(piece)
                yield piece
        finally:
            await _on_disk(file.close)

    @override
    async def delete(self, name: str) -> None:
        path = self._path(name)
        for each in (_unfinished(path), path):
            await _on_disk(each.unlink, missing_ok=True)

    @override
    async def close(self) -> None:
        """There is nothing to give back."""

    def _path(self, name: str) -> Path:
        return self._folder / name[-2:] / name


class _OpenFile:
    """A file that is read. It is closed even if nobody has waited for its opening."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO | None = None

    def open(self, offset: int) -> None:
        try:
            self._file = self._path.open("rb")
        except FileNotFoundError:
            raise NotFoundError("The content of the file is gone.") from None
        self._file.seek(offset)

    def read(self, size: int) -> bytes:
        return b"" if self._file is None else self._file.read(size)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


class _NewFile:
    """A file that is written, under another name until it is complete."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = -1

    def open(self, folder: Path) -> None:
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        for each in (folder, self._path.parent):
            each.mkdir(mode=0o700, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        self._descriptor = os.open(_unfinished(self._path), flags, 0o600)

    def write(self, data: bytes) -> None:
        left = memoryview(data)
        while left:
            left = left[os.write(self._descriptor, left) :]

    def put_in_place(self) -> None:
        os.fsync(self._descriptor)
        _unfinished(self._path).rename(self._path)
        folder = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)  # or the new name might be lost with the machine
        finally:
            os.close(folder)

    def end(self) -> None:
        """Leave nothing of a file that is not complete: on a full disk nobody else might be able to delete it."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            _unfinished(self._path).unlink(missing_ok=True)


def _unfinished(path: Path) -> Path:
    return path.with_name(f"{path.name}.part")


async def _on_disk(step: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
    """Do something on another thread; whoever is cancelled waits for its end, so that nothing comes after it."""
    try:
        return await undisturbed(asyncio.to_thread(step, *args, **options))
    except OSError as error:
        raise ServiceUnavailableError(f"The disk that has the files fails: {error.strerror}.") from error
