"""Configurations as the specifications of the providers wrote them, key by key."""

from pathlib import Path
from typing import Any

import pytest

from antwort.config import LoadedConfig, load_config

EXAMPLES = Path(__file__).parent / "examples"


def _load(name: str) -> LoadedConfig:
    return load_config(EXAMPLES / name, environ={})


def _providers(loaded: LoadedConfig) -> list[tuple[str, bool, dict[str, Any]]]:
    entries = loaded.config.providers
    assert entries is not None
    return [(name, entry.enabled, entry.settings) for name, entry in entries.items()]


def test_registry() -> None:
    loaded = _load("registry.yaml")

    assert _providers(loaded) == [
        ("web_search", True, {"backend": "searxng", "url": "http://searxng:8080", "max_results": 5}),
        (
            "file_search",
            True,
            {"vector_db": "pgvector", "embedding_url": "http://llm:8080/v1/embeddings", "chunk_size": 512},
        ),
        ("code_interpreter", False, {}),
    ]
    assert loaded.warnings == ()


def test_brainstorm() -> None:
    loaded = _load("brainstorm.yaml")

    assert _providers(loaded) == [
        ("web_search", True, {"search_engine_url": "http://searxng:8080"}),
        (
            "file_search",
            True,
            {"vector_db": "pgvector", "embedding_endpoint": "http://embedding-service:8080"},
        ),
        ("code_interpreter", False, {}),
    ]
    [warning] = loaded.warnings
    assert "'builtins' is deprecated; rename it to 'providers'" in warning


def test_web_search() -> None:
    assert _providers(_load("web_search.yaml")) == [
        ("web_search", True, {"backend": "searxng", "url": "http://searxng:8080", "max_results": 5})
    ]


def test_file_search() -> None:
    assert _providers(_load("file_search.yaml")) == [
        (
            "file_search",
            True,
            {
                "embedding_url": "http://embedding-service:8080/v1/embeddings",
                "vector_backend": "qdrant",
                "max_results": 10,
                "qdrant": {"url": "http://qdrant:6333"},
            },
        )
    ]


@pytest.mark.parametrize("path", sorted(EXAMPLES.iterdir()), ids=lambda path: path.stem)
def test_every_value_of_an_example_is_shown_with_its_line(path: Path) -> None:
    lines = path.read_text().splitlines()
    given = [entry for entry in _load(path.name).entries() if entry.origin.kind == "file"]

    assert given
    for entry in given:
        assert entry.origin.line is not None
        name = entry.key.rpartition(".")[2]
        text = str(entry.value).lower() if isinstance(entry.value, bool) else str(entry.value)
        assert lines[entry.origin.line - 1].strip() == f"{name}: {text}"
