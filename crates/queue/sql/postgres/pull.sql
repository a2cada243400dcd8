-- pull.sql: claim ready jobs, best first, up to each lane's limit. Always at least one row: a row without id means that
-- nothing was ready, `alive` that the worker may claim at all.
-- The ids go through an array because the planner takes a LIMIT it does not know for a tenth of the table.
WITH worker AS MATERIALIZED (
    SELECT id FROM telecine.worker WHERE id = $1 AND dead_at IS NULL
), able AS MATERIALIZED (
    SELECT ARRAY(
        SELECT kind
        FROM UNNEST($4::TEXT[]) AS wanted (kind)
        WHERE NOT EXISTS (SELECT 1 FROM telecine.pause WHERE pause.scope = 'kind' AND pause.name = wanted.kind)
    ) AS kinds
), ready AS MATERIALIZED (
    SELECT best.id
    FROM worker
    JOIN able ON able.kinds <> '{}'
    JOIN UNNEST($2::TEXT[], $3::BIGINT[]) AS wanted (lane, jobs)
        ON NOT EXISTS (SELECT 1 FROM telecine.pause WHERE pause.scope = 'lane' AND pause.name = wanted.lane)
    CROSS JOIN LATERAL (
        SELECT job.id
        FROM telecine.job
        WHERE job.state = 'pending' AND job.lane = wanted.lane AND job.kind = ANY(able.kinds)
            AND job.scratch_bytes <= $5
        ORDER BY job.priority DESC, job.fair_at, job.id
        LIMIT wanted.jobs
        FOR UPDATE SKIP LOCKED
    ) AS best
), claimed AS (
    UPDATE telecine.job
    SET state = 'running', fence = fence + 1, attempt = attempt + 1, worker = $1, slot = NULL, claimed_at = now(),
        -- The grace ($6) is the worker's: it stops the attempt itself at the timeout.
        deadline_at = now() + (LEAST(timeout_ms, 3155760000000) + $6) * INTERVAL '1 millisecond',
        progress = NULL
    WHERE id = ANY(ARRAY(SELECT id FROM ready))
    RETURNING job.*
), moved AS MATERIALIZED (
    SELECT lane, kind, COUNT(*) AS jobs FROM claimed GROUP BY lane, kind
), counted AS (
    INSERT INTO telecine.job_count_change (lane, kind, state, jobs)
    SELECT moved.lane, moved.kind, change.state, change.sign * moved.jobs
    FROM moved
    CROSS JOIN (VALUES ('pending', -1), ('running', 1)) AS change (state, sign)
), queued AS MATERIALIZED (
    SELECT id
    FROM telecine.run
    WHERE id = ANY(ARRAY(SELECT DISTINCT run FROM claimed WHERE run IS NOT NULL)) AND state = 'queued'
    ORDER BY id
    FOR UPDATE
), started AS (
    UPDATE telecine.run
    SET state = 'running', started_at = now()
    WHERE id = ANY(ARRAY(SELECT id FROM queued)) AND state = 'queued'
)
SELECT
    EXISTS (SELECT 1 FROM worker) AS alive,
    claimed.id, claimed.tenant, claimed.run, claimed.step, claimed.kind, claimed.lane, claimed.priority, claimed.state,
    claimed.payload::TEXT AS payload, claimed.run_at, claimed.generation, claimed.attempt, claimed.max_attempts,
    claimed.lost, claimed.max_lost, claimed.backoff_base_ms, claimed.backoff_factor, claimed.backoff_cap_ms,
    claimed.timeout_ms, claimed.unique_key, claimed.limit_key, claimed.fence, claimed.worker, claimed.slot,
    claimed.progress, claimed.checkpoint::TEXT AS checkpoint, claimed.error::TEXT AS error, claimed.created_at,
    claimed.claimed_at, NULL::TEXT AS result, NULL::TIMESTAMPTZ AS finished_at, claimed.required,
    claimed.needs_left
FROM (VALUES (TRUE)) AS always
LEFT JOIN claimed ON TRUE
ORDER BY claimed.priority DESC, claimed.fair_at, claimed.id
