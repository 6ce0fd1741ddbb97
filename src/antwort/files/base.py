"""What can be done with files, and what those must do who keep their bytes."""

from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import ClassVar, Protocol

from msgspec import Struct

from antwort.config import BLOB_STORES, Choice, S3Config
from antwort.storage.base import FileRecord, Page

FileListener = Callable[[FileRecord], Awaitable[None]]
"""Is told that a file is being deleted. It may be told more than once, and files that it has never heard of."""


class FileDetails(Struct, frozen=True):
    """What may be said of a file only when all of it has come, such as in fields of a form behind it."""

    purpose: str
    expires_at: int | None = None


class Files(Protocol):
    """The files of all tenants. What cannot be done is an APIError.

    `part_of` names what a file is a part of, such as an upload that is not complete yet. Parts count as much as files
    do, and are found only by whoever names what they are part of.
    """

    @property
    def largest(self) -> int:
        """How many bytes a file may have."""

    async def create(
        self,
        tenant: str,
        filename: str,
        purpose: str,
        chunks: AsyncIterable[bytes],
        *,
        expires_at: int | None = None,
        part_of: str = "",
        instead_of: str = "",
        details: Callable[[], FileDetails] | None = None,
    ) -> FileRecord:
        """Keep a file; its content is read as it comes, and nothing is left of one that does not come to its end.

        `details` are asked for when all has come, and replace `purpose` and `expires_at`; if they raise an error, the
        file has not come to its end.

        Folders and control characters are left out of the name. A PayloadTooLargeError if the file is too large, a
        RateLimitError if the tenant has too much; what is part of `instead_of` does not count for that.
        """

    async def get(self, tenant: str, file_id: str, *, part_of: str = "") -> FileRecord:
        """Return what is known of a file; a NotFoundError if it is not there."""

    async def list(
        self,
        tenant: str,
        *,
        purpose: str | None = None,
        limit: int = 100,
        after: str | None = None,
        order: str = "desc",
        part_of: str = "",
    ) -> Page:
        """Return a page of files in the order of their making; `after` is an id, of a file that is gone, too."""

    async def read(
        self, tenant: str, file_id: str, *, offset: int = 0, length: int | None = None, part_of: str = ""
    ) -> AsyncIterator[bytes]:
        """Return the content, or some of it, as it is read; a NotFoundError if it is not there.

        Whoever has begun to read a file on disk reads it to its end, though it is deleted meanwhile.
        """

    async def delete(self, tenant: str, file_id: str, *, part_of: str = "") -> None:
        """Delete a file, and tell those who listen; a NotFoundError if it is not there.

        It is gone for everybody at once. What cannot be done now, such as what a listener fails to do, is done later.
        """

    def on_delete(self, listener: FileListener) -> None:
        """Have somebody told of each file that is deleted or expires, before it is forgotten.

        If it raises an error it is told again later.
        """


class Blobs(Protocol):
    """Keeps bytes under names. What it cannot do now is a ServiceUnavailableError."""

    one_folder: ClassVar[str | None] = None
    """Why servers with different data folders do not see the same bytes, and the cure; None if they do."""

    async def write(self, name: str, chunks: AsyncIterable[bytes]) -> None:
        """Keep what comes, all of it or nothing: what was not written to its end cannot be read."""

    def read(self, name: str, offset: int, length: int) -> AsyncIterator[bytes]:
        """Yield some bytes; a NotFoundError if nothing is kept under the name."""

    async def delete(self, name: str) -> None:
        """Forget what is kept under a name, and what was not written to its end; nothing happens if there is none."""

    async def close(self) -> None:
        """Give everything back."""


# --- opening ----------------------------------------------------------------------------------------------------------


def open_blobs(bucket: S3Config | None, folder: Path, chosen: Choice | None = None) -> Blobs:
    """Open the chosen blob store, else a bucket, or if none is given a folder; ConfigError if it cannot be used.

    None is asked anything yet: a bucket that cannot be reached is told when a file is.
    """
    around = {} if bucket is None else {"s3": bucket}
    key = "storage.files" if chosen is not None or bucket is None else "storage.s3"
    opened: Blobs = BLOB_STORES.make(_choice(bucket, chosen), folder, key=key, around=around)
    return opened


def why_one_folder(bucket: S3Config | None, chosen: Choice | None = None) -> str | None:
    """Return why servers with different data folders cannot share the files of a database; None if they can."""
    reason: str | None = BLOB_STORES.declared(_choice(bucket, chosen), "one_folder")
    return reason


def _choice(bucket: S3Config | None, chosen: Choice | None) -> Choice:
    return chosen or ("disk" if bucket is None else "s3")
