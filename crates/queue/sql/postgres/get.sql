-- get.sql: one job, live or of the history. Zero rows: there is none.
SELECT
    id, tenant, run, step, kind, lane, priority, state, payload::TEXT AS payload, run_at, generation, attempt,
    max_attempts, lost, max_lost, backoff_base_ms, backoff_factor, backoff_cap_ms, timeout_ms, unique_key, limit_key,
    fence, worker, slot, progress, checkpoint::TEXT AS checkpoint, error::TEXT AS error, created_at, claimed_at,
    result::TEXT AS result, finished_at, required, needs_left
FROM telecine.job_any
WHERE id = $1
