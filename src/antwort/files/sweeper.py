"""Deleting files whose time is over, and what others have left undone, now and then."""

import asyncio
import contextlib
import logging

from antwort.files.service import StoredFiles
from antwort.storage.base import StoreUnavailableError

logger = logging.getLogger(__name__)


class FileSweeper:
    """Sweeps at the start and then every so many seconds, in a task of its own."""

    def __init__(self, files: StoredFiles, every: float) -> None:
        self._files = files
        self._every = every
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """Stop; what is not deleted yet is deleted after the next start."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        while True:
            try:
                if count := await self._files.sweep():
                    logger.info("deleted %d files whose time was over, or that were not complete", count)
            except StoreUnavailableError as error:
                logger.warning("files whose time is over are not deleted now: %s", error.message)
            except Exception:  # it must not be the end of all sweeps
                logger.exception("files whose time is over could not be deleted")
            await asyncio.sleep(self._every)
