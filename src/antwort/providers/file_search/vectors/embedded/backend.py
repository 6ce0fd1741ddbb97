"""The embedded database: a folder of ours, and a process of its own that owns it."""

import asyncio
import logging
import secrets
import signal
import struct
import sys
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

import msgspec
from typing_extensions import override

from antwort.extensions import (
    PREFIX,
    Attributes,
    Chunk,
    Count,
    Hit,
    NoCollection,
    Query,
    VectorDatabase,
    VectorPlace,
    VectorStoreUnavailable,
    WrongDimensions,
    candidates,
    checked_name,
    cosine_score,
    finish,
    fused,
    is_shared,
    saturated,
    storable,
)
from antwort.provider import ChildProcess, ConfigError, FunctionError, Services, Settings, SingleFlight, tied
from antwort.providers.file_search.vectors.embedded.folder import ensure_folder_name
from antwort.providers.file_search.vectors.points import (
    BM25_HALF,
    FIELDS,
    attributes_payload,
    batches,
    by_chunk,
    chunk_scope,
    dimensions_error,
    hit_of,
    ids_scope,
    payload_of,
    scope,
    unique,
)

logger = logging.getLogger(__name__)

PROGRAM = "antwort.providers.file_search.vectors.embedded.worker"
_BATCH = 256
"""Points in one request: a search waits no longer than for one of them."""
_PATIENCE = 10.0
"""Seconds it has to end."""
_SECONDS = {"create": 60.0, "drop": 60.0, "upsert": 60.0, "delete": 60.0}
_SECONDS_TO_READ = 20.0
"""Seconds it has for a request; waiting for those before it does not count."""
_REMEMBERED = 5.0
"""Seconds for which another process is taken to have the folder still: each look waits for it to end."""
_GONE = "The embedded vector database has stopped; it starts again with the next call."
_INDEXES = ["tenant", "file_id", "text_bytes", "text"]

if find_spec("qdrant_edge") is None:
    # Only the other process imports it; here it is missed at once.
    raise ModuleNotFoundError("No module named 'qdrant_edge'", name="qdrant_edge")


class EmbeddedInUse(VectorStoreUnavailable):
    """Another process has the folder."""

    def __init__(self) -> None:
        super().__init__(
            "The embedded vector database is in use by another process, which owns the data folder: stop that server, "
            "or ask it (antwort run --url …). Servers that share vectors need qdrant or pgvector."
        )


