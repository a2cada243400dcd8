-- reap_overdue.sql: hold the jobs that run past their deadline still. Zero rows: none.
SELECT
    id, fence, settled_fence, attempt, max_attempts, lost, max_lost, backoff_base_ms, backoff_factor, backoff_cap_ms
FROM telecine.job
WHERE state = 'running' AND deadline_at < now()
ORDER BY id
FOR UPDATE SKIP LOCKED
