"""Workers that the server starts itself: when there is something to do, and none is there that does it."""

import asyncio
import logging
import signal
from collections.abc import Callable

from antwort.provider import ChildProcess, tied
from antwort.providers.file_search.ingestion.listener import WorkerListener

logger = logging.getLogger(__name__)

IDLE = 60.0
"""Seconds without work after which such a worker ends: the memory of its model is worth more then."""
_GRACE = 5.0


class LocalWorkers:
    """Keeps a number of worker processes as long as there is work; whoever looks at the queue says so again and again.

    Those of a server that was killed end with it; the next one has others take up their work.
    """

    def __init__(self, command: Callable[..., list[str]], count: int, listener: WorkerListener) -> None:
        self._command = tied(command("ingest", "watch", "--idle", f"{IDLE:g}"))
        self._count = count
        self._listener = listener
        self._running: list[ChildProcess] = []
        self._needed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to look after them."""
        self._task = asyncio.create_task(self._keep(), name="file search workers")

    def need(self) -> None:
        """Say that there is work."""
        self._needed.set()

    async def close(self) -> None:
        """End all of them."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        for process in self._running:
            process.send_signal(signal.SIGTERM)
        for process in self._running:
            try:
                async with asyncio.timeout(_GRACE):
                    await process.wait()
            except TimeoutError:
                process.send_signal(signal.SIGKILL)
                await process.wait()

    async def _keep(self) -> None:
        while True:
            await self._needed.wait()
            self._needed.clear()
            for process in self._running:
                if process.returncode:
                    logger.warning("ingestion worker %d has ended with code %d", process.pid, process.returncode)
            self._running = [process for process in self._running if process.returncode is None]
            for _ in range(self._count - max(len(self._running), self._listener.workers)):
                await self._start()

    async def _start(self) -> None:
        process = await ChildProcess.start(self._command, piped=())
        self._running.append(process)
        logger.info("ingestion worker %d has started", process.pid)
