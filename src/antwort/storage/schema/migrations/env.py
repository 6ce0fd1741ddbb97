"""What Alembic runs. The connection comes from `antwort.storage.schema.migrate`, which also ends the transaction."""

from alembic import context

from antwort.storage.schema.tables import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
context.run_migrations()
