-- retry.sql: a job in history starts over as a new generation; claims of the old one are over.
-- ended_forget.sql follows. Zero rows: a live job has the same unique key.
INSERT INTO job (
    id, tenant, run, step, kind, lane, priority, fair_at, state, generation, fence, settled_fence, timeout_ms,
    max_attempts, max_lost, backoff_base_ms, backoff_factor, backoff_cap_ms, limit_key, unique_key, scratch_bytes,
    cost_ms, required, checkpoint, payload, created_at
)
SELECT
    id, tenant, run, step, kind, lane, priority, ?2,
    CASE WHEN ?3 = 'pending' AND limit_key IS NOT NULL THEN 'parked' ELSE ?3 END, generation + 1, fence, fence, timeout_ms,
    max_attempts, max_lost, backoff_base_ms, backoff_factor, backoff_cap_ms, limit_key, unique_key, scratch_bytes,
    cost_ms, required, checkpoint, payload, created_at
FROM job_done
WHERE id = ?1
ON CONFLICT (tenant, kind, unique_key) WHERE unique_key IS NOT NULL DO NOTHING
