-- reap_held.sql: hold the jobs of dead workers still. Zero rows: none. One that is being finished right now is skipped.
SELECT
    job.id, job.fence, job.settled_fence, job.attempt, job.max_attempts, job.lost, job.max_lost, job.backoff_base_ms,
    job.backoff_factor, job.backoff_cap_ms
FROM telecine.job
WHERE job.state = 'running'
    AND NOT EXISTS (SELECT 1 FROM telecine.worker WHERE worker.id = job.worker AND worker.dead_at IS NULL)
ORDER BY job.id
FOR UPDATE OF job SKIP LOCKED
