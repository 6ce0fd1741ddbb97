"""When a conversation was used last."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Add the time of the last use; of those there are, only the time of their creation is known."""
    op.add_column("conversations", sa.Column("used_at", sa.BigInteger))
    op.execute("UPDATE conversations SET used_at = created_at")
    op.create_index("ix_conversations_used", "conversations", ["used_at", "id"])
