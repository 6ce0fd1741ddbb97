"""Files that clients upload: what is known of them in the database, their bytes on disk or in a bucket."""

from antwort.files.base import Blobs, FileDetails, FileListener, Files
from antwort.files.disk import DiskBlobs
from antwort.files.opening import open_blobs
from antwort.files.service import FileLimits, StoredFiles
from antwort.files.sweeper import FileSweeper
from antwort.storage.base import FileRecord

__all__ = [
    "Blobs",
    "DiskBlobs",
    "FileDetails",
    "FileLimits",
    "FileListener",
    "FileRecord",
    "FileSweeper",
    "Files",
    "StoredFiles",
    "open_blobs",
]