class Embedded(VectorDatabase):
    """Keeps each collection in a folder. The process that owns them is started when it is needed."""

    one_process = (
        "the embedded vector database belongs to one process; "
        "set 'vector_backend' to qdrant or pgvector, or have one worker"
    )

    def __init__(self, folder: Path) -> None:
        self.name = "embedded"
        self._folder = folder
        self._process: WorkerProcess | None = None
        self._starting = SingleFlight(self._start)
        self._in_use_until = 0.0

    @classmethod
    def of(cls, settings: Settings, services: Services) -> Self:  # noqa: ARG003 - it has none
        """Make it as the settings say."""
        return cls(services.folder / "vectors")

    @cached_property
    @override
    def place(self) -> str:
        """The name of the folder, which no other has; ConfigError if the folder cannot be used."""
        try:
            return ensure_folder_name(self._folder, secrets.token_hex(16))
        except OSError as error:
            raise ConfigError(f"the folder of the embedded vector database cannot be used: {error}") from error

    @property
    def pid(self) -> int | None:
        """The other process, if it runs."""
        return self._process.pid if self._process is not None else None

    @override
    async def create_collection(self, name: str, dimensions: int) -> None:
        await self._call("create", checked_name(name), dimensions)
        found = await self.dimensions(name)
        if found is not None and found != dimensions:
            raise WrongDimensions(found, dimensions)

    @override
    async def delete_collection(self, name: str) -> None:
        await self._call("drop", checked_name(name))

    @override
    async def collections(self) -> list[str]:
        return [name for name in await self._call("collections") if name.startswith(PREFIX)]

    @override
    async def dimensions(self, name: str) -> int | None:
        found = await self._call("dimensions", checked_name(name))
        return None if found is None else int(found)

    @override
    async def upsert(self, name: str, chunks: Sequence[Chunk]) -> None:
        parts = list(batches(unique(checked_name(name), chunks), _BATCH)) or [[]]
        fields = [*_INDEXES, "vector_store_id"] if is_shared(name) else _INDEXES
        for number, batch in enumerate(parts, start=1):
            points = [(id_, [*map(float, chunk.vector)], payload_of(name, chunk)) for id_, chunk in batch]
            await self._call("upsert", name, points, fields, number == len(parts))

    @override
    async def delete(self, name: str, *, tenant: str, file_id: str | None = None, vector_store_id: str = "") -> None:
        await self._call("delete", name, scope(checked_name(name), tenant, vector_store_id, file_id))

    @override
    async def remove(self, name: str, ids: Sequence[str], *, tenant: str, vector_store_id: str = "") -> None:
        await self._call("delete", name, ids_scope(checked_name(name), ids, tenant, vector_store_id))

    @override
    async def set_attributes(
        self, name: str, attributes: Attributes, *, tenant: str, file_id: str, vector_store_id: str = ""
    ) -> None:
        condition = scope(checked_name(name), tenant, vector_store_id, file_id)
        await self._call("set_attributes", name, condition, attributes_payload(attributes))

    @override
    async def fetch(self, name: str, ids: Sequence[str], *, tenant: str, vector_store_id: str = "") -> dict[str, Hit]:
        condition = ids_scope(checked_name(name), ids, tenant, vector_store_id)
        points = await self._call("fetch", name, condition, FIELDS)
        found = {id_: hit_of(id_, 0.0, payload) for id_, payload in points}
        return by_chunk(name, ids, found, tenant, vector_store_id)

    @override
    async def search(self, name: str, query: Query) -> list[Hit]:
        hybrid = query.vector is not None and query.text is not None
        vector = None if query.vector is None else [*map(float, query.vector)]
        text = None if query.text is None else storable(query.text)
        limit = candidates(query) if hybrid else query.limit
        condition = chunk_scope(checked_name(name), query)
        own = scope(name, query.tenant, query.vector_store_id)
        wish = {"vector": vector, "text": text, "limit": limit, "fields": FIELDS, "scope": own}
        found = await self._call("search", name, condition, wish)
        dense, sparse = [], []
        if vector is not None:
            dense = [hit_of(id_, cosine_score(score), payload) for id_, score, payload in found[0]]
        if text is not None:
            sparse = [hit_of(id_, saturated(score, BM25_HALF), payload) for id_, score, payload in found[-1]]
        return finish(fused(dense, sparse, query.weights, query.text or "") if hybrid else dense or sparse, query)

    @override
    async def count(self, name: str, *, tenant: str, vector_store_id: str = "") -> Count:
        return Count(*await self._call("count", name, scope(checked_name(name), tenant, vector_store_id)))

    @override
    async def counts(self, places: Sequence[VectorPlace]) -> list[Count] | None:
        scopes = [
            (one.collection, scope(checked_name(one.collection), one.tenant, one.vector_store_id)) for one in places
        ]
        return [Count(*found) for found in await self._call("counts", scopes)]

    @override
    async def health(self) -> None:
        await self._call("health")

    @override
    async def close(self) -> None:
        await self._starting.close()
        process, self._process = self._process, None
        if process is not None:
            await process.close()

    async def _call(self, *request: Any) -> Any:
        process = self._process
        if process is None or process.ended:
            process = await self._starting.outcome()
        answer = await process.ask(request, _SECONDS.get(request[0], _SECONDS_TO_READ))
        if answer.get("missing"):
            raise NoCollection("There is no such vector store.")
        if "error" in answer:
            raise _meant(answer["error"])
        return answer["value"]

    async def _start(self) -> "WorkerProcess":
        """Start the process in the folder; EmbeddedInUse at once if another was found to have it seconds ago."""
        loop, place = asyncio.get_running_loop(), self.place
        if loop.time() < self._in_use_until:
            raise EmbeddedInUse
        try:
            process = await WorkerProcess.start(self._folder)
        except EmbeddedInUse:
            self._in_use_until = loop.time() + _REMEMBERED
            raise
        try:
            found = ensure_folder_name(self._folder, place)  # it has none if somebody has removed the folder
        except OSError as error:
            await process.close()
            raise _meant(str(error)) from error
        if found != place:
            await process.close()
            raise VectorStoreUnavailable(
                "The folder of the embedded vector database was replaced by that of another server; start this server "
                "again."
            )
        self._process = process
        return process


