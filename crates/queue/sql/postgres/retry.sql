-- retry.sql: start a job of the history over as a new generation, remembering the attempt that had settled it. Zero
-- rows: a live job has the same unique key, and nothing was changed. Claims of the old generation are over.
-- The caller holds the row's lock.
WITH back AS (
    INSERT INTO telecine.job (
        id, tenant, run, step, kind, lane, priority, fair_at, state, generation, fence, settled_fence, timeout_ms,
        max_attempts, max_lost, backoff_base_ms, backoff_factor, backoff_cap_ms, limit_key, unique_key, scratch_bytes,
        cost_ms, required, checkpoint, payload, created_at, parked_on, ready_at
    )
    OVERRIDING SYSTEM VALUE
    SELECT
        id, tenant, run, step, kind, lane,
        COALESCE((SELECT run.priority FROM telecine.run WHERE run.id = job_done.run), priority),
        -- Behind the tenant's backlog, as in push.sql. The nameless tenant has none.
        GREATEST(
            (EXTRACT(EPOCH FROM now()) * 1000000)::BIGINT,
            (
                SELECT (
                    MAX(ahead.fair_at) + COALESCE(NULLIF(job_done.cost_ms, 0), 1000) * 1000
                    / COALESCE((SELECT weight FROM telecine.tenant WHERE tenant.name = job_done.tenant), 1)
                )::BIGINT
                FROM telecine.job AS ahead
                WHERE ahead.tenant = job_done.tenant AND ahead.tenant <> '' AND ahead.state IN ('pending', 'parked')
            )
        ),
        CASE WHEN $2 = 'pending' AND telecine.parks_on(tenant, limit_key) IS NOT NULL THEN 'parked' ELSE $2 END, generation + 1, fence, fence,
        timeout_ms, max_attempts, max_lost, backoff_base_ms, backoff_factor, backoff_cap_ms, limit_key, unique_key,
        scratch_bytes, cost_ms, required, checkpoint, payload, created_at, telecine.parks_on(tenant, limit_key), now()
    FROM telecine.job_done
    WHERE id = $1
    ON CONFLICT (tenant, kind, unique_key) WHERE unique_key IS NOT NULL DO NOTHING
    RETURNING id, lane, kind, state, limit_key, CASE WHEN parked_on = 'tenant' THEN tenant END AS capped
), gone AS (
    DELETE FROM telecine.job_done USING back WHERE job_done.id = $1 AND job_done.id = back.id RETURNING job_done.*
), remembered AS (
    INSERT INTO telecine.attempt (job, fence, generation, worker, slot, started_at, ended_at, outcome, error)
    SELECT id, fence, generation, worker, slot, claimed_at, finished_at, state, error
    FROM gone
    WHERE state IN ('completed', 'failed') AND claimed_at IS NOT NULL
    ON CONFLICT (job, fence) DO NOTHING
), counted AS (
    INSERT INTO telecine.job_count_change (lane, kind, state, jobs)
    SELECT lane, kind, state, -1 FROM gone
    UNION ALL
    SELECT lane, kind, state, 1 FROM back
)
SELECT limit_key, capped FROM back
