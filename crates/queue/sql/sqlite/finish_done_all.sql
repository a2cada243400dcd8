-- finish_done_all.sql: copy jobs to history as completed: those of ?1, an array of [id, fence, slot, result], that still
-- run under that fence. finish_forget_all.sql follows.
INSERT INTO job_done (
    id, tenant, run, step, kind, lane, priority, fair_at, state, run_at, generation, fence, settled_fence, worker, slot,
    claimed_at, timeout_ms, attempt, max_attempts, lost, max_lost, backoff_base_ms, backoff_factor, backoff_cap_ms,
    limit_key, unique_key, scratch_bytes, cost_ms, required, progress, checkpoint, error, payload, result, created_at, finished_at
)
SELECT
    job.id, tenant, run, step, kind, lane, priority, fair_at, 'completed', run_at, generation, fence, fence, worker,
    COALESCE(done.value ->> 2, slot),
    claimed_at, timeout_ms, attempt, max_attempts, lost, max_lost, backoff_base_ms, backoff_factor, backoff_cap_ms,
    limit_key, unique_key, scratch_bytes, cost_ms, required, progress, checkpoint, NULL, payload, done.value -> 3, created_at, ?2
FROM json_each(?1) AS done CROSS JOIN job
WHERE job.id = done.value ->> 0 AND job.fence = done.value ->> 1 AND job.settled_fence < job.fence AND job.state = 'running'
