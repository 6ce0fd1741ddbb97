"""The provider as every provider must be, and with its defaults: nothing but the data folder and a small model."""

import asyncio
from pathlib import Path
from typing import Any, ClassVar

import psycopg.conninfo
import pytest
from tests.http.sdk import create
from tests.providers.file_search.stage import outputs, search_item, searching, staged, tool, write
from tests.support.postgres import PostgresServer

from antwort import Antwort
from antwort.config import Config
from antwort.providers.file_search import FileSearch
from antwort.testing import ProviderContract

DRINKS = [
    {"text": "Green tea is grown on the hills of Uji, near Kyoto.", "filename": "tea.md"},
    {"text": "Espresso is brewed by forcing hot water through ground beans.", "filename": "coffee.md"},
    {"text": "The invoice is due within thirty days.", "filename": "invoice.md"},
]


class TestFileSearch(ProviderContract):
    """What holds for every provider."""

    provider = FileSearch
    settings: ClassVar = {}
    calls: ClassVar = {"file_search": {"query": "{canary}"}}


@pytest.mark.parametrize("stream", [False, True])
def test_with_its_defaults_it_works_at_once_and_finds_by_meaning(tmp_path: Path, stream: bool) -> None:
    with staged(tmp_path, searching("How is coffee made?", "By pressure [1]."), {}) as stage:
        store = stage.client().vector_stores.create(name="drinks").id
        write(stage, store, *DRINKS)
        response = create(stage, stream, input="?", tools=[tool(store)], include=["file_search_call.results"])
        [output] = outputs(stage)
        counted = stage.client().vector_stores.retrieve(store)
    assert search_item(response).results[0].filename == "coffee.md"
    assert "[1] coffee.md" in output
    message: Any = response.output[-1]
    assert message.content[0].annotations[0].filename == "coffee.md"
    assert counted.file_counts.total == 3


def test_what_was_written_is_there_after_a_restart(tmp_path: Path) -> None:
    with staged(tmp_path, [], {}) as stage:
        store = stage.client().vector_stores.create(name="drinks").id
        write(stage, store, *DRINKS)
    with staged(tmp_path, [], {}) as stage:
        found = stage.client().vector_stores.search(store, query="When must I pay?", max_num_results=1).data
        assert [one.filename for one in found] == ["invoice.md"]
        stage.client().vector_stores.delete(store)
        assert list(stage.client().vector_stores.list()) == []


def test_it_works_on_postgresql_alone(tmp_path: Path, postgres_server: PostgresServer, postgres_url: str) -> None:
    settings = {"vector_backend": "pgvector", "pgvector": {"url": postgres_url}}
    with staged(tmp_path, searching("How is coffee made?"), settings, storage={"url": postgres_url}) as stage:
        store = stage.client().vector_stores.create(name="drinks").id
        write(stage, store, *DRINKS)
        create(stage, False, input="?", tools=[tool(store)])
        [output] = outputs(stage)
        assert stage.client().vector_stores.delete(store).deleted
    assert "[1] coffee.md" in output
    postgres_server.leave(postgres_url)


def test_pgvector_without_a_url_is_the_database_that_the_environment_names(
    tmp_path: Path, postgres_url: str, postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in psycopg.conninfo.conninfo_to_dict(postgres_url).items():
        monkeypatch.setenv({"dbname": "PGDATABASE"}.get(name, f"PG{name.upper()}"), str(value))
    with staged(tmp_path, searching("How is coffee made?"), {"vector_db": "pgvector"}) as stage:
        store = stage.client().vector_stores.create(name="drinks").id
        write(stage, store, *DRINKS)
        create(stage, False, input="?", tools=[tool(store)])
        [output] = outputs(stage)
        assert stage.client().vector_stores.delete(store).deleted
    assert "[1] coffee.md" in output
    postgres_server.leave(postgres_url)


def test_the_start_does_not_wait_for_the_vector_database(tmp_path: Path) -> None:
    settings = {"vector_backend": "qdrant", "qdrant": {"url": "http://127.0.0.1:9"}}

    async def start() -> bool:
        app = Antwort(Config(data_dir=tmp_path, providers={}), providers=[FileSearch.from_settings(settings)])
        async with app:
            return app.registry.get("file_search") is not None

    assert asyncio.run(start())


@pytest.mark.parametrize(("settings", "alone"), [({}, True), ({"vector_backend": "qdrant"}, False)])
def test_only_the_embedded_database_is_for_one_process(settings: dict[str, Any], alone: bool) -> None:
    reason = FileSearch.from_settings(settings).one_process
    assert (reason is not None) == alone
