"""Kept counts of files and conversations."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0002"


def upgrade() -> None:
    """Bring a database here from the revision before."""
    _change_file_usage()
    _change_conversations()


def _change_file_usage() -> None:
    op.create_table(
        "file_usage",
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("tenant", name=op.f("pk_file_usage")),
    )
    op.execute("INSERT INTO file_usage (tenant, bytes) SELECT tenant, sum(bytes) FROM stored_files GROUP BY tenant")


def _change_conversations() -> None:
    op.add_column("conversations", sa.Column("removed", sa.Integer(), server_default=sa.text("0"), nullable=False))
