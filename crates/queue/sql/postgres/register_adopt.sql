-- register_adopt.sql: claims that a worker still holds, though it was taken for dead, go on under its new id. A missing
-- row: the job was claimed again, settled or deleted since.
WITH held AS MATERIALIZED (
    SELECT job.id, job.state, lost.slot
    FROM telecine.job
    JOIN UNNEST($2::BIGINT[], $3::BIGINT[]) AS input (id, fence) ON input.id = job.id AND input.fence = job.fence
    LEFT JOIN telecine.attempt AS lost ON lost.job = ANY($2) AND lost.job = job.id AND lost.fence = job.fence
    WHERE job.id = ANY($2) AND job.settled_fence < job.fence
        AND (
            job.state IN ('pending', 'scheduled', 'parked')
            -- Its worker is buried, but the sweep has not come to it yet.
            OR job.state = 'running' AND EXISTS (
                SELECT 1 FROM telecine.worker WHERE worker.id = job.worker AND worker.dead_at IS NOT NULL
            )
        )
    ORDER BY job.id
    FOR UPDATE OF job
), adopted AS (
    UPDATE telecine.job
    SET state = 'running', worker = $1, slot = COALESCE(held.slot, job.slot),
        attempt = job.attempt + CASE WHEN held.state = 'running' THEN 0 ELSE 1 END,
        lost = GREATEST(job.lost - CASE WHEN held.state = 'running' THEN 0 ELSE 1 END, 0),
        deadline_at = job.claimed_at + (LEAST(job.timeout_ms, 3155760000000) + $4) * INTERVAL '1 millisecond'
    FROM held
    WHERE job.id = ANY(ARRAY(SELECT id FROM held)) AND job.id = held.id
    RETURNING job.id, job.fence, job.lane, job.kind
), found AS (
    DELETE FROM telecine.attempt
    USING adopted
    WHERE attempt.job = ANY($2) AND attempt.job = adopted.id AND attempt.fence = adopted.fence
        AND attempt.outcome = 'lost'
)
INSERT INTO telecine.job_count_change (lane, kind, state, jobs)
SELECT adopted.lane, adopted.kind, change.state, SUM(change.jobs)
FROM adopted
JOIN held ON held.id = adopted.id
CROSS JOIN LATERAL (VALUES (held.state, -1), ('running', 1)) AS change (state, jobs)
GROUP BY adopted.lane, adopted.kind, change.state
