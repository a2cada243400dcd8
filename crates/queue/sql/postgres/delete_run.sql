-- delete_run.sql: forget a run that has ended and is held, with all that was kept about it. Always one row: how many jobs.
WITH jobs AS (
    DELETE FROM telecine.job_done WHERE run = $1 RETURNING id, lane, kind, state
), attempts AS (
    DELETE FROM telecine.attempt WHERE job = ANY(ARRAY(SELECT id FROM jobs))
), needs AS (
    DELETE FROM telecine.need
    WHERE job = ANY(ARRAY(SELECT id FROM jobs)) OR needs_job = ANY(ARRAY(SELECT id FROM jobs))
), counted AS (
    INSERT INTO telecine.job_count_change (lane, kind, state, jobs)
    SELECT lane, kind, state, -COUNT(*) FROM jobs GROUP BY lane, kind, state
), records AS (
    DELETE FROM telecine.record WHERE run = $1
), events AS (
    DELETE FROM telecine.event WHERE run = $1
), keys AS (
    DELETE FROM telecine.idempotency WHERE run = $1
), gone AS (
    DELETE FROM telecine.run WHERE id = $1
)
SELECT COUNT(*) AS jobs FROM jobs
