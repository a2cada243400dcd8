-- limit_admit.sql: let the next parked jobs of keys in, in the order of the claim, as many of each as $2 says. One row for
-- each key of which any was let in. A job that somebody else holds is left out: whoever it is balances the key too.
WITH next AS MATERIALIZED (
    SELECT best.id
    FROM UNNEST($1::TEXT[], $2::BIGINT[]) AS room (key, jobs)
    CROSS JOIN LATERAL (
        SELECT job.id
        FROM telecine.job
        WHERE job.state = 'parked' AND job.limit_key = room.key
        ORDER BY job.priority DESC, job.fair_at, job.id
        LIMIT room.jobs
        FOR UPDATE SKIP LOCKED
    ) AS best
), ready AS (
    UPDATE telecine.job
    SET state = 'pending'
    WHERE id = ANY(ARRAY(SELECT id FROM next))
    RETURNING lane, kind, limit_key
), counted AS (
    INSERT INTO telecine.job_count_change (lane, kind, state, jobs)
    SELECT ready.lane, ready.kind, change.state, SUM(change.jobs)
    FROM ready
    CROSS JOIN (VALUES ('parked', -1), ('pending', 1)) AS change (state, jobs)
    GROUP BY ready.lane, ready.kind, change.state
)
SELECT limit_key AS key, COUNT(*) AS jobs FROM ready GROUP BY limit_key
