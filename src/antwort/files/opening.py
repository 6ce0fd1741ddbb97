"""Opening what keeps the bytes of files: a folder, a bucket, or another blob store."""

from pathlib import Path

from antwort.config import BLOB_STORES, Choice, S3Config
from antwort.files.base import Blobs


def open_blobs(bucket: S3Config | None, folder: Path, chosen: Choice | None = None) -> Blobs:
    """Open the chosen blob store, else a bucket, or if none is given a folder; ConfigError if it cannot be used.

    None is asked anything yet: a bucket that cannot be reached is told when a file is.
    """
    around = {} if bucket is None else {"s3": bucket}
    key = "storage.files" if chosen is not None or bucket is None else "storage.s3"
    opened: Blobs = BLOB_STORES.make(
        chosen or ("disk" if bucket is None else "s3"), folder, key=key, around=around, where=key
    )
    return opened
