-- pull.sql: claim ready jobs, up to each lane's limit; the best of each lane, in no order. No rows: nothing was ready, or
-- the worker was declared dead.
-- The ids go through an array because the planner takes a LIMIT it does not know for a tenth of the table. The lists go
-- through `asked`, where the planner cannot see how short they are: it would take the plan for any list to be dearer, and
-- plan every claim anew, which costs more than to claim a job. What every claim leaves the same is not sent, and a claim
-- notes no change of the counts (counts.sql): each of the two is a twentieth of what a claim costs.
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
    SELECT best.id, best.run
    FROM telecine.worker
    CROSS JOIN asked
    JOIN able ON able.kinds <> '{}'
    JOIN UNNEST(asked.lanes, asked.jobs) AS wanted (lane, jobs)
        ON NOT EXISTS (SELECT 1 FROM telecine.pause WHERE pause.scope = 'lane' AND pause.name = wanted.lane)
    CROSS JOIN LATERAL (
        SELECT job.id, job.run
        FROM telecine.job
        WHERE job.state = 'pending' AND job.lane = wanted.lane AND job.kind = ANY(able.kinds)
            AND job.scratch_bytes <= $5
        ORDER BY job.priority DESC, job.fair_at, job.id
        LIMIT wanted.jobs
        FOR UPDATE SKIP LOCKED
    ) AS best
    WHERE worker.id = $1 AND worker.dead_at IS NULL
), queued AS MATERIALIZED (
    SELECT id
    FROM telecine.run
    WHERE id = ANY(ARRAY(SELECT DISTINCT run FROM ready WHERE run IS NOT NULL)) AND state = 'queued'
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
WHERE id = ANY(ARRAY(SELECT id FROM ready))
RETURNING
    id, tenant, run, step, kind, lane, priority, payload, run_at, generation, attempt, max_attempts, lost, max_lost,
    backoff_base_ms, backoff_factor, backoff_cap_ms, timeout_ms, unique_key, limit_key, fence, checkpoint, error, created_at,
    claimed_at, required, fair_at
