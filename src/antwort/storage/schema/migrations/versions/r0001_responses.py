"""Responses, their entries and their events."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "responses",
        sa.Column("number", sa.BigInteger().with_variant(sa.Integer, "sqlite"), sa.Identity(), nullable=False),
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("tenant", sa.Text, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("model", sa.Text, nullable=False),
        sa.Column("previous_response_id", sa.Text),
        sa.Column("background", sa.Boolean, nullable=False),
        sa.Column("epoch", sa.Integer, nullable=False),
        sa.Column("subject", sa.Text, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("request", sa.Text, nullable=False),
        sa.Column("extra", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("number", name="pk_responses"),
        sa.UniqueConstraint("id", name="uq_responses_id"),
    )
    op.create_index("ix_responses_list", "responses", ["tenant", "created_at", "number"])
    unfinished = sa.text("background AND status IN ('queued', 'in_progress')")
    op.create_index(
        "ix_responses_unfinished", "responses", ["created_at"], sqlite_where=unfinished, postgresql_where=unfinished
    )
    continues = sa.text("previous_response_id IS NOT NULL")
    op.create_index(
        "ix_responses_previous",
        "responses",
        ["tenant", "previous_response_id"],
        sqlite_where=continues,
        postgresql_where=continues,
    )
    op.create_table(
        "entries",
        sa.Column("response_id", sa.Text, nullable=False),
        sa.Column("position", sa.Integer, nullable=False),
        sa.Column("tenant", sa.Text, nullable=False),
        sa.Column("item_id", sa.Text, nullable=False),
        sa.Column("direction", sa.Text, nullable=False),
        sa.Column("visible", sa.Boolean, nullable=False),
        sa.Column("item", sa.Text, nullable=False),
        sa.Column("call", sa.Text),
        sa.PrimaryKeyConstraint("response_id", "position", name="pk_entries"),
        sa.ForeignKeyConstraint(["response_id"], ["responses.id"], name="fk_entries_response_id", ondelete="CASCADE"),
    )
    op.create_index("ix_entries_item", "entries", ["tenant", "item_id"])
    op.create_table(
        "events",
        sa.Column("response_id", sa.Text, nullable=False),
        sa.Column("sequence", sa.Integer, nullable=False),
        sa.Column("tenant", sa.Text, nullable=False),
        sa.Column("type", sa.Text, nullable=False),
        sa.Column("data", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("response_id", "sequence", name="pk_events"),
        sa.ForeignKeyConstraint(["response_id"], ["responses.id"], name="fk_events_response_id", ondelete="CASCADE"),
    )