def _meant(message: str) -> FunctionError:
    if (wrong := dimensions_error(message)) is not None:
        return wrong
    logger.warning("embedded vector database: %s", message[:500])
    return VectorStoreUnavailable("The embedded vector database failed; the log says why.")


@dataclass(frozen=True, slots=True)
class _DatabaseRequest:
    """A request that waits for its answer."""

    answer: "asyncio.Future[dict[str, Any]]"
    seconds: float


class WorkerProcess:
    """The other process, and what was asked of it."""

    def __init__(self, process: ChildProcess) -> None:
        self._process = process
        self.pid = process.pid
        self._waiting: deque[_DatabaseRequest] = deque()
        self._since = 0.0
        """When it began with the first of them."""
        self._reader: asyncio.Task[None] | None = None
        self.ended = False

    @classmethod
    async def start(cls, folder: Path) -> "WorkerProcess":
        """Start it and wait until it has the folder."""
        own = cls(
            await ChildProcess.start(
                tied([sys.executable, "-P", "-m", PROGRAM, str(folder)]),
                piped=("stdin", "stdout"),
                start_new_session=True,  # an interrupt is for the server, which ends it when it has finished
            )
        )
        first = own._expect(_SECONDS_TO_READ)
        own._reader = asyncio.create_task(own._read(), name="embedded vector database")
        try:
            answer = await own._answered(first)
        except asyncio.CancelledError:  # nobody else knows of it
            await own.close()
            raise
        if "error" in answer:
            await own.close()
            raise EmbeddedInUse
        return own

    async def ask(self, request: Sequence[Any], seconds: float) -> dict[str, Any]:
        """Send a request and wait for its answer. Answers come in the order of the requests.

        If it takes longer than these seconds for one of them, the process is killed.
        """
        if self.ended:
            raise VectorStoreUnavailable(_GONE)
        body = msgspec.msgpack.encode(request)
        answer = self._expect(seconds)
        self._process.stdin.write(struct.pack(">I", len(body)) + body)  # whoever waits for the answer waits for this
        return await self._answered(answer)

    async def close(self) -> None:
        """Let it end, and wait for that; nothing is lost if it has to be killed."""
        self._process.stdin.close()
        try:
            async with asyncio.timeout(_PATIENCE):
                await self._process.wait()
        except TimeoutError:
            self._process.send_signal(signal.SIGKILL)
            await self._process.wait()
        if self._reader is not None:
            await self._reader

    def _expect(self, seconds: float) -> "asyncio.Future[dict[str, Any]]":
        loop = asyncio.get_running_loop()
        if not self._waiting:
            self._since = loop.time()
        answer: asyncio.Future[dict[str, Any]] = loop.create_future()
        self._waiting.append(_DatabaseRequest(answer, seconds))
        return answer

    async def _answered(self, answer: "asyncio.Future[dict[str, Any]]") -> dict[str, Any]:
        """Wait for an answer, and see to it that those before it do not take for ever."""
        loop = asyncio.get_running_loop()
        try:
            while not answer.done():
                late = self._since + self._waiting[0].seconds
                if late <= loop.time():
                    self._give_up()
                await asyncio.wait({answer}, timeout=late - loop.time())
            return answer.result()
        finally:
            answer.cancel()  # if it is not there, nobody waits for it any more

    def _give_up(self) -> None:
        logger.warning("embedded vector database: process %d does not answer and is killed", self.pid)
        self._process.send_signal(signal.SIGKILL)
        self._end("The embedded vector database did not answer in time; it starts again with the next call.")

    async def _read(self) -> None:
        try:
            while True:
                head = await self._process.stdout.readexactly(4)
                body = await self._process.stdout.readexactly(struct.unpack(">I", head)[0])
                said = msgspec.msgpack.decode(body)
                if "ended" in said:
                    logger.warning("embedded vector database: %s", said["ended"])
                    break
                if not self._waiting:  # it was given up
                    break
                answer = self._waiting.popleft().answer
                self._since = asyncio.get_running_loop().time()
                if not answer.done():
                    answer.set_result(said)
        except asyncio.IncompleteReadError:
            logger.debug("the embedded vector database has ended")
        finally:
            self._process.close()
            self._end(_GONE)

    def _end(self, message: str) -> None:
        """Take it for ended: whoever waits for an answer gets an error."""
        self.ended = True
        while self._waiting:
            answer = self._waiting.popleft().answer
            if not answer.done():
                answer.set_exception(VectorStoreUnavailable(message))
