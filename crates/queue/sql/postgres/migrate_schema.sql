-- migrate_schema.sql: the schema that all of the queue lives in. The caller holds the lock of migrate_lock.sql, because
-- IF NOT EXISTS does not keep two sessions from making the same schema at once.
CREATE SCHEMA IF NOT EXISTS telecine
