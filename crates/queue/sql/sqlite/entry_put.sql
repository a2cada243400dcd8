-- entry_put.sql: write an entry; each write is a new version.
INSERT INTO entry (kind, key, version, body, updated_at) VALUES (?1, ?2, 1, ?3, ?4)
ON CONFLICT (kind, key) DO UPDATE SET version = version + 1, body = excluded.body, updated_at = excluded.updated_at
