"""Numbers that a pipeline writes straight to a Qdrant server, with an index or without."""

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING
from uuid import UUID

import pytest
from tests.providers.file_search.vectors.conformance import STORE, TENANT, ids, near
from tests.support.qdrant import OwnQdrant, QdrantServer

from antwort.extensions import Comparison, Query
from antwort.lazy_imports import imported_on_use
from antwort.providers.file_search.settings import QdrantSettings
from antwort.providers.file_search.vectors.qdrant.backend import Qdrant

if TYPE_CHECKING:
    import qdrant_client
else:
    qdrant_client = imported_on_use("qdrant_client")

WRITTEN = [47, 47.0, 2.5, 1702754332.6375275, 1904729410800015, 2**60 + 1, -0.1]


@pytest.fixture
async def backend(qdrant_server: QdrantServer) -> AsyncIterator[Qdrant]:
    """A backend with a collection that a pipeline has filled."""
    settings = QdrantSettings(
        url=qdrant_server.url,
        indexed_attributes={"indexed": "float"},
    )
    backend = OwnQdrant(settings)
    await backend.delete_collection(STORE)
    await backend.create_collection(STORE, 4)
    client = qdrant_client.AsyncQdrantClient(url=qdrant_server.url)
    points = [
        qdrant_client.models.PointStruct(
            id=str(UUID(int=place)),
            vector=near(place),
            payload={"text": "", "file_id": "f", "tenant": TENANT, "attributes": {"plain": one, "indexed": one}},
        )
        for place, one in enumerate(WRITTEN)
    ]
    await client.upsert(STORE, points, wait=True)
    await client.close()
    yield backend
    await backend.delete_collection(STORE)
    await backend.close()


@pytest.mark.parametrize("key", ["plain", "indexed"])
async def test_they_are_found_by_what_they_are(backend: Qdrant, key: str) -> None:
    async def found(op: str, value: float) -> list[int]:
        wanted = Comparison(key, op, value)  # type: ignore[arg-type]
        return sorted(ids(await backend.search(STORE, Query(TENANT, near(0), filter=wanted))))

    for place, one in enumerate(WRITTEN):
        same = [0, 1] if one == 47 else [place]
        assert await found("eq", one) == same, one
        assert await found("ne", one) == [other for other in range(len(WRITTEN)) if other not in same]
        assert await found("gte", one) == [other for other, number in enumerate(WRITTEN) if number >= one]
        assert await found("lte", one) == [other for other, number in enumerate(WRITTEN) if number <= one]
        assert await found("gt", one) == [other for other, number in enumerate(WRITTEN) if number > one]
        assert await found("lt", one) == [other for other, number in enumerate(WRITTEN) if number < one]
