-- run_steps.sql: how many jobs of a run are in which state, by step, and how far those are that run, added up. Zero rows:
-- there is no such run, or it has no job left.
SELECT step, state, COUNT(*) AS jobs, TOTAL(progress) AS progress
FROM (
    SELECT step, state, CASE WHEN state = 'running' THEN progress END AS progress
    FROM job INDEXED BY job_of_run
    WHERE run = ?1
    UNION ALL
    SELECT step, state, NULL FROM job_done INDEXED BY job_done_of_run WHERE run = ?1
)
GROUP BY step, state
