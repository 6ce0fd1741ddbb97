"""Which backend to use. Each needs packages of its own, which are imported only if it is the one."""

import importlib
from types import ModuleType

from antwort.provider import ConfigError, Services
from antwort.providers.file_search.settings import FileSearchSettings
from antwort.providers.file_search.vectors.base import VectorStoreBackend

_EXTRAS = {"embedded": "files", "pgvector": "postgres"}
"""The extra of our package that has what a backend needs."""


def make_backend(settings: FileSearchSettings, services: Services) -> VectorStoreBackend:
    """Return the backend that the settings name; it connects when it is first used."""
    backend: VectorStoreBackend
    module = _imported(settings.vector_backend)
    if settings.vector_backend == "qdrant":
        backend = module.Qdrant(settings.qdrant, services.http)
    elif settings.vector_backend == "pgvector":
        backend = module.Pgvector(settings.pgvector)
    else:
        backend = module.Embedded(services.folder / "vectors")
    return backend


def _imported(name: str) -> ModuleType:
    try:
        return importlib.import_module(f"antwort.providers.file_search.vectors.{name}.backend")
    except ImportError as error:
        raise ConfigError(
            f"the vector backend '{name}' needs packages that are not installed: pip install 'antwort[{_EXTRAS[name]}]'"
        ) from error
