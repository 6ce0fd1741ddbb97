"""The store on PostgreSQL. Imported only when the configuration names such a database: it needs the driver."""

from antwort.storage.postgres.store import PostgresStore
from antwort.storage.postgres.upgrade import current, location, upgrade
from antwort.storage.postgres.vacuum import vacuum

__all__ = ["PostgresStore", "current", "location", "upgrade", "vacuum"]
