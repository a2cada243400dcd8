-- push_keys.sql: take idempotency keys for $4 milliseconds, in sorted order so that batches cannot deadlock; an expired one is
-- replaced. A key that does not come back was taken before: push_known_keys.sql tells by what.
INSERT INTO telecine.idempotency (tenant, key, body_hash, run, jobs, expires_at)
SELECT tenant, key, body_hash, NULL, '{}', now() + $4 * INTERVAL '1 millisecond'
FROM UNNEST($1::TEXT[], $2::TEXT[], $3::BYTEA[]) AS input (tenant, key, body_hash)
ORDER BY tenant, key
ON CONFLICT (tenant, key) DO UPDATE
SET body_hash = EXCLUDED.body_hash, run = NULL, jobs = '{}', expires_at = EXCLUDED.expires_at
WHERE idempotency.expires_at <= now()
RETURNING tenant, key
