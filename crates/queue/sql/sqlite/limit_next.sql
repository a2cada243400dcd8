-- limit_next.sql: the parked jobs that are next in the line of a key, in the order of the claim; the last column names a
-- tenant that has a cap.
SELECT
    id, priority, fair_at, limit_key,
    CASE WHEN tenant <> '' THEN (SELECT key FROM job_limit WHERE scope = 'tenant' AND key = job.tenant) END
FROM job INDEXED BY job_parked
WHERE state = 'parked' AND limit_key = ?1 AND parked_on = 'key'
ORDER BY priority DESC, fair_at, id
LIMIT ?2
