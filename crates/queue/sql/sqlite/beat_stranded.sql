-- beat_stranded.sql: what a pull claimed for a worker that never got its answer: jobs under its name that it does not
-- hold, claimed longer ago than a lease. Zero rows: none.
SELECT
    id, lane, kind, limit_key,
    CASE WHEN tenant <> '' THEN (SELECT key FROM job_limit WHERE scope = 'tenant' AND key = job.tenant) END
FROM job INDEXED BY job_held
WHERE state = 'running' AND worker = ?1 AND claimed_boot_ms < ?2 AND id NOT IN (SELECT value FROM json_each(?3))
