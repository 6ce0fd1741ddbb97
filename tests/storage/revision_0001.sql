-- The tables as the first revision made them on SQLite, with a response in them. This file is not to be changed.
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
)
;
INSERT INTO alembic_version VALUES ('0001');
INSERT INTO responses VALUES
    (7, 'resp_1', 'acme', 1700000000, 'completed', 'small', NULL, 0, 0, 'ada', '{"id":"resp_1"}', '{"input":"Hello"}', '{}');
INSERT INTO entries VALUES ('resp_1', 0, 'acme', 'msg_1', 'input', 1, '{"id":"msg_1"}', NULL);
INSERT INTO events VALUES ('resp_1', 0, 'acme', 'response.created', x'7b7d');
