-- reap_held.sql: hold the jobs of dead workers still. Zero rows: none. One that is being finished right now is skipped.
-- A running job always has a worker; saying so is what makes every plan go by the index of running jobs.
WITH held AS MATERIALIZED (
    SELECT job.id
    FROM telecine.job
    WHERE job.state = 'running' AND job.worker IS NOT NULL
        AND NOT EXISTS (SELECT 1 FROM telecine.worker WHERE worker.id = job.worker AND worker.dead_at IS NULL)
)
SELECT
    id, fence, settled_fence, attempt, max_attempts, lost, max_lost, backoff_base_ms, backoff_factor, backoff_cap_ms,
    limit_key,
    (
        SELECT job_limit.key FROM telecine.job_limit WHERE job_limit.scope = 'tenant' AND job_limit.key = job.tenant
    ) AS capped
FROM telecine.job
WHERE id = ANY(ARRAY(SELECT id FROM held)) AND state = 'running'
    AND NOT EXISTS (SELECT 1 FROM telecine.worker WHERE worker.id = job.worker AND worker.dead_at IS NULL)
ORDER BY id
FOR UPDATE OF job SKIP LOCKED
