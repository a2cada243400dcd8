-- promote.sql: make a bounded number of scheduled jobs that are due ready. Always one row.
WITH due AS MATERIALIZED (
    SELECT id
    FROM telecine.job
    WHERE state = 'scheduled' AND run_at <= now()
    ORDER BY run_at
    LIMIT 1000
    FOR UPDATE SKIP LOCKED
), ready AS (
    UPDATE telecine.job SET state = 'pending' WHERE id = ANY(ARRAY(SELECT id FROM due)) RETURNING lane, kind
), counted AS (
    INSERT INTO telecine.job_count_change (lane, kind, state, jobs)
    SELECT ready.lane, ready.kind, change.state, SUM(change.jobs)
    FROM ready
    CROSS JOIN (VALUES ('scheduled', -1), ('pending', 1)) AS change (state, jobs)
    GROUP BY ready.lane, ready.kind, change.state
)
SELECT COUNT(*) AS jobs FROM ready
