"""Files that clients upload: what is known of them in the database, their bytes on disk or in a bucket."""

from antwort.files.base import Blobs, FileDetails, FileListener, Files, open_blobs, why_one_folder
from antwort.files.disk import DiskBlobs
from antwort.files.service import FileLimits, FileSweeper, StoredFiles
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
    "why_one_folder",
]
