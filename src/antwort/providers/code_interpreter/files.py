"""Files of a container: those that clients see, by their ids."""

import contextlib
import hashlib
from collections.abc import Collection
from typing import BinaryIO

from msgspec import Struct

from antwort.provider import (
    BadRequestError,
    ConfinedFiles,
    FileProblemError,
    FoundFile,
    MissingFileError,
    NotFoundError,
    delete_tree,
)

HOME = "/mnt/data"
"""Where code sees the files: where OpenAI's models expect them."""
HOMES = (HOME, "/workspace")
"""All places where it sees them."""
_LONGEST_NAME = 255


class File(Struct, frozen=True):
    """A file that is there."""

    id: str
    found: FoundFile

    @property
    def path(self) -> str:
        """Where it is, relative to the folder, as a text that can be sent."""
        return self.found.shown_path

    @property
    def full_path(self) -> str:
        """Where code sees it."""
        return f"{HOME}/{self.path}"


class ContainerFiles:
    """The files of one container. Links, pipes and the like are none, nor is what begins with a dot."""

    def __init__(self, container_id: str, confined: ConfinedFiles, most: int) -> None:
        self._container_id = container_id
        self._most = most
        self.confined = confined

    def all(self) -> list[File]:
        """Return the files by their paths, as many as there may be; none if the container is gone."""
        try:
            found = self.confined.all(most=self._most, hidden=False)
        except MissingFileError:
            return []
        return [File(self.id_of(file.path), file) for file in found]

    def find(self, file_id: str) -> File:
        """Return a file; NotFoundError if it is not there."""
        for file in self.all():
            if file.id == file_id:
                return file
        raise NotFoundError(f"There is no file with the id '{file_id[:80]}' in this container.", param="file_id")

    def open(self, file: File) -> BinaryIO:
        """Open a file to be read; NotFoundError if it is none any more."""
        try:
            return self.confined.open_found(file.found)
        except FileProblemError as error:
            raise _gone(file) from error

    def delete(self, file: File) -> None:
        """Delete a file; NotFoundError if it is none any more."""
        try:
            self.confined.delete_found(file.found)
        except FileProblemError as error:
            raise _gone(file) from error

    def delete_all_but(self, known: Collection[File]) -> None:
        """Delete what is there, hidden or not, but these files."""
        paths = {file.found.path for file in known}
        kept = {path.partition("/")[0] for path in paths}
        with contextlib.suppress(MissingFileError), self.confined.place() as folder:
            for path in folder.iterdir() if folder.is_dir() else ():
                if path.name in kept:
                    continue
                if path.is_dir() and not path.is_symlink():
                    delete_tree(path)
                else:
                    path.unlink(missing_ok=True)
        for file in self.all():
            if file.found.path not in paths:
                self.delete(file)

    def id_of(self, path: str) -> str:
        """Return the id of a file; it keeps it as long as it has its path."""
        told = f"{self._container_id}\0{path}".encode(errors="surrogateescape")
        return f"cfile_{hashlib.sha256(told).hexdigest()[:48]}"


def upload_name(filename: str) -> str:
    """Return the name of a file that is uploaded, without its folders; BadRequestError if no file can have it."""
    name = filename.replace("\\", "/").rpartition("/")[2]
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise _no_name("must be a text in UTF-8") from None
    if not name:
        raise _no_name("is missing")
    if name.startswith("."):
        raise _no_name("may not begin with a dot")
    if "\0" in name:
        raise _no_name("may not have a zero in it")
    if size > _LONGEST_NAME:
        raise _no_name(f"may have at most {_LONGEST_NAME} bytes, and has {size:,}")
    return name


def _no_name(why: str) -> BadRequestError:
    return BadRequestError(f"The name of the file {why}; use one such as 'data.csv'.", param="file")


def _gone(file: File) -> NotFoundError:
    return NotFoundError(f"The file '{file.path}' is not there any more.", param="file_id")
