-- get.sql: one job, live or in history. Zero rows: there is none.
SELECT
    id, tenant, run, step, kind, lane, priority, state, payload, run_at, generation, attempt, max_attempts, lost, max_lost,
    backoff_base_ms, backoff_factor, backoff_cap_ms, timeout_ms, unique_key, limit_key, fence, worker, slot, progress,
    checkpoint, error, created_at, claimed_at, result, finished_at, required, needs_left
FROM job_any
WHERE id = ?1
