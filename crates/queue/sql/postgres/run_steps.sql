-- run_steps.sql: how many jobs of a run are in which state, by step, and how far those are that run, added up. Zero rows:
-- there is no such run, or it has no job left.
SELECT step, state, COUNT(*) AS jobs, COALESCE(SUM(progress), 0) AS progress
FROM (
    SELECT step, state, CASE WHEN state = 'running' THEN progress END AS progress FROM telecine.job WHERE run = $1
    UNION ALL
    SELECT step, state, NULL FROM telecine.job_done WHERE run = $1
) AS of_run
GROUP BY step, state
