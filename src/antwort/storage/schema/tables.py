"""The tables, once for SQLite and PostgreSQL. `scripts/schema.py` writes from them what makes databases.

JSON is kept as text that is read and written as a whole, since nobody queries inside it.
"""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    ForeignKeyConstraint,
    Identity,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    text,
)

_UNFINISHED = text("background AND status IN ('queued', 'in_progress')")
_CONTINUES = text("previous_response_id IS NOT NULL")
_KEPT = text("deleted_at IS NULL")
_DELETED = text("deleted_at IS NOT NULL")
# The order of insertion. In SQLite it is the rowid.
_NUMBER = BigInteger().with_variant(Integer, "sqlite")

metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "uq": "uq_%(table_name)s_%(column_0_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
    }
)

responses = Table(
    "responses",
    metadata,
    # This tells responses of the same second apart.
    Column("number", _NUMBER, Identity(), primary_key=True),
    Column("id", Text, nullable=False, unique=True),
    Column("tenant", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("status", Text, nullable=False),
    Column("model", Text, nullable=False),
    Column("previous_response_id", Text),
    Column("background", Boolean, nullable=False),
    Column("epoch", Integer, nullable=False),
    Column("subject", Text, nullable=False),
    Column("body", Text, nullable=False),
    Column("request", Text, nullable=False),
    Column("extra", Text, nullable=False),
    Column("conversation_id", Text),
    Index("ix_responses_list", "tenant", "created_at", "number"),
    # Partial, so that a response that is not concerned does not pay for them.
    Index("ix_responses_unfinished", "created_at", sqlite_where=_UNFINISHED, postgresql_where=_UNFINISHED),
    Index(
        "ix_responses_previous",
        "tenant",
        "previous_response_id",
        sqlite_where=_CONTINUES,
        postgresql_where=_CONTINUES,
    ),
)

entries = Table(
    "entries",
    metadata,
    Column("response_id", Text, ForeignKey("responses.id", ondelete="CASCADE"), primary_key=True),
    Column("position", Integer, primary_key=True),
    Column("tenant", Text, nullable=False),
    Column("item_id", Text, nullable=False),
    Column("direction", Text, nullable=False),
    Column("visible", Boolean, nullable=False),
    Column("item", Text, nullable=False),
    Column("call", Text),
    Index("ix_entries_item", "tenant", "item_id"),
)

events = Table(
    "events",
    metadata,
    Column("response_id", Text, ForeignKey("responses.id", ondelete="CASCADE"), primary_key=True),
    Column("sequence", Integer, primary_key=True),
    Column("tenant", Text, nullable=False),
    Column("type", Text, nullable=False),
    Column("data", LargeBinary, nullable=False),
)

conversations = Table(
    "conversations",
    metadata,
    Column("id", Text, primary_key=True),
    Column("tenant", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("metadata", Text, nullable=False),
    # When something was added to it or changed: that long ago it is old.
    Column("used_at", BigInteger, nullable=False),
    Index("ix_conversations_used", "used_at", "id"),
)

records = Table(
    "records",
    metadata,
    Column("number", _NUMBER, Identity(), primary_key=True),
    Column("owner", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("tenant", Text, nullable=False),
    Column("id", Text, nullable=False),
    Column("parent", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("version", Integer, nullable=False),
    Column("value", Text, nullable=False),
    # What is deleted stays for a while without its value: lists may go on from it.
    Column("deleted_at", BigInteger),
    UniqueConstraint("owner", "kind", "tenant", "id"),
    # Partial, so that what is deleted costs neither lists nor scans.
    Index(
        "ix_records_list",
        "owner",
        "kind",
        "tenant",
        "parent",
        "number",
        sqlite_where=_KEPT,
        postgresql_where=_KEPT,
    ),
    Index("ix_records_scan", "owner", "kind", "number", sqlite_where=_KEPT, postgresql_where=_KEPT),
    Index("ix_records_deleted", "deleted_at", sqlite_where=_DELETED, postgresql_where=_DELETED),
)

conversation_items = Table(
    "conversation_items",
    metadata,
    Column("number", _NUMBER, Identity(), primary_key=True),
    Column("conversation_id", Text, nullable=False),
    Column("tenant", Text, nullable=False),
    Column("item_id", Text, nullable=False),
    Column("direction", Text, nullable=False),
    Column("visible", Boolean, nullable=False),
    Column("item", Text, nullable=False),
    Column("call", Text),
    # In the order in which Alembic writes them: SQLite keeps the text.
    ForeignKeyConstraint(["conversation_id"], ["conversations.id"], ondelete="CASCADE"),
    UniqueConstraint("conversation_id", "item_id"),
    Index("ix_conversation_items_order", "conversation_id", "number"),
    Index("ix_conversation_items_item", "tenant", "item_id"),
)
