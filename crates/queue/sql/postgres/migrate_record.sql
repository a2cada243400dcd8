-- migrate_record.sql: write down one step.
INSERT INTO telecine.schema_version (version, name, checksum, applied_at) VALUES ($1, $2, $3, now())
