"""What Alembic runs. The connection comes from `antwort.storage.revisions`, which also ends the transaction."""

from alembic import context

from antwort.storage.schema import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
context.run_migrations()
