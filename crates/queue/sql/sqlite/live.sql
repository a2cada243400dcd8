-- live.sql: what a verb must know of a live job. Zero rows: it has ended, or never was.
SELECT
    lane, kind, state, run, required, limit_key,
    CASE WHEN tenant <> '' THEN (SELECT key FROM job_limit WHERE scope = 'tenant' AND key = job.tenant) END AS capped,
    fence
FROM job
WHERE id = ?1
