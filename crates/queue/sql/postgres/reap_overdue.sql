-- reap_overdue.sql: hold the jobs that run past their deadline still. Zero rows: none.
-- A running job always has a worker; saying so is what makes every plan go by the index of running jobs.
WITH late AS MATERIALIZED (
    SELECT id FROM telecine.job WHERE state = 'running' AND worker IS NOT NULL AND deadline_at < now()
)
SELECT
    id, fence, settled_fence, attempt, max_attempts, lost, max_lost, backoff_base_ms, backoff_factor, backoff_cap_ms,
    limit_key,
    (
        SELECT job_limit.key FROM telecine.job_limit WHERE job_limit.scope = 'tenant' AND job_limit.key = job.tenant
    ) AS capped
FROM telecine.job
WHERE id = ANY(ARRAY(SELECT id FROM late)) AND state = 'running' AND deadline_at < now()
ORDER BY id
FOR UPDATE SKIP LOCKED
