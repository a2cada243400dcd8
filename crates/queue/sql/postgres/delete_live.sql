-- delete_live.sql: forget live jobs by id, with their attempts and needs. A missing row: not there, running, or another
-- job waits for it.
WITH gone AS (
    DELETE FROM telecine.job
    WHERE id = ANY($1::BIGINT[]) AND state <> 'running'
        AND NOT EXISTS (
            SELECT 1
            FROM telecine.need
            JOIN telecine.job AS other ON other.id = need.job
            WHERE need.needs_job = job.id AND other.state = 'waiting'
        )
    RETURNING id, run, lane, kind, state, limit_key, tenant
), attempts AS (
    DELETE FROM telecine.attempt WHERE job = ANY(ARRAY(SELECT id FROM gone))
), needs AS (
    DELETE FROM telecine.need
    WHERE job = ANY(ARRAY(SELECT id FROM gone)) OR needs_job = ANY(ARRAY(SELECT id FROM gone))
), counted AS (
    INSERT INTO telecine.job_count_change (lane, kind, state, jobs)
    SELECT lane, kind, state, -COUNT(*) FROM gone GROUP BY lane, kind, state
)
SELECT
    run, limit_key,
    (
        SELECT job_limit.key FROM telecine.job_limit WHERE job_limit.scope = 'tenant' AND job_limit.key = gone.tenant
    ) AS capped
FROM gone
