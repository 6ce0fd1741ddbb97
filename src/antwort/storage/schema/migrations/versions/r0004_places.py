"""What is deleted of providers keeps its place for a while."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Add the time of the deletion, and leave what is deleted out of the indexes."""
    op.add_column("records", sa.Column("deleted_at", sa.BigInteger))
    kept, deleted = sa.text("deleted_at IS NULL"), sa.text("deleted_at IS NOT NULL")
    for name, columns in {
        "ix_records_list": ["owner", "kind", "tenant", "parent", "number"],
        "ix_records_scan": ["owner", "kind", "number"],
    }.items():
        op.drop_index(name, "records")
        op.create_index(name, "records", columns, sqlite_where=kept, postgresql_where=kept)
    op.create_index("ix_records_deleted", "records", ["deleted_at"], sqlite_where=deleted, postgresql_where=deleted)
