"""The tables."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Bring a database here from the revision before."""
    _change_blobs()
    _change_conversations()
    _change_records()
    _change_responses()
    _change_blob_chunks()
    _change_conversation_items()
    _change_entries()
    _change_events()
    _change_questions()
    _change_variable_versions()


def _change_blobs() -> None:
    op.create_table(
        "blobs",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("hash", sa.Text(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_blobs")),
        sa.UniqueConstraint("tenant", "hash", name=op.f("uq_blobs_tenant")),
    )
    op.create_index("ix_blobs_size", "blobs", ["tenant", "size"], unique=False)


def _change_conversations() -> None:
    op.create_table(
        "conversations",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("metadata", sa.Text(), nullable=False),
        sa.Column("used_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_conversations")),
    )
    op.create_index("ix_conversations_used", "conversations", ["used_at", "id"], unique=False)


def _change_records() -> None:
    op.create_table(
        "records",
        sa.Column(
            "number", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), sa.Identity(always=False), nullable=False
        ),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("parent", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.Column("deleted_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_records")),
        sa.UniqueConstraint("owner", "kind", "tenant", "id", name=op.f("uq_records_owner")),
    )
    op.create_index(
        "ix_records_deleted",
        "records",
        ["deleted_at"],
        unique=False,
        sqlite_where=sa.text("deleted_at IS NOT NULL"),
        postgresql_where=sa.text("deleted_at IS NOT NULL"),
    )
    op.create_index(
        "ix_records_list",
        "records",
        ["owner", "kind", "tenant", "parent", "number"],
        unique=False,
        sqlite_where=sa.text("deleted_at IS NULL"),
        postgresql_where=sa.text("deleted_at IS NULL"),
    )
    op.create_index(
        "ix_records_scan",
        "records",
        ["owner", "kind", "number"],
        unique=False,
        sqlite_where=sa.text("deleted_at IS NULL"),
        postgresql_where=sa.text("deleted_at IS NULL"),
    )


