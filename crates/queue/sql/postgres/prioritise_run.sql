-- prioritise_run.sql: give all jobs of a run a priority, those to come included. Always one row.
WITH moved AS (
    UPDATE telecine.job SET priority = $2 WHERE run = $1 RETURNING id
), noted AS (
    UPDATE telecine.run SET priority = $2 WHERE id = $1
)
SELECT COUNT(*) AS jobs FROM moved
