-- delete_ended.sql: forget jobs of the history, by id, with their attempts. A missing row: not there (any more).
WITH gone AS (
    DELETE FROM telecine.job_done WHERE id = ANY($1::BIGINT[]) RETURNING id, run, lane, kind, state
), attempts AS (
    DELETE FROM telecine.attempt WHERE job = ANY(ARRAY(SELECT id FROM gone))
), needs AS (
    DELETE FROM telecine.need
    WHERE job = ANY(ARRAY(SELECT id FROM gone)) OR needs_job = ANY(ARRAY(SELECT id FROM gone))
), counted AS (
    INSERT INTO telecine.job_count_change (lane, kind, state, jobs)
    SELECT lane, kind, state, -COUNT(*) FROM gone GROUP BY lane, kind, state
)
SELECT run FROM gone
