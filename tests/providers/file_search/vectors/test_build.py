"""Choosing a backend."""

import importlib
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import pytest

from antwort.provider import ConfigError, Services
from antwort.providers.file_search.settings import FileSearchSettings
from antwort.providers.file_search.vectors.build import make_backend


def services(folder: Path) -> Services:
    return Services(http=cast("Any", None), records=cast("Any", None), place=folder)


@pytest.mark.parametrize("name", ["embedded", "qdrant", "pgvector"])
async def test_each_backend_is_made_by_its_name(name: str, tmp_path: Path) -> None:
    settings = FileSearchSettings.model_validate({"vector_backend": name, "pgvector": {"url": "postgresql://host/x"}})
    backend = make_backend(settings, services(tmp_path))
    assert backend.name == name
    await backend.close()


@pytest.mark.parametrize(("name", "extra"), [("embedded", "files"), ("pgvector", "postgres")])
def test_a_missing_package_is_named_with_its_cure(
    name: str, extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(module: str) -> ModuleType:
        raise ModuleNotFoundError(module)

    monkeypatch.setattr(importlib, "import_module", missing)
    settings = FileSearchSettings.model_validate({"vector_backend": name, "pgvector": {"url": "postgresql://host/x"}})
    with pytest.raises(ConfigError, match=rf"pip install 'antwort\[{extra}\]'"):
        make_backend(settings, services(tmp_path))


def test_nothing_of_a_backend_is_imported_before_it_is_chosen() -> None:
    program = (
        "import sys, antwort.providers.file_search.vectors.build;"
        "print({'qdrant_client', 'qdrant_edge', 'psycopg', 'grpc'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "set()\n"
