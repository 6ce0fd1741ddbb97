"""Files that clients put into containers: uploads, and copies of those of the files API."""

import asyncio
from collections.abc import AsyncIterator

from antwort.provider import (
    BadRequestError,
    Context,
    FileProblemError,
    FileRecord,
    MissingFileError,
    NotFoundError,
    SandboxLimits,
    ServiceUnavailableError,
    store_file,
)
from antwort.provider import Files as FilesOfClients
from antwort.providers.code_interpreter.containers import About, Container, Containers
from antwort.providers.code_interpreter.files import File, upload_name


class GivenFiles:
    """Puts files into containers."""

    def __init__(self, containers: Containers, files: FilesOfClients | None, limits: SandboxLimits) -> None:
        self._containers = containers
        self._files = files
        self._limits = limits

    async def put(self, container: Container, filename: str, chunks: AsyncIterator[bytes]) -> File:
        """Store what is uploaded as a file."""
        name = upload_name(filename)
        files = self._containers.files(container)
        try:
            async with self._containers.in_use(lambda: container.folder):
                await store_file(files.confined, name, chunks, self._limits)
                await asyncio.to_thread(self._note_upload, container, name)
        except MissingFileError as error:
            raise NotFoundError(str(error), param="container_id") from error
        except FileProblemError as error:
            raise BadRequestError(str(error), param="file") from error
        return await asyncio.to_thread(files.find, files.id_of(name))

    async def known(self, ctx: Context, file_id: str, param: str) -> FileRecord:
        """Return a file of the files API; BadRequestError if it is not there."""
        ctx.require("files:read", param=param, purpose="to read a file")
        try:
            return await self._there.get(ctx.tenant, file_id)
        except NotFoundError as error:
            raise BadRequestError(error.message, param=param, code="file_not_found") from None

    async def put_known(self, container: Container, file: FileRecord) -> File:
        """Put a copy of a file of the files API into a container."""
        return await self.put(container, file.filename, await self._there.read(container.tenant, file.id))

    @property
    def _there(self) -> FilesOfClients:
        if self._files is None:
            raise ServiceUnavailableError("There are no files here: no app runs.")
        return self._files

    def _note_upload(self, container: Container, name: str) -> None:
        def note(about: About) -> None:
            if name not in about.uploads:
                about.uploads.append(name)

        note(container.about)
        self._containers.change(container, note)
