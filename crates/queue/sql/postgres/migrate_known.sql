-- migrate_known.sql: whether any step was ever written down. Always one row.
SELECT to_regclass('telecine.schema_version') IS NOT NULL AS known
