"""Conversations and their items."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Create the tables, and let a response name its conversation."""
    op.add_column("responses", sa.Column("conversation_id", sa.Text))
    op.create_table(
        "conversations",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("tenant", sa.Text, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("metadata", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_conversations"),
    )
    op.create_table(
        "conversation_items",
        sa.Column("number", sa.BigInteger().with_variant(sa.Integer, "sqlite"), sa.Identity(), nullable=False),
        sa.Column("conversation_id", sa.Text, nullable=False),
        sa.Column("tenant", sa.Text, nullable=False),
        sa.Column("item_id", sa.Text, nullable=False),
        sa.Column("direction", sa.Text, nullable=False),
        sa.Column("visible", sa.Boolean, nullable=False),
        sa.Column("item", sa.Text, nullable=False),
        sa.Column("call", sa.Text),
        sa.PrimaryKeyConstraint("number", name="pk_conversation_items"),
        sa.UniqueConstraint("conversation_id", "item_id", name="uq_conversation_items_conversation_id"),
        sa.ForeignKeyConstraint(
            ["conversation_id"],
            ["conversations.id"],
            name="fk_conversation_items_conversation_id",
            ondelete="CASCADE",
        ),
    )
    op.create_index("ix_conversation_items_order", "conversation_items", ["conversation_id", "number"])
    op.create_index("ix_conversation_items_item", "conversation_items", ["tenant", "item_id"])
