-- prune.sql: forget a bounded number of old jobs with their attempts. Only the lowest ids are looked at, so no index on
-- the age is needed. Always one row.
WITH old AS MATERIALIZED (
    SELECT lowest.id
    FROM (SELECT id, finished_at FROM telecine.job_done ORDER BY id LIMIT 10000) AS lowest
    WHERE lowest.finished_at < now() - $1 * INTERVAL '1 millisecond'
    ORDER BY lowest.id
    LIMIT 1000
), gone AS (
    DELETE FROM telecine.job_done WHERE id = ANY(ARRAY(SELECT id FROM old)) RETURNING id, lane, kind, state
), attempts AS (
    DELETE FROM telecine.attempt WHERE job = ANY(ARRAY(SELECT id FROM gone))
), needs AS (
    DELETE FROM telecine.need
    WHERE job = ANY(ARRAY(SELECT id FROM gone)) OR needs_job = ANY(ARRAY(SELECT id FROM gone))
), counted AS (
    INSERT INTO telecine.job_count_change (lane, kind, state, jobs)
    SELECT lane, kind, state, -COUNT(*) FROM gone GROUP BY lane, kind, state
)
SELECT COUNT(*) AS jobs FROM gone
