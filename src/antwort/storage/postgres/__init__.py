"""The store on PostgreSQL. Imported only when the configuration names such a database: it needs the driver."""

from antwort.storage.postgres.maintenance import current, location, upgrade, vacuum
from antwort.storage.postgres.store import PostgresStore

__all__ = ["PostgresStore", "current", "location", "upgrade", "vacuum"]
