"""Choosing a vector database."""

import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest

from antwort.extensions import VECTOR_DATABASES, VectorDatabase
from antwort.provider import ConfigError, Services
from antwort.providers.file_search.settings import FileSearchSettings


def made(tmp_path: Path, **given: Any) -> VectorDatabase:
    settings = FileSearchSettings.model_validate({"pgvector": {"url": "postgresql://host/x"}, **given})
    services = Services(http=cast("Any", None), records=cast("Any", None), place=tmp_path)
    return VECTOR_DATABASES.make(settings.vector_backend, services, key="vector_backend", around=settings.sections())


@pytest.mark.parametrize("name", ["embedded", "qdrant", "pgvector"])
async def test_each_database_is_made_by_its_name(name: str, tmp_path: Path) -> None:
    backend = made(tmp_path, vector_backend=name)
    assert backend.name == name
    await backend.close()


async def test_settings_stand_beside_the_name_or_in_the_section_of_that_name(tmp_path: Path) -> None:
    section = {"qdrant": {"url": "http://one:6333", "shards": 2}}
    for chosen, url, shards in (
        ("qdrant", "http://one:6333", 2),
        ({"name": "qdrant"}, "http://one:6333", 2),
        ({"name": "qdrant", "url": "http://two:6333"}, "http://two:6333", 2),
    ):
        backend = cast("Any", made(tmp_path, vector_backend=chosen, **section))
        assert (backend._settings.url, backend._settings.shards) == (url, shards)


@pytest.mark.parametrize(
    ("name", "extra", "package"), [("embedded", "files", "qdrant_edge"), ("pgvector", "postgres", "psycopg")]
)
def test_a_missing_package_is_named_with_its_cure(
    name: str, extra: str, package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = f"antwort.providers.file_search.vectors.{name}"
    for one in [one for one in sys.modules if one.startswith(module)]:
        monkeypatch.delitem(sys.modules, one)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigError, match=rf"pip install 'antwort\[{extra}\]'"):
        made(tmp_path, vector_backend=name)


def test_nothing_of_a_database_is_imported_before_it_is_chosen() -> None:
    program = (
        "import sys, antwort.providers.file_search;"
        "from antwort.providers.file_search.settings import FileSearchSettings;"
        "FileSearchSettings(vector_backend='qdrant');"
        "print({'qdrant_client', 'qdrant_edge', 'psycopg', 'grpc', 'antwort.backends', 'antwort.extensions.qdrant'}"
        " & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "set()\n"
