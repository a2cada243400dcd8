-- migrate_applied.sql: the steps this database has had. Zero rows: none.
SELECT version, checksum FROM telecine.schema_version ORDER BY version
