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
_ROOT = text("parent_id IS NULL")
_RUN = text("background AND parent_id IS NULL")
_SUB_AGENT = text("parent_id IS NOT NULL")
_UNSTORED = text("unstored_at IS NOT NULL")
_SAME_RUN = text("run_id IS NOT NULL")
_OPEN = text("status = 'open'")
_BY = text("answered_by IS NOT NULL")
_KEPT = text("deleted_at IS NULL")
_DELETED = text("deleted_at IS NOT NULL")
_EXPIRES = text("expires_at IS NOT NULL")
_NOT_THERE = text("status <> 'uploaded'")
_MADE_IN_A_RUN = text("run_id IS NOT NULL")
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
    Column("id", Text, nullable=False),
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
    # The run it belongs to, if another response began it; and for the response of a sub-agent the response and the call
    # that it works for, and which of the agents of that call it is.
    Column("run_id", Text),
    Column("parent_id", Text),
    Column("parent_call_id", Text),
    Column("child_index", Integer),
    # It waits for somebody, and nobody works on it.
    Column("parked", Boolean, nullable=False),
    # When something was last written of a response that its client wants not stored; others have none.
    Column("unstored_at", BigInteger),
    ForeignKeyConstraint(["parent_id"], ["responses.id"], ondelete="CASCADE"),
    UniqueConstraint("id"),
    Index("ix_responses_list", "tenant", "created_at", "number", sqlite_where=_ROOT, postgresql_where=_ROOT),
    Index("ix_responses_runs", "tenant", "created_at", "number", sqlite_where=_RUN, postgresql_where=_RUN),
    # A child is begun once, whoever begins it.
    Index(
        "ix_responses_child",
        "parent_id",
        "parent_call_id",
        "child_index",
        unique=True,
        sqlite_where=_SUB_AGENT,
        postgresql_where=_SUB_AGENT,
    ),
    Index("ix_responses_run", "run_id", sqlite_where=_SAME_RUN, postgresql_where=_SAME_RUN),
    # Partial, so that a response that is not concerned does not pay for them.
    Index("ix_responses_unfinished", "created_at", sqlite_where=_UNFINISHED, postgresql_where=_UNFINISHED),
    Index(
        "ix_responses_previous",
        "tenant",
        "previous_response_id",
        sqlite_where=_CONTINUES,
        postgresql_where=_CONTINUES,
    ),
    Index("ix_responses_unstored", "unstored_at", sqlite_where=_UNSTORED, postgresql_where=_UNSTORED),
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
    # How many of its items were deleted: whoever remembers items knows by it that all of them are still there.
    Column("removed", Integer, nullable=False, server_default=text("0")),
    Index("ix_conversations_used", "used_at", "id"),
    Index("ix_conversations_list", "tenant", "created_at", "id"),
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

blobs = Table(
    "blobs",
    metadata,
    Column("id", Text, primary_key=True),
    Column("tenant", Text, nullable=False),
    # Of what it holds; while it is being written, its id.
    Column("hash", Text, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    UniqueConstraint("tenant", "hash"),
    # With all that is needed to add up what a tenant has.
    Index("ix_blobs_size", "tenant", "size"),
)

blob_chunks = Table(
    "blob_chunks",
    metadata,
    Column("blob_id", Text, ForeignKey("blobs.id", ondelete="CASCADE"), primary_key=True),
    Column("position", Integer, primary_key=True),
    Column("tenant", Text, nullable=False),
    Column("data", LargeBinary, nullable=False),
)

variable_versions = Table(
    "variable_versions",
    metadata,
    # It is also what references name.
    Column("id", Text, primary_key=True),
    Column("tenant", Text, nullable=False),
    Column("scope", Text, nullable=False),
    Column("scope_id", Text, nullable=False),
    Column("key", Text, nullable=False),
    Column("version", Integer, nullable=False),
    Column("kind", Text, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("blob_id", Text, nullable=False),
    # Where it was made: who may follow a reference to it.
    Column("run_id", Text),
    Column("conversation_id", Text),
    Column("created_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger),
    ForeignKeyConstraint(["blob_id"], ["blobs.id"]),
    UniqueConstraint("tenant", "scope", "scope_id", "key", "version"),
    Index("ix_variable_versions_blob", "blob_id"),
    Index("ix_variable_versions_list", "tenant", "id"),
    Index("ix_variable_versions_run", "tenant", "run_id", sqlite_where=_MADE_IN_A_RUN, postgresql_where=_MADE_IN_A_RUN),
)

questions = Table(
    "questions",
    metadata,
    Column("number", _NUMBER, Identity(), primary_key=True),
    Column("id", Text, nullable=False),
    Column("tenant", Text, nullable=False),
    Column("response_id", Text, nullable=False),
    Column("call_id", Text, nullable=False),
    # The response that goes on when it is answered: that of the root agent.
    Column("root_id", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("body", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("answer", Text),
    Column("created_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger),
    Column("answered_at", BigInteger),
    # The response that brought the answer, if one did.
    Column("answered_by", Text),
    # When whoever tells people of questions looks at it; empty once they know.
    Column("tell_at", BigInteger),
    ForeignKeyConstraint(["response_id"], ["responses.id"], ondelete="CASCADE"),
    UniqueConstraint("id"),
    Index("ix_questions_response", "response_id"),
    Index("ix_questions_list", "tenant", "number"),
    Index("ix_questions_root", "root_id"),
    Index("ix_questions_answered_by", "answered_by", sqlite_where=_BY, postgresql_where=_BY),
    Index("ix_questions_open", "expires_at", sqlite_where=_OPEN, postgresql_where=_OPEN),
    Index("ix_questions_untold", "tell_at", sqlite_where=_OPEN, postgresql_where=_OPEN),
)

stored_files = Table(
    "stored_files",
    metadata,
    # It tells the order in which they came, and what the bytes are kept under.
    Column("id", Text, primary_key=True),
    Column("tenant", Text, nullable=False),
    Column("filename", Text, nullable=False),
    Column("purpose", Text, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("sha256", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger),
    Column("part_of", Text, nullable=False),
    Column("status", Text, nullable=False),
    Index("ix_stored_files_list", "tenant", "part_of", "id"),
    Index("ix_stored_files_purpose", "tenant", "part_of", "purpose", "id"),
    # With all that is needed to add up the parts of something.
    Index("ix_stored_files_size", "tenant", "part_of", "bytes"),
    Index("ix_stored_files_expires", "expires_at", sqlite_where=_EXPIRES, postgresql_where=_EXPIRES),
    Index("ix_stored_files_not_there", "id", sqlite_where=_NOT_THERE, postgresql_where=_NOT_THERE),
)

file_usage = Table(
    "file_usage",
    metadata,
    # Kept with every change: to add up all files takes the longer the more there are.
    Column("tenant", Text, primary_key=True),
    Column("bytes", BigInteger, nullable=False),
)

workers = Table(
    "workers",
    metadata,
    # Who works on a database that several servers share: the data folder, and a number in it.
    Column("id", Text, primary_key=True),
    Column("instance", Text, nullable=False),
    # It grows as long as the worker lives.
    Column("beats", BigInteger, nullable=False),
    Column("about", Text, nullable=False),
)
