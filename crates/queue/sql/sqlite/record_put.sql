-- record_put.sql: write a record of a run; each write is a new version.
INSERT INTO record (run, type, key, tenant, version, json)
SELECT id, ?2, ?3, tenant, 1, ?4 FROM run WHERE id = ?1
ON CONFLICT (run, type, key) DO UPDATE SET version = version + 1, json = excluded.json
RETURNING version
