-- live.sql: hold a live job still while a verb decides about it. Zero rows: it has ended, or there is none.
SELECT
    state, fence, settled_fence, attempt, lost, limit_key, error::TEXT AS error,
    (
        SELECT job_limit.key FROM telecine.job_limit WHERE job_limit.scope = 'tenant' AND job_limit.key = job.tenant
    ) AS capped
FROM telecine.job
WHERE id = $1
FOR UPDATE
