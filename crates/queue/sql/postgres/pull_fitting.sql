-- pull_fitting.sql: as pull.sql, for a worker whose scratch space has an end ($5): what is claimed fits into it together.
-- From the first job that does not fit beside those before it, only those are claimed that need none. A statement of its
-- own, so that others do not pay for the sum.
WITH asked AS MATERIALIZED (
    SELECT $2::TEXT[] AS lanes, $3::BIGINT[] AS jobs, $4::TEXT[] AS kinds
), able AS MATERIALIZED (
    SELECT ARRAY(
        SELECT wanted.kind
        FROM asked
        CROSS JOIN UNNEST(asked.kinds) AS wanted (kind)
        WHERE NOT EXISTS (SELECT 1 FROM telecine.pause WHERE pause.scope = 'kind' AND pause.name = wanted.kind)
    ) AS kinds
), ready AS MATERIALIZED (
    SELECT best.id, best.run, best.priority, best.fair_at, best.scratch_bytes
    FROM telecine.worker
    CROSS JOIN asked
    JOIN able ON able.kinds <> '{}'
    JOIN UNNEST(asked.lanes, asked.jobs) AS wanted (lane, jobs)
        ON NOT EXISTS (SELECT 1 FROM telecine.pause WHERE pause.scope = 'lane' AND pause.name = wanted.lane)
    CROSS JOIN LATERAL (
        SELECT job.id, job.run, job.priority, job.fair_at, job.scratch_bytes
        FROM telecine.job
        WHERE job.state = 'pending' AND job.lane = wanted.lane AND job.kind = ANY(able.kinds)
            AND job.scratch_bytes <= $5
        ORDER BY job.priority DESC, job.fair_at, job.id
        LIMIT wanted.jobs
        FOR UPDATE SKIP LOCKED
    ) AS best
    WHERE worker.id = $1 AND worker.dead_at IS NULL
), fitting AS MATERIALIZED (
    SELECT summed.id, summed.run
    FROM (
        SELECT id, run, scratch_bytes, SUM(scratch_bytes) OVER (ORDER BY priority DESC, fair_at, id) AS together_bytes
        FROM ready
    ) AS summed
    WHERE summed.scratch_bytes = 0 OR summed.together_bytes <= $5
), queued AS MATERIALIZED (
    SELECT id
    FROM telecine.run
    WHERE id = ANY(ARRAY(SELECT DISTINCT run FROM fitting WHERE run IS NOT NULL)) AND state = 'queued'
    ORDER BY id
    FOR UPDATE
), started AS (
    UPDATE telecine.run
    SET state = 'running', started_at = now()
    WHERE id = ANY(ARRAY(SELECT id FROM queued)) AND state = 'queued'
)
UPDATE telecine.job
SET state = 'running', fence = fence + 1, attempt = attempt + 1, worker = $1, slot = NULL, claimed_at = now(),
    -- The grace ($6) is the worker's: it stops the attempt itself at the timeout.
    deadline_at = CASE
        WHEN timeout_ms IS NOT NULL THEN now() + (LEAST(timeout_ms, 3155760000000) + $6) * INTERVAL '1 millisecond'
    END,
    progress = NULL
WHERE id = ANY(ARRAY(SELECT id FROM fitting))
RETURNING
    id, tenant, run, step, kind, lane, priority, payload, run_at, generation, attempt, max_attempts, lost, max_lost,
    backoff_base_ms, backoff_factor, backoff_cap_ms, timeout_ms, unique_key, limit_key, fence, checkpoint, error, created_at,
    claimed_at, required, fair_at
