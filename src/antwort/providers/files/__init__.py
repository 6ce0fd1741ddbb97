"""`/v1/files` and `/v1/uploads`: files of clients."""

from antwort.providers.files.provider import FilesApi

__all__ = ["FilesApi"]
