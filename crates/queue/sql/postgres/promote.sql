-- promote.sql: make a bounded number of scheduled jobs that are due ready, or parked until their limit
-- lets them in. Always one row.
WITH due AS MATERIALIZED (
    SELECT id
    FROM telecine.job
    WHERE state = 'scheduled' AND run_at <= now()
    ORDER BY run_at
    LIMIT 1000
    FOR UPDATE SKIP LOCKED
), ready AS (
    UPDATE telecine.job
    SET state = CASE WHEN telecine.parks_on(tenant, limit_key) IS NULL THEN 'pending' ELSE 'parked' END,
        parked_on = telecine.parks_on(tenant, limit_key), ready_at = now()
    WHERE id = ANY(ARRAY(SELECT id FROM due))
    RETURNING lane, kind, state
), counted AS (
    INSERT INTO telecine.job_count_change (lane, kind, state, jobs)
    SELECT ready.lane, ready.kind, change.state, SUM(change.jobs)
    FROM ready
    CROSS JOIN LATERAL (VALUES ('scheduled', -1), (ready.state, 1)) AS change (state, jobs)
    GROUP BY ready.lane, ready.kind, change.state
)
SELECT COUNT(*) AS jobs, COUNT(*) FILTER (WHERE state = 'pending') AS ready FROM ready
