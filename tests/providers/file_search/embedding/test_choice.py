"""Which client the settings ask for."""

import dataclasses
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
from tests.support.embeddings import Service, vector_of

from antwort.outbound import Outbound
from antwort.provider import ConfigError, HttpClient
from antwort.providers.file_search.embedding import HttpEmbedding, MiniLM, make_embedding, minilm
from antwort.providers.file_search.settings import FileSearchSettings


@dataclass
class Services:
    http: HttpClient


@pytest.fixture
async def services() -> AsyncIterator[Services]:
    http = Outbound()
    yield Services(http)
    await http.close()


async def test_without_a_url_the_embedded_model_is_used(services: Services) -> None:
    client = await make_embedding(FileSearchSettings(), services)
    assert isinstance(client, MiniLM)
    assert len((await client.embed(["hello"]))[0]) == await client.dimensions()
    await client.close()


async def test_with_a_url_the_service_behind_it_is_used_as_the_settings_say(services: Services) -> None:
    with Service(key="secret", most=2) as service:
        settings = FileSearchSettings.model_validate(
            {
                "embedding_url": service.url,
                "embedding_model": "small",
                "embedding_api_key": "secret",
                "embedding_dimensions": 4,
                "embedding_batch": 2,
            }
        )
        client = await make_embedding(settings, services)
        assert isinstance(client, HttpEmbedding)
        assert await client.embed(["a", "b", "c"]) == [vector_of(text, 4) for text in "abc"]
        assert await client.dimensions() == 4
        await client.close()
    assert {asked.body["model"] for asked in service.asked} == {"small"}


async def test_a_changed_model_stops_the_start_and_leaves_no_threads(
    monkeypatch: pytest.MonkeyPatch, services: Services
) -> None:
    monkeypatch.setattr(minilm, "_MODEL", dataclasses.replace(minilm._MODEL, sha256="0" * 64))
    with pytest.raises(ConfigError, match="SHA-256"):
        await make_embedding(FileSearchSettings(), services)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("antwort-embedding")]
