-- reap_held.sql: running jobs whose worker is gone.
SELECT
    id, tenant, run, step, kind, lane, priority, state, payload, run_at, generation, attempt, max_attempts, lost, max_lost,
    backoff_base_ms, backoff_factor, backoff_cap_ms, timeout_ms, unique_key, limit_key, fence, worker, slot, progress,
    checkpoint, error, created_at, claimed_at, NULL AS result, NULL AS finished_at, required, needs_left,
    CASE WHEN tenant <> '' THEN (SELECT key FROM job_limit WHERE scope = 'tenant' AND key = job.tenant) END AS capped
FROM job INDEXED BY job_held
WHERE state = 'running' AND worker NOT IN (SELECT id FROM worker WHERE dead_at IS NULL)
ORDER BY id
