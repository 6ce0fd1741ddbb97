"""The shipped app with files, vector stores, and a worker beside it."""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

from openai import OpenAI
from openai.types.vector_stores import VectorStoreFile
from tests.http.sdk import Served
from tests.providers.file_search.stage import PATIENCE, on_loop, staged

from antwort.outbound import Outbound
from antwort.provider import FileRecord, Workplace
from antwort.providers.file_search import FileSearch
from antwort.providers.file_search.settings import FileSearchSettings
from antwort.sandbox import Sandbox
from antwort.testing import Turn


async def _pieces(data: bytes) -> AsyncIterator[bytes]:
    yield data


class IngestionStage:
    """A served app, the SDK in front of it, and files to put into it."""

    def __init__(self, served: Served, folder: Path, settings: dict[str, Any]) -> None:
        self.served = served
        self.client = OpenAI(base_url=f"{served.server.url}/v1", api_key="none", max_retries=0)
        self._folder = folder
        self._settings = settings
        self._numbers = itertools.count()

    @property
    def provider(self) -> FileSearch:
        """File search, as the app has it."""
        registry = self.served.server.app.registry
        return next(one.provider for one in registry.registrations() if isinstance(one.provider, FileSearch))

    def upload(self, content: bytes | str, name: str = "a.txt") -> str:
        """Upload a file, and return its id."""
        data = content.encode() if isinstance(content, str) else content
        made: FileRecord = on_loop(
            self.served, self.served.server.app.files.create("default", name, "assistants", _pieces(data))
        )
        return made.id

    @contextlib.contextmanager
    def worker(self) -> Iterator[None]:
        """Let a worker work, on the loop of the app."""
        worker = FileSearch(FileSearchSettings.model_validate(self._settings))

        async def work() -> None:
            outbound = Outbound()
            try:
                await worker.work_apart(Workplace(outbound, self._folder / "providers" / "file_search", Sandbox()))
            finally:
                await outbound.close()

        task = asyncio.run_coroutine_threadsafe(work(), self.served.server.loop)
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(BaseException):
                task.result(PATIENCE)

    def settled(self, store_id: str, file_id: str) -> VectorStoreFile:
        """Wait for a file to be completed, or to fail."""
        return self.client.vector_stores.files.poll(file_id, vector_store_id=store_id, poll_interval_ms=50)


@contextlib.contextmanager
def ingesting(
    tmp_path: Path, settings: dict[str, Any], steps: Sequence[Turn | str] = (), **sections: Any
) -> Iterator[IngestionStage]:
    """Serve the app, without a worker yet."""
    with staged(tmp_path, steps, settings, **sections) as served:
        stage = IngestionStage(served, tmp_path, settings)
        with stage.client:
            yield stage
