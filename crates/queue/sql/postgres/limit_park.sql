-- limit_park.sql: park the pending jobs of keys that would be claimed last, as many of each as $2 says. Always one row. A job
-- that is being claimed is left out.
WITH last AS MATERIALIZED (
    SELECT worst.id
    FROM UNNEST($1::TEXT[], $2::BIGINT[]) AS excess (key, jobs)
    CROSS JOIN LATERAL (
        SELECT job.id
        FROM telecine.job
        WHERE job.state IN ('pending', 'running') AND job.state = 'pending' AND job.limit_key = excess.key
            AND job.limit_key IS NOT NULL
        ORDER BY job.priority, job.fair_at DESC, job.id DESC
        LIMIT excess.jobs
        FOR UPDATE SKIP LOCKED
    ) AS worst
), parked AS (
    UPDATE telecine.job
    SET state = 'parked', parked_on = 'key'
    WHERE id = ANY(ARRAY(SELECT id FROM last))
    RETURNING lane, kind
), counted AS (
    INSERT INTO telecine.job_count_change (lane, kind, state, jobs)
    SELECT parked.lane, parked.kind, change.state, SUM(change.jobs)
    FROM parked
    CROSS JOIN (VALUES ('pending', -1), ('parked', 1)) AS change (state, jobs)
    GROUP BY parked.lane, parked.kind, change.state
)
SELECT COUNT(*) AS jobs FROM parked
