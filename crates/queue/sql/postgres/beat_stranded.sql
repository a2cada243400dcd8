-- beat_stranded.sql: give back what a pull claimed for a worker that never got its answer: jobs under its name that it
-- does not hold, claimed longer ago than a lease ($2). Zero rows: none.
WITH stranded AS MATERIALIZED (
    SELECT id, fence, generation, worker, claimed_at
    FROM telecine.job
    WHERE state = 'running' AND worker = $1 AND id <> ALL($3::BIGINT[])
        AND claimed_at < now() - $2 * INTERVAL '1 millisecond'
    ORDER BY id
    FOR UPDATE SKIP LOCKED
), freed AS (
    UPDATE telecine.job
    SET state = CASE WHEN telecine.parks_on(tenant, limit_key) IS NULL THEN 'pending' ELSE 'parked' END,
        parked_on = telecine.parks_on(tenant, limit_key), worker = NULL, slot = NULL, deadline_at = NULL,
        settled_fence = fence, attempt = GREATEST(attempt - 1, 0), progress = NULL, ready_at = now()
    WHERE id = ANY(ARRAY(SELECT id FROM stranded)) AND state = 'running'
    RETURNING id, lane, kind, state
), remembered AS (
    INSERT INTO telecine.attempt (job, fence, generation, worker, started_at, ended_at, outcome)
    SELECT id, fence, generation, worker, claimed_at, now(), 'stranded' FROM stranded
    ON CONFLICT (job, fence) DO NOTHING
), counted AS (
    INSERT INTO telecine.job_count_change (lane, kind, state, jobs)
    SELECT freed.lane, freed.kind, change.state, SUM(change.jobs)
    FROM freed
    CROSS JOIN LATERAL (VALUES ('running', -1), (freed.state, 1)) AS change (state, jobs)
    GROUP BY freed.lane, freed.kind, change.state
)
SELECT id FROM freed
