"""A list of runs."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Bring a database here from the revision before."""
    _index_responses()


def _index_responses() -> None:
    op.create_index(
        "ix_responses_runs",
        "responses",
        ["tenant", "created_at", "number"],
        unique=False,
        sqlite_where=sa.text("background AND parent_id IS NULL"),
        postgresql_where=sa.text("background AND parent_id IS NULL"),
    )
