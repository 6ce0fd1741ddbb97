"""A worker: fetches files from the server, has them go through the pipeline, and says how that ended."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any

from antwort.provider import DocumentParser, UnreadableError
from antwort.providers.file_search.embedding.base import EmbeddingClient
from antwort.providers.file_search.errors import EmbeddingUnavailable
from antwort.providers.file_search.ingestion import messages
from antwort.providers.file_search.ingestion.messages import (
    Job,
    LostJobError,
    ServerAddress,
    ServerConnection,
    ServerError,
    connect,
)
from antwort.providers.file_search.ingestion.pipeline import FilePipeline, IngestionLimits

logger = logging.getLogger(__name__)

_RENEW = 1.0
"""Seconds after which the server is told that the work goes on, and asked whether it still wants it."""
_AGAIN = 1.0
"""Seconds between attempts to reach the server."""
_LATER = 10.0
"""Seconds after which a job is tried again that could not be done for a reason that may pass."""
_WAIT = 10.0


class IngestionWorker:
    """Works for the server whose address is in a file, as long as it is told to.

    It has several connections, each for a file of its own, and one pipeline for all of them. With `idle`, it ends when
    there was nothing to do, or no server, for so many seconds.
    """

    def __init__(
        self,
        address: Path,
        embedding: EmbeddingClient,
        parser: DocumentParser,
        limits: IngestionLimits | None = None,
        *,
        idle: float | None = None,
    ) -> None:
        self._address = address
        self._limits = limits or IngestionLimits()
        self._pipeline = FilePipeline(embedding, parser, self._limits)
        self._idle = idle
        self._busy = 0
        self._last = 0.0
        """When there was something to do last, or a server that had nothing."""
        self._away = logging.INFO

    async def run(self) -> None:
        """Work; a server that is away is waited for."""
        self._last = asyncio.get_running_loop().time()
        await asyncio.gather(*(self._work(number) for number in range(self._limits.files)))

    @property
    def _is_wanted(self) -> bool:
        idle = self._idle
        return idle is None or self._busy > 0 or asyncio.get_running_loop().time() - self._last < idle

    async def _work(self, number: int) -> None:
        """Do one job after the other."""
        while self._is_wanted:
            try:
                async with _connected(self._address) as server:
                    logger.log(logging.DEBUG if number else logging.INFO, "waiting for files")
                    self._away = logging.INFO
                    self._last = asyncio.get_running_loop().time()
                    while self._is_wanted:
                        job = await server.claim(_WAIT if self._idle is None else min(_WAIT, self._idle))
                        if job is not None:
                            await self._do(server, job)
            except (OSError, asyncio.IncompleteReadError, ValueError, ServerError, LostJobError) as error:
                logger.log(self._away, "the server is not there, or has no work to give; waiting for it: %s", error)
                self._away = logging.DEBUG  # told once
                await asyncio.sleep(_AGAIN)

    async def _do(self, server: ServerConnection, job: Job) -> None:
        self._busy += 1
        try:
            await self._handle(server, job)
        finally:
            self._busy -= 1
            self._last = asyncio.get_running_loop().time()

    async def _handle(self, server: ServerConnection, job: Job) -> None:
        """Do a job, and say how it ended; it is given up as soon as it is not wanted any more."""
        try:
            await _while_wanted(server, self._pipeline.run(server, job), self._limits.seconds)
        except UnreadableError as error:
            logger.info("'%s' cannot be read: %s", job.filename, error)
            await server.ask(messages.Fail(error.problem, str(error)))
        except (EmbeddingUnavailable, ServerError) as error:
            await server.ask(messages.Release(str(error), _LATER))
        except LostJobError:
            logger.info("'%s' is not wanted any more", job.filename)
        except (OSError, asyncio.IncompleteReadError):
            raise
        except Exception:
            logger.exception("'%s' could not be made searchable", job.filename)
            await server.ask(messages.Release("Ingestion failed; the worker's log says why.", _LATER))


@contextlib.asynccontextmanager
async def _connected(address: Path) -> AsyncIterator[ServerConnection]:
    reader, writer = await connect(await asyncio.to_thread(ServerAddress.read, address))
    try:
        yield ServerConnection(reader, writer)
    finally:
        writer.close()


async def _while_wanted(server: ServerConnection, work: Coroutine[Any, Any, None], seconds: float) -> None:
    """Do something as long as the server wants it, and no longer than it may take; else it is broken off."""
    working = asyncio.ensure_future(work)
    watching = asyncio.ensure_future(_watch(server))
    try:
        await asyncio.wait([working, watching], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if not working.done() and not watching.done():
            raise UnreadableError(
                f"It could not be made searchable within {seconds:g} seconds (`max_ingestion_time` of file search)."
            )
        await (working if working.done() else watching)
    finally:
        for task in (working, watching):
            task.cancel()
        await asyncio.gather(working, watching, return_exceptions=True)


async def _watch(server: ServerConnection) -> None:
    """Say again and again that the work goes on; what the server says to the contrary is raised."""
    while True:
        await asyncio.sleep(_RENEW)
        await server.ask(messages.Renew())
