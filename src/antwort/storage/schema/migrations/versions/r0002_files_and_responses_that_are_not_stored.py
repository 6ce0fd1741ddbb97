"""Files, and responses that are not stored."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Bring a database here from the revision before.

    The first revision had some of this while it was not settled, so there are databases of it that have it already.
    """
    there = sa.inspect(op.get_bind())
    if not there.has_table("stored_files"):
        _change_stored_files()
        _index_stored_files()
    if "unstored_at" not in {column["name"] for column in there.get_columns("responses")}:
        _change_responses()


def _change_stored_files() -> None:
    op.create_table(
        "stored_files",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("filename", sa.Text(), nullable=False),
        sa.Column("purpose", sa.Text(), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=True),
        sa.Column("part_of", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_stored_files")),
    )


def _index_stored_files() -> None:
    op.create_index(
        "ix_stored_files_expires",
        "stored_files",
        ["expires_at"],
        unique=False,
        sqlite_where=sa.text("expires_at IS NOT NULL"),
        postgresql_where=sa.text("expires_at IS NOT NULL"),
    )
    op.create_index("ix_stored_files_list", "stored_files", ["tenant", "part_of", "id"], unique=False)
    op.create_index(
        "ix_stored_files_not_there",
        "stored_files",
        ["id"],
        unique=False,
        sqlite_where=sa.text("status <> 'uploaded'"),
        postgresql_where=sa.text("status <> 'uploaded'"),
    )
    op.create_index("ix_stored_files_purpose", "stored_files", ["tenant", "part_of", "purpose", "id"], unique=False)
    op.create_index("ix_stored_files_size", "stored_files", ["tenant", "part_of", "bytes"], unique=False)


def _change_responses() -> None:
    op.add_column("responses", sa.Column("unstored_at", sa.BigInteger(), nullable=True))
    op.create_index(
        "ix_responses_unstored",
        "responses",
        ["unstored_at"],
        unique=False,
        sqlite_where=sa.text("unstored_at IS NOT NULL"),
        postgresql_where=sa.text("unstored_at IS NOT NULL"),
    )
