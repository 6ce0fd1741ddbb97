-- What the migrations lead to on SQLite, for new databases. A test compares the two.
CREATE TABLE alembic_version (
    version_num VARCHAR(32) NOT NULL,
    CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
CREATE TABLE responses (
    number INTEGER NOT NULL,
    id TEXT NOT NULL,
    tenant TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    status TEXT NOT NULL,
    model TEXT NOT NULL,
    previous_response_id TEXT,
    background BOOLEAN NOT NULL,
    epoch INTEGER NOT NULL,
    subject TEXT NOT NULL,
    body TEXT NOT NULL,
    request TEXT NOT NULL,
    extra TEXT NOT NULL,
    conversation_id TEXT,
    CONSTRAINT pk_responses PRIMARY KEY (number),
    CONSTRAINT uq_responses_id UNIQUE (id)
);
CREATE INDEX ix_responses_list ON responses (tenant, created_at, number);
CREATE INDEX ix_responses_unfinished ON responses (created_at) WHERE background AND status IN ('queued', 'in_progress');
CREATE INDEX ix_responses_previous ON responses (tenant, previous_response_id) WHERE previous_response_id IS NOT NULL;
CREATE TABLE entries (
    response_id TEXT NOT NULL,
    position INTEGER NOT NULL,
    tenant TEXT NOT NULL,
    item_id TEXT NOT NULL,
    direction TEXT NOT NULL,
    visible BOOLEAN NOT NULL,
    item TEXT NOT NULL,
    call TEXT,
    CONSTRAINT pk_entries PRIMARY KEY (response_id, position),
    CONSTRAINT fk_entries_response_id FOREIGN KEY(response_id) REFERENCES responses (id) ON DELETE CASCADE
);
CREATE INDEX ix_entries_item ON entries (tenant, item_id);
CREATE TABLE events (
    response_id TEXT NOT NULL,
    sequence INTEGER NOT NULL,
    tenant TEXT NOT NULL,
    type TEXT NOT NULL,
    data BLOB NOT NULL,
    CONSTRAINT pk_events PRIMARY KEY (response_id, sequence),
    CONSTRAINT fk_events_response_id FOREIGN KEY(response_id) REFERENCES responses (id) ON DELETE CASCADE
);
CREATE TABLE conversations (
    id TEXT NOT NULL,
    tenant TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    metadata TEXT NOT NULL,
    used_at BIGINT,
    CONSTRAINT pk_conversations PRIMARY KEY (id)
);
CREATE INDEX ix_conversations_used ON conversations (used_at, id);
CREATE TABLE conversation_items (
    number INTEGER NOT NULL,
    conversation_id TEXT NOT NULL,
    tenant TEXT NOT NULL,
    item_id TEXT NOT NULL,
    direction TEXT NOT NULL,
    visible BOOLEAN NOT NULL,
    item TEXT NOT NULL,
    call TEXT,
    CONSTRAINT pk_conversation_items PRIMARY KEY (number),
    CONSTRAINT uq_conversation_items_conversation_id UNIQUE (conversation_id, item_id),
    CONSTRAINT fk_conversation_items_conversation_id FOREIGN KEY(conversation_id) REFERENCES conversations (id) ON DELETE CASCADE
);
CREATE INDEX ix_conversation_items_order ON conversation_items (conversation_id, number);
CREATE INDEX ix_conversation_items_item ON conversation_items (tenant, item_id);
CREATE TABLE records (
    number INTEGER NOT NULL,
    owner TEXT NOT NULL,
    kind TEXT NOT NULL,
    tenant TEXT NOT NULL,
    id TEXT NOT NULL,
    parent TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    version INTEGER NOT NULL,
    value TEXT NOT NULL,
    deleted_at BIGINT,
    CONSTRAINT pk_records PRIMARY KEY (number),
    CONSTRAINT uq_records_owner UNIQUE (owner, kind, tenant, id)
);
CREATE INDEX ix_records_list ON records (owner, kind, tenant, parent, number) WHERE deleted_at IS NULL;
CREATE INDEX ix_records_scan ON records (owner, kind, number) WHERE deleted_at IS NULL;
CREATE INDEX ix_records_deleted ON records (deleted_at) WHERE deleted_at IS NOT NULL
