-- ended.sql: what a verb must know of a job in history. Zero rows: it is live, or never was.
SELECT
    lane, kind, state, run, required, limit_key,
    CASE WHEN tenant <> '' THEN (SELECT key FROM job_limit WHERE scope = 'tenant' AND key = job_done.tenant) END AS capped
FROM job_done
WHERE id = ?1
