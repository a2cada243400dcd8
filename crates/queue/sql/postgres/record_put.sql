-- record_put.sql: write a record of a run, each time as a new version. Zero rows: there is no such run, or the record is
-- not at the expected version ($5; NULL: any).
INSERT INTO telecine.record (run, type, key, tenant, version, json)
SELECT id, $2, $3, tenant, 1, $4::JSON
FROM telecine.run
WHERE id = $1 AND ($5::BIGINT IS NULL OR $5 = 0 OR EXISTS (
    SELECT 1 FROM telecine.record WHERE record.run = $1 AND record.type = $2 AND record.key = $3
))
ON CONFLICT (run, type, key) DO UPDATE SET version = record.version + 1, json = EXCLUDED.json
WHERE $5::BIGINT IS NULL OR record.version = $5
RETURNING version
