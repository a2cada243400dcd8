-- migrate_table.sql: where the schema's steps are written down. The caller holds the lock of migrate_lock.sql.
CREATE TABLE IF NOT EXISTS telecine.schema_version (
    version    BIGINT PRIMARY KEY,
    name       TEXT NOT NULL,
    checksum   TEXT NOT NULL,
    applied_at TIMESTAMPTZ NOT NULL
)
