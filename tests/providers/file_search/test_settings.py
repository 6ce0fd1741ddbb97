"""What is wrong with the settings stops the start with one line: which key, why, and the cure."""

from pathlib import Path
from textwrap import dedent, indent
from typing import Any

import pytest

from antwort import Antwort
from antwort.config import load_config
from antwort.errors import ConfigError
from antwort.providers.file_search import FileSearch
from antwort.providers.file_search.settings import FileSearchSettings

PLACE = "antwort.yaml:{}: providers.file_search.settings"
UNUSED = "has no effect without 'embedding_url'; add the address of that service"
NOT_HTTP = "must begin with http:// or https://"
NOT_POSTGRESQL = "must look like postgresql://user@host/name"


def refused(folder: Path, settings: str) -> str:
    """Return the line with which an app refuses settings, which begin in the fifth line of the file."""
    text = "providers:\n  file_search:\n    enabled: true\n    settings:\n" + indent(dedent(settings), " " * 6)
    (folder / "antwort.yaml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        Antwort(load_config(folder / "antwort.yaml", environ={}))
    [problem] = caught.value.problems
    return str(problem).replace(f"{folder}/", "")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            "qdrant: {url: 'http://qdrant:6333'}",
            "'qdrant' is set, but vectors are kept in the data folder; add 'vector_backend: qdrant'",
        ),
        (
            "qdrant: {on_disk: true}",
            "'qdrant' is set, but vectors are kept in the data folder; add 'vector_backend: qdrant'",
        ),
        (
            "pgvector: {url: 'postgresql://db/vectors'}",
            "'pgvector' is set, but vectors are kept in the data folder; add 'vector_backend: pgvector'",
        ),
        ("embedding_model: BAAI/bge-m3", f"'embedding_model' {UNUSED}"),
        ("embedding_api_key: sekret", f"'embedding_api_key' {UNUSED}"),
        ("embedding_dimensions: 512", f"'embedding_dimensions' {UNUSED}"),
    ],
)
def test_settings_of_what_is_not_used_are_refused(tmp_path: Path, settings: str, message: str) -> None:
    assert refused(tmp_path, settings) == f"{PLACE.format(4)}: {message}"


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"qdrant": None},
        {"qdrant": {}},
        {"vector_backend": "embedded", "qdrant": {"url": "http://qdrant:6333"}},
        {"vector_db": "pgvector", "pgvector": {"url": "postgresql://db/x"}, "qdrant": {"on_disk": True}},
        {"embedding_model": None, "embedding_batch": 8},
        {"embedding_endpoint": "http://embeddings", "embedding_model": "a", "embedding_api_key": "b"},
    ],
)
def test_who_says_which_backend_is_meant_may_keep_the_settings_of_others(settings: dict[str, Any]) -> None:
    assert FileSearch.from_settings(settings).settings.vector_backend == settings.get("vector_db", "embedded")


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("mysql://u:sekret@db/vectors", NOT_POSTGRESQL),
        ("127.0.0.1/sekret", NOT_POSTGRESQL),
        ("u:sekret@db/vectors", NOT_POSTGRESQL),
        ("host=db password=sekret", NOT_POSTGRESQL),
        ("postgresql+asyncpg://u:sekret@db/vectors", NOT_POSTGRESQL),
        ("", NOT_POSTGRESQL),
        ("postgresql://u:100%sekret@db/vectors", "has a '%' that stands for itself; write it as '%25'"),
    ],
)
def test_a_url_of_postgresql_is_checked_and_not_shown(tmp_path: Path, url: str, reason: str) -> None:
    line = refused(tmp_path, f"vector_backend: pgvector\npgvector:\n  url: '{url}'\n")
    assert line == f"{PLACE.format(7)}.pgvector.url: {reason}"


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+psycopg"])
def test_the_schemes_that_storage_takes_are_taken_here_too(scheme: str) -> None:
    settings = FileSearchSettings.model_validate(
        {"vector_backend": "pgvector", "pgvector": {"url": f"{scheme}://u:p%25@a,b:5432/x?sslmode=require"}}
    )
    assert settings.pgvector.url is not None
    assert settings.pgvector.url.get_secret_value().endswith("://u:p%25@a,b:5432/x?sslmode=require")
    assert settings.pgvector.url.get_secret_value().partition(":")[0] in {"postgresql", "postgres"}


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        (
            "embedding_url: embeddings:8081/v1",
            f"{PLACE.format(5)}.embedding_url: {NOT_HTTP} (got 'embeddings:8081/v1')",
        ),
        (
            "vector_backend: qdrant\nqdrant:\n  url: user:sekret@host\n",
            f"{PLACE.format(7)}.qdrant.url: {NOT_HTTP} (got 'user:********@host')",
        ),
    ],
)
def test_an_address_without_a_scheme_is_refused_without_its_password(tmp_path: Path, settings: str, line: str) -> None:
    assert refused(tmp_path, settings) == line


def test_a_setting_and_its_other_name_are_refused_with_one_prefix(tmp_path: Path) -> None:
    line = refused(tmp_path, "vector_db: qdrant\nvector_backend: qdrant\n")
    message = "'vector_db' is another name for 'vector_backend'; keep one of the two"
    assert line.endswith(f" providers.file_search.settings: {message}")
    assert line.count("providers.file_search") == 1
