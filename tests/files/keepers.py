"""What keeps bytes of files, as the tests see it from outside."""

import shutil
from pathlib import Path
from typing import Protocol

from tests.support.s3 import Bucket

from antwort.config import S3Config
from antwort.files import Blobs, open_blobs


class Keeper(Protocol):
    """A folder or a bucket."""

    def open(self) -> Blobs:
        """Open it, as each process does."""

    def names(self) -> list[str]:
        """Return the names of all that is kept, complete or not."""

    def lose_all(self) -> None:
        """Lose everything."""

    def break_down(self) -> None:
        """Make it fail."""


class Folder:
    """A folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def open(self) -> Blobs:
        return open_blobs(None, self.path)

    def names(self) -> list[str]:
        return sorted(path.name.removesuffix(".part") for path in self.path.rglob("*") if path.is_file())

    def lose_all(self) -> None:
        shutil.rmtree(self.path)

    def break_down(self) -> None:
        self.path.parent.mkdir(parents=True)
        self.path.write_bytes(b"no folder")


class InBucket:
    """A bucket."""

    def __init__(self, bucket: Bucket, folder: Path) -> None:
        self.bucket = bucket
        self._folder = folder
        self._settings: S3Config = bucket.settings

    def open(self) -> Blobs:
        return open_blobs(self._settings, self._folder)

    def names(self) -> list[str]:
        assert not self._folder.exists()
        return [key.removeprefix("kept/files/") for key in self.bucket.objects()]

    def lose_all(self) -> None:
        self.bucket.empty()

    def break_down(self) -> None:
        self.bucket.delete()
