-- run_live.sql: hold the live jobs of a run that is held. Zero rows: it has ended.
SELECT
    id, state, fence, attempt, lost, limit_key,
    (
        SELECT job_limit.key FROM telecine.job_limit WHERE job_limit.scope = 'tenant' AND job_limit.key = job.tenant
    ) AS capped
FROM telecine.job
WHERE run = $1
ORDER BY id
FOR UPDATE
