"""Where the database is: from the configuration to a URL, from a URL to a file."""

from pathlib import Path

from antwort.config import Config
from antwort.errors import ConfigError

__all__ = ["database_url", "sqlite_path"]

_SQLITE = "sqlite:///"
_POSTGRESQL = ("postgresql", "postgres")


def database_url(config: Config) -> str:
    """Return the URL of the database: the configured one, or SQLite below the data folder."""
    return config.storage.url or f"{_SQLITE}{config.data_dir / 'antwort.db'}"


def sqlite_path(url: str) -> Path:
    """Return the file that a URL names; raise ConfigError if it names something else."""
    scheme = url.partition(":")[0]
    if scheme.partition("+")[0] in _POSTGRESQL:
        raise ConfigError("PostgreSQL is not supported yet: 'storage.url' must name a SQLite file (sqlite:///path)")
    path = url.removeprefix(_SQLITE)
    if path == url:
        # The rest of the URL is left out: it may hold a password.
        raise ConfigError(f"'storage.url' must look like sqlite:///path, and not begin with '{scheme}:'")
    if path in {"", ":memory:"}:
        raise ConfigError("'storage.url' must name a file: a database in memory would be gone after a restart")
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise ConfigError(f"'storage.url' cannot be used: {error}") from error
