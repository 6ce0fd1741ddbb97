"""What providers keep."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "records",
        sa.Column("number", sa.BigInteger().with_variant(sa.Integer, "sqlite"), sa.Identity(), nullable=False),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("tenant", sa.Text, nullable=False),
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("parent", sa.Text, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("value", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("number", name="pk_records"),
        sa.UniqueConstraint("owner", "kind", "tenant", "id", name="uq_records_owner"),
    )
    op.create_index("ix_records_list", "records", ["owner", "kind", "tenant", "parent", "number"])
    op.create_index("ix_records_scan", "records", ["owner", "kind", "number"])
