"""Bytes of files in a folder."""

from collections.abc import AsyncIterator
from pathlib import Path

from antwort.files import DiskBlobs


async def test_nobody_else_of_the_machine_can_read_it(tmp_path: Path) -> None:
    async def content() -> AsyncIterator[bytes]:
        yield b"What is known of it."

    folder = tmp_path / "kept" / "blobs"
    await DiskBlobs(folder).write("file-1", content())
    found = (folder, *folder.rglob("*"))
    modes = {("file" if path.is_file() else "folder", path.stat().st_mode & 0o777) for path in found}
    assert modes == {("folder", 0o700), ("file", 0o600)}
