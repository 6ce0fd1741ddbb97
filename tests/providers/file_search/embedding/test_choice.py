"""Which client the settings ask for."""

import dataclasses
import threading
from collections.abc import AsyncIterator

import pytest
from tests.support.embeddings import Service, vector_of

from antwort.outbound import Outbound
from antwort.provider import ConfigError, HttpClient
from antwort.providers.file_search.embedding import HttpEmbedding, MiniLM, make_embedding, minilm
from antwort.providers.file_search.ingestion.yielding import WorkerPace
from antwort.providers.file_search.settings import FileSearchSettings


@pytest.fixture
async def http() -> AsyncIterator[HttpClient]:
    client = Outbound()
    yield client
    await client.close()


async def test_without_a_url_the_embedded_model_is_used(http: HttpClient) -> None:
    client = await make_embedding(FileSearchSettings(), http)
    assert isinstance(client, MiniLM)
    assert len((await client.embed(["hello"]))[0]) == await client.dimensions()
    await client.close()


async def test_with_a_url_the_service_behind_it_is_used_as_the_settings_say(http: HttpClient) -> None:
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
        client = await make_embedding(settings, http)
        assert isinstance(client, HttpEmbedding)
        assert await client.embed(["a", "b", "c"]) == [vector_of(text, 4) for text in "abc"]
        assert await client.dimensions() == 4
        await client.close()
    assert {asked.body["model"] for asked in service.asked} == {"small"}


async def test_one_line_is_enough_for_a_model_of_a_service(http: HttpClient) -> None:
    with Service(key=None) as service:
        client = await make_embedding(FileSearchSettings(embedding_url=f"{service.url}#BAAI/bge-m3"), http)
        [vector] = await client.embed(["Wo liegt der Schlüssel?"])
        assert len(vector) == await client.dimensions()
        await client.close()
    assert {asked.body["model"] for asked in service.asked} == {"BAAI/bge-m3"}


async def test_two_names_of_the_model_stop_the_start(http: HttpClient) -> None:
    settings = FileSearchSettings(embedding_url="http://localhost:1/v1/embeddings#one", embedding_model="two")
    with pytest.raises(ConfigError, match="a model in 'embedding_url' beside 'embedding_model'"):
        await make_embedding(settings, http)


async def test_a_changed_model_stops_the_start_and_leaves_no_threads(
    monkeypatch: pytest.MonkeyPatch, http: HttpClient
) -> None:
    monkeypatch.setattr(minilm, "MODEL", dataclasses.replace(minilm.MODEL, sha256="0" * 64))
    with pytest.raises(ConfigError, match="SHA-256"):
        await make_embedding(FileSearchSettings(), http)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("antwort-embedding")]


async def test_a_process_apart_uses_all_cores_and_leaves_those_of_others(
    http: HttpClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    used = []
    for workers in (0, 1, 3, 20):
        client = await make_embedding(FileSearchSettings(ingestion_workers=workers), http, pace=WorkerPace(lambda: 1.0))
        assert isinstance(client, MiniLM)
        used.append(client.at_once)
        await client.close()
    assert used == [8, 8, 2, 1]
    client = await make_embedding(FileSearchSettings(), http)
    assert isinstance(client, MiniLM)
    assert client.at_once == 4, "a server has other things to do"
    await client.close()
