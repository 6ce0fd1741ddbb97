"""A list of conversations."""

from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """Bring a database here from the revision before."""
    _index_conversations()


def _index_conversations() -> None:
    op.create_index("ix_conversations_list", "conversations", ["tenant", "created_at", "id"], unique=False)
