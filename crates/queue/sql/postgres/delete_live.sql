-- delete_live.sql: forget live jobs that are not running, by id, with their attempts. A missing row: not there, or
-- running.
WITH gone AS (
    DELETE FROM telecine.job WHERE id = ANY($1::BIGINT[]) AND state <> 'running' RETURNING id, run, lane, kind, state, limit_key
), attempts AS (
    DELETE FROM telecine.attempt WHERE job = ANY(ARRAY(SELECT id FROM gone))
), counted AS (
    INSERT INTO telecine.job_count_change (lane, kind, state, jobs)
    SELECT lane, kind, state, -COUNT(*) FROM gone GROUP BY lane, kind, state
)
SELECT run, limit_key FROM gone
