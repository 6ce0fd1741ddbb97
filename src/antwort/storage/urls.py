"""Where the database is: from the configuration to a URL, from a URL to a file or a driver."""

import importlib
from pathlib import Path
from types import ModuleType

from antwort.config import Config
from antwort.errors import ConfigError

_SQLITE = "sqlite:///"
_POSTGRESQL = ("postgresql", "postgres", "postgresql+psycopg")


def database_url(config: Config) -> str:
    """Return the URL of the database: the configured one, or SQLite below the data folder."""
    return config.storage.url or f"{_SQLITE}{config.data_dir / 'antwort.db'}"


def is_postgres(url: str) -> bool:
    """Tell whether a URL names a PostgreSQL database."""
    return url.partition(":")[0] in _POSTGRESQL


def why_one_process(config: Config) -> str | None:
    """Return why only one process can serve with the configured database, and the cure; None if several can."""
    if is_postgres(database_url(config)):
        return None
    return (
        "a SQLite database is for one process; "
        "set storage.url to a PostgreSQL database (postgresql://user:password@host/database), or have one worker"
    )


def postgres_module() -> ModuleType:
    """Return the module for PostgreSQL, which is only imported where it is used; raise ConfigError without a driver."""
    try:
        return importlib.import_module("antwort.storage.postgres")
    except ImportError as error:
        if not (error.name or "").startswith("psycopg"):
            raise
        raise ConfigError(
            "PostgreSQL needs a driver that is not installed: pip install 'antwort[postgres]'", where="storage.url"
        ) from error


def sqlite_path(url: str) -> Path:
    """Return the file that a URL names; raise ConfigError if it names something else."""
    path = url.removeprefix(_SQLITE)
    if path == url:
        # The rest of the URL is left out: it may hold a password.
        raise ConfigError(
            "'storage.url' must look like sqlite:///path or postgresql://host/database, "
            f"and not begin with '{url.partition(':')[0]}:'"
        )
    if path in {"", ":memory:"}:
        raise ConfigError("'storage.url' must name a file: a database in memory would be gone after a restart")
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise ConfigError(f"'storage.url' cannot be used: {error}") from error
