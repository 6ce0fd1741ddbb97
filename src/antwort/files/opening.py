"""Opening what keeps the bytes of files: a folder, or a bucket."""

import importlib
from pathlib import Path

from antwort.config import S3Config
from antwort.errors import ConfigError
from antwort.files.base import Blobs
from antwort.files.disk import DiskBlobs


def open_blobs(bucket: S3Config | None, folder: Path) -> Blobs:
    """Open a bucket, or if none is given a folder; raise ConfigError if it cannot be used.

    Neither is asked anything yet: a bucket that cannot be reached is told when a file is.
    """
    if bucket is None:
        return DiskBlobs(folder)
    try:  # it is some megabytes of machine code, which most servers never need
        opened: Blobs = importlib.import_module("antwort.files.s3").S3Blobs(bucket)
    except ImportError as error:
        if not (error.name or "").startswith("obstore"):
            raise
        raise ConfigError(
            "files in a bucket need a package that is not installed: pip install 'antwort[s3]'", where="storage.s3"
        ) from error
    return opened
