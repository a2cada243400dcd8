-- migrate_schema.sql: where the schema's steps are written down. The caller holds the lock of migrate_lock.sql, because
-- IF NOT EXISTS does not keep two sessions from making the same schema at once.
CREATE SCHEMA IF NOT EXISTS telecine;
CREATE TABLE IF NOT EXISTS telecine.schema_version (
    version    BIGINT PRIMARY KEY,
    name       TEXT NOT NULL,
    checksum   TEXT NOT NULL,
    applied_at TIMESTAMPTZ NOT NULL
);
