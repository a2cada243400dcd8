-- finish_done.sql: copy a live job to history under its final state. finish_forget.sql follows.
INSERT INTO job_done (
    id, tenant, run, step, kind, lane, priority, fair_at, state, run_at, generation, fence, settled_fence, worker, slot,
    claimed_at, timeout_ms, attempt, max_attempts, lost, max_lost, backoff_base_ms, backoff_factor, backoff_cap_ms,
    limit_key, unique_key, scratch_bytes, cost_ms, required, progress, checkpoint, error, payload, result, created_at, finished_at
)
SELECT
    id, tenant, run, step, kind, lane, priority, fair_at, ?2, run_at, generation, COALESCE(?3, fence), COALESCE(?4, settled_fence),
    COALESCE(worker, (SELECT worker FROM attempt WHERE attempt.job = job.id AND attempt.fence = job.fence)),
    COALESCE(?5, slot),
    claimed_at, timeout_ms, COALESCE(?6, attempt), max_attempts, MAX(lost + ?7, 0), max_lost, backoff_base_ms, backoff_factor, backoff_cap_ms,
    limit_key, unique_key, scratch_bytes, cost_ms, required, progress, checkpoint, COALESCE(?8, CASE WHEN ?2 = 'completed' THEN NULL ELSE error END), payload, ?9, created_at, ?10
FROM job
WHERE id = ?1
