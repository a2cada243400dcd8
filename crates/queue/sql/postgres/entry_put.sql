-- entry_put.sql: write an entry, each time as a new version. Zero rows: it is not at the expected version ($4; NULL: any;
-- 0: it is new). One that was deleted meanwhile is not made anew by who expects a version of it.
WITH changed AS (
    UPDATE telecine.entry
    SET version = entry.version + 1, body = $3::JSON, updated_at = now()
    WHERE entry.kind = $1 AND entry.key = $2 AND entry.version = $4
    RETURNING entry.version
), put AS (
    INSERT INTO telecine.entry (kind, key, version, body, updated_at)
    SELECT $1, $2, 1, $3::JSON, now()
    WHERE $4::BIGINT IS NULL OR $4 = 0
    ON CONFLICT (kind, key) DO UPDATE
    SET version = entry.version + 1, body = EXCLUDED.body, updated_at = EXCLUDED.updated_at
    WHERE $4::BIGINT IS NULL
    RETURNING entry.version
)
SELECT version FROM changed
UNION ALL
SELECT version FROM put
