"""Deleting files whose time is over, and what others have left undone, now and then."""

import logging

from typing_extensions import override

from antwort.files.service import StoredFiles
from antwort.storage.retention import RegularSweep

logger = logging.getLogger(__name__)


class FileSweeper(RegularSweep):
    """Deletes files whose time is over, or that were never complete."""

    what = "what is over of files"

    def __init__(self, files: StoredFiles, every: float) -> None:
        super().__init__(every)
        self._files = files

    @override
    async def sweep(self) -> int:
        count = await self._files.sweep()
        if count:
            logger.info("deleted %d files whose time was over, or that were not complete", count)
        return count
