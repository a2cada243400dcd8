-- get.sql: one job, live or of the history. Zero rows: there is none.
SELECT
    id, tenant, run, step, kind, lane, priority, payload, run_at, generation, attempt, max_attempts, lost, max_lost,
    backoff_base_ms, backoff_factor, backoff_cap_ms, timeout_ms, unique_key, limit_key, fence, checkpoint, error, created_at,
    claimed_at, required, state, worker, slot, progress, result, finished_at, needs_left
FROM telecine.job_any
WHERE id = $1