def _change_responses() -> None:
    op.create_table(
        "responses",
        sa.Column(
            "number", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), sa.Identity(always=False), nullable=False
        ),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("previous_response_id", sa.Text(), nullable=True),
        sa.Column("background", sa.Boolean(), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("request", sa.Text(), nullable=False),
        sa.Column("extra", sa.Text(), nullable=False),
        sa.Column("conversation_id", sa.Text(), nullable=True),
        sa.Column("run_id", sa.Text(), nullable=True),
        sa.Column("parent_id", sa.Text(), nullable=True),
        sa.Column("parent_call_id", sa.Text(), nullable=True),
        sa.Column("child_index", sa.Integer(), nullable=True),
        sa.Column("parked", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(
            ["parent_id"], ["responses.id"], name=op.f("fk_responses_parent_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_responses")),
        sa.UniqueConstraint("id", name=op.f("uq_responses_id")),
    )
    op.create_index(
        "ix_responses_child",
        "responses",
        ["parent_id", "parent_call_id", "child_index"],
        unique=True,
        sqlite_where=sa.text("parent_id IS NOT NULL"),
        postgresql_where=sa.text("parent_id IS NOT NULL"),
    )
    op.create_index(
        "ix_responses_list",
        "responses",
        ["tenant", "created_at", "number"],
        unique=False,
        sqlite_where=sa.text("parent_id IS NULL"),
        postgresql_where=sa.text("parent_id IS NULL"),
    )
    op.create_index(
        "ix_responses_previous",
        "responses",
        ["tenant", "previous_response_id"],
        unique=False,
        sqlite_where=sa.text("previous_response_id IS NOT NULL"),
        postgresql_where=sa.text("previous_response_id IS NOT NULL"),
    )
    op.create_index(
        "ix_responses_run",
        "responses",
        ["run_id"],
        unique=False,
        sqlite_where=sa.text("run_id IS NOT NULL"),
        postgresql_where=sa.text("run_id IS NOT NULL"),
    )
    op.create_index(
        "ix_responses_unfinished",
        "responses",
        ["created_at"],
        unique=False,
        sqlite_where=sa.text("background AND status IN ('queued', 'in_progress')"),
        postgresql_where=sa.text("background AND status IN ('queued', 'in_progress')"),
    )


def _change_blob_chunks() -> None:
    op.create_table(
        "blob_chunks",
        sa.Column("blob_id", sa.Text(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["blob_id"], ["blobs.id"], name=op.f("fk_blob_chunks_blob_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("blob_id", "position", name=op.f("pk_blob_chunks")),
    )


def _change_conversation_items() -> None:
    op.create_table(
        "conversation_items",
        sa.Column(
            "number", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), sa.Identity(always=False), nullable=False
        ),
        sa.Column("conversation_id", sa.Text(), nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("item_id", sa.Text(), nullable=False),
        sa.Column("direction", sa.Text(), nullable=False),
        sa.Column("visible", sa.Boolean(), nullable=False),
        sa.Column("item", sa.Text(), nullable=False),
        sa.Column("call", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["conversation_id"],
            ["conversations.id"],
            name=op.f("fk_conversation_items_conversation_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_conversation_items")),
        sa.UniqueConstraint("conversation_id", "item_id", name=op.f("uq_conversation_items_conversation_id")),
    )
    op.create_index("ix_conversation_items_item", "conversation_items", ["tenant", "item_id"], unique=False)
    op.create_index("ix_conversation_items_order", "conversation_items", ["conversation_id", "number"], unique=False)


def _change_entries() -> None:
    op.create_table(
        "entries",
        sa.Column("response_id", sa.Text(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("item_id", sa.Text(), nullable=False),
        sa.Column("direction", sa.Text(), nullable=False),
        sa.Column("visible", sa.Boolean(), nullable=False),
        sa.Column("item", sa.Text(), nullable=False),
        sa.Column("call", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["response_id"], ["responses.id"], name=op.f("fk_entries_response_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("response_id", "position", name=op.f("pk_entries")),
    )
    op.create_index("ix_entries_item", "entries", ["tenant", "item_id"], unique=False)


def _change_events() -> None:
    op.create_table(
        "events",
        sa.Column("response_id", sa.Text(), nullable=False),
        sa.Column("sequence", sa.Integer(), nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["response_id"], ["responses.id"], name=op.f("fk_events_response_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("response_id", "sequence", name=op.f("pk_events")),
    )


def _change_questions() -> None:
    op.create_table(
        "questions",
        sa.Column(
            "number", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), sa.Identity(always=False), nullable=False
        ),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("response_id", sa.Text(), nullable=False),
        sa.Column("call_id", sa.Text(), nullable=False),
        sa.Column("root_id", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("answer", sa.Text(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=True),
        sa.Column("answered_at", sa.BigInteger(), nullable=True),
        sa.Column("answered_by", sa.Text(), nullable=True),
        sa.Column("tell_at", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(
            ["response_id"], ["responses.id"], name=op.f("fk_questions_response_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_questions")),
        sa.UniqueConstraint("id", name=op.f("uq_questions_id")),
    )
    op.create_index(
        "ix_questions_answered_by",
        "questions",
        ["answered_by"],
        unique=False,
        sqlite_where=sa.text("answered_by IS NOT NULL"),
        postgresql_where=sa.text("answered_by IS NOT NULL"),
    )
    op.create_index("ix_questions_list", "questions", ["tenant", "number"], unique=False)
    op.create_index(
        "ix_questions_open",
        "questions",
        ["expires_at"],
        unique=False,
        sqlite_where=sa.text("status = 'open'"),
        postgresql_where=sa.text("status = 'open'"),
    )
    op.create_index("ix_questions_response", "questions", ["response_id"], unique=False)
    op.create_index("ix_questions_root", "questions", ["root_id"], unique=False)
    op.create_index(
        "ix_questions_untold",
        "questions",
        ["tell_at"],
        unique=False,
        sqlite_where=sa.text("status = 'open'"),
        postgresql_where=sa.text("status = 'open'"),
    )


def _change_variable_versions() -> None:
    op.create_table(
        "variable_versions",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("scope_id", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("blob_id", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=True),
        sa.Column("conversation_id", sa.Text(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["blob_id"], ["blobs.id"], name=op.f("fk_variable_versions_blob_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_variable_versions")),
        sa.UniqueConstraint("tenant", "scope", "scope_id", "key", "version", name=op.f("uq_variable_versions_tenant")),
    )
    op.create_index("ix_variable_versions_blob", "variable_versions", ["blob_id"], unique=False)
    op.create_index("ix_variable_versions_list", "variable_versions", ["tenant", "id"], unique=False)
    op.create_index(
        "ix_variable_versions_run",
        "variable_versions",
        ["tenant", "run_id"],
        unique=False,
        sqlite_where=sa.text("run_id IS NOT NULL"),
        postgresql_where=sa.text("run_id IS NOT NULL"),
    )
