-- retry.sql: a job in history starts over as a new generation; claims of the old one are over.
-- ended_forget.sql follows. Zero rows: a live job has the same unique key.
INSERT INTO job (
    id, tenant, run, step, kind, lane, priority, fair_at, state, generation, fence, settled_fence, timeout_ms,
    max_attempts, max_lost, backoff_base_ms, backoff_factor, backoff_cap_ms, limit_key, unique_key, scratch_bytes,
    cost_ms, required, checkpoint, payload, created_at, parked_on, ready_at
)
SELECT
    id, tenant, run, step, kind, lane, COALESCE((SELECT run.priority FROM run WHERE run.id = job_done.run), priority),
    -- Behind the tenant's backlog, as in push. The nameless tenant has none.
    MAX(?2, COALESCE((
        SELECT MAX(ahead.fair_at) + CAST(
            COALESCE(NULLIF(job_done.cost_ms, 0), 1000) * 1000
            / COALESCE((SELECT weight FROM tenant WHERE name = job_done.tenant), 1.0) AS INTEGER
        )
        FROM job AS ahead INDEXED BY job_backlog
        WHERE ahead.state IN ('pending', 'parked') AND ahead.tenant <> '' AND ahead.tenant = job_done.tenant
    ), 0)),
    ?3, generation + 1, fence, fence, timeout_ms,
    max_attempts, max_lost, backoff_base_ms, backoff_factor, backoff_cap_ms, limit_key, unique_key, scratch_bytes,
    cost_ms, required, checkpoint, payload, created_at, ?4, ?5
FROM job_done
WHERE id = ?1
ON CONFLICT (tenant, kind, unique_key) WHERE unique_key IS NOT NULL DO NOTHING
