-- finish_look.sql: a job as the claim with this fence may still settle it. Zero rows: fenced out, or already settled.
SELECT
    lane, kind, state, run, required, limit_key,
    CASE WHEN tenant <> '' THEN (SELECT key FROM job_limit WHERE scope = 'tenant' AND key = job.tenant) END AS capped
FROM job
WHERE id = ?1 AND fence = ?2 AND settled_fence < ?2
